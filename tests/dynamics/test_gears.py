"""Gears: joints whose coordinates follow one another, in trees and with loops, on any number of ranks."""

import functools
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from cases import parts
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.closure.assembly import assemble
from mpimbs.closure.report import loop_report
from mpimbs.dynamics import Dynamics
from mpimbs.model import Gear, System
from mpimbs.model.summary import validate
from mpimbs.run.run import simulate
from oracles.dense import Array
from oracles.gears import gear_rows, geared
from oracles.random_loops import random_mechanism
from oracles.random_systems import random_system
from tolerances import assert_close

State = tuple[System, Array, Array, Array]
SINGLE = "revolute", "prismatic", "helical"
RATIO, SMALL, LARGE = -2.5, 0.2, 3.0 + 2.0 * 0.1**2  # of the wheels; their inertias about the axes, kg m^2
WEIGHT = 2.0 * 9.81 * 0.1  # N m, of the large one about its axis


def with_gears(given: State, pairs: dict[tuple[int, int], float]) -> State:
    """A system with gears of some ratios between bodies, the first of which follows, and a state."""
    for (joint, of), ratio in pairs.items():
        names = {"joint": given[0].contents.name_of(joint), "of": given[0].contents.name_of(of)}
        given[0].add_gear(name=f"gear {joint} {of}", ratio=ratio, offset=0.1 * joint, **names)
    return given


def of_tree(seed: int, n: int, chain: bool = False) -> State:
    """A random tree with gears between joints anywhere, a body and the one that it lies on among them."""
    given = random_system(seed, n, chain, SINGLE, wrenches=True)
    parent = int(np.abs(given[0].contents.parents()[5]))
    return with_gears(given, {(2, 1): 1.5, (1, 0): -0.7, (n - 1, 2): 0.4, (n - 2, n - 1): -2.0, (5, parent): 1.1})


def of_mechanism() -> State:
    """A random mechanism with gears between joints in its loops and beside them."""
    given = random_mechanism(5, 30, 2, types=SINGLE, loop_types=("spherical",))
    return with_gears(given, {(12, 3): 0.8, (20, 29): -1.2, (7, 25): 2.0})


STATES = {
    "tree": functools.partial(of_tree, 1, 14),
    "chain": functools.partial(of_tree, 2, 12, True),
    "branches": functools.partial(of_tree, 4, 40),
    "mechanism": of_mechanism,
}


def three_wheels(*gears: tuple[int, int, float, float]) -> System:
    """Three wheels, with gears: which follows which, ratio, offset."""
    system = System("three wheels", gravity=(0, -9.81, 0))
    for k in range(3):
        system.add(
            name=f"w{k}", parent="world", mass=1, center_of_mass=(0.1, 0, 0), inertia=(1, 1, 1, 0, 0, 0),
            joint={"type": "revolute"},
        )  # fmt: skip
    for k, (joint, of, ratio, offset) in enumerate(gears):
        system.add_gear(name=f"g{k}", joint=f"w{joint}", of=f"w{of}", ratio=ratio, offset=offset)
    return system


