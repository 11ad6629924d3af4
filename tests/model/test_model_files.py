"""Model files: the documented format, the round trip, and messages that name file, table and remedy."""

import math
import re

import numpy as np
import pytest

from mpimbs.base.errors import InputError
from mpimbs.model import Body, Joint, Shape, System, Wrench, read_system, system_from, system_text, write_system

DOCUMENTED = """
name = "sixteen-body chain"
gravity = [0, -9.81, 0]

[[body]]
name = "link1"
parent = "world"
mass = 1.0
center_of_mass = [0, -1, 0]
inertia = [1, 1, 1, 0, 0, 0]
[body.joint]
type = "revolute"
axis = [0, 0, 1]
position = [0, 0, 0]
rotation = [1, 0, 0, 0]
q = 0.1745
u = 0.0
stiffness = 0.0
damping = 0.0
rest = 0.0
torque = 0.0
"""

BODY = """
[[body]]
name = "base"
mass = 1
inertia = [1, 1, 1, 0, 0, 0]
joint = {type = "revolute"}
"""
SECOND = BODY.replace('"base"', '"arm"')
REPEAT = BODY.replace("[[body]]", "[[repeat]]\ncount = 3").replace('"base"', '"link"')
PAIR = """
[[repeat]]
count = 2
[[repeat.body]]
name = "x_link"
mass = 1
inertia = [1, 1, 1, 0, 0, 0]
joint = {type = "revolute", axis = [1, 0, 0]}
[[repeat.body]]
name = "z_link"
mass = 1
inertia = [1, 1, 1, 0, 0, 0]
joint = {type = "revolute"}
"""
LOOP = """
[[loop]]
name = "closure"
type = "spherical"
bodies = ["base", "arm"]
positions = [[0, 0, 0], [0, 1, 0]]
"""


def read(folder, text):
    path = folder / "model.toml"
    path.write_text(text, encoding="utf-8")
    return read_system(path)


def test_the_documented_format(tmp_path):
    system = read(tmp_path, DOCUMENTED)
    assert (system.name, system.gravity, system.n_bodies) == ("sixteen-body chain", (0, -9.81, 0), 1)
    assert system.contents.body(0).joint.q == (0.1745,)


