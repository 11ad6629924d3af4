"""`System`: order, names, parents, columns against the plain loop, own loads, whole-system checks."""

import copy
import math
import time

import numpy as np
import pytest

from mpimbs.base.errors import InputError
from mpimbs.model import JOINT_TYPES, Body, Joint, Loop, System, Wrench, system_from
from mpimbs.model.order.order import Order, arranged
from mpimbs.model.summary import validate
from mpimbs.model.system import MOVED


def body(name, kind="revolute", parent=None, **fields):
    given = {"mass": 1, "inertia": (1, 1, 1, 0, 0, 0), "joint": Joint(type=kind)} | fields
    return Body(name=name, parent=parent, **given)


def mixed_system():
    """Return single bodies, a repeat of three templates, a branch, and a repeat of a name used before."""
    system = System("mixed", gravity=(0, 0, -9.81))
    system.add(body("base", "free", joint=Joint(type="free", q=[1, 0, 0, 0, 1, 2, 3], u=[1, 2, 3, 4, 5, 6])))
    system.add(body("plate", "fixed"))
    slider = Joint(type="helical", pitch=0.1, stiffness=3, torque=math.sin)
    system.repeat(
        3,
        body("ball", joint=Joint(type="spherical", q=[0, 1, 0, 0], stiffness=2, position=[1, 0, 0])),
        body("slider", joint=slider, wrench=[Wrench(force=[1, 0, 0]), Wrench(moment=[0, 1, 0])]),
        body("frame", "fixed", mass=3),
    )
    system.add(body("branch", "planar", parent="slider2"))
    system.repeat(2, body("ball", "cylindrical", parent="plate"))
    system.set_torque("slider3", math.cos)
    system.add_wrench("slider1", force=(0, 0, 1), frame="world")
    return system


def loop_expansion(system):
    """Expand a system body by body: what `Columns` must equal."""
    bodies = list(system.contents.bodies())
    joints = [b.joint for b in bodies]
    constant = [(0.0,) * j.kind.nu if callable(j.torque) else j.torque for j in joints]
    blocks = {name: sum((getattr(j, name) for j in joints), ()) for name in ("q", "rest", "u", "stiffness", "damping")}
    return {
        "parent": [-1 if b.parent == "world" else system.contents.index_of(b.parent) for b in bodies],
        "joint_type": [[kind.name for kind in JOINT_TYPES].index(j.type) for j in joints],
        **{name: [getattr(j, name) for j in joints] for name in ("axis", "pitch", "position", "rotation")},
        **{name: [getattr(b, name) for b in bodies] for name in ("mass", "center_of_mass", "inertia")},
        "q_offset": np.cumsum([0] + [len(j.q) for j in joints]),
        "u_offset": np.cumsum([0] + [len(j.u) for j in joints]),
        "torque": sum(constant, ()),
        **blocks,
        "torque_functions": [(k, j.torque) for k, j in enumerate(joints) if callable(j.torque)],
        "wrenches": [(k, w) for k, b in enumerate(bodies) for w in b.wrench],
    }


def test_the_order_of_names_and_parents():
    system = mixed_system()
    names = ["base", "plate"]
    names += [f"{name}{k}" for k in (1, 2, 3) for name in ("ball", "slider", "frame")] + ["branch", "ball4", "ball5"]
    assert [system.contents.name_of(k) for k in range(system.n_bodies)] == names
    assert [system.contents.index_of(name) for name in names] == list(range(len(names)))
    assert system.contents.parents().tolist() == [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 6, 1, 12]
    assert system.contents.parents().dtype == np.int64
    assert system.contents.joint_types().dtype == np.int8
    assert not system.contents.is_chain
    q_offset, u_offset = system.contents.offsets()
    assert (q_offset[-1], u_offset[-1]) == (system.nq, system.nu) == (7 + 15 + 3 + 4, 6 + 12 + 3 + 4)


@pytest.mark.parametrize("spec", [None, "spatial_chain:7", "tree:2:3"])
def test_columns_equal_the_loop_over_bodies(spec):
    system = system_from(spec) if spec else mixed_system()
    table = system.contents.columns()
    for name, expected in loop_expansion(system).items():
        value = getattr(table, name)
        if isinstance(value, list):
            assert value == expected, name
        else:
            np.testing.assert_array_equal(value, expected, err_msg=name)


def test_a_million_bodies_expand_quickly_and_ten_million_take_no_time():
    start = time.process_time()
    system = system_from("spatial_chain:10000000")
    part = system.contents.columns(9_000_000, 9_000_010)
    assert system.contents.name_of(9_999_999) == "x_link5000000"
    assert system.contents.index_of("z_link5000000") == 9_999_998
    assert part.parent[0] == 8_999_999
    assert time.process_time() - start < 0.5
    start = time.process_time()
    assert system.contents.columns(0, 1_000_000).n == 1_000_000
    assert time.process_time() - start < 3


def filled():
    system = System()
    system.add(body("torso"))
    system.add(body("arm"))
    system.repeat(3, body("link"))
    return system


