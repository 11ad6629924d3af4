"""Events in models: what is refused, in one sentence; files; systems as they hold together after events."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpimbs.base.errors import InputError
from mpimbs.model import Joint, System, facts, read_system, system_from, system_text, write_system
from mpimbs.model.connections import Connections, connected
from mpimbs.model.order.order import Order
from mpimbs.model.summary import summarise, validate


def gripping() -> System:
    """A rope with loops that hold, and that don't."""
    system = system_from("rope:6")
    ends: dict[str, Any] = {"bodies": ("world", "link6"), "positions": ((0, -0.6, 0), (0, 0, 0))}
    system.add_loop(name="tie", type="spherical", **ends)
    system.add_loop(name="grip", type="spherical", active=False, **ends)
    return system


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cut": "link2"}, "has neither time nor when"),
    ({"time": 1, "when": "a:b", "cut": "link2"}, "has both time and when"),
    ({"time": 0, "cut": "link2"}, "time must be later than 0, got 0"),
    ({"time": "soon", "cut": "link2"}, "time must be a finite number"),
    ({"when": "gap", "cut": "link2"}, "when must be module:function"),
    ({"time": 1}, "changes nothing; name what"),
    ({"time": 1, "cut": "link7"}, "cuts 'link7', which is neither a body nor a loop; did you mean 'link6'"),
    ({"time": 1, "cut": "tye"}, "cuts 'tye', .* did you mean 'tie'"),
    ({"time": 1, "connect": "gripp"}, "connects 'gripp', which is no loop, .*; did you mean 'grip'"),
    ({"time": 1, "connect": "link2"}, "connects 'link2', which is a body"),
    ({"time": 1, "cut": ["link2", "link2"]}, "cut names 'link2' twice"),
    ({"time": 1, "cut": 3}, "cut must be a list of names, got 3"),
    ({"time": 1, "cut": "tie", "connect": "tie"}, "cuts and connects 'tie'"),
    ({"time": 1, "cut": "link2", "gap": "close"}, "has gap = .close., and connects nothing"),
    ({"time": 1, "connect": "grip", "gap": "jump"}, "gap should be 'refuse', 'close' or 'keep', got 'jump'"),
    ({"time": 1, "cut": "link2", "bodies": "link3"}, "has bodies, whose motions only `when` is told"),
    ({"when": "a:b", "cut": "link2", "bodies": "lynk3"}, "unknown body 'lynk3'; did you mean 'link3'"),
    ({"time": 1, "cuts": "link2"}, "unknown key 'cuts'; did you mean 'cut'"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=[message for _, message in WRONG])
def test_events_that_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^event: {message}"):
        gripping().add_event(**fields)


def test_what_is_free_can_not_be_cut() -> None:
    with pytest.raises(InputError, match="cuts the joint of body 'root', which is free"):
        system_from("free_chain:3").add_event(time=1, cut="root")


def test_a_name_of_two() -> None:
    system = gripping()
    system.add_loop(name="link2", type="fixed", bodies=("link1", "link3"), positions=((0, 0, 0), (0, 0, 0)))
    with pytest.raises(InputError, match="cuts 'link2', which names a body and a loop; rename one"):
        system.add_event(time=1, cut="link2")


ORDERS: list[tuple[list[dict[str, Any]], str]] = [
    ([{"time": 2, "cut": "link2"}, {"time": 1, "cut": "link2"}], "t = 2 s.: cuts 'link2', which is cut already after"),
    ([{"time": 1, "cut": "grip"}], "cuts loop 'grip', which does not hold"),
    ([{"time": 1, "connect": "tie"}], "connects loop 'tie', which holds already"),
    ([{"time": 1, "cut": "tie"}, {"time": 2, "cut": "tie"}], "cuts loop 'tie', which does not hold after the event"),
]


@pytest.mark.parametrize(("events", "message"), ORDERS, ids=[message for _, message in ORDERS])
def test_events_that_can_not_follow_one_another(events: list[dict[str, Any]], message: str) -> None:
    system = gripping()
    for event in events:
        system.add_event(**event)
    with pytest.raises(InputError, match=message):
        validate(system.contents)


def test_files_keep_events(tmp_path: Path) -> None:
    system = gripping()
    system.add_event(time=1.5, cut=["link2", "tie"], connect="grip", gap="close")
    system.add_event(when="hand:gap", bodies=["link1", "link6"], cut=("link4",))
    write_system(system, tmp_path / "model.toml")
    again = read_system(tmp_path / "model.toml")
    assert (
        again.contents.events == system.contents.events
        and again.contents.loops.idle == system.contents.loops.idle
        and again.contents.loops == system.contents.loops
    )
    assert system_text(again) == system_text(system)
    assert facts(again.contents) == facts(read_system(tmp_path / "model.toml").contents)
    again.add_event(time=3, cut="link5")
    assert facts(again.contents) != facts(read_system(tmp_path / "model.toml").contents)


def test_an_error_in_a_file_names_the_table(tmp_path: Path) -> None:
    text = system_text(gripping()) + '\n[[event]]\ntime = 1\ncut = "link2"\n\n[[event]]\ntime = 2\ncut = "link9"\n'
    (tmp_path / "model.toml").write_text(text)
    with pytest.raises(InputError, match=r"model.toml:\d+: \[\[event\]\] 2: cuts 'link9'"):
        read_system(tmp_path / "model.toml")


@pytest.mark.parametrize("name", ["rope:9", "crowd:2", "random_tree:9:1", "caterpillar:4", "figure48", "four_bar:3"])
def test_bodies_that_are_cut_are_free(name: str) -> None:
    system = system_from(name)
    whole = [body for k, body in enumerate(system.contents.bodies()) if body.joint.type != "free"]
    cut = sorted(map(system.contents.index_of, [whole[k].name for k in (1, len(whole) // 2, len(whole) - 1)]))
    now = Connections(tuple(cut), ())
    found = connected(system.contents, now)
    assert found.n_bodies == system.n_bodies and not found.loops and not found.events
    parents = system.contents.parents().copy()
    parents[cut] = -1
    assert np.array_equal(found.parents(), parents)
    for k, (ours, theirs) in enumerate(zip(found.bodies(), system.contents.bodies(), strict=True)):
        if k in cut:
            assert ours.joint == Joint(type="free") and ours.parent == "world"
            theirs = theirs.model_copy(update={"joint": ours.joint, "parent": ours.parent})
        assert ours == theirs
    assert found.index_of(system.contents.name_of(cut[1])) == cut[1]
    assert found.columns().q_offset[-1] == found.nq and Order.of(found).n == system.n_bodies
    assert summarise(found).depth <= system.summary().depth


def test_what_acts_on_a_joint_that_is_cut_is_gone() -> None:
    system = system_from("chain:4")
    system.set_torque("link2", 3.0)
    system.set_torque("link3", lambda t: t)
    system.add_joint_force(["link2", "link3"], lambda t, q, u: 0.0)
    system.add_joint_force(["link2"], lambda t, q, u: 0.0)
    system.add_body_force(None, lambda t, motion: (0.0, 0.0))
    found = connected(system.contents, Connections((1,), ()))
    assert list(found.loads.torques) == [2] and len(found.loads.body_forces) == 1
    assert [list(force.bodies) for force in found.loads.joint_forces] == [[2]]
    assert len(system.contents.loads.joint_forces) == 2 and list(system.contents.loads.torques) == [1, 2]
