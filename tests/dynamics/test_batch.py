"""Batches: every copy as if alone, whatever stands in the lanes beside it; shares of ranks; what is refused."""

from collections.abc import Callable

import numpy as np
import pytest
from mpi4py import MPI

from cases import accelerations, moving_state, typed_chain
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.lanes import native_width
from mpimbs.model import Joint, System, Wrench, system_from
from mpimbs.run.ensembles.batch import Batch
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import random_system
from tolerances import assert_close

NATIVE = native_width()
SPECS = ("chain:12", "rope:5", "spatial_chain:9", "tree:3:2", "figure")


def states(systems: list[System]) -> list[Array]:
    """A state of each system, none like another: q, u and tau."""
    return [np.stack(part) for part in zip(*(moving_state(s, k) for k, s in enumerate(systems)), strict=True)]


def one_by_one(systems: list[System], q: Array, u: Array, tau: Array) -> Array:
    return np.stack([accelerations(s, *state) for s, *state in zip(systems, q, u, tau, strict=True)])


def assert_as_alone(what: str, batch: Batch, systems: list[System]) -> None:
    """Every copy of a batch on this process alone, after an evaluation of another state, against its own system."""
    q, u, tau = states(systems)
    batch.accelerations(q + 0.1, u - 0.1)
    udot, rates = np.full_like(u, np.nan), np.full_like(q, np.nan)
    batch.derivative(q, u, udot, rates, tau)
    expected = one_by_one(systems, q, u, tau)
    for k, system in enumerate(systems):
        assert_close(f"accelerations of copy {k} of {what}", udot[k], expected[k], "lanes")
        assert_close(f"rates of copy {k} of {what}", rates[k], dense.coordinate_rates(system, q[k], u[k]), "lanes")


def other_numbers(seed: int, n: int, springs: bool) -> System:
    """A tree of all joint types, the same for every seed but for its numbers."""
    base = random_system(5, n, False)[0]
    system = System(gravity=base.gravity)
    for k, body in enumerate(base.contents.bodies()):
        like = typed_chain((body.joint.type,), 100 * seed + k, springs=springs).contents.body(0)
        system.add(like.model_copy(update={"name": body.name, "parent": body.parent}))
    return system


@pytest.mark.cases(14)
@pytest.mark.parametrize("copies", [1, 2, 7, 8, 9, 16, 19])
@pytest.mark.parametrize("spec", [*SPECS, "random tree"])
def test_copies_are_as_if_alone(spec: str, copies: int) -> None:
    system = random_system(3, 14, False)[0] if spec == "random tree" else system_from(spec)
    batch = Batch(system, copies)
    assert (batch.first, batch.last, batch.copies) == (0, copies, copies)
    assert batch.lanes == (NATIVE if copies >= NATIVE else 1)
    assert_close("initial coordinates", batch.q, np.tile(system.contents.columns().q, (copies, 1)), "exact")
    assert_as_alone(spec, batch, [system] * copies)


@pytest.mark.cases(2)
@pytest.mark.parametrize("copies", [1, 8, 9, 19])
def test_systems_of_other_numbers(copies: int) -> None:
    """Masses, inertias, axes, frames and pitches of their own; springs and dampers in some copies only."""
    systems = [other_numbers(k, 12, springs=k % 5 == 2) for k in range(copies)]
    batch = Batch(systems)
    assert_close("initial coordinates", batch.q, np.stack([s.contents.columns().q for s in systems]), "exact")
    assert_close("initial speeds", batch.u, np.stack([s.contents.columns().u for s in systems]), "exact")
    assert_as_alone("different systems", batch, systems)


@pytest.mark.cases(2)
@pytest.mark.parametrize("copies", [3, 8, 11])
def test_wrenches(copies: int) -> None:
    """Wrenches given are those of a model that has them; they act until others are given."""
    systems = [other_numbers(k, 9, springs=True) for k in range(copies)]
    q, u, tau = states(systems)
    wrench = np.random.default_rng(0).uniform(-5, 5, (copies, 9, 6))
    loaded = []
    for system, given in zip(systems, wrench, strict=True):
        pushed = System(gravity=system.gravity)
        for body, values in zip(system.contents.bodies(), given, strict=True):
            load = Wrench(moment=values[:3].tolist(), force=values[3:].tolist(), frame="body")
            pushed.add(body.model_copy(update={"wrench": (load,)}))
        loaded.append(pushed)
    batch = Batch(systems, wrenches=True)
    free, pushed_by = one_by_one(systems, q, u, tau), one_by_one(loaded, q, u, tau)
    assert np.abs(free - pushed_by).max() > 1e-3
    assert_close("without", batch.accelerations(q, u, tau), free, "lanes")
    assert_close("with", batch.accelerations(q, u, tau, wrench), pushed_by, "lanes")
    assert_close("again", batch.accelerations(q, u, tau), pushed_by, "lanes")
    assert_close("taken off", batch.accelerations(q, u, tau, 0 * wrench), free, "lanes")


