"""The inertia matrix over ranks, what applies it and its inverse, and Jacobians: against the dense oracle, Pinocchio,
identities and differences."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
import pinocchio as pin
import pytest
from mpi4py import MPI

from cases import moving_state, parts, with_rotors
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.operators.composites import FORMS
from mpimbs.model import System, system_from
from oracles import dense
from oracles.dense import Array
from oracles.loops import opened
from oracles.pinocchio_oracle import PinocchioOracle
from oracles.random_systems import random_system
from tolerances import assert_close

SYSTEMS = ["chain:9", "spatial_chain:70", "free_chain:6", "rope:7", "figure", "tree:3:3", "random_tree:40:3", "crowd:2"]


@contextmanager
def moving(comm: MPI.Comm, system: System, seed: int = 1) -> Iterator[tuple[Dynamics, Array, Array, Array, Array]]:
    """Dynamics, the rank's part of a state, and the whole of it."""
    q, u, _ = moving_state(system, seed)
    with closing(Dynamics(system, comm)) as dynamics:
        yield dynamics, *parts(dynamics, q, u), q, u


def whole(dynamics: Dynamics, rows: Array) -> Array:
    """A matrix of the whole system in the model's order, from the ranks' rows, on all ranks."""
    found: Array = dynamics.comm.bcast(dynamics.inertia.gather_rows(rows))
    return found


def columns(dynamics: Dynamics, mine: Array) -> Array:
    """A matrix in the model's order, from the ranks' columns."""
    of_ranks = dynamics.comm.allgather((np.arange(dynamics.system.nu)[dynamics.gather_u.part], mine))
    found = np.empty((len(mine), dynamics.system.nu))
    for where, own in of_ranks:
        found[:, where] = own
    return found


def seen(dynamics: Dynamics, q: Array, point: Array) -> tuple[Array, Array]:
    """Rotation of the last body of the model, and where a point of it is, on all ranks."""
    rotations, positions = dynamics.poses(q, np.zeros(dynamics.subchain.nu))
    here = [
        (rotations[k], positions[k] + rotations[k] @ point)
        for k in np.flatnonzero(dynamics.bodies == dynamics.system.n_bodies - 1)
    ]
    return next(found[0] for found in dynamics.comm.allgather(here) if found)


@pytest.mark.parametrize("kind", SYSTEMS)
@pytest.mark.parametrize("form", FORMS)
def test_matrix(comm: MPI.Comm, kind: str, form: str) -> None:
    system = system_from(kind)
    with moving(comm, system) as (dynamics, q, _, whole_q, _):
        reference = PinocchioOracle(system).mass_matrix(whole_q)
        rows = dynamics.inertia_matrix(q, form)
        found = whole(dynamics, rows)
        assert_close("M", found, reference, "pinocchio", comm=comm)
        parallel_assert(np.array_equal(found, found.T), "M is not symmetric", comm)
        for layout in ("csr", "upper"):
            sparse = whole(dynamics, dynamics.inertia_matrix(q, form, layout).toarray())
            expected = np.where(np.abs(sparse) > 0, reference, 0.0) if layout == "upper" else reference
            assert_close(layout, sparse, expected, "pinocchio", comm=comm)
            parallel_assert(layout == "csr" or np.count_nonzero(sparse) < reference.size, "more than a half", comm)


@pytest.mark.parametrize("kind", ["spatial_chain:200", "caterpillar:100", "random_tree:150"])
def test_whole_blocks(comm: MPI.Comm, kind: str) -> None:
    """More than one block of numbers that are written together: against numbers by themselves, and load sweeps."""
    with moving(comm, system_from(kind)) as (dynamics, q, u, _, _):
        rows, alone = dynamics.inertia_matrix(q), dynamics.inertia_matrix(q, layout="csr").toarray()
        assert_close("M", rows, alone, "long", comm=comm)
        inverse = dynamics.inertia.inverse_matrix(q)
        parts = comm.allgather((np.arange(dynamics.system.nu)[dynamics.gather_u.part], u))
        answer = inverse @ np.concatenate([own for _, own in parts])
        assert_close("M^-1 f", answer, dynamics.inertia.factor(q).solve(u), "long", comm=comm)


@pytest.mark.parametrize("seed", range(4))
def test_any_joints(comm: MPI.Comm, seed: int) -> None:
    """All joint types, children in any order, rotors."""
    system, q, u, _ = random_system(seed, 14, seed % 2 == 0)
    with_rotors(system)
    with closing(Dynamics(system, comm)) as dynamics:
        mine, speeds = parts(dynamics, q, u)
        reference = dense.mass_matrix(system, q)
        assert_close("M", whole(dynamics, dynamics.inertia_matrix(mine)), reference, "dense", comm=comm)
        product = (reference @ u)[dynamics.gather_u.part]
        size = float(np.abs(reference @ u).max())
        assert_close("M u", dynamics.inertia.multiply(mine, speeds), product, "dense", size, comm)
        assert_close(
            "M^-1 M u", dynamics.inertia.solve(mine, product), speeds, "iterated", float(np.abs(u).max()), comm
        )


