"""Joints that never move: found at a glance, and by simulation."""

from collections.abc import Callable

import numpy as np
import pytest

from mpimbs.bench.motionless import MOST, motionless
from mpimbs.model import Joint, System, system_from
from mpimbs.run.run import simulate

LINK = {"mass": 1, "center_of_mass": (0, -0.1, 0), "inertia": (4e-3, 1e-3, 4e-3, 0, 0, 0)}


def crane(rope: str = "universal", gravity: tuple[float, float, float] = (0, -9.81, 0), **boom: object) -> System:
    """A boom that turns about z, and a rope of five links on it."""
    system = System("crane", gravity)
    joint = Joint(type="revolute", **{"axis": (0, 0, 1), "q": 0.5, **boom})
    system.add(name="boom", mass=100, center_of_mass=(2, 0, 0), inertia=(1, 130, 130, 0, 0, 0), joint=joint)
    system.add(name="hook", **LINK, joint=Joint(type=rope, position=(4, 0, 0)))
    link = system.contents.body(1).model_copy(update={"name": "link", "parent": None})
    system.repeat(5, link.model_copy(update={"joint": Joint(type=rope, position=(0, -0.2, 0))}))
    return system


def boom(**joint: object) -> System:
    """A boom whose axis is along gravity."""
    system = System(gravity=(0, 0, -9.81))
    joint = {"type": "revolute", **joint}
    system.add(name="boom", mass=1, center_of_mass=(2, 0, 0), inertia=(1, 130, 130, 0, 0, 0), joint=joint)
    return system


def hanging() -> System:
    system = System(gravity=(0, -9.81, 0))
    for k in range(3):
        system.add(name=f"b{k}", **LINK, joint=Joint(type="spherical", position=(0, -0.2, 0)))
    return system


def pushed() -> System:
    system = hanging()
    system.add_wrench("b2", force=lambda t: (1, 0, 2))
    return system


def with_a_brace() -> System:
    """Two bodies on the crane's hook that a plane motion does not turn, and one that it does."""
    system = crane("spherical")
    for name, axis in (("across", (1, 0, 0)), ("along", (0, 1, 0)), ("in plane", (0, 0, 1))):
        system.add(name=name, parent="hook", **LINK, joint=Joint(type="revolute", axis=axis))
    return system


ROPE = ["'hook'", "'link1' to 'link5'"]
CASES: dict[str, tuple[Callable[[], System], list[str]]] = {
    "out of plane": (crane, ROPE),
    "in plane": (lambda: crane("spherical"), []),
    "gravity along the axis": (boom, ["'boom'"]),
    "the rope pulls the boom along": (lambda: crane(gravity=(0, 0, -9.81)), []),
    "at ease": (lambda: boom(stiffness=1.0, damping=1.0), ["'boom'"]),
    "a spring": (lambda: boom(stiffness=1.0, rest=0.2), []),
    "a torque": (lambda: boom(torque=1.0), []),
    "an axis across": (lambda: boom(axis=(0, 1, 1e-3)), []),
    "begins to turn": (lambda: crane(u=0.5), ROPE),
    "hangs at rest": (hanging, ["'b0'", "'b1'", "'b2'"]),
    "a function of time": (pushed, []),
    "falls stiff": (lambda: system_from("figure"), ["all but the first"]),
    "all types": (lambda: system_from("spatial_chain:9"), []),
    "a tree": (with_a_brace, ["'across'", "'along'"]),
}


@pytest.mark.parametrize("case", CASES)
def test_those_that_stand_still_in_a_simulation(case: str) -> None:
    make, expected = CASES[case]
    system = make()
    if expected == ["all but the first"]:
        expected = [repr(body.name) for body in system.contents.bodies()][1:]
    assert motionless(system.contents) == expected
    q = simulate(system, 1.5, rtol=1e-6, atol=1e-10).q
    offset = system.contents.offsets()[0]
    change = np.abs(q - q[0]).max(axis=0)
    still = {name for k, name in enumerate(map(repr, map(system.contents.name_of, range(system.n_bodies))))
             if np.all(change[offset[k] : offset[k + 1]] < 1e-8)}  # fmt: skip
    repeated = {repr(f"link{k}") for k in range(1, 6)} if ROPE[1] in expected else set()
    assert still == set(expected) - {ROPE[1]} | repeated


def test_long_systems() -> None:
    """Repetitions take no time; of many single bodies nothing is said."""
    long = crane()
    long.repeat(10_000_000, long.contents.body(6).model_copy(update={"name": "more", "parent": None}))
    long.add_wrench("more9999999", force=(0, 0, 1))
    assert motionless(long.contents) == []
    long.contents.loads.wrenches.clear()
    assert motionless(long.contents) == [*ROPE, "'more1' to 'more10000000'"]
    single = hanging()
    for k in range(3, MOST + 2):
        single.add(name=f"b{k}", **LINK, joint=Joint(type="spherical", position=(0, -0.2, 0)))
    assert motionless(single.contents) == []