def loaded(k: int) -> System:
    """A chain with what a model can let act from outside, of its own strength."""
    system = system_from("chain:5")
    system.set_torque("link2", lambda t: 3.0 * k + t)
    system.add_wrench("link5", force=(1.0, 2.0 * k, 3.0), moment=lambda t: (t, k, 0))
    system.add_joint_force("link3", lambda t, q, u: -k * u)
    system.add_body_force("link4", lambda t, motion: (0 * motion.velocity, -k * motion.velocity))
    system.add_spring(name="s", bodies=("world", "link5"), positions=((1, 0, 0), (0, -1, 0)), stiffness=10 + k, rest=1)
    return system


@pytest.mark.parametrize("copies", [3, 9])
@pytest.mark.parametrize("different", [False, True])
def test_forces_of_models(copies: int, different: bool) -> None:
    """Functions of time and state, wrenches and springs between bodies, and wrenches given on top of them."""
    systems = [loaded(k if different else 1) for k in range(copies)]
    batch = Batch(systems, wrenches=True) if different else Batch(systems[0], copies, wrenches=True)
    q, u, tau = states(systems)
    dynamics = [Dynamics(system) for system in systems]
    expected = np.stack([d.accelerations(*state, 0.7) for d, *state in zip(dynamics, q, u, tau, strict=True)])
    assert_close("with forces", batch.accelerations(q, u, tau, t=0.7), expected, "lanes")
    given = np.zeros((copies, 5, 6))
    given[:, 2, 3:] = 1.0, 2.0, 3.0
    more = batch.accelerations(q, u, tau, given, t=0.7)
    for system in systems if different else systems[:1]:
        system.add_wrench("link3", force=(1, 2, 3), frame="body")
    expected = np.stack([Dynamics(s).accelerations(*x, 0.7) for s, *x in zip(systems, q, u, tau, strict=True)])
    assert_close("with wrenches", more[:1], expected[:1], "lanes")
    assert_close(
        "taken off",
        batch.accelerations(q, u, tau, 0 * given, t=0.7)[1:],
        batch.accelerations(q, u, tau, t=0.7)[1:],
        "exact",
    )


def test_a_force_that_fails() -> None:
    systems = [loaded(k) for k in range(3)]
    systems[1].add_joint_force("link1", lambda t, q, u: 1 / 0)
    batch = Batch(systems)
    with pytest.raises(SimulationError, match=r"copy 1: .* failed at t = 0.5 s: ZeroDivisionError"):
        batch.accelerations(batch.q, batch.u, t=0.5)


def test_make_unit() -> None:
    batch = Batch(system_from("figure"), 3)
    expected, q = batch.q.copy(), batch.q.copy()
    types = system_from("figure").contents.columns()
    for k in np.flatnonzero(np.diff(types.q_offset) > np.diff(types.u_offset)):
        q[:, types.q_offset[k] : types.q_offset[k] + 4] *= [[0.5], [2.0], [3.0]]
    assert np.any(q != expected)
    batch.make_unit(q)
    assert_close("q", q, expected, "rounding")


@pytest.mark.cases(2)
@pytest.mark.parametrize("copies", [4, 9, 19])
@pytest.mark.parametrize("different", [False, True])
def test_shares_of_ranks(comm: MPI.Comm, copies: int, different: bool) -> None:
    systems = [other_numbers(k if different else 0, 8, springs=True) for k in range(copies)]
    batch = Batch(systems, comm=comm) if different else Batch(systems[0], copies, comm)
    shares = comm.allgather((batch.first, batch.last))
    assert [k for first, last in shares for k in range(first, last)] == list(range(copies))
    q, u, tau = states(systems)
    mine = slice(batch.first, batch.last)
    udot = batch.accelerations(q[mine], u[mine], tau[mine])
    alone = Batch(systems, comm=MPI.COMM_SELF).accelerations(q, u, tau)
    assert_close("accelerations", udot, alone[mine], "lanes", scale=np.abs(alone).max(), comm=comm)