@pytest.mark.parametrize("kind", ["spatial_chain:40", "figure", "random_tree:40:3"])
def test_applied(comm: MPI.Comm, kind: str) -> None:
    with moving(comm, system_from(kind)) as (dynamics, q, u, whole_q, whole_u):
        reference = dense.mass_matrix(dynamics.system, whole_q)
        mine = dynamics.gather_u.part
        product = reference @ whole_u
        assert_close("M u", dynamics.inertia.multiply(q, u), product[mine], "dense", float(np.abs(product).max()), comm)
        kinetic = comm.allreduce(float(u @ dynamics.inertia.multiply(q, u))) / 2
        assert_close("energy", kinetic, dynamics.energy_and_momentum(q, u)[0], "dense", comm=comm)
        inverse = whole(dynamics, dynamics.inertia.inverse_matrix(q))
        assert_close("M^-1 M", inverse @ reference, np.eye(len(reference)), "responses", comm=comm)
        for layout in ("aij", "sbaij", "shell"):
            matrix = dynamics.inertia.shell(q) if layout == "shell" else dynamics.inertia_matrix(q, layout=layout)
            x, y = matrix.createVecs()
            x.getArray()[:] = u
            matrix.mult(x, y)
            assert_close(layout, y.getArray(), product[mine], "dense", float(np.abs(product).max()), comm)
        matrix.solve(y, x) if layout == "aij" else dynamics.inertia.shell(q, inverse=True).mult(y, x)
        assert_close("solved", x.getArray(), u, "iterated", float(np.abs(whole_u).max()), comm)
        operator = dynamics.inertia.operator(q)
        assert_close("operator", operator @ u, product[mine], "dense", float(np.abs(product).max()), comm)


@pytest.mark.parametrize("kind", ["spatial_chain:36", "figure", "free_chain:5"])
def test_inverse(kind: str) -> None:
    """The inverse, formed by load sweeps."""
    system = system_from(kind)
    with moving(MPI.COMM_SELF, system) as (dynamics, _, _, q, _):
        peer = PinocchioOracle(system)
        where = np.ix_(peer.u_index, peer.u_index)
        inverse = np.triu(pin.computeMinverse(peer.model, peer.data, peer.q_of(q)))
        reference = inverse + np.triu(inverse, 1).T
        found = dynamics.inertia.gather_rows(dynamics.inertia.inverse_matrix(q[dynamics.gather_q.part]))
        assert_close("M^-1", found, reference[where], "pinocchio")


@pytest.mark.parametrize("kind", ["spatial_chain:20", "figure", "random_tree:40:3"])
@pytest.mark.parametrize("frame", ["world", "body"])
def test_jacobians(comm: MPI.Comm, kind: str, frame: str) -> None:
    """Against differences of poses along a motion, and energy: J u is the velocity, J^T w its power."""
    point, step = np.array([0.3, -0.2, 0.1]), 1e-5
    with moving(comm, system_from(kind)) as (dynamics, q, u, _, _):
        subchain = dynamics.subchain
        body = dynamics.system.name_of(dynamics.system.n_bodies - 1)

        def placed(time: float) -> tuple[tuple[Array, Array], Array]:
            here = subchain.displaced(q, time * u)
            return seen(dynamics, here, point), dynamics.jacobians.product(here, u, body, point)

        (_, behind), (rotation, here), (_, ahead) = (placed(t)[0] for t in (-step, 0.0, step))
        to_frame = np.eye(3) if frame == "world" else rotation.T
        twist = dynamics.jacobians.product(q, u, body, point, frame)
        assert_close("velocity", twist[3:], to_frame @ (ahead - behind) / (2 * step), "difference", comm=comm)
        bias = dynamics.jacobians.bias(q, u, body, point, frame)
        changes = (placed(step)[1] - placed(-step)[1]) / (2 * step)  # of J u in the world's components
        assert_close("dJ/dt u", bias.reshape(2, 3), changes.reshape(2, 3) @ to_frame.T, "difference", comm=comm)
        jacobian = columns(dynamics, dynamics.jacobian(q, body, point, frame))
        wrench = np.arange(1.0, 7.0)
        forces = dynamics.jacobians.transpose(q, wrench, body, point, frame)
        assert_close("J^T w", forces, (jacobian.T @ wrench)[dynamics.gather_u.part], "rounding", 30.0, comm)
        power = comm.allreduce(float(forces @ u))
        assert_close("power", power, wrench @ twist, "dense", comm=comm)
        everywhere = dynamics.jacobian(q, body, point, frame, "all")
        own = dynamics.jacobian(q, body, point, frame, "owner")
        owner = comm.allgather(own.shape[1])
        parallel_assert(sum(n > 0 for n in owner) == 1, f"owners: {owner}", comm)
        parallel_assert(own.size == 0 or np.array_equal(own, everywhere), "owner's differs", comm)
        center, moves = dynamics.jacobians.center_of_mass(q)
        mass = comm.allreduce(float(subchain.columns.mass.sum()))
        linear = mass * comm.allreduce(moves @ u)
        assert_close("momentum", linear, dynamics.energy_and_momentum(q, u)[2:5], "dense", comm=comm)
        again = [dynamics.jacobians.center_of_mass(subchain.displaced(q, t * u))[0] for t in (-step, step)]
        assert_close("centre", (again[1] - again[0]) / (2 * step), linear / mass, "difference", comm=comm)
        del center, here


