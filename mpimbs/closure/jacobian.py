"""The constraints of loops on the speeds of a system, J u = 0: sparse, and what they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.closure.geometry import FORCE, BodyMotions, Held, LoopJoints, body_motions
from mpimbs.model import JOINT_TYPES
from mpimbs.model.columns import Columns, numbers_of
from mpimbs.model.contents import Contents
from mpimbs.parts.scales import scales_of
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.structure import FIRST_U, LAST_U, Structure

if TYPE_CHECKING:
    from scipy.sparse import csr_array


EPSILON = float(np.finfo(float).eps)
ROOM_OF_ROUNDING = 10.0  # times as far from closed as one rounding of coordinates leaves loops they may be
_CANCELS = 1e-6  # of the largest load that passes a joint, what is nothing of their sum
MOST_ENTRIES = 4_000_000  # numbers of a Jacobian, 1 GB with what it is made from


class TooLargeError(Exception):
    """The loops span so many joints that their Jacobian isn't made."""


class Constraints(NamedTuple):
    """The constraints of all loops in a state, with lengths in units of each loop's size: numbers of about one or less.

    The size of a loop is the largest distance from one of its joints to that which closes it; of a gear, and where
    that is nothing, the system's length. `matrix` times what `columns` divides is what `rows` multiplies.
    """

    matrix: csr_array  # [rows, nu]
    violation: Floats  # [rows]
    rows: Floats  # [rows]: 1 or 1/m
    columns: Floats  # [nu]: 1 or m
    rounding: Floats  # [rows]: of `violation`, by that of coordinates and of distances from the origin
    whole: csr_array  # [rows, nu]: `matrix` with the columns of joints that follow given motions, which are 0 there
    held: Held


class LoopJacobian:
    """The constraints of all loops of a system, as a function of its state; on one process.

    Attributes
    ----------
    moves : array [nu]
        1, or 0 of a speed that is given by a motion.
    joints : LoopJoints
    subchain : Subchain
        The whole system.
    length : float
        The system's (m).

    Raises
    ------
    TooLargeError
        It would have more than `MOST_ENTRIES` numbers.
    """

    def __init__(self, system: Contents) -> None:
        self.system, self.joints, self.subchain = system, LoopJoints(system), Subchain(system)
        self._step = steps_of_speeds(self.subchain.structure)
        ends, self._gears = self.joints.bodies.copy(), self.joints.gears
        ends[self._gears.loop] = 0  # whose constraints are of two joints alone
        self._ways = _paths(system.parents(), np.diff(system.offsets()[1]), ends)
        self._row, self._speed, self._sign = self._pairs()
        self._shape = len(self.joints.loop), system.nu
        self.moves = np.where(system.columns().prescribed, 0.0, 1.0)
        self.length = scales_of(MPI.COMM_SELF, self.subchain).length

    def _pairs(self) -> tuple[Integers, Integers, Floats]:
        """Which rows depend on which speeds [entries], and on the side of which body: 1 the second, -1 the first."""
        joints, (loop, body, sign) = self.joints, self._ways
        speed, begin = numbers_of(self.system.offsets()[1], body)
        passing = np.repeat(np.arange(len(body)), np.diff(begin))
        held = np.diff(joints.first)[loop[passing]]
        if held.sum() > MOST_ENTRIES:
            raise TooLargeError
        row, _ = numbers_of(joints.first, loop[passing])
        entry = np.repeat(np.arange(len(passing)), held)
        return row, speed[entry], sign[passing[entry]]

    def bodies(self, q: Floats, u: Floats | None = None) -> BodyMotions:
        """Where the bodies are in a state, and how they move."""
        return body_motions(self.subchain, q, np.zeros(self.system.nu) if u is None else u)

    def at(self, q: Floats, bodies: BodyMotions | None = None) -> Constraints:
        """The constraints in a state, on the speeds and on displacements along them; `bodies` where those are known."""
        bodies, structure = bodies or self.bodies(q), self.subchain.structure
        held, steps = self.joints.held(bodies), bodies.steps[self._step]
        turning, sliding = axes_of_speeds(structure, steps)
        row, speed, loop = self._row, self._speed, self.joints.loop[self._row]
        arm = held.origin[loop] - steps[speed, 9:12]
        # moment . turning + force . (sliding + turning x arm)
        values = np.einsum("ni,ni->n", held.moment[row], turning[speed])
        values += np.einsum("ni,ni->n", held.force[row], sliding[speed] + np.cross(turning[speed], arm))
        size = np.zeros(len(self.joints.names))
        np.maximum.at(size, loop, np.linalg.norm(arm, axis=1))
        size[size == 0.0] = self.length
        # of a screw, a force and the moment that it turns into, such a row is of length 1, too
        screw, length = self.joints.screw, size[self.joints.loop]
        rows = np.where(self.joints.axis < FORCE, 1.0, np.hypot(1.0, screw) / np.hypot(length, screw))
        least = np.full(self.system.nu, np.inf)
        np.minimum.at(least, speed, size[loop])
        slides = np.where(np.isfinite(least), least, self.length)
        columns = np.where(structure.axes >= FORCE, slides, 1.0)
        values = np.concatenate((self._sign * values, self._gears.factor.ravel()))
        row = np.concatenate((row, np.repeat(self._gears.row, 2)))
        speed = np.concatenate((speed, self._gears.speed.ravel()))
        values *= rows[row] * columns[speed]
        from scipy.sparse import csr_array

        whole = csr_array((values, (row, speed)), shape=self._shape)
        matrix = whole if self.moves.all() else csr_array((values * self.moves[speed], (row, speed)), shape=self._shape)
        rounding = EPSILON * (1.0 + np.linalg.norm(held.origin, axis=1) / size)[self.joints.loop]
        rounding[self._gears.row] = EPSILON * (1.0 + rows[self._gears.row] * self._gears.terms(q))
        return Constraints(matrix, rows * held.violation, rows, columns, rounding, whole, held)

    def passes_on(self, q: Floats, here: Constraints, loads: Floats) -> npt.NDArray[np.bool_]:
        """Whether the joints of the tree carry anything of some loads of loops [bodies].

        Parameters
        ----------
        q, here
            Coordinates and the constraints there.
        loads : array [rows, cases]
            As `here.matrix` takes them: multipliers of its rows.
        """
        held, first = here.held, self.joints.first[:-1]
        multipliers = (here.rows[:, None] * loads)[:, :, None]
        # [loops, cases, 3], at F_b's origin
        moment, force = (np.add.reduceat(multipliers * unit[:, None], first) for unit in (held.moment, held.force))
        loop, body, sign = self._ways
        arm = (held.origin[loop] - self.bodies(q).origin[body])[:, None]
        parts = np.concatenate((moment[loop] + np.cross(arm, force[loop]), force[loop]), axis=2)
        length = np.linalg.norm(arm, axis=2)
        sizes = np.abs(moment[loop]).sum(axis=2) + length * np.abs(force[loop]).sum(axis=2)
        total, most = np.zeros((self.system.n_bodies, *parts.shape[1:])), np.zeros((self.system.n_bodies, 2))
        np.add.at(total, body, sign[:, None, None] * parts)
        np.maximum.at(most, body, np.stack((sizes.max(axis=1), np.abs(force[loop]).max(axis=(1, 2))), axis=1))
        left = np.abs(total).max(axis=1).reshape(-1, 2, 3).max(axis=2)
        return (left > _CANCELS * most).any(axis=1)