REFUSED = [  # text, what the message says after the file and the line
    (BODY + SECOND + SECOND.replace("arm", "link3").replace("= 1\n", "= -1\n"),
     "[[body]] 3 'link3': mass must be positive, got -1; give the mass in kg"),
    (BODY.replace("mass = 1", "mass = nan"), "[[body]] 1 'base': mass must be a finite number, got nan"),
    (BODY.replace("mass = 1", "mass = inf"), "[[body]] 1 'base': mass must be a finite number, got inf"),
    (BODY.replace("mass = 1", "mass = true"), "[[body]] 1 'base': mass must be a finite number, got True"),
    (BODY.replace("mass = 1\n", ""), "[[body]] 1 'base': mass is missing; give the mass in kg"),
    (BODY.replace('name = "base"\n', ""), "[[body]] 1: name is missing; give a unique name of the body"),
    (BODY.replace("mass", "mas"), "[[body]] 1 'base': unknown key 'mas'; did you mean 'mass'?"),
    (BODY.replace("revolute", "hinge"), "[[body]] 1 'base': joint: type: unknown joint type 'hinge'; choose"),
    (BODY.replace('"revolute"', '"revolute", axis = [0, 0, 0]'), "[[body]] 1 'base': joint: axis must not"),
    (BODY + "geometry = {kind = 'cone'}", "[[body]] 1 'base': geometry 1: kind should be 'box', 'sphere', 'capsule', "),
    (BODY + "geometry = {kind = 'box', size = [1, 2]}", "[[body]] 1 'base': geometry 1: size needs 3 numbers (the"),
    (BODY + "geometry = {kind = 'box', size = [1, 2, -1]}", "[[body]] 1 'base': geometry 1: size must not be negative"),
    (BODY + "geometry = {kind = 'mesh'}", "[[body]] 1 'base': geometry 1: file is missing; give the file of the mesh"),
    (BODY + "geometry = {kind = 'sphere', size = 1, file = 'a'}", "[[body]] 1 'base': geometry 1: file has no meaning"),
    (BODY + "geometry = {kind = 'sphere', size = 1, color = [1, 2, 0, 0]}", 
     "[[body]] 1 'base': geometry 1: color must have four parts"),
    (BODY + "wrench = 1", "[[body]] 1 'base': wrench should be a valid tuple, got 1"),
    (BODY + 'parent = "arm"' + SECOND, "[[body]] 1 'base': lies on itself, by way of 'arm' ('arm' names no parent, so"),
    (BODY + SECOND + 'parent = "bse"', "[[body]] 2 'arm': parent 'bse' is neither 'world' nor a body of the model"),
    (BODY + 'parent = "base"', "[[body]] 1 'base': is its own parent"),
    (BODY + 'parent = "arm"' + SECOND + 'parent = "base"',
     "[[body]] 1 'base': lies on itself, by way of 'arm'; put one of them on 'world'"),
    (BODY + 'parent = "arm"' + SECOND + 'parent = "leg"' + SECOND.replace("arm", "leg") + 'parent = "arm"',
     "[[body]] 2 'arm': lies on itself, by way of 'leg'; put one of them on 'world'"),
    (SECOND + BODY + 'parent = "leg"' + SECOND.replace("arm", "leg") + 'parent = "hip"'
     + SECOND.replace("arm", "hip") + 'parent = "base"',
     "[[body]] 2 'base': lies on itself, by way of 'leg' on 'hip'; put one of them on 'world'"),
    (BODY + SECOND + SECOND + 'parent = "arm"', "[[body]] 3 'arm': the name is taken by a body above"),
    (BODY + REPEAT + LOOP.replace('"arm"', '"trunk"'),
     "[[loop]] 1 'closure': unknown body 'trunk'; choose one of world, base, link1 to link3"),
    (BODY + REPEAT + LOOP.replace('"arm"', '"lnik2"'),
     "[[loop]] 1 'closure': unknown body 'lnik2'; did you mean 'link2'"),
    (BODY + SECOND + 'parent = "link2"' + REPEAT,
     "[[body]] 2 'arm': lies on itself, by way of 'link' ('link' names no parent, so it lies on the last one)"),
    (BODY + SECOND + 'parent = "link4"' + REPEAT,
     "[[body]] 2 'arm': parent 'link4' is neither 'world' nor a body of the model; did you mean 'link3'"),
    (BODY + SECOND + 'parent = "world"' + BODY + 'parent = "arm"',
     "[[body]] 3 'base' is connected twice: to 'world' and to 'arm'; close the second connection with"),
    (BODY + SECOND + BODY, "[[body]] 3 'base': the name is taken by a body above"),
    (BODY + SECOND + 'parent = "base"' + BODY, "[[body]] 3 'base': the name is taken by a body above"),
    (BODY + BODY, "[[body]] 2 'base': the name is taken by a body above"),
    (BODY.replace("[[body]]", "[body]"), "system: body must be a list of tables; write its name in double"),
    (BODY.replace("[[body]]", "[[bodies]]"), "system: unknown key 'bodies'; did you mean 'body'?"),
    ("gravity = [0, 1]\n" + BODY, "system: gravity needs 3 numbers (x y z), got 2: [0, 1]"),
    ("gravity = [0, nan, 0]\n" + BODY, "system: gravity must be a finite number, got nan"),
    ("name = 3\n" + BODY, "system: name must be a printable, non-empty text, got 3"),
    ("", "system 'system': has no bodies; add at least one [[body]] or [[repeat]]"),
    (BODY + SECOND.replace("mass = 1", "mass = 0").replace("[1, 1, 1,", "[0, 0, 0,"),
     "system 'system': nothing resists the joint of body 'arm': it has no inertia of its own there, and nothing lies"),
    (REPEAT.replace("count = 3", ""), "[[repeat]] 1: count is missing; give how often to repeat"),
    (REPEAT.replace("3", "0"), "[[repeat]] 1: count should be greater than or equal to 1, got 0"),
    (REPEAT.replace("3", "2.5"), "[[repeat]] 1: count should be a valid integer, got 2.5"),
    (REPEAT.replace("link", "link1"), "[[repeat]] 1 'link1': a repeated body's name gets a number"),
    (REPEAT.replace("mass = 1", "mass = -1"), "[[repeat]] 1 'link': mass must be positive"),
    (BODY + PAIR.replace("mass = 1", "mass = 0", 1), "[[repeat]] 1 [[repeat.body]] 1 'x_link': mass must be"),
    (PAIR.replace("count = 2", "count = 2\nmass = 1"), "[[repeat]] 1: unknown key 'mass'"),
    ("[[repeat]]\ncount = 2\nbody = []", "[[repeat]] 1: body needs at least one table; give the body to repeat"),
    ("[[repeat]]\ncount = 2\nbody = 3", "[[repeat]] 1: body must be a list of tables"),
    (BODY + SECOND + LOOP.replace('"arm"', '"leg"'), "[[loop]] 1 'closure': unknown body 'leg'"),
    (BODY + SECOND + LOOP.replace("spherical", "free"), "[[loop]] 1 'closure': type free closes no loop"),
    (BODY + SECOND + LOOP + "stiffness = -1", "[[loop]] 1 'closure': stiffness must not be negative, got [-1.0"),
    (BODY + SECOND + LOOP.replace("base", "arm"), "[[loop]] 1 'closure': bodies must be two different ones, got 'arm'"),
    (BODY + SECOND + LOOP + LOOP, "[[loop]] 2 'closure': the name is taken by another loop"),
    (BODY + SECOND + LOOP.replace("positions", "position"), "[[loop]] 1 'closure': unknown key 'position'"),
    (DOCUMENTED[: DOCUMENTED.index("[1, 1, 1") + 5], "is not valid TOML: "),
    ("mass = \n", "is not valid TOML: Invalid value (at line 1, column 8)"),
    ("x = " + "9" * 5000, "is not valid TOML: "),
    ("x = " + "[" * 100_000, "is not valid TOML: "),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED])