REFUSED = [
    (lambda s: s.add(body("x", parent="trso")), "body 'x': parent 'trso' is neither 'world' nor a body above; did you"),
    (lambda s: s.add(body("x", parent="link4")), "body 'x': parent 'link4' .* did you mean 'link3'"),
    (lambda s: s.add(body("x", parent="x")), "body 'x': is its own parent; name 'world' or a body above"),
    (lambda s: s.add(body("arm")), "body 'arm': the name is taken by a body above; give each body its own"),
    (lambda s: s.add(body("arm", parent="torso")), "body 'arm': the name is taken"),
    (
        lambda s: s.add(body("arm", parent="link3")),
        r"body 'arm' is connected twice: to 'torso' and to 'link3'; close the second connection with a \[\[",
    ),
    (lambda s: s.add(body("link2")), "body 'link2': the name is taken"),
    (lambda s: s.add(name="x", mass=-1, inertia=[1, 1, 1, 0, 0, 0], joint=Joint(type="fixed")), "body 'x': mass must"),
    (lambda s: s.repeat(0, body("y")), "repeat: count must be a positive integer, got 0; say how often"),
    (lambda s: s.repeat(1.5, body("y")), "repeat: count must be a positive integer, got 1.5"),
    (lambda s: s.repeat(2), "repeat: needs at least one body"),
    (lambda s: s.repeat(2, body("y1")), "body 'y1': a repeated body's name gets a number, so it must not end with"),
    (lambda s: s.repeat(2, body("y"), body("y")), "body 'y': stands twice in one repeat"),
    (
        lambda s: s.repeat(2, body("y"), body("z", parent="arm")),
        "body 'z': parent 'arm' is none of this repeat; name a body before it there",
    ),
    (lambda s: s.repeat(2, body("y"), parent="leg"), "body 'y': parent 'leg' is neither"),
    (lambda s: (s.add(body("y2")), s.repeat(2, body("y"))), "body 'y': the number names would include 'y2'"),
    (lambda s: s.contents.index_of("amr"), "unknown body 'amr'; did you mean 'arm'"),
    (lambda s: s.set_torque("leg", math.sin), "unknown body 'leg'"),
    (lambda s: s.set_torque("arm", "x"), "body 'arm': torque must be a finite number, got 'x'; give"),
    (lambda s: (s.add(body("f", "fixed")), s.set_torque("f", math.sin)), "body 'f': torque has nothing to act on"),
    (lambda s: s.add_wrench("arm", force=[1]), "wrench: force needs 3 numbers"),
    (
        lambda s: s.add_loop(name="l", type="fixed", bodies=("arm", "leg"), positions=ZEROS),
        "loop 'l': unknown body 'leg'",
    ),
    (
        lambda s: s.add_loop(name="l", type="fixed", bodies=("world", "world"), positions=ZEROS),
        "loop 'l': bodies must be two different ones, got 'world' twice",
    ),
    (lambda s: [s.add_loop(GROUND), s.add_loop(GROUND)], "loop 'g': the name is taken by another loop"),
    (lambda s: System(gravity=9.81), r"system 'system': gravity needs a list of 3 numbers \(x y z\), got 9.81"),
]
ZEROS = ((0, 0, 0), (0, 0, 0))
GROUND = Loop(name="g", type="spherical", bodies=("arm", "world"), positions=ZEROS)


