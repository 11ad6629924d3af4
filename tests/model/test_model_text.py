"""Model files beyond data: bodies in any order, parameters, units, includes; and the lines of messages."""

import math
import re
import time
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from jsonschema import Draft202012Validator
from mpi4py import MPI

from documents import PAGES, block
from mpi_helpers import ROOT, measured
from mpimbs.base.errors import InputError
from mpimbs.model import read_system, system_from, system_from_text, system_text
from mpimbs.model.text.files import TABLES, Model
from mpimbs.model.text.schema import schema_of_models
from mpimbs.model.text.toml import Source
from mpimbs.model.text.values import BaseUnits, Parameters

FUNCTIONS = {"when", "force"}  # of events and springs, which have no numbers in a file
INERTIA = "mass = 1\ninertia = [1, 1, 1, 0, 0, 0]\njoint = {type = 'revolute'}\n"


def body(name: str, parent: str | None = None, kind: str = "body", more: str = "") -> str:
    on = "" if parent is None else f"parent = '{parent}'\n"
    return f"[[{kind}]]\nname = '{name}'\n{on}{more}{INERTIA}"


def repeat(name: str, count: int, parent: str | None = None, more: str = "") -> str:
    return body(name, parent, "repeat", f"count = {count}\n{more}")


ROD = "[[rod]]\nname = 'line'\nparent = 'link3'\ncount = 2\nlength = 1\nmass_per_length = 1\nEI = 1\n"


@pytest.mark.parametrize(
    ("text", "names", "parents"),
    [
        (body("c", "b") + body("b", "a") + body("a", "world"), "a b c", [-1, 0, 1]),
        (body("a", "d") + body("b") + body("c") + body("d", "world"), "d a b c", [-1, 0, 1, 2]),
        # what names no parent lies on the last one, as the text stands
        (body("a") + body("b", "d") + body("c") + body("d", "a"), "a d b c", [-1, 0, 1, 2]),
        (body("a") + body("b", "e") + body("c", "a") + body("d") + body("e", "a"), "a e b c d", [-1, 0, 1, 0, 3]),
        (body("hand", "link2") + repeat("link", 3, "world"), "link1 link2 link3 hand", [-1, 0, 1, 1]),
        (repeat("link", 2, "arm1") + repeat("arm", 1, "world"), "arm1 link1 link2", [-1, 0, 1]),
        # numbers count on in the order of the text
        (repeat("link", 1, "a") + repeat("link", 1, "world") + body("a", "link2"), None, None),
        (repeat("foot", 2, more="parents = 'leg'\n") + repeat("leg", 2, more="parents = 'world'\n"),
         "leg1 leg2 foot1 foot2", [-1, -1, 0, 1]),
        (body("tip", "line2") + ROD + repeat("link", 3, "world"),
         "link1 link2 link3 line1 line2 tip", [-1, 0, 1, 2, 3, 4]),
    ],
)  # fmt: skip
def test_bodies_come_in_any_order(text: str, names: str | None, parents: list[int] | None) -> None:
    if names is None:
        with pytest.raises(InputError, match="lies on itself"):
            system_from_text(text, "model.toml")
        return
    system = system_from_text(text, "model.toml")
    assert [system.contents.name_of(k) for k in range(system.n_bodies)] == names.split()
    assert system.contents.parents().tolist() == parents


PENDULUM = """
gravity = ["-g * sin(0.1)", "-g * cos(0.1)", 0]
[parameters]
mass = "density * length"
density = 2
length = 0.5
g = 9.81
links = "4 / 2"
[[repeat]]
count = "links"
name = "link"
mass = "mass"
center_of_mass = [0, "-length / 2", 0]
inertia = ["mass * length**2 / 12", 1e-3, "mass * length**2 / 12", 0, 0, 0]
[repeat.joint]
type = "universal"
position = [0, "-length", 0]
q = ["pi / 4", "-pi / 4"]
"""


