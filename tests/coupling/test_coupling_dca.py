"""DCA, and DCA with a swept terminal part: the algebra of a join, accelerations and loads on any number of ranks."""

from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI

from cases import mixed_chain
from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.model import Joint, System, system_from
from mpimbs.spatial.rows import ROW
from mpimbs.values.assembly import (
    AXES,
    BLOCK,
    CROSS,
    FAR,
    JOINT,
    NEAR,
    RECORD,
    assemble_pair,
    disassemble_pair,
    release,
)
from oracles import dense
from oracles.dense import Array
from tolerances import assert_close

COUPLINGS = ("dca", "dca-terminal")


def random_assembly(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """A block, and the same as matrices: A = phi f + b for both handles together [12, 12], [12]."""
    root = rng.normal(size=(12, 12))
    phi, b = root @ root.T + np.eye(12), rng.normal(size=12)
    rows = np.zeros((18, ROW))
    rows[:6, :6], rows[6:12, :6], rows[12:, :6] = phi[:6, :6], phi[:6, 6:], phi[6:, 6:]
    rows[:6, 6], rows[12:, 6] = b[:6], b[6:]
    return rows.ravel(), phi, b


@pytest.mark.parametrize("freed", range(7))
def test_join_against_one_linear_system(freed: int) -> None:
    """Two assemblies and a joint: equations 15 to 20 of all unknowns at once."""
    rng = np.random.default_rng(freed)
    (left, phi_l, b_l), (right, phi_r, b_r) = random_assembly(rng), random_assembly(rng)
    s, c, tau = rng.normal(size=(6, freed)), rng.normal(size=6), rng.normal(size=freed)
    joint = np.zeros((7, ROW))
    joint[0, :6], joint[1 : 1 + freed, :6], joint[1 : 1 + freed, 6] = c, s.T, tau
    assert AXES == ROW and joint.size == JOINT
    f1, f2 = rng.normal(size=(2, 6))
    # unknowns: the load f on the right, udot.  P f + g = S udot + c,  S^T f = tau
    g = phi_r[:6, 6:] @ f2 - phi_l[6:, :6] @ f1 + b_r[:6] - b_l[6:]
    matrix = np.block([[phi_r[:6, :6] + phi_l[6:, 6:], -s], [s.T, np.zeros((freed, freed))]])
    solution = np.linalg.solve(matrix, np.concatenate((c - g, tau)))
    f, udot = solution[:6], solution[6:]
    record, both = np.zeros(RECORD), np.zeros(BLOCK)
    release(left, right, joint.ravel(), freed, record)
    assemble_pair(left, right, record, both)
    got_f, got_udot = np.zeros(6), np.zeros(freed)
    rows = both.reshape(18, ROW)
    a1 = phi_l[:6] @ np.concatenate((f1, -f)) + b_l[:6]
    a2 = phi_r[6:] @ np.concatenate((f, f2)) + b_r[6:]
    near, cross, far = (rows[at // ROW : at // ROW + 6] for at in (NEAR, CROSS, FAR))
    assert_close("A1", near[:, :6] @ f1 + cross[:, :6] @ f2 + near[:, 6], a1, "responses")
    assert_close("A2", cross[:, :6].T @ f1 + far[:, :6] @ f2 + far[:, 6], a2, "responses")
    assert_close("what is beside P12", cross[:, 6:], np.zeros((6, 2)), "exact")
    disassemble_pair(left, right, joint.ravel(), freed, record, f1, f2, got_f, got_udot)
    assert_close("load", got_f, f, "responses")
    assert_close("udot", got_udot, udot, "responses")


def udot_of(system: System, comm: MPI.Comm, coupling: str, q: Array, u: Array, tau: Array) -> tuple[Array, slice]:
    with closing(Dynamics(system, comm, coupling)) as dynamics:
        mine = dynamics.gather_u.part
        return dynamics.accelerations(q[dynamics.gather_q.part], u[mine], tau[mine]), mine


@pytest.mark.cases(3)
@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("n", [4, 9, 30])
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_all_joint_types_against_dense(comm: MPI.Comm, coupling: str, n: int) -> None:
    """Random chains of all joint types with springs and wrenches."""
    for seed in range(3):
        system, q, u, tau = mixed_chain(n, seed)
        reference = dense.dense_accelerations(system, q, u, tau)
        got, mine = udot_of(system, comm, coupling, q, u, tau)
        assert_close("accelerations", got, reference[mine], "assembled", scale=np.abs(reference).max(), comm=comm)


def test_refusals(comm: MPI.Comm) -> None:
    """What these couplings can't do is said by name, on all ranks; a body far from its joint is a point in doubles."""
    point = system_from("chain:8")
    hinge = Joint(type="revolute", axis=(0, 0, 1), position=(0, -2, 0))
    point.add(name="point", mass=1.0, center_of_mass=(0, -1e9, 0), inertia=(1, 1, 1, 0, 0, 0), joint=hinge)
    for system, options, message in (
        (point, {"coupling": "dca"}, "'point'.*no inverse inertia"),
        (system_from("tree:2:2"), {"coupling": "dca"}, "is a tree"),
        (system_from("chain:8"), {"coupling": "dca", "cuts": 5}, "leave `cuts=5` out"),
        (system_from("chain:8"), {"coupling": "dca", "lanes": 8}, "leave `lanes=8` out"),
    ):
        with pytest.raises(InputError, match=message):
            Dynamics(system, comm, **options)  # type: ignore[arg-type]
