"""The constraint-load equations of one piece of a system with loops: a compliance of what acts on it."""

from __future__ import annotations

import numpy as np

from mpimbs.coupling.separated_joint import SeparatedJoint
from mpimbs.spatial.memory import Floats, Integers
from mpimbs.spatial.mixed import C_COLUMN, NOISE_COLUMN, OPEN_BODY, MixedRoom, OpenGroup, row_at
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.six import EXTRA

_SIX = np.arange(6)


class LoopedElement:
    """The equations of a piece.

    Parameters
    ----------
    room : MixedRoom
        Of its value.
    groups : list of OpenGroup
        Of its value.
    joints : list of SeparatedJoint
        Its own.
    first : int
        Number of the first of these on the rank.
    slots : list of int
        Those of its joints; and, behind them, that of what hangs on the world, if anything does.
    hanging : list of list of int
        Of each open body, where the joints that hang on it stand among those that are known, and their sizes.
    loops : list of int
        How many loads each open loop has.
    """

    def __init__(
        self,
        room: MixedRoom,
        groups: list[OpenGroup],
        joints: list[SeparatedJoint],
        first: int,
        slots: list[int],
        hanging: list[list[tuple[int, int]]],
        loops: list[int],
    ) -> None:
        self._room, self.first = room, first
        self.sizes = [joint.size for joint in joints]
        self.slots, self._world = slots[: len(joints)], slots[len(joints) :]
        self._ends = np.cumsum([0, *self.sizes])
        own = int(self._ends[-1])
        behind = sum(size for joints_here in hanging for _, size in joints_here)
        at = own + 6 * np.arange(len(groups))
        self.bodies = [k for k, group in enumerate(groups) if group.sort == OPEN_BODY]
        self.loops = [k for k, group in enumerate(groups) if group.sort != OPEN_BODY]
        self.loads = np.zeros((own + 6 * len(groups), own + behind + sum(loops)))  # S
        self.given = np.zeros(len(self.loads))  # s
        self.loads[:own, :own] = np.eye(own)
        self._hanging: list[tuple[slice, slice, int]] = []
        column = own
        for group, joints_here in zip(self.bodies, hanging, strict=True):
            for known, size in joints_here:
                rows = slice(int(at[group]), int(at[group]) + 6)
                self._hanging.append((rows, slice(column, column + size), known))
                column += size
        for group, size in zip(self.loops, loops, strict=True):
            self.loads[at[group] + np.arange(size), column + np.arange(size)] = 1.0
            column += size
        self._groups = own + np.arange(6 * len(groups)).reshape(-1, 6)
        self._rows = (ROW * (room.inboard + np.arange(len(groups)))[:, None] + _SIX).ravel()
        self.compliance = np.zeros((len(self.loads), len(self.loads)))  # D
        self.constant = np.zeros(len(self.loads))  # r
        self.noise = np.zeros(len(self.loads))  # of the diagonal, as of `spatial.fronts`

    def group(self, vector: Floats, number: int) -> Floats:
        """The part of a group of loads or accelerations."""
        return vector[self._groups[number]]

    def _matrix(self, value: Floats) -> tuple[Floats, Integers, int]:
        """The equations in a value, which rows are those of groups, and the column behind the blocks."""
        blocks, first = self._room.inboard + self._room.open, row_at.py_func(self._room, 0, 0)
        return value[first:].reshape(ROW * blocks, -1), self._rows, ROW * blocks

    def _joint(self, number: int) -> slice:
        """Where its constraint loads are among the loads."""
        return slice(int(self._ends[number]), int(self._ends[number + 1]))

    def separate(self, value: Floats, root: Floats, driven: Floats, left: Floats) -> None:
        """Find D and r, and g in [B | g] of its own joints, given their left inverses."""
        matrix, rows, behind = self._matrix(value)
        own = int(self._ends[-1])
        inverse, force, far = np.zeros((own, own)), np.zeros(own), np.zeros((own, len(rows)))
        for number, slot in enumerate(self.slots):
            here, at = self._joint(number), ROW * slot + _SIX
            size = self.sizes[number]
            b, across, p = driven[number, :, :size], left[number, :size, :6], matrix[at, behind + C_COLUMN]
            inertia = across @ matrix[np.ix_(at, at)] @ across.T
            force[here] = across @ p
            driven[number, :, EXTRA] = p - b @ force[here]
            inverse[here, here] = np.linalg.inv(0.5 * (inertia + inertia.T))
            far[here] = across @ matrix[np.ix_(rows, at)].T  # G
        compliance, constant = matrix[np.ix_(rows, rows)], matrix[rows, behind + C_COLUMN].copy()
        for slot in self._world:
            constant += matrix[rows][:, ROW * slot + _SIX] @ root
        response = inverse @ far
        compliance = compliance + far.T @ response
        d, groups = self.compliance, self._groups.ravel()
        d[:own, :own], d[:own, groups], d[groups[:, None], np.arange(own)] = inverse, response, response.T
        d[np.ix_(groups, groups)] = 0.5 * (compliance + compliance.T)
        self.constant[:own], self.constant[groups] = -inverse @ force, constant - response.T @ force
        for group in self.loops:
            self.noise[self._groups[group]] = matrix[rows[6 * group + _SIX], behind + NOISE_COLUMN]

    def form(self, driven: Floats) -> Floats:
        """Its part of the matrix; beside it of the right-hand side, and of the noise of the diagonals of loops.

        `driven`: [B | g] of all joints that are known.
        """
        self.given[:] = 0.0
        for rows, columns, known in self._hanging:
            self.loads[rows, columns] = -driven[known, :, : columns.stop - columns.start]
            self.given[rows] -= driven[known, :, EXTRA]
        right = -(self.compliance @ self.given + self.constant)
        return self.loads.T @ np.column_stack((self.compliance @ self.loads, right, self.noise))

    def solve(self, unknowns: Floats) -> tuple[Floats, Floats]:
        """Loads, and the accelerations that belong to them, of the solution."""
        loads: Floats = self.loads @ unknowns + self.given
        return loads, self.compliance @ loads + self.constant

    def place(self, loads: Floats, accelerations: Floats, root: Floats, out: Floats) -> None:
        """Write boundary values, given those of the bodies that its joints hang on [joints, 6]."""
        rows, inboard = out.reshape(-1, 6), self._room.inboard
        rows[self.slots] = accelerations
        rows[self._world] = root
        rows[inboard : inboard + len(self._groups)] = loads[self._groups]