def test_parameters_and_expressions(tmp_path: Path) -> None:
    path = tmp_path / "pendulum.toml"
    path.write_text(PENDULUM)
    system = read_system(path)
    assert system.n_bodies == 2 and system.gravity == (-9.81 * math.sin(0.1), -9.81 * math.cos(0.1), 0)
    link = system.contents.body(1)
    assert (link.mass, link.center_of_mass, link.joint.position) == (1.0, (0, -0.25, 0), (0, -0.5, 0))
    assert link.inertia[0] == 0.25 / 12 and link.joint.q == (math.pi / 4, -math.pi / 4)
    longer = read_system(path, {"length": 2, "links": 3})
    assert longer.n_bodies == 3 and longer.contents.body(0).mass == 4 and longer.contents.body(0).inertia[0] == 16 / 12
    assert system_text(system_from(f"{path}:length=2:links=3")) == system_text(longer)
    with pytest.raises(InputError, match=r"pendulum.toml: has no parameter 'lenght'; did you mean 'length'\?"):
        system_from(f"{path}:lenght=2")
    with pytest.raises(InputError, match=r"bad parameters; write FILE.toml:NAME=NUMBER"):
        system_from(f"{path}:length")
    with pytest.raises(InputError, match=r"pendulum.toml:6: parameter 'length': must be a finite number, got nan"):
        system_from(f"{path}:length=nan")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("lenght * 2", "unknown parameter 'lenght' in 'lenght * 2'; did you mean 'length'?"),
        ("sine(1)", "unknown function 'sine' in 'sine(1)'; did you mean 'sin'"),
        ("2 length", "'2 length' is neither a number nor an expression"),
        ("", "'' is neither a number nor an expression"),
        ("a = 1", "'a = 1' is neither"),
        ("1; 2", "'1; 2' is neither"),
        ("__import__('os')", "unknown function '__import__'"),
        ("(1).__class__", "can't be evaluated"),
        ("length.real", "can't be evaluated"),
        ("[1]", "can't be evaluated"),
        ("lambda: 1", "can't be evaluated"),
        ("length > 1", "can't be evaluated"),
        ("sqrt(-1)", "can't be evaluated: math domain error"),
        ("1 / 0", "can't be evaluated: division by zero"),
        ("9**9**9**9", "can't be evaluated: math range error"),
        ("'1'", "is no number"),
        ("sin", "is no number"),
        ("1" + "+1" * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_expression(expression: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Parameters({"length": 1.0}).evaluate(expression)


def test_parameters_that_are_refused() -> None:
    for text, message in (
        ("a = 'b'\nb = '2 * c'\nc = 'a'", ":2: parameter 'a': is made of itself: 'a' of 'b' of 'c' of 'a'; give"),
        ("a = '2 * b'\nc = 1\nb = '1 +'", ":4: parameter 'b': '1 +' is neither a number nor an expression"),
        ("a = 1\nb = [1]", ":3: parameter 'b': must be a finite number, got [1]"),
        ("pi = 3", ":2: parameter 'pi': give it a name, such as length, that nothing else has"),
        ("'a b' = 3", ":2: parameter 'a b': give it a name"),
    ):
        with pytest.raises(InputError, match=re.escape(f"model.toml{message}")):
            system_from_text(f"[parameters]\n{text}\n{body('a')}", "model.toml")


IN_OTHER_UNITS = """
gravity = [0, 0, 1]
[units]
length = "mm"
angle = "deg"
mass = "g"
time = "ms"
force = "kN"
"""
MEASURED = """[[body]]
name = "a"
mass = 3
center_of_mass = [1, 2, 3]
inertia = [1, 2, 2.5, 0.1, 0, 0]
joint = {type = "free", q = [1, 0, 0, 0, 1, 2, 3], u = [1, 1, 1, 1, 1, 1], stiffness = [1, 1, 1, 2, 2, 2]}
wrench = {force = [0, 1, 0], moment = [1, 0, 0], point = [1, 1, 1]}
geometry = [{kind = "sphere", size = 4}, {kind = "mesh", size = [2, 2, 2], file = "a.stl", color = [1, 1, 1, 1]}]
[[body]]
name = "b"
mass = 1
inertia = [1, 1, 1, 0, 0, 0]
[body.joint]
type = "cylindrical"
axis = [1, 0, 0]
q = ["2 * 45", 2]
damping = [1, 1]
armature = [1, 1]
torque = [1, 1]
[[body]]
name = "c"
mass = 1
inertia = [1, 1, 1, 0, 0, 0]
joint = {type = "revolute", motion = [[0, 0], [1, 90], [2, 180]]}
[[body]]
name = "d"
mass = 1
inertia = [1, 1, 1, 0, 0, 0]
joint = {type = "helical", pitch = 1, stiffness = 1}
[[spring]]
name = "s"
bodies = ["a", "b"]
positions = [[1, 0, 0], [0, 2, 0]]
stiffness = 1
damping = 1
rest = 1
[[rod]]
name = "line"
count = 2
length = 1
diameter = 1
density = 1
youngs_modulus = 1
curvature = [1, 0, 0]
[[event]]
time = 3
cut = "b"
"""


def test_units_are_converted() -> None:
    system = system_from_text(IN_OTHER_UNITS + MEASURED, "model.toml")
    a, b, c, d = (system.contents.body(k) for k in range(4))
    close = pytest.approx
    degree, meter, speed = math.pi / 180, 1e-3, 1.0  # 1 mm/ms is 1 m/s
    assert system.gravity == close((0, 0, 1e3))
    assert a.mass == close(3e-3) and a.center_of_mass == close((1e-3, 2e-3, 3e-3))
    assert a.inertia == close([1e-9 * x for x in (1, 2, 2.5, 0.1, 0, 0)])
    assert a.joint.q == close((1, 0, 0, 0, 1e-3, 2e-3, 3e-3))
    assert a.joint.u == close((*[1e3 * degree] * 3, *[speed] * 3))
    assert a.joint.stiffness == close((*[1.0 / degree] * 3, *[2e6] * 3))  # kN mm/deg, kN/mm
    assert a.wrench[0].force == close((0, 1e3, 0)) and a.wrench[0].moment == close((1, 0, 0))
    assert a.wrench[0].point == close((1e-3,) * 3)
    assert a.geometry[0].size == close((4 * meter,)) and a.geometry[1].size == (2, 2, 2)
    assert a.geometry[1].color == (1, 1, 1, 1)
    assert b.joint.q == close((90 * degree, 2 * meter)) and b.joint.axis == (1, 0, 0)
    assert b.joint.damping == close((1e-3 / degree, 1e3)) and b.joint.armature == close((1e-9, 1e-3))
    assert b.joint.torque == close((1, 1e3))
    assert c.joint.motion == ((0, 0), close((1e-3, math.pi / 2)), close((2e-3, math.pi)))
    assert d.joint.pitch == close(meter / degree) and d.joint.stiffness == close((1 / degree,))
    spring = system.contents.springs["s"]
    assert (spring.stiffness, spring.damping, spring.rest) == close((1e6, 1e3, 1e-3))
    assert spring.positions == (close((1e-3, 0, 0)), close((0, 2e-3, 0)))
    assert system.contents.events[0].time == close(3e-3)
    line = system.contents.body(4)  # 0.5 mm of 1 g/mm^3 and 1 mm across
    assert line.mass == close(0.5e-3 * 1e6 * math.pi / 4 * 1e-6) and system.contents.body(5).joint.position == close(
        (0, 0, 5e-4)
    )
    second = math.pi / 64 * 1e-12
    assert system.contents.body(5).joint.stiffness == close([1e9 * second / 5e-4] * 2)
    assert system.contents.body(5).joint.rest == close((0, 1e3 * 5e-4), abs=1e-12)


def test_every_key_of_numbers_has_a_unit() -> None:
    """Whatever the default of a key: what is a number has a unit, or none is ever converted or evaluated."""
    seen, waiting = set(), [Model, *TABLES.values()]
    units = BaseUnits()
    while waiting:
        kind = waiting.pop()
        seen.add(kind)
        waiting += set(kind.tables_within().values()) - seen
        measured = {key for joint in ("free", "helical", "") for key in kind.units_of({"type": joint})}
        for key, field in kind.model_fields.items():
            text = str(field.annotation)
            numeric = re.search(r"\b(float|int)\b", text) is not None and key not in FUNCTIONS
            assert numeric <= (key in measured), f"{kind.__name__}: {key}: {text} has no unit"
        for unit in kind.units_of({"type": "free"}).values():
            for symbol in [unit] if isinstance(unit, str) else unit:
                assert units.factor(symbol) == 1.0


def test_files_include_others(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/units.toml").write_text("[parameters]\nlength = 1\nwidth = 'length / 4'\n")
    arm = "name = 'an arm'\ngravity = [0, 0, 1]\ninclude = 'units.toml'\n[units]\nlength = 'mm'\n"
    (tmp_path / "parts/arm.toml").write_text(arm + body("arm", more="center_of_mass = ['width', 0, 0]\n"))
    hand = body("hand", "arm", more="center_of_mass = ['width', 0, 0]\n")
    text = "include = ['parts/arm.toml', 'parts/units.toml']\nname = 'both'\n[parameters]\nlength = 8\n"
    (tmp_path / "robot.toml").write_text(text + hand)
    system = read_system(tmp_path / "robot.toml")
    assert (system.name, system.gravity) == ("both", (0, 0, 1e-3))
    assert [b.center_of_mass[0] for b in system.contents.bodies()] == [2e-3, 2.0]
    assert read_system(tmp_path / "robot.toml", {"length": 4}).contents.body(1).center_of_mass[0] == 1.0

    (tmp_path / "parts/arm.toml").write_text(arm + body("arm", more="mas = 1\n"))
    with pytest.raises(InputError, match=r"parts/arm\.toml:8: \[\[body\]\] 1 'arm': unknown key 'mas'"):
        read_system(tmp_path / "robot.toml")
    (tmp_path / "parts/units.toml").write_text("include = '../robot.toml'")
    with pytest.raises(InputError, match=r"units\.toml:1: include: \.\./robot\.toml is or includes this file; leave"):
        read_system(tmp_path / "robot.toml")
    (tmp_path / "robot.toml").write_text("name = 'x'\n\ninclude = ['parts/amr.toml']")
    with pytest.raises(
        InputError, match=r"robot\.toml:3: include: .*amr\.toml: there is no such file; did you mean 'arm"
    ):
        read_system(tmp_path / "robot.toml")
    with pytest.raises(InputError, match=r"model\.toml:1: system: include must be the name of a file or a list"):
        system_from_text("include = 3", "model.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (body("a") + body("b") + "[body.wrench]\nforce = [1, 2]\n", ":11: [[body]] 2 'b': wrench 1: force needs 3"),
        ("\n" + body("a") + "[[body.geometry]]\nkind = 'box'\n\nsize = [1, 2, 'a']", 
         ":10: [[body]] 1 'a': geometry 1 size: unknown parameter 'a' in 'a'"),
        (body("a") + "[[body.geometry]]\nkind = 'box'\nsize = [1, 2, -1]", ":8: [[body]] 1 'a': geometry 1: size must"),
        (body("a") + "[[body]]\nname = 'b'\nmass = 'x'", ":8: [[body]] 2 'b': mass: unknown parameter 'x' in 'x'"),
        (body("a") + "[[loop]]\nname = 'l'\nmass = 1", ":8: [[loop]] 1 'l': unknown key 'mass'"),
        (body("a") + "[[repeat]]\ncount = 1\n[[repeat.body]]\nname='b'\n\nmass=-1",
         ":8: [[repeat]] 1 [[repeat.body]] 1 'b'"),
        ("[units]\nangle = 'deg'\nlength = 'feet'\n" + body("a"), ":3: system: units: length should be 'm', 'cm',"),
        ("[unit]\nangle = 'deg'\n" + body("a"), ":1: system: unknown key 'unit'; did you mean 'units'?"),
        (body("a", "c") + body("b", "a") + body("c", "b"), ":1: [[body]] 1 'a': lies on itself, by way of 'c' on 'b'"),
        (body("a") + body("b", "x"), ":8: [[body]] 2 'b': parent 'x' is neither 'world' nor a body of the model"),
    ],
)  # fmt: skip
def test_messages_name_lines(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        system_from_text(text, "model.toml")
    assert str(error.value).startswith(f"model.toml{message}"), error.value


EXAMPLE = (ROOT / "mpimbs/model/example.toml").read_text(encoding="utf-8")


def test_the_schema_knows_what_files_may_say() -> None:
    schema = Draft202012Validator(schema_of_models())
    schema.check_schema(schema.schema)
    for text in (EXAMPLE, PENDULUM, IN_OTHER_UNITS + MEASURED, system_text(system_from("andrews")), ROD):
        assert not list(schema.iter_errors(tomllib.loads(text)))
    lagging = "[[body]]\nname = 'a'\nmass = 1\ninertia = [1, 1, 1, 0, 0, 0]\njoint.type = 'revolute'\n"
    lagging += "joint.torque = {rows = [[0, 1], ['2 * 3', 4]], lag = 0.1}"
    assert not list(schema.iter_errors(tomllib.loads(lagging)))
    assert list(schema.iter_errors(tomllib.loads(lagging.replace("lag", "lack"))))
    wrong = ("mas = 1", "mass = [true]", "inertia = [1, 2, 3]", "joint = {type = 'hinge'}", "units = {length = 'feet'}")
    for text in wrong:
        heading, rest = (text, "") if "units" in text else ("", text)
        assert list(schema.iter_errors(tomllib.loads(f"{heading}\n[[body]]\nname = 'a'\n{rest}"))), text


def test_the_page_on_texts_is_right() -> None:
    page = PAGES / "howto/model-text.md"
    chain = system_from_text(block(page, "Parameters and expressions"), "chain.toml")
    assert chain.n_bodies == 10 and chain.contents.body(3).mass == 1.35
    units = Model(**tomllib.loads(block(page, "Units"))).units
    assert units == BaseUnits(length="mm", angle="deg", mass="g")
    for line, key in zip(block(page, "Units").splitlines()[1:], BaseUnits.model_fields, strict=True):
        assert line.partition("# ")[2].split() == list(get_args(BaseUnits.model_fields[key].annotation))


@pytest.mark.parametrize(
    "text", [EXAMPLE, PENDULUM, *(path.read_text() for path in sorted((ROOT / "tests/corpus").rglob("*.toml")))]
)
def test_texts_are_read_as_python_reads_them(text: str) -> None:
    for given in (text, text.replace("\n", "\r\n")):
        assert Source("model.toml", given).contents() == tomllib.loads(given)


def test_equal_tables_within_tables_are_read_once() -> None:
    """What serves several bodies says the same for each, and is written for each."""
    text = body("a") + body("b") + body("c").replace("'revolute'", "'revolute', q = 1") + body("d")
    system = system_from_text(text, "model.toml")
    a, b, c, d = (each.joint for each in system.contents.bodies())
    assert a is b is d and c.q == (1.0,) and a.q == (0.0,)
    assert list(system_from_text(system_text(system), "model.toml").contents.bodies()) == list(system.contents.bodies())


def test_long_texts_take_little_longer_than_python_takes_to_parse_them() -> None:
    """Bodies one by one: to read, to sum up and to write, once each, all differing in their numbers."""
    numbers = "mass = {0}.5\ninertia = [1e3, 1e3, {0}.5e-3, 0, 0, 0]\n"
    numbers += "joint = {{type = 'revolute', position = [0, {0}, 0]}}\n"
    text = "".join(f"[[body]]\nname = 'b{k}'\n" + numbers.format(k + 1) for k in range(1000))

    def measure() -> tuple[float, float]:
        began = time.process_time()
        tomllib.loads(text)
        parsed = time.process_time()
        system = system_from_text(text, "model.toml")
        system.summary()
        system_text(system)
        return time.process_time() - parsed, parsed - began

    measured(MPI.COMM_SELF, measure, lambda took: took[0] < 4.0 * took[1])  # some 2; once it was 8.5
