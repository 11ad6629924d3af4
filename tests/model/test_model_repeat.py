"""Groups of bodies that are repeated as trees: names, parents, places, and that no object is made for each copy."""

import re
import time

import numpy as np
import pytest

from documents import PAGES, blocks
from mpimbs.base.errors import InputError
from mpimbs.model import Body, Joint, System
from mpimbs.model.facts import facts
from mpimbs.model.text.files import system_from_text
from mpimbs.model.text.writing import system_text


def body(name: str, kind: str = "revolute", **fields: object) -> Body:
    given = {"mass": 1, "inertia": (1, 1, 1, 0, 0, 0), "joint": Joint(type=kind, position=(0, 1, 0))} | fields
    return Body(name=name, **given)


def hand() -> tuple[Body, ...]:
    """A palm with two fingers of which the first has two links."""
    return body("palm", "spherical"), body("finger"), body("end"), body("thumb", "universal", parent="palm")


def holders() -> System:
    """A base, and a chain of four rods on it."""
    system = System("holders")
    system.add(body("base", "free"))
    system.repeat(4, body("rod", "fixed"))
    return system


def depths(system: System) -> list[int]:
    found: list[int] = []
    for above in system.contents.parents().tolist():
        found.append(1 + (found[above] if above >= 0 else 0))
    return found


def assert_whole(system: System) -> None:
    """Ranges, single bodies and depths say the same as the whole; so does the file."""
    n, parents = system.n_bodies, system.contents.parents()
    assert [system.contents.segments.parent(k) for k in range(n)] == parents.tolist()
    assert [system.contents.segments.depth(k) for k in range(n)] == depths(system)
    assert system.summary().depth == max(depths(system))
    assert [system.contents.index_of(system.contents.name_of(k)) for k in range(n)] == list(range(n))
    columns = system.contents.columns()
    np.testing.assert_array_equal(columns.position, [one.joint.position for one in system.contents.bodies()])
    for lo in range(n):
        for hi in range(lo, n + 1):
            np.testing.assert_array_equal(system.contents.columns(lo, hi).parent, parents[lo:hi])
            np.testing.assert_array_equal(system.contents.columns(lo, hi).position, columns.position[lo:hi])
            np.testing.assert_array_equal(system.contents.columns(lo, hi).mass, columns.mass[lo:hi])
    again = system_from_text(system_text(system), "text")
    assert list(again.contents.bodies()) == list(system.contents.bodies())
    assert [type(segment) for segment in again.contents.segments] == [
        type(segment) for segment in system.contents.segments
    ]
    assert facts(system_from_text(system_text(again), "text").contents) == facts(again.contents)


def parents_by_name(system: System) -> dict[str, str]:
    return {one.name: str(one.parent) for one in system.contents.bodies()}


@pytest.mark.parametrize(
    ("parents", "on"),
    [
        (None, ["rod4", "thumb1", "thumb2", "thumb3"]),
        ("base", ["base"] * 4),
        ("world", ["world"] * 4),
        ("rod3", ["rod3"] * 4),
        ("rod", ["rod1", "rod2", "rod3", "rod4"]),
        (["rod4", "world"], ["rod4", "rod4", "world", "world"]),
    ],
)
def test_copies_lie_where_told(parents: str | list[str] | None, on: list[str]) -> None:
    system = holders()
    system.repeat(4, *hand(), parents=parents, shifts=np.arange(12).reshape(4, 3))
    above = parents_by_name(system)
    assert [above[f"palm{k}"] for k in range(1, 5)] == on
    for k in range(1, 5):
        assert (above[f"finger{k}"], above[f"end{k}"], above[f"thumb{k}"]) == (f"palm{k}", f"finger{k}", f"palm{k}")
        assert system.contents.body(system.contents.index_of(f"palm{k}")).joint.position == (
            3 * k - 3,
            3 * k - 1,
            3 * k - 1,
        )
        assert system.contents.body(system.contents.index_of(f"thumb{k}")).joint.position == (0, 1, 0)
    assert_whole(system)