def test_a_message_names_file_table_and_remedy(tmp_path, text, message):
    with pytest.raises(InputError, match=r"model\.toml:(\d+:)? " + re.escape(message)) as error:
        read(tmp_path, text)
    assert "\n" not in str(error.value)


def test_what_is_no_text_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder; name the file in it"):
        read_system(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(InputError, match=r"latin\.toml: is not UTF-8 text \(byte 8\); save it as"):
        read_system(tmp_path / "latin.toml")


def rich_system(functions=False):
    """Return a system that uses every key with values that are not exact in decimal."""
    random = np.random.default_rng(3)
    turn = random.normal(size=4)
    turn /= np.linalg.norm(turn)
    system = System('quoted "name" \\ é', gravity=random.normal(size=3))
    inertia = (1 + random.random(), 1.5, 2, *(0.1 * random.random(3)))
    joint = Joint(type="helical", pitch=0.0, axis=random.normal(size=3), rotation=turn, q=0.1, rest=1 / 3, u=1e-300)
    system.add(Body(name="screw", mass=1 / 3, inertia=inertia, joint=joint))
    free = Joint(type="free", q=[*turn, *random.random(3)], u=random.normal(size=6), damping=[0, 1, 2, 3, 4, 5])
    wrenches = [Wrench(force=random.normal(size=3), frame="world"), Wrench(moment=(0, 0, 1), point=(1, 2, 3))]
    system.add(Body(name="float", parent="world", mass=1e22, inertia=inertia, joint=free, wrench=wrenches))
    spring = Joint(type="spherical", stiffness=0.1, torque=(1, 2, 3))
    shapes = [
        Shape(kind="box", size=random.random(3), position=random.random(3), rotation=turn, color=random.random(4)),
        Shape(kind="sphere", size=1 / 3),
        Shape(kind="mesh", file='a "quoted" name.stl'),
    ]
    system.add(Body(name="drawn", parent="screw", mass=1, inertia=inertia, joint=spring, geometry=shapes))
    system.repeat(4, Body(name="ball", parent="screw", mass=1, inertia=inertia, joint=spring, geometry=shapes[1]))
    slide = Joint(type="cylindrical", u=(1, 2), torque=math.sin if functions else (0, 1))
    system.repeat(
        2,
        Body(name="a", mass=1, inertia=inertia, joint=slide),
        Body(name="b", mass=1, inertia=inertia, joint={"type": "fixed"}),
    )
    positions = random.random((2, 3))
    system.add_loop(name="close", type="helical", pitch=0.2, bodies=("ball4", "b2"), positions=positions)
    acting = {"stiffness": [1 / 3, 2], "damping": [0, 0.1], "rest": [0.2, 1], "torque": [1, -1]}
    system.add_loop(name="guide", type="cylindrical", bodies=("world", "b1"), positions=positions, **acting)
    return system


def with_body_behind_repeat():
    system = rich_system()
    system.add(system.contents.body(0), name="tip", parent="ball3")
    return system


def with_own_wrench():
    system = rich_system()
    system.add_wrench("ball2", force=(1, 0, 0))
    return system


@pytest.mark.parametrize(
    ("make", "repeats"),
    [
        (rich_system, 2),
        (with_body_behind_repeat, 0),
        (with_own_wrench, 0),
        ("chain16", 3),
        ("rope:7", 2),
        ("free_chain:6", 2),
        ("tree:2:2", 0),
    ],
)
def test_what_is_written_reads_back_to_the_last_bit(tmp_path, make, repeats):
    system = make() if callable(make) else system_from(make)
    path = tmp_path / "model.toml"
    write_system(system, path)
    again = read_system(path)
    assert path.read_text(encoding="utf-8").count("[[repeat]]") == repeats
    assert (again.name, again.gravity, again.contents.loops) == (system.name, system.gravity, system.contents.loops)
    assert list(again.contents.bodies()) == list(system.contents.bodies())
    assert again.contents.loops.bodies == system.contents.loops.bodies


def test_what_can_not_be_written(tmp_path):
    with pytest.raises(InputError, match="torque is a function of time, and a model file holds data only"):
        write_system(rich_system(functions=True), tmp_path / "model.toml")
    driven = system_from("chain:2")
    driven.add_loop(name="crank", type="revolute", bodies=("link2", "world"), positions=np.eye(3)[:2], torque=math.sin)
    with pytest.raises(InputError, match="torque is a function of time, and a model file holds"):
        write_system(driven, tmp_path / "model.toml")
    assert "# torque is a function of time" in system_text(driven, functions=True)
    assert not (tmp_path / "model.toml").exists()
    with pytest.raises(InputError, match=r"there is no folder .*nowhere; make it first"):
        write_system(rich_system(), tmp_path / "nowhere" / "model.toml")