@pytest.mark.parametrize(("action", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_a_system_refuses(action, message):
    with pytest.raises(InputError, match=message):
        action(filled())


def test_a_body_without_inertia_is_not_valid():
    system = filled()
    system.add(body("tip", mass=0, inertia=[0] * 6))
    with pytest.raises(InputError, match=r"nothing resists the joint of body 'tip': .* and nothing lies on it"):
        validate(system.contents)
    system.add(body("load"))
    with pytest.raises(
        InputError, match=r"nothing resists the joint of body 'tip': .* joints on it move it the same way"
    ):
        validate(system.contents)


def test_summary_warns_of_what_is_rarely_meant():
    still = System(gravity=(0, 0, 0))
    still.add(body("a", "fixed"))
    assert "no degrees of freedom" in still.summary().warnings[0]
    still.add(body("b", mass=1e-9, parent="world"))
    nothing, masses, trees = still.summary().warnings
    assert "nothing moves" in nothing
    assert "masses from 1e-09 to 1 kg" in masses
    assert "2 separate systems" in trees
    still.add_wrench("b", force=(1, 0, 0))
    assert len(still.summary().warnings) == 2


# --- many bodies that branch ------------------------------------------------------------------------------------------


def fork() -> System:
    """Return a system in which bodies branch off a repeat, from one another and from the world, and a body follows."""
    system = mixed_system()
    templates = [body("twig", "spherical", mass=2), body("twig", "fixed"), body("twig", joint=HELICAL)]
    system.branch(templates, [0, 2, 1, 1, 0, 2], [8, 14, 14, -1, 16, 3])
    system.repeat(2, body("twig", "planar", parent="twig2"))
    system.add(body("end", "universal"))
    return system


HELICAL = Joint(type="helical", pitch=0.2, torque=math.cos)


def test_branches_are_named_and_lie_as_told() -> None:
    system = fork()
    assert [system.contents.name_of(k) for k in range(14, 23)] == [*(f"twig{k}" for k in range(1, 9)), "end"]
    assert [system.contents.index_of(f"twig{k}") for k in range(1, 9)] == list(range(14, 22))
    assert system.contents.parents()[14:].tolist() == [8, 14, 14, -1, 16, 3, 15, 20, 21]
    depth = [system.contents.segments.depth(k) for k in range(system.n_bodies)]
    assert depth == [1 + (depth[up] if up >= 0 else 0) for up in system.contents.parents().tolist()]
    assert system.summary().depth == max(depth) and system.summary().bodies == 23
    assert system.summary().joint_types["helical"] == 3 + 2
    for name, expected in loop_expansion(system).items():
        value = getattr(system.contents.columns(), name)
        assert value == expected if isinstance(value, list) else np.array_equal(value, expected), name
    assert "2 bodies lie on the world" in str(system.summary().warnings)


@pytest.mark.parametrize(
    ("bodies", "rows", "parents", "message"),
    [
        ([], [0], [-1], "needs templates"),
        ([body("a")], [], [], "needs templates"),
        ([body("a")], [0, 0], [-1], "as many of both"),
        ([body("a")], [[0]], [[-1]], "as many of both"),
        ([body("a")], [0, 1], [-1, 0], "rows must be from 0 to 0"),
        ([body("a")], [0, -1], [-1, 0], "rows must be from 0 to 0"),
        ([body("a")], [0, 0], [-1, 1], "the parent of body 1 is 1; give the index of a body before it"),
        ([body("a")], [0], [-2], "the parent of body 0 is -2"),
        ([body("a"), body("b")], [0, 1], [-1, 0], "several names"),
        ([body("a1")], [0], [-1], "must not end with a digit"),
    ],
)
def test_bad_branches(bodies: list[Body], rows: list[int], parents: list[int], message: str) -> None:
    system = System()
    with pytest.raises(InputError, match=message):
        system.branch(bodies, rows, parents)
    assert system.n_bodies == 0


def test_a_name_that_branches_would_take_twice() -> None:
    system = System()
    system.add(body("a2"))
    with pytest.raises(InputError, match="would include 'a2', which is taken"):
        system.branch([body("a")], [0, 0], [-1, -1])


def test_loops_and_springs_keep_their_bodies_in_another_order() -> None:
    system = system_from("random_tree:9")
    system.repeat(1, body("side"), parent="world")
    pairs = [("body9", "world"), ("world", "body2"), ("side1", "body1")]
    for number, pair in enumerate(pairs):
        system.add_loop(name=f"l{number}", type="spherical", bodies=pair, positions=ZEROS)
        system.add_spring(name=f"s{number}", bodies=pair, positions=ZEROS)
    assert system.contents.loops.bodies == [(8, -1), (-1, 1), (9, 0)]
    order = Order.of(system.contents)
    solved = arranged(system.contents, order)
    assert not order.is_identity and solved is not system
    named = [tuple(solved.name_of(k) if k >= 0 else "world" for k in ends) for ends in solved.loops.ends]
    assert named == pairs
    np.testing.assert_array_equal(solved.springs.ends, solved.loops.ends)
    other = copy.deepcopy(system)
    other.add_loop(name="more", type="spherical", bodies=("body3", "world"), positions=ZEROS, active=False)
    assert other.contents.loops.names - system.contents.loops.names == {"more"} and [
        loop.name for loop in other.contents.loops.idle
    ] == ["more"]
    assert len(system.contents.loops.all) == 3 == len(other.contents.loops) and not system.contents.loops.idle


def test_names_of_a_system_are_few_and_former_ones_answer() -> None:
    """By `dir`; what can be set is refused under a former name, under which nobody would look at it."""
    system = system_from("four_bar:2")
    assert len([name for name in dir(system) if not name.startswith("_")]) <= 20
    for name, now in MOVED.items():
        with pytest.warns(FutureWarning, match=f"^system.{name} is system.{now} now"):
            getattr(system, name)
        with pytest.raises(AttributeError, match=f"^system.{name} is system.{now} now: set that"):
            setattr(system, name, None)
    with pytest.warns(FutureWarning, match=r"^system.validate\(\) is .*validate\(system.contents\) now"):
        system.validate()
    with pytest.raises(AttributeError, match=r"^'System' has no attribute 'bodys'"):
        _ = system.bodys
    system.name, system.gravity = "renamed", (1, 2, 3)
    assert (system.contents.name, system.contents.gravity) == ("renamed", (1.0, 2.0, 3.0))


def test_a_copy_is_changed_apart() -> None:
    """Of what is replaced as a whole, as `copy.copy` has it; in depth of all."""
    system = system_from("chain:3")
    other, deep = copy.copy(system), copy.deepcopy(system)
    other.gravity = (0, 0, 0)
    deep.add(system.contents.body(0), name="more", parent="link3")
    assert system.gravity == (0, -9.81, 0) and (system.n_bodies, deep.n_bodies) == (3, 4)