def test_operational_space(comm: MPI.Comm) -> None:
    with moving(comm, system_from("figure")) as (dynamics, q, _, whole_q, _):
        first, last = (dynamics.system.name_of(k) for k in (3, 14))
        rows = np.concatenate([columns(dynamics, dynamics.jacobian(q, name)) for name in (first, last)])
        reference = rows @ np.linalg.solve(dense.mass_matrix(dynamics.system, whole_q).astype(float), rows.T)
        found = dynamics.jacobians.operational_inertia(q, [first, (last, (0.0, 0.0, 0.0))])
        assert_close("J M^-1 J^T", found, reference, "responses", comm=comm)


@pytest.mark.parametrize("kind", ["four_bar:5", "boom:3", "track:9"])
def test_loops_are_open(comm: MPI.Comm, kind: str) -> None:
    system = system_from(kind)
    with closing(Dynamics(system, comm)) as dynamics:
        q = dynamics.subchain.q
        tree = opened(system)
        reference = dense.mass_matrix(tree, tree.initial_state(0, tree.n_bodies)[0])
        rows = dynamics.inertia_matrix(q)
        assert_close("M", whole(dynamics, rows), reference, "dense", comm=comm)
        force = np.cos(np.arange(system.nu))
        found = dynamics.inertia.solve(q, force[dynamics.gather_u.part])
        expected = np.linalg.solve(reference.astype(float), force)
        size = float(np.abs(expected).max())
        assert_close("M^-1 f", found, expected[dynamics.gather_u.part], "responses", size, comm)


@pytest.mark.parametrize("kind", ["four_bar:5", "boom:3", "andrews"])
def test_jacobian_of_loops(comm: MPI.Comm, kind: str) -> None:
    """J u is how fast ends part, as evaluations measure it; and with M^-1 J^T it takes away what loops don't allow."""
    with moving(comm, system_from(kind)) as (dynamics, q, u, _, _):
        q = dynamics.subchain.q
        jacobian, responses = dynamics.inertia.loop_jacobian(q), dynamics.inertia.loop_responses(q)
        speeds = comm.allreduce(jacobian @ u)
        together = comm.allreduce(jacobian @ responses)
        assert dynamics.loops is not None
        norms = np.linalg.norm(dynamics.loops.violations(q, u)[:, 1])
        assert_close("velocities", np.linalg.norm(speeds), norms, "dense", comm=comm)
        allowed = u - responses @ np.linalg.lstsq(together, speeds, rcond=1e-10)[0]
        size = comm.allreduce(float(np.abs(u).max(initial=0.0)), MPI.MAX)
        assert_close("projected", allowed, dynamics.loops.close_speeds(q, u), "responses", size, comm)


def test_what_is_refused(comm: MPI.Comm) -> None:
    system = system_from("random_tree:8:1")
    with closing(Dynamics(system, comm)) as dynamics:
        q = dynamics.subchain.q
        for call, words in (
            (lambda: dynamics.inertia_matrix(q, form="fast"), "form: 'fast' is none of doubling, recursive"),
            (lambda: dynamics.inertia_matrix(q, layout="dense"), "layout: 'dense' is none of"),
            (lambda: dynamics.inertia_matrix(q[:0] if comm.rank == 0 else q), "q must be an array"),
            (lambda: dynamics.jacobian(q, "nobody"), "unknown body 'nobody'"),
            (lambda: dynamics.jacobian(q, system.contents.name_of(0), frame="mine"), "frame: 'mine' is none of"),
            (lambda: dynamics.jacobian(q, system.contents.name_of(0), (1.0,)), "point"),
        ):
            with pytest.raises(InputError, match=words.replace("(", r"\(")):
                call()
