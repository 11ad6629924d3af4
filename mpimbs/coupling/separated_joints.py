"""The separated joints of a rank: what of them never changes, for the constraint-load equations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.coupling.constraint_equations import OUTER, OWN, SEPARATED, Equations
from mpimbs.parallel.halo import Halo
from mpimbs.spatial.handles import SCRATCH
from mpimbs.spatial.memory import Floats, Integers, Table, aligned_zeros
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import Build
from mpimbs.sweep.part import Part
from mpimbs.sweep.structure import BODY, FIRST_Q, FIRST_U, FIXED, LAST_U, PLACE, Structure


def constraint_subspace(joint: Build) -> Floats:
    """Orthonormal basis of the loads that a joint transmits and that are not given [6, 6 minus its degrees of freedom].

    In the frame of the joint's first step, where it is constant whatever the joint's coordinates: moments, then forces.
    An axis with a rotor is none of these degrees of freedom: what passes it is the given force less what the rotor
    takes, an unknown as the loads are that do no work; the rotor's inertia is in the subchain's I, so that B L B^T has
    it in its range.

    Parameters
    ----------
    joint : Build
        A body alone with its inboard joint.
    """
    from scipy.linalg import qr  # takes 0.1 s: where it is needed

    s = joint.structure
    turn = np.eye(3)  # components in the first step's frame to those in the step's
    motion = np.zeros((6, len(s.axes)))
    free = s.armature == 0 if s.armature.size else np.ones(len(s.axes), bool)
    for number, step in enumerate(s.steps):
        if number > 0:
            turn = s.fixed.reshape(-1, FIXED)[step[BODY], :9].reshape(3, 3) @ turn
        for d in range(step[FIRST_U], step[LAST_U]):
            unit = np.eye(6)[s.axes[d]]
            if s.axes[d] < 3:
                unit = unit + s.pitch[d] * np.eye(6)[s.axes[d] + 3]
            motion[:, d] = np.concatenate([unit[:3] @ turn, unit[3:] @ turn])
    motion = motion[:, free]
    across = np.eye(6) - motion @ np.linalg.pinv(motion)
    basis, _, _ = qr(across, pivoting=True)  # of unit axes where the joint's own are
    return np.asarray(basis[:, : 6 - motion.shape[1]], np.float64)


class SeparatedJoint(NamedTuple):
    """The separated joint that a subchain begins with."""

    slot: int  # number of the subchain on its rank, from 1 on
    body: int
    made: Build  # of the body alone with this joint
    first_q: int  # of the rank's coordinates
    first_u: int  # of the speeds of the rank's separated joints
    subspace: Floats  # [6, size]: see `constraint_subspace`

    @property
    def size(self) -> int:
        """Number of its constraint loads."""
        return int(self.subspace.shape[1])

    def padded_subspace(self) -> Floats:
        """Its subspace as rows of 8 [6, 8], of which `size` are in use."""
        padded = np.zeros((6, ROW))
        padded[: self.size, :6] = self.subspace.T
        return padded

    def pad(self) -> Floats:
        """What makes a matrix of `size` rows one of six that can be solved [6, 8]: ones in the other rows."""
        pad = np.eye(6, ROW)
        pad[: self.size] = 0.0
        return pad

    def of_the_body(self) -> Floats:
        """Its subspace in body frame components [size, 6]; of a joint of several steps, of a frame between them."""
        turn = self.made.body_frame[0] if len(self.made.structure.steps) == 1 else np.eye(3)
        turned: Floats = (self.subspace.T.reshape(-1, 2, 3) @ turn.T).reshape(-1, 6)
        return turned


def _joints(part: Part) -> list[SeparatedJoint]:
    """The separated joints of a rank's part, in its order."""
    joints = []
    at_q = at_u = 0
    for slot, subchain in enumerate(part, 1):
        if subchain.first > 0:
            made = subchain.joint()
            joints.append(SeparatedJoint(slot, subchain.first, made, at_q, at_u, constraint_subspace(made)))
            at_u += len(made.structure.axes)
        at_q += subchain.nq
    return joints


def _first_steps(joints: list[SeparatedJoint]) -> Structure:
    """The first step of each joint, in whose frame its constraint subspace stays, as the steps of one structure."""
    made = [joint.made.structure for joint in joints]
    steps = np.zeros((len(joints), 8), np.int64)
    fixed = np.zeros((len(joints), FIXED))
    for number, (joint, structure) in enumerate(zip(joints, made, strict=True)):
        steps[number] = structure.steps[0]
        fixed[number] = structure.fixed.reshape(-1, FIXED)[structure.steps[0, BODY]]
        steps[number, [FIRST_Q, FIRST_U, LAST_U]] += (joint.first_q, joint.first_u, joint.first_u)
        steps[number, BODY] = number
    axes = np.concatenate([np.zeros(0, np.int64), *(structure.axes for structure in made)])
    pitch = np.concatenate([np.zeros(0), *(structure.pitch for structure in made)])
    return Structure(steps, axes, fixed.ravel(), pitch, np.zeros(0), np.arange(len(steps)))


