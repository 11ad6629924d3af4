"""Bodies without inertia in some direction: exact on any number of ranks, or refused by name."""

from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI

from mpimbs.base.errors import InputError, SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.model import Joint, System
from mpimbs.run.run import simulate
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import random_system
from tolerances import assert_close

SINGLE = ("revolute", "prismatic", "helical")  # joints of bodies that have nothing by themselves
RODS = {0: (0, [0] * 6), 1: (2.0, [0] * 6), 2: (1.0, [0, 0.5, 0.5, 0, 0, 0])}  # nothing, a point mass, a thin rod


def thinned(seed: int, n: int, chain: bool) -> tuple[System, Array, Array, Array]:
    """A random system in which every third body with something on it, at the most, is thin."""
    drawn, q, u, tau = random_system(seed, n, chain, wrenches=True)
    draw = np.random.default_rng(seed)
    bodies, made = list(drawn.contents.bodies()), System(f"thinned {seed}", drawn.gravity)
    carrying = {body.parent for body in bodies if body.joint.type in SINGLE}
    since = 2
    for body in bodies:
        since += 1
        if since > 1 + draw.integers(2) and body.joint.type in SINGLE and body.name in carrying:
            mass, inertia = RODS[int(draw.integers(3))]
            body = body.model_copy(update={"mass": mass, "inertia": tuple(inertia)})
            since = 0
        made.add(body)
    return made, q, u, tau


@pytest.mark.cases(8)
@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("coupling", ["dcae", "pcg", "assembly"])
@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_against_dense(comm: MPI.Comm, seed: int, chain: bool, coupling: str) -> None:
    """Accelerations, loads, M and the forces that give accelerations; also with more pieces than ranks."""
    system, q, u, tau = thinned(seed, 20, chain)
    for cuts in (None, comm.size + 1):
        given = {} if cuts is None else {"cuts": cuts}
        with closing(Dynamics(system, comm, coupling=coupling, **given)) as dynamics:
            own, part = dynamics.gather_u.part, dynamics.gather_q.part
            reference = dense.dense_accelerations(system, q, u, tau)
            udot = dynamics.accelerations(q[part], u[own], tau[own])
            kind = "iterated" if coupling == "pcg" else "dense"
            scale = float(np.abs(reference).max())
            assert_close("accelerations", udot, reference[own], kind, scale=scale, comm=comm)
            wanted = np.cos(np.arange(system.nu))
            forces = dense.inverse_dynamics(system, q, u, wanted)
            found = dynamics.inverse_dynamics(q[part], u[own], wanted[own])
            assert_close("forces", found, forces[own], "dense", scale=float(np.abs(forces).max()), comm=comm)
            told = dynamics.loads.residual(q[part], u[own], tau=tau[own])
            assert told.motion < 1e-9


@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("coupling", ["dcae", "pcg", "assembly"])
@pytest.mark.parametrize("chain", [True, False])
def test_marks_without_mass_are_no_burden(comm: MPI.Comm, chain: bool, coupling: str) -> None:
    """Fixed where nothing lies on them: on a tree and on the tip of a chain, on any ranks."""
    system, q, u, tau = random_system(2, 8, chain)
    for k in (7,) if chain else (3, 7):
        joint = Joint(type="fixed", position=(0.1, 0, 0))
        system.add(name=f"mark {k}", parent=system.contents.name_of(k), mass=0, inertia=(0,) * 6, joint=joint)
    reference = dense.dense_accelerations(system, q, u, tau)
    with closing(Dynamics(system, comm, coupling=coupling)) as dynamics:
        own = dynamics.gather_u.part
        udot = dynamics.accelerations(q[dynamics.gather_q.part], u[own], tau[own])
    kind = "iterated" if coupling == "pcg" else "dense"
    assert_close("accelerations", udot, reference[own], kind, scale=float(np.abs(reference).max()), comm=comm)


def test_lock_is_told(comm: MPI.Comm) -> None:
    """Three hinges with nothing between them, of which the first and the last lie in one another."""
    system = System("gimbal")
    for name, axis, q in (("a", (0, 0, 1), 0.3), ("b", (0, 1, 0), 0.1)):
        system.add(name=name, mass=0, inertia=(0,) * 6, joint=Joint(type="revolute", axis=axis, q=(q,)))
    moments, joint = (0.1, 0.12, 0.14, 0, 0, 0), Joint(type="revolute", axis=(1, 0, 0))
    system.add(name="c", mass=1, center_of_mass=(0.1, 0.2, 0.3), inertia=moments, joint=joint)
    for k in range(comm.size - 1):
        system.add(name=f"d{k}", mass=1, inertia=moments, joint=joint)
    q, u = system.contents.initial_state(0, system.n_bodies)
    q[1], u[:3] = np.pi / 2, (0.1, 0.2, 0.3)
    with pytest.raises(SimulationError, match=r"bodies without inertia, such as 'a', .*\(gimbal lock\)"):
        simulate(system, 0.1, comm, state=(q, u))


def test_what_nothing_resists_is_refused(comm: MPI.Comm) -> None:
    """By name: at the end, on a joint of the same axis, on ranks of which one would have it alone; and by couplings."""
    system, *_ = thinned(0, 20, True)
    last, joint = system.contents.body(19), Joint(type="revolute", axis=(0, 0.6, 0.8))
    system.add(name="bare", parent=last.name, mass=0, inertia=(0,) * 6, joint=joint)
    with pytest.raises(InputError, match=r"nothing resists the joint of body 'bare': .* nothing lies on it"):
        Dynamics(system, comm)
    system.add(last.model_copy(update={"name": "end", "parent": "bare", "joint": joint}))
    with pytest.raises(InputError, match=r"'bare': .* joints on it move it the same way"):
        Dynamics(system, comm)
    system, *_ = thinned(0, 20, True)
    for coupling in ("augmented", "dca"):
        with pytest.raises(InputError, match=r"joins single bodies, and '.*' has no inertia"):
            Dynamics(system, comm, coupling=coupling)
    if comm.size == 1:
        with pytest.raises(InputError, match=r"20 pieces of system 'thinned 0': bodies without inertia, such as"):
            Dynamics(system, comm, cuts=19)