def steps_of_speeds(structure: Structure) -> Integers:
    """The step that each speed is of [nu]."""
    counts = structure.steps[:, LAST_U] - structure.steps[:, FIRST_U]
    speeds = np.arange(counts.sum()) + np.repeat(structure.steps[:, FIRST_U] - np.cumsum(counts) + counts, counts)
    found = np.empty(len(speeds), np.int64)
    found[speeds] = np.repeat(np.arange(len(counts)), counts)
    return found


def axes_of_speeds(structure: Structure, motions: Floats) -> tuple[Floats, Floats]:
    """How the step of each speed turns and slides by it [nu, 3], at the step's origin, world components.

    `motions` [nu, BOUNDARY]: of these steps.
    """
    unit = motions[:, :9].reshape(-1, 3, 3)[np.arange(len(motions)), structure.axes % 3]
    turns = (structure.axes < FORCE)[:, None]
    return unit * turns, unit * np.where(turns, structure.pitch[:, None], 1.0)


def _paths(parent: Integers, speeds: Integers, bodies: Integers) -> tuple[Integers, Integers, Floats]:
    """Bodies on the ways from the ends of each loop to where they meet: the loop, the body, 1 on the second's side."""
    depth = _depths(parent)
    ends = bodies.copy()
    found: list[tuple[Integers, Integers, Floats]] = []
    open_loops, entries = np.flatnonzero(ends[:, 0] != ends[:, 1]), 0
    while len(open_loops):
        now = ends[open_loops]
        side = np.argmax(depth[now], axis=1)  # the deeper end goes on; -1 is the world, whose depth stands last
        body = now[np.arange(len(now)), side]
        found.append((open_loops, body, np.where(side == 1, 1.0, -1.0)))
        entries += int(speeds[body].sum())
        if entries > MOST_ENTRIES:
            raise TooLargeError
        ends[open_loops, side] = parent[body]
        open_loops = open_loops[ends[open_loops, 0] != ends[open_loops, 1]]
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    loop, body, sign = (np.concatenate(part) for part in zip(*found, strict=True))
    return loop, body, sign


def _depths(parent: Integers) -> Integers:
    """Joints from the world to each body, and at last of the world: int64 [n + 1]."""
    depth = [0] * (len(parent) + 1)
    for k, above in enumerate(parent.tolist()):
        depth[k] = depth[above] + 1
    return np.array(depth)


def displacements(columns: Columns, q: Floats, there: Floats) -> Floats:
    """The displacement along the speeds [nu] (rad, m) that takes coordinates to others; of balls by the least turn."""
    q_offset, u_offset = columns.q_offset, columns.u_offset
    balls = np.array([kind.quaternion for kind in JOINT_TYPES])[columns.joint_type]
    plain, ball = np.flatnonzero(~balls), np.flatnonzero(balls)
    move, change = np.zeros(u_offset[-1]), there - q
    move[numbers_of(u_offset, plain)[0]] = change[numbers_of(q_offset, plain)[0]]
    if len(ball):
        first, speed = q_offset[ball][:, None], u_offset[ball][:, None]
        from scipy.spatial.transform import Rotation

        back, after = (Rotation.from_quat(values[first + [1, 2, 3, 0]]) for values in (q, there))
        back = back.inv()
        move[speed + [0, 1, 2]] = (back * after).as_rotvec()
        free = np.flatnonzero(np.diff(u_offset)[ball] > 3)
        if len(free):  # their speeds are in the body's frame
            move[speed[free] + [3, 4, 5]] = back[free].apply(change[first[free] + [4, 5, 6]])
    return move
