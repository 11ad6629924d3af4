"""The separated joints of a rank: what of them never changes, for the constraint-load equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling.constraint_equations import EQUATION_ITEMS, OUTER, OWN, SEPARATED
from mpimbs.parallel.halo import Halo
from mpimbs.spatial.handles import SCRATCH
from mpimbs.spatial.memory import Table, aligned_zeros
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import Build
from mpimbs.sweep.structure import BODY, FIRST_Q, FIRST_U, FIXED, LAST_U, PLACE
from mpimbs.sweep.subchains import Subchains

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def constraint_subspace(joint: Build) -> Floats:
    """Orthonormal basis of the loads that a joint transmits without doing work [6, 6 minus its degrees of freedom].

    In the frame of the joint's first step, where it is constant whatever the joint's coordinates: moments, then forces.

    Parameters
    ----------
    joint : Build
        A body alone with its inboard joint.
    """
    from scipy.linalg import qr  # takes 0.1 s: where it is needed

    s = joint.structure
    turn = np.eye(3)  # components in the first step's frame to those in the step's
    motion = np.zeros((6, len(s.axes)))
    for number, step in enumerate(s.steps):
        if number > 0:
            turn = s.fixed.reshape(-1, FIXED)[step[BODY], :9].reshape(3, 3) @ turn
        for d in range(step[FIRST_U], step[LAST_U]):
            unit = np.eye(6)[s.axes[d]]
            if s.axes[d] < 3:
                unit = unit + s.pitch[d] * np.eye(6)[s.axes[d] + 3]
            motion[:, d] = np.concatenate([unit[:3] @ turn, unit[3:] @ turn])
    across = np.eye(6) - motion @ np.linalg.pinv(motion)
    basis, _, _ = qr(across, pivoting=True)  # of unit axes where the joint's own are
    return np.asarray(basis[:, : 6 - len(s.axes)], np.float64)


class SeparatedJoints:
    """The tables of a rank's constraint-load equations, and the pattern of its rows of their matrix.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    subchains : Subchains
        Those of this rank; each begins with a separated joint, but for the chain's first.

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
    table : Table
        `table.data` is the argument of `constraint_equations.form` and `boundary_values`.
    """

    def __init__(self, comm: MPI.Comm, subchains: Subchains) -> None:
        count = len(subchains)
        slots = [slot for slot in range(1, count + 1) if subchains[slot - 1].first > 0]
        sizes = np.zeros(count + 2, np.int64)
        steps: list[Integers] = []
        axes: list[Integers] = []
        fixed: list[Floats] = []
        pitch: list[Floats] = []
        subspaces = np.zeros((len(slots), 6, ROW))
        pads = np.zeros((len(slots), 6, ROW))
        readable = [np.zeros((0, 6))]
        bodies: list[int] = []
        at_q = at_u = 0
        for slot, subchain in enumerate(subchains, 1):
            if slot in slots:
                made = subchain.joint()
                number = len(steps)
                subspace = constraint_subspace(made)
                sizes[slot] = subspace.shape[1]
                subspaces[number, : sizes[slot], :6] = subspace.T
                pads[number] = np.eye(6, ROW)
                pads[number, : sizes[slot]] = 0.0
                step = made.structure.steps[0].copy()
                step[[FIRST_Q, FIRST_U, LAST_U]] += (at_q, at_u, at_u)
                fixed.append(made.structure.fixed.reshape(-1, FIXED)[step[BODY]])
                step[BODY] = number
                steps.append(step)
                turn = made.body_frame[0] if len(made.structure.steps) == 1 else np.eye(3)
                readable.append((subspace.T.reshape(-1, 2, 3) @ turn.T).reshape(-1, 6))
                bodies += [subchain.first] * int(sizes[slot])
                axes.append(made.structure.axes)
                pitch.append(made.structure.pitch)
                at_u += len(made.structure.axes)
            at_q += subchain.nq
        sizes[0], sizes[-1] = _neighbours(comm, sizes[count], sizes[1])
        self.sizes = sizes[slots]
        self.rows = int(self.sizes.sum())
        self.bodies, self.subspaces = np.array(bodies, np.int64), np.concatenate(readable)
        self._all_sizes = sizes
        self._slots = np.array(slots, np.int64)
        self._halos = (Halo(comm, SEPARATED // 2, OUTER), Halo(comm, ROW, ROW))
        self.right, self.solution = np.zeros(self.rows), np.zeros(self.rows)
        items: dict[str, npt.NDArray[Any] | int] = {
            "halo": self._halos[0].plan,
            "load_halo": self._halos[1].plan,
            "sizes": sizes,
            "joint_slots": self._slots,
            "first": int(subchains[0].first == 0),
            "steps": np.array(steps, np.int64).ravel(),
            "axes": np.concatenate([np.zeros(0, np.int64), *axes]),
            "fixed": np.concatenate([np.zeros(0), *fixed]),
            "pitch": np.concatenate([np.zeros(0), *pitch]),
            "subspaces": _aligned(subspaces),
            "pads": _aligned(pads),
            "place": np.zeros(PLACE * len(slots)),
            "joints": aligned_zeros((count + 2) * SEPARATED),
            "outers": aligned_zeros((count + 2) * OUTER),
            "owns": aligned_zeros((count + 2) * OWN),
            "scratch": aligned_zeros(SCRATCH),
            "right": self.right,
            "solution": self.solution,
            "loads": aligned_zeros((count + 2) * ROW),
        }
        self.table = Table(EQUATION_ITEMS)
        for name, value in items.items():
            self.table.add(name, value)

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


def _aligned(values: Floats) -> Floats:
    room = aligned_zeros(values.size)
    room[:] = values.ravel()
    return room