CONTRADICTIONS = {
    "ratios": ([(0, 1, 2, 0), (0, 1, 3, 0)], "'g1' .*'w0' and 'w1' contradict .*: its ratio is 3, theirs 2,"),
    "the other way": ([(0, 1, 2, 0.1), (1, 0, 0.6, 0)], "'g1' .*: its ratio is 0.6, theirs 0.5,"),
    "around": ([(0, 1, 2, 0), (1, 2, 2, 0), (2, 0, 2, 0)], "'g2' .*: its ratio is 2, theirs 0.25,"),
    "offsets": ([(0, 1, 2, 0), (0, 1, 2, 1.0)], "'g1' .*: its offset is 1, theirs 0 "),
    "offsets around": ([(0, 1, 2, 0.5), (1, 2, 2, 0), (2, 0, 0.25, 0)], "'g2' .*: its offset is 0, theirs -0.125 "),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_gears_that_contradict_one_another_are_refused(comm: MPI.Comm, case: str) -> None:
    gears, words = CONTRADICTIONS[case]
    for use in (
        lambda: simulate(three_wheels(*gears), 0.1, comm),
        lambda: Dynamics(three_wheels(*gears), comm),
        lambda: validate(three_wheels(*gears).contents),
    ):
        with pytest.raises(InputError, match=f"gear {words}"):
            use()
    doubled = three_wheels((0, 1, 2, 0.1), (1, 0, 0.5, -0.05), (2, 0, 3, 0), (2, 1, 6, 0.3))
    assert loop_report(doubled.contents).numbers()["start"]["redundant"] == 2


def test_a_gear_that_contradicts_those_that_hold_ends_the_run_when_it_is_connected(comm: MPI.Comm) -> None:
    system = three_wheels((0, 1, 2, 0))
    for k in (3, 4, 5):  # a body for every rank
        system.add(name=f"w{k}", parent="world", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint={"type": "revolute"})
    system.add_gear(name="other", joint="w0", of="w1", ratio=3, active=False)
    system.add_event(time=0.05, connect=["other"])
    with pytest.raises(SimulationError, match=r"t = 0.05 s, event \(.*other.*\): .*gear 'other' .* contradict"):
        simulate(system, 0.1, comm)


@functools.cache
def solution(name: str) -> tuple[State, Array, Array]:
    state = STATES[name]()
    return state, *geared(*state)


@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("name", STATES)
def test_accelerations_and_loads(comm: MPI.Comm, name: str) -> None:
    """By the dense oracle; how fast gears depart from what they ask, and the speeds that they leave."""
    (system, q, u, tau), expected, forces = solution(name)
    gears = [k for k, loop in enumerate(system.contents.loops) if isinstance(loop, Gear)]
    with closing(Dynamics(system, comm)) as dynamics:
        mine, own = parts(dynamics, q, u, tau), dynamics.gather_u.part
        found = dynamics.accelerations(*mine)
        carried = dynamics.loads.joints_and_loops(*mine).loops
        assert carried is not None
        loads = np.linalg.norm(carried[gears], axis=1)
        left = dynamics.loops.violations(*mine[:2])[gears, 1]
        speeds = dynamics.gather_u.everywhere(dynamics.loops.close_speeds(*mine[:2]))
    assert_close("accelerations", found, expected[own], "loops", scale=float(np.abs(expected).max()), comm=comm)
    assert_close("loads", loads, np.abs(forces), "loops", comm=comm)
    assert_close("departing", left, np.abs(gear_rows(system) @ u), "dense", scale=1.0, comm=comm)
    assert_close("speeds", gear_rows(system) @ speeds, np.zeros(len(gears)), "loops", scale=1.0, comm=comm)


def wheels(**fields: Any) -> System:
    """Two wheels about z, the large one out of balance and driven by the small one, on which a torque acts."""
    system = System("wheels")
    for name, inertia, center, torque in (("small", SMALL, 0.0, 0.5), ("large", 3.0, 0.1, 0.0)):
        shape = {"mass": 2.0, "center_of_mass": (center, 0, 0), "inertia": (inertia, inertia, inertia, 0, 0, 0)}
        joint = {"type": "revolute", "axis": (0, 0, 1), "torque": torque}
        system.add(name=name, parent="world", joint=joint, **shape)
    system.add_gear(name="teeth", joint="large", of="small", ratio=RATIO, **fields)
    return system


def test_a_geared_pair_is_one_wheel(comm: MPI.Comm) -> None:
    """Its inertia is I1 + ratio^2 I2; its energy is what the torque has given."""
    if comm.size > 2:
        pytest.skip("more ranks than bodies")
    result = simulate(wheels(), 4.0, comm, rtol=1e-10, atol=1e-10, every=0.1, loads=True)
    if comm.rank:  # the samples are on rank 0
        return
    acceleration = (0.5 - RATIO * WEIGHT) / (SMALL + RATIO**2 * LARGE)
    torque = LARGE * RATIO * acceleration + WEIGHT
    first, second = result.q.T
    energy = result.energy.sum(axis=1) - 0.5 * first
    assert_close("coordinates", second, RATIO * first, "closed", scale=1.0)
    assert_close("energy", energy, np.full_like(energy, energy[0]), "conserved", scale=1.0)
    assert_close("load", result.loop_loads[0, 0], [0, 0, torque, 0, 0, 0], "loops")


def test_what_begins_apart_is_put_together() -> None:
    system = wheels(offset=0.3)
    report = loop_report(system.contents)
    assert report.position_violation.size == pytest.approx(0.3) and report.joint_types == {"gear": 1}
    assert report.start is not None and report.start.mobility == 1
    closed = assemble(system.contents, np.array((0.2, 0.0)), np.array((1.0, 0.0)))
    assert_close("coordinates", closed.q[1], RATIO * closed.q[0] + 0.3, "closed", scale=1.0)
    assert_close("speeds", closed.u[1], RATIO * closed.u[0], "closed", scale=1.0)


def test_events_connect_gears_and_cut_their_joints() -> None:
    system = wheels(active=False)
    system.add_event(time=0.1, connect=["teeth"], gap="close")
    system.add_event(time=0.2, cut=["large"])
    result = simulate(system, 0.3, every=0.05)
    assert_close("speeds", result.u[1][0][1], RATIO * result.u[1][0][0], "closed", scale=1.0)
    assert len(result.u[2][0]) == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"joint": "ball"}, "gear 'other': the joint of body 'ball' is spherical, and a gear takes revolute"),
        ({"of": "smell"}, "gear 'other': unknown body 'smell'; did you mean 'small'"),
        ({"of": "large"}, "gear 'other': joint and of must be two different ones"),
        ({"ratio": 0}, "gear 'other': ratio must not be zero"),
        ({"joint": "led", "of": "driven"}, "gear 'other': both joints follow given motions; leave one"),
        ({"name": "teeth"}, "gear 'teeth': the name is taken by another loop or gear"),
    ],
)
def test_bad_gears(change: dict[str, Any], message: str) -> None:
    system = wheels()
    system.add(name="ball", parent="small", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint={"type": "spherical"})
    for name in ("led", "driven"):
        joint = {"type": "revolute", "motion": "numpy:cos"}
        system.add(name=name, parent="small", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=joint)
    with pytest.raises(InputError, match=message):
        system.add_gear(**{"name": "other", "joint": "large", "of": "small", "ratio": 1} | change)


@pytest.mark.parametrize("coupling", ["pcg", "augmented"])
def test_couplings_without_gears(comm: MPI.Comm, coupling: str) -> None:
    with pytest.raises(InputError, match=rf"has a gear \('teeth'\): coupling '{coupling}' has none; choose"):
        Dynamics(wheels(), comm, coupling)