def loop() -> System:
    system = system_from("chain:4")
    system.add_loop(name="closing", type="revolute", bodies=("world", "link4"), positions=((0, 0, 0), (0, -2, 0)))
    return system


def following() -> System:
    system = system_from("chain:3")
    joint = Joint(type="revolute", motion=lambda t: (t, 1.0, 0.0))
    system.add(name="link4", parent="link3", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=joint)
    return system


def ending(kind: str, parent: str = "link3") -> System:
    system = system_from("chain:3")
    system.add(name="link4", parent=parent, mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=Joint(type=kind))
    return system


REFUSED = {
    "other joints": (lambda: ending("prismatic"), "system 7 of the batch has other joints"),
    "other sizes": (lambda: system_from("rope:4"), "system 7 of the batch has other joints"),
    "other parents": (lambda: ending("revolute", "link2"), "system 7 of the batch has other joints or parents"),
    "more bodies": (lambda: system_from("chain:5"), "system 7 of the batch has other joints"),
    "empty": (System, "bod"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_systems(comm: MPI.Comm, case: str) -> None:
    """The last system of eight is another; all ranks hear of it, also those that would not own it."""
    make, words = REFUSED[case]
    with pytest.raises(InputError, match=words):
        Batch([system_from("chain:4")] * 7 + [make()], comm=comm)


@pytest.mark.parametrize("make, words", [(loop, "closes a loop"), (following, "follow given motions")])
def test_systems_that_are_not_evaluated_side_by_side(comm: MPI.Comm, make: Callable[[], System], words: str) -> None:
    batch = Batch([make()] * 8, comm=comm)
    with pytest.raises(InputError, match=f"system 0 of the batch .* {words}, which lanes don't carry"):
        batch.accelerations(batch.q, batch.u)


def test_refused_numbers(comm: MPI.Comm) -> None:
    system = system_from("chain:4")
    for copies in (comm.size - 1, 0, -3):
        with pytest.raises(InputError, match=f"{copies} copies of 1 systems on {comm.size} ranks"):
            Batch(system, copies, comm)
    with pytest.raises(InputError, match="9 copies of 8 systems"):
        Batch([system] * 8, 9, comm)
    with pytest.raises(InputError, match="0 copies of 0 systems"):
        Batch([], comm=comm)
    for lanes in (0, 3, -8, 16):
        with pytest.raises(InputError, match=f"{lanes} lanes: give one of 1, 2, 4, 8"):
            Batch(system, 8, comm, lanes)
    parallel_assert(Batch(system, comm.size, comm).copies == 1, "one copy each", comm)


BAD_ARRAYS = {
    "too few": np.zeros((7, 20)),
    "flat": np.zeros(160),
    "not contiguous": np.zeros((20, 8)).T,
    "whole numbers": np.zeros((8, 20), np.int64),
    "single": np.zeros((8, 20), np.float32),
    "a list": [[0.0] * 20] * 8,
    "read-only": np.broadcast_to(0.0, (8, 20)).copy(),
}
BAD_ARRAYS["read-only"].flags.writeable = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_refused_arrays(case: str) -> None:
    """Each argument in turn: kernels would read beyond an array that is too small."""
    system = system_from("rope:5")
    batch = Batch(system, 8, wrenches=True)
    good = {"q": batch.q, "u": batch.u, "udot": np.zeros((8, 15)), "rates": np.zeros((8, 20))}
    bad = BAD_ARRAYS[case]
    for name in (*good, "tau", "wrench"):
        with pytest.raises(InputError, match=f"{name} must be a contiguous array of float64 of shape"):
            batch.derivative(**(good | {name: bad}))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="q must be a contiguous array"):
        batch.make_unit(bad)  # type: ignore[arg-type]


def test_wrenches_that_were_not_announced() -> None:
    batch = Batch(system_from("rope:5"), 2)
    with pytest.raises(InputError, match="make it with wrenches=True"):
        batch.accelerations(batch.q, batch.u, wrench=np.zeros((2, 5, 6)))