def test_repeats_on_repeats() -> None:
    """Rows on a base, posts on every row, hairs on every post: the names go on counting."""
    system = holders()
    system.repeat(2, body("row", "prismatic"), parents="base")
    system.repeat(6, body("post"), parents="row")
    system.repeat(6, body("hair"), body("tip"), parents="post")
    system.repeat(2, body("hair"), parents=["post1", "post6"])
    above = parents_by_name(system)
    assert [above[f"post{k}"] for k in range(1, 7)] == ["row1"] * 3 + ["row2"] * 3
    assert [above[f"hair{k}"] for k in range(1, 9)] == [*(f"post{k}" for k in range(1, 7)), "post1", "post6"]
    assert above["tip4"] == "hair4"
    assert_whole(system)


def test_the_brush() -> None:
    """The example of the documentation: twenty lines or so, and set up in arrays."""
    text = blocks((PAGES / "howto/repeats.md").read_text(encoding="utf-8"))[0]
    assert len([line for line in text.splitlines() if line.strip()]) <= 24
    begin = time.process_time()
    system = system_from_text(text, "brush")
    columns = system.contents.columns()
    assert time.process_time() - begin < 5.0  # an object for each would take twenty
    assert (system.n_bodies, system.nu) == (200001, 400006)
    small = text.replace("100000", "6").replace("500", "3").replace("200", "2")
    np.testing.assert_allclose(
        system_from_text(small, "brush").contents.columns().position[9::2], [[4e-4, 0, 0], [4e-4, 0, 2e-4]]
    )
    np.testing.assert_array_equal(system.contents.parents()[1:], np.where(np.arange(200000) % 2, np.arange(200000), 0))
    places = columns.position[1::2]
    assert len(np.unique(places, axis=0)) == 100000
    np.testing.assert_allclose(places[[1, 200]], [[0, 0, 2e-4], [2e-4, 0, 0]])
    assert len(system_text(system)) < 2e7


LINK = 'mass = 1\ninertia = [1, 1, 1, 0, 0, 0]\njoint = { type = "revolute" }\n'
GROUP = f'[[repeat]]\ncount = 4\n[[repeat.body]]\nname = "a"\n{LINK}[[repeat.body]]\nname = "b"\n{LINK}'
BASE = f'[[body]]\nname = "base"\n{LINK}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GROUP.replace('"b"', '"b"\nparent = "c"'), "[[repeat]] 1 'b': parent 'c' is none of this repeat; name a body"),
        (GROUP.replace('"a"', '"a"\nparent = "b"'), "[[repeat]] 1 'a': parent 'b' is neither 'world' nor a body of"),
        (GROUP.replace('"b"', '"b"\nparent = "b"'), "[[repeat]] 1 'b': is its own parent; name a body before it"),
        (
            GROUP.replace("count = 4", 'count = 4\nparents = "bas"'),
            "'a': parent 'bas' is neither .* did you mean 'base'",
        ),
        (GROUP.replace("count = 4", "count = 4\nparents = 3"), "parents must be a name or a list of names, got 3"),
        (
            GROUP.replace("count = 4", "count = 4\nparents = []"),
            "parents must be a name or a list of names, got \\[\\]",
        ),
        (
            GROUP.replace("count = 4", 'count = 4\nparents = ["base", "world", "base"]'),
            "[[repeat]] 1: count must be a multiple of the number of parents, 3, got 4",
        ),
        (
            GROUP.replace("count = 4", 'count = 4\nparents = "base"').replace('"a"', '"a"\nparent = "base"'),
            "[[repeat]] 1 'a': has a parent, and the repeat has parents; give one of the two",
        ),
        (GROUP.replace("count = 4", "count = 4\nshifts = [[0, 0, 1]]"), "[[repeat]] 1: shifts must be 4 vectors of 3"),
        (
            GROUP.replace("count = 4", "count = 4\ngrid = [{count = 3, step = [0, 0, 1]}]"),
            "grid has 3 places for 4 copies",
        ),
        (GROUP.replace("count = 4", "count = 4\ngrid = [{count = 4}]"), "step is missing; give how far it is"),
    ],
)
def test_a_repeat_refuses(text: str, message: str) -> None:
    pattern = re.escape(message).replace(r"\.\*", ".*").replace(r"\\\[\\\]", r"\[\]")
    with pytest.raises(InputError, match=pattern) as error:
        system_from_text(BASE + text, "file.toml")
    assert re.match(r"file\.toml:\d+: \[\[repeat\]\] 1", str(error.value))
    assert "\n" not in str(error.value)