class SeparatedJoints:
    """The tables of a rank's constraint-load equations, and the pattern of its rows of their matrix.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    part : Part
        That of this rank; each of its subchains begins with a separated joint, but for the chain's first.

    Attributes
    ----------
    sizes : array [own joints]
        Constraint loads of each of this rank's separated joints.
    rows : int
        Constraint loads of this rank, the rows of the equations that it owns.
    bodies, subspaces : array [rows], [rows, 6]
        The body whose inboard joint has the load; what a load of 1 is, moment about the origin of the body's frame and
        force on the body, in body frame components (of a universal or planar joint, of a frame between its two steps).
    right, solution : array [rows]
        Right-hand side (rad/s^2, m/s^2) and constraint loads (N m, N).
    """

    def __init__(self, comm: MPI.Comm, part: Part) -> None:
        count = len(part)
        joints = _joints(part)
        self.sizes = np.array([joint.size for joint in joints], np.int64)
        self.rows = int(self.sizes.sum())
        self.bodies = np.repeat(np.array([joint.body for joint in joints], np.int64), self.sizes)
        self.subspaces = np.concatenate([np.zeros((0, 6)), *(joint.of_the_body() for joint in joints)])
        self._slots = np.array([joint.slot for joint in joints], np.int64)
        self._all_sizes = np.zeros(count + 2, np.int64)
        self._all_sizes[self._slots] = self.sizes
        self._all_sizes[[0, -1]] = _neighbours(comm, self._all_sizes[count], self._all_sizes[1])
        self._halos = (Halo(comm, SEPARATED // 2, OUTER), Halo(comm, ROW, ROW))
        self.right, self.solution = np.zeros(self.rows), np.zeros(self.rows)
        self._equations = Equations(
            halo=self._halos[0].plan,
            load_halo=self._halos[1].plan,
            sizes=self._all_sizes,
            joint_slots=self._slots,
            first=int(part[0].first == 0),
            joint=_first_steps(joints),
            subspaces=_aligned([joint.padded_subspace() for joint in joints]),
            pads=_aligned([joint.pad() for joint in joints]),
            place=np.zeros(PLACE * len(joints)),
            joints=aligned_zeros((count + 2) * SEPARATED),
            outers=aligned_zeros((count + 2) * OUTER),
            owns=aligned_zeros((count + 2) * OWN),
            scratch=aligned_zeros(SCRATCH),
            diagonal=np.zeros(0),
            beside=np.zeros(0),
            right=self.right,
            solution=self.solution,
            loads=aligned_zeros((count + 2) * ROW),
        )

    def table(self, diagonal: Floats, beside: Floats) -> Table:
        """Give the table whose `data` is the argument of `constraint_equations.form` and `boundary_values`.

        Parameters
        ----------
        diagonal, beside : array
            Where the matrix's values are written, in the order of `pattern`: of this rank's columns, and of others'.
        """
        return Table(self._equations._replace(diagonal=diagonal, beside=beside))

    def pattern(self, begin: int) -> tuple[Integers, Integers]:
        """Rows and columns of the matrix's entries [rows + 1], [entries], as for PETSc, given this rank's first row.

        The order is that in which `constraint_equations.form` writes the values of this rank's columns, and of others'.
        """
        starts, columns = [0], []
        at = begin
        for slot in self._slots:
            before, size, behind = (int(n) for n in self._all_sizes[slot - 1 : slot + 2])
            for _ in range(size):
                columns.append(np.arange(at - before, at + size + behind))
                starts.append(starts[-1] + before + size + behind)
            at += size
        return np.array(starts), np.concatenate([np.zeros(0, np.int64), *columns])

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return sum(halo.seconds for halo in self._halos)

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        for halo in self._halos:
            halo.close()


def _neighbours(comm: MPI.Comm, last: int, first: int) -> tuple[int, int]:
    """Sizes of the left neighbour's last joint and of the right one's first."""
    everybody = comm.allgather((int(last), int(first)))
    left = everybody[comm.rank - 1][0] if comm.rank > 0 else 0
    right = everybody[comm.rank + 1][1] if comm.rank + 1 < comm.size else 0
    return left, right


def _aligned(matrices: list[Floats]) -> Floats:
    """Matrices one after the other, at the begin of a cache line."""
    room = aligned_zeros(sum(matrix.size for matrix in matrices))
    room[:] = np.ravel(matrices)
    return room
