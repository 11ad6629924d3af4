"""Augmented Lagrangian coupling: all bodies in absolute coordinates, condensed by a binary tree over bodies and ranks.

The divide and conquer algorithm of Malczyk & Fraczek (2012): every joint, of the tree or of a loop, is a constraint
between two bodies; constraints may repeat one another, for none of them is ever solved for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import SimulationError
from mpimbs.coupling.augmented.augmented_equations import (
    AugmentedPlan,
    advance,
    begin,
    condense,
    expand,
    factor_equations,
)
from mpimbs.coupling.augmented.condensed_ranks import Condensation, CondensedRanks
from mpimbs.coupling.base import Iterative, at_time
from mpimbs.coupling.settings import Lagrangian
from mpimbs.kernels.memory import Table, aligned, aligned_zeros
from mpimbs.loops.loop_joints import MINUS_S
from mpimbs.loops.loop_table import load_subspace
from mpimbs.parallel.agreement import greatest
from mpimbs.parts.bodies.absolute import AbsoluteBodies
from mpimbs.parts.scales import scales_of
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import different_rows, freedoms_of
from mpimbs.sweep.structure import BIAS, BODY, FIXED, HELD, Structure
from mpimbs.values.condensing import SIDE, SQUARE
from mpimbs.values.value import SIX

PLAIN = 3  # iterations, before any is extrapolated
SLOW = 0.1  # of a change, left in the next one, beyond which it is
SMALLEST = 1e-200  # m/s^2: less is nothing
FARTHEST = 1e6  # iterations that are skipped at the most: beyond it is rounding that they repeat
LEAST = 1e-6  # of the acceleration that loads on a body alone would make, what is nothing beside rounding
ROUNDING = 1e-9  # of the accelerations: changes up to this that hardly fall any more are rounding


class AugmentedLagrangian:
    """The augmented Lagrangian equations of all bodies, and their iteration [Malczyk & Fraczek 2012, section 2].

    The matrix of a state is condensed once: its factor serves all iterations, and whatever else is asked for in the
    same positions, such as the speeds that loops allow.

    Parameters
    ----------
    part : AbsoluteBodies
        That of this rank.

    Attributes
    ----------
    plan : None
        There is no one call of compiled code.
    unknowns : int
        Multipliers of all ranks.
    changes : list of float
        How much each iteration of the last solution has changed the accelerations, of the largest, or of a fall.
    solutions, total_iterations, most_iterations, factorizations, unfinished : int
        Solutions so far, their iterations, the most for one of them, how many condensed the matrix anew, and how many
        were accepted after the last iteration allowed.
    """

    plan: Integers | None = None

    def __init__(self, comm: MPI.Comm, part: AbsoluteBodies, settings: Lagrangian) -> None:
        self._comm, self._part, self._settings = comm, part, settings
        s, m = part.made.structure, len(part.parents)
        self._world = len(part.loads) - 1
        penalties = self._penalties()
        self._mass = penalties[0]  # of a mean body, times the penalty
        self._length = np.sqrt(penalties[1] / penalties[0]) or scales_of(comm, part.whole).length
        weights, weight_of = _weights(s, *penalties, self._length)
        self._loops = _LoopEnds(comm, part, *penalties)
        self._driven = _Driven(part)
        held = 6 * m - len(s.axes) + len(self._driven.speeds) + int(self._loops.rows[:, 3].sum())
        self.unknowns = comm.allreduce(held)
        elements = self._elements()
        tree = Condensation([element[:2] for element in elements], self._shared())
        laid = _Laid(tree, elements)
        bodies = np.concatenate((part.made.body_step[part.shared - part.whole.first], np.arange(m, self._world)))
        numbers = dict(zip(bodies.tolist(), [*part.shared.tolist(), *part.outside.tolist()], strict=True))
        self._kept = np.array(tree.kept, np.int64)
        self._ranks = CondensedRanks(comm, [numbers[variable] for variable in tree.kept])
        self._changes = np.zeros(part.loads.size)
        self._stack = aligned_zeros(SQUARE * tree.stacked)
        loads, accelerations = np.zeros(6 * m), part.loads.reshape(-1)
        self._extrapolation = Extrapolation(comm, [accelerations], [loads, self._loops.multipliers])
        self._table = Table(
            AugmentedPlan(
                s,
                part.work,
                total=part.total,
                parents=part.parents,
                accelerations=accelerations,
                changes=self._changes,
                loads=loads,
                weights=weights,
                weight_of=weight_of,
                length=np.array([self._length]),
                loops=self._loops.rows,
                ends=self._loops.ends.reshape(-1),
                asked=self._loops.asked.reshape(-1),
                penalties=self._loops.penalties.reshape(-1),
                multipliers=self._loops.multipliers,
                nodes=laid.nodes,
                listed=laid.listed,
                factors=aligned_zeros(laid.factors),
                stack=self._stack,
                front=aligned_zeros(SQUARE * tree.most**2),
                room=aligned_zeros(max(SIDE * tree.most, 4 * SQUARE)),
            )
        )
        self._factored = np.full(part.whole.nq, np.nan)  # the coordinates whose matrix is condensed
        self.changes: list[float] = []
        self.solutions = self.total_iterations = self.most_iterations = self.factorizations = self.unfinished = 0
        self._seconds = 0.0

    def _penalties(self) -> tuple[float, float]:
        """The penalties of translations (kg) and of rotations (kg m^2)."""
        s = self._part.made.structure
        fixed = s.fixed.reshape(-1, FIXED)[s.steps[:, BODY]]
        heavy = fixed[:, 21] > 0.0
        sums = np.array([fixed[heavy, 21].sum(), fixed[heavy][:, [12, 15, 17]].sum() / 3.0, heavy.sum()])
        self._comm.Allreduce(MPI.IN_PLACE, sums)
        mass, inertia = self._settings.penalty * sums[:2] / sums[2]
        return float(mass), float(inertia)

    def _elements(self) -> list[tuple[int, int, int]]:
        """The bodies of each joint, by their accelerations, -1 the world; and which joint it is: steps, then loops."""
        parents = np.where(self._part.parents == self._world, -1, self._part.parents).tolist()
        ends = np.where(self._part.loop_ends == self._world, -1, self._part.loop_ends)
        m = len(parents)
        behind: dict[int, list[tuple[int, int, int]]] = {}
        for loop, (a, b) in enumerate(ends.tolist()):
            behind.setdefault(max(end for end in (a, b) if end < m), []).append((a, b, m + loop))
        return [one for k, above in enumerate(parents) for one in ((k, above, k), *behind.get(k, ()))]

    def _shared(self) -> list[int]:
        part = self._part
        own: list[int] = part.made.body_step[part.shared - part.whole.first].tolist()
        return [*own, *range(len(part.parents), self._world)]

    def solve(self, t: float, q: Floats, blocks: Floats, root: Floats) -> Floats:
        """Find the accelerations of this rank's bodies, and of those on which they depend; see `Coupling.solve`.

        Raises
        ------
        SimulationError
            On all ranks: the iteration does not converge.
        """
        self._part.loads[self._world] = root
        self._loops.take()
        self._factor(q)
        with self._driven.constrained():
            self._iterate(t, q)
        return self._part.loads

    def _iterate(self, t: float, q: Floats) -> None:
        table, settings = self._table.data, self._settings
        begin(table)
        advance(table, True)
        acts = self._acting()
        self.solutions += 1
        self._extrapolation.forget()
        self.changes, change, before, done = [], np.inf, np.inf, False
        while not done and len(self.changes) < settings.iterations:
            self._solve()
            own = advance(table, False)
            most, largest, acting = self._largest((*own[:2], acts))
            largest = max(largest, acting, SMALLEST)
            before, change = change, most / largest if np.isfinite(largest) else np.nan
            self.changes.append(change)
            done = not change > settings.tolerance or 0.5 * before <= change <= ROUNDING
            if not done and len(self.changes) >= PLAIN:
                slow = change > max(SLOW * before, ROUNDING)
                if self._extrapolation.take(slow):
                    advance(table, True)
                done = self._extrapolation.still  # what is left is no constraint of its own, but repeats others
        self.total_iterations += len(self.changes)
        self.most_iterations = max(self.most_iterations, len(self.changes))
        if not done and change <= (settings.accepted or 0.0):
            self.unfinished += 1
        elif not done or np.isnan(change):
            self._fail(t, q, own[2], change, own[0])

    def _factor(self, q: Floats) -> None:
        """Condense the matrix, unless it is that of the last state."""
        known = self.factorizations > 0 and np.array_equal(q, self._factored)  # there may be no coordinates
        if self._comm.size > 1:
            began = time.perf_counter()
            known = self._comm.allreduce(known, MPI.LAND)
            self._seconds += time.perf_counter() - began
        if known:
            return
        self._factored[:] = q
        self.factorizations += 1
        factor_equations(self._table.data)
        if len(self._kept):
            self._ranks.matrix[:] = self._stack[: self._ranks.matrix.size]
        if self._comm.size > 1:
            self._ranks.factor()

    def _solve(self) -> None:
        """Solve for the changes of the accelerations."""
        condense(self._table.data)
        if self._comm.size > 1:
            changes = self._changes.reshape(-1, SIDE)
            self._ranks.vector[:] = changes[self._kept].ravel()
            self._ranks.solve()
            changes[self._kept] = self._ranks.vector.reshape(-1, SIDE)
        expand(self._table.data)

    def _acting(self) -> float:
        """An acceleration (m/s^2) that is not small: of a fall, or of a part of what acts, penalties included."""
        loads = np.abs(self._changes[: SIDE * len(self._part.parents)].reshape(-1, SIDE))
        forces = max(loads[:, 3:].max(initial=0.0), loads[:, :3].max(initial=0.0) / self._length)
        fall = float(np.abs(self._part.loads[self._world][3:]).max())
        return max(fall, float(LEAST * forces * self._settings.penalty / self._mass))

    def _largest(self, own: tuple[float, ...]) -> tuple[float, ...]:
        """The largest of all ranks; infinite for what is not finite."""
        began = time.perf_counter()
        found = greatest(self._comm, own)
        self._seconds += time.perf_counter() - began if self._comm.size > 1 else 0.0
        return tuple(found.tolist())

    def _fail(self, t: float, q: Floats, step: int, left: float, change: float) -> None:
        """Say why there is no solution; a state that is not finite is left to the integrator, which sees it too."""
        part, comm = self._part, self._comm
        self._factored[:] = np.nan
        given = q, part.work.bias, part.total, self._loops.asked
        sound = comm.allreduce(all(np.isfinite(values).all() for values in given), MPI.LAND)
        body = part.whole.name_of(int(np.searchsorted(np.sort(part.made.body_step), step)))
        _, worst = max(comm.allgather((np.nan_to_num(change, nan=np.inf), body)))
        if not sound:
            part.loads[: self._world] = np.nan
            return
        if not np.isfinite(left):
            raise SimulationError(
                f"the equations of body '{worst}' have no solution{at_time(t)}: a penalty of "
                f"{self._settings.penalty:g} leaves nothing of its inertia; choose a smaller `lagrangian.penalty`, or "
                "`coupling='dcae'`"
            )
        raise SimulationError(
            f"the accelerations do not converge{at_time(t)}: iteration {len(self.changes)} changed that of body "
            f"'{worst}' by {left:.1e} of the largest; allow more `lagrangian.iterations`, change `lagrangian.penalty` "
            "(more for slow progress, as close to singular positions, less for rounding) or "
            "`lagrangian.accepted`, or choose `coupling='dcae'`"
        )

    @property
    def iterative(self) -> Iterative | None:
        """Nothing: every solution begins anew."""
        return None

    def statistics(self) -> dict[str, int]:
        """Unknowns, solutions, iterations of all, most iterations of one, factorizations, unfinished."""
        names = ("unknowns", "solutions", "total_iterations", "most_iterations", "factorizations", "unfinished")
        return {name: getattr(self, name) for name in names}

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return self._seconds + self._ranks.seconds

    def close(self) -> None:
        """Nothing: MPI holds nothing."""


class _Driven:
    """The axes of a rank that follow given motions.

    Attributes
    ----------
    speeds : array [d]
        Their places among the rank's speeds.
    """

    def __init__(self, part: AbsoluteBodies) -> None:
        s = part.made.structure
        step, speeds = freedoms_of(s.steps)
        own = s.armature[speeds] >= HELD if s.armature.size else np.zeros(len(speeds), bool)
        step, self.speeds = step[own], speeds[own]
        self._total, self._bias = part.total, part.work.bias.reshape(-1, BIAS)[:, :6]
        axis, pitch = s.axes[self.speeds], s.pitch[self.speeds]
        screws = np.flatnonzero(pitch)
        self._of = np.concatenate((np.arange(len(axis)), screws))  # which of them each component is of
        self._at = np.concatenate((step, step[screws])), np.concatenate((axis, 3 + axis[screws]))
        self._along = np.concatenate((np.ones(len(axis)), pitch[screws]))

    @contextlib.contextmanager
    def constrained(self) -> Iterator[None]:
        """Let their joints ask for their accelerations; no force drives them."""
        if not len(self.speeds):
            yield
            return
        forces, bias = self._total[self.speeds], self._bias[self._at]
        self._total[self.speeds] = 0.0
        self._bias[self._at] += self._along * forces[self._of] / HELD
        try:
            yield
        finally:
            self._total[self.speeds], self._bias[self._at] = forces, bias


class _LoopEnds:
    """The constraints of the loop joints that a rank answers for, in the frames of the steps that carry them.

    Attributes
    ----------
    rows : array [l, 8]
        See `augmented_equations`.
    ends : array [l, 2, 6, ROW]
        E of both bodies; zero of the world.
    asked, penalties : array [l, ROW]
    multipliers : array
        Of all loops here, flat.
    """

    def __init__(self, comm: MPI.Comm, part: AbsoluteBodies, mass: float, inertia: float) -> None:
        told = comm.allgather(dict(zip(part.shared.tolist(), part.frames(part.shared), strict=True)))
        frames = {body: frame for of_rank in told for body, frame in of_rank.items()}
        joints, mine = part.loop_joints, part.answered
        self.rows = np.zeros((len(mine), 8), np.int64)
        self.ends = np.zeros((len(mine), 2, 6, ROW))
        self.asked, self.penalties = np.zeros((2, len(mine), ROW))
        self._answered, self._closures = mine, np.zeros((0, 0)) if joints is None else joints.closures
        self.multipliers = np.zeros(0) if joints is None else joints.loads.reshape(-1)
        self.rows[:, 0], self.rows[:, 1:3] = mine, part.loop_ends
        self._turns = np.tile(np.eye(3), (len(mine), 2, 1, 1))
        self._turns[part.loop_ends == len(part.loads) - 1] = 0.0
        for loop, end in np.argwhere(part.far).tolist():
            body = part.outside[part.loop_ends[loop, end] - len(part.parents)]
            self._turns[loop, end] = frames[int(body)].T
        if joints is not None:
            self.rows[:, 3] = joints.constraints[mine]
            self.penalties[:] = np.where(joints.moments, inertia, mass)[mine] / joints.scales[mine] ** 2

    def take(self) -> None:
        """Take what an evaluation has found of them."""
        if len(self.rows):
            closures = self._closures[self._answered]
            told = closures[:, : 2 * SIX].reshape(-1, 2, 2, 3, ROW)
            self.ends[:] = np.einsum("leij,lepjk->lepik", self._turns, told).reshape(self.ends.shape)
            self.asked[:] = -closures[:, MINUS_S : MINUS_S + ROW]


class _Laid:
    """The nodes of a rank's tree as its kernels read them; see `augmented_equations`."""

    def __init__(self, tree: Condensation, elements: list[tuple[int, int, int]]) -> None:
        self.nodes, listed, self.factors = np.zeros((len(tree.nodes), 8), np.int64), list[int](), 0
        for row, node in zip(self.nodes, tree.nodes, strict=True):
            merged = node.merged
            left, right = node.children or (-1, -1)
            gone, bodies = len(merged.eliminated), len(merged.bodies)
            row[:7] = left, right, len(node.elements), gone, bodies, len(listed), self.factors
            self.factors += SQUARE * gone * bodies
            listed += merged.bodies
            for child in node.children:
                listed += merged.places(tree.nodes[child].merged.kept)
            for number in node.elements:
                listed += (*merged.places(elements[number][:2]), elements[number][2])
        self.listed = np.array(listed, np.int64)


def _weights(structure: Structure, mass: float, inertia: float, length: float) -> tuple[Floats, Integers]:
    """P and R of the different joints [kinds * 2 * 36], and which each step has [m].

    Across screws directions are orthogonal where displacements are in units of a length (m).
    """
    s, scale = structure, np.repeat((1.0, 1.0 / length), 3)
    step, speeds = freedoms_of(s.steps)
    axis = s.axes[speeds]
    told = np.zeros((len(s.steps), 3, 6))
    told[step, 0, axis], told[step, 1, axis] = 1.0, s.pitch[speeds]
    if s.armature.size:
        told[step, 2, axis] = s.armature[speeds]
    kinds, which = different_rows(told.reshape(-1, 18))
    found = np.zeros((len(kinds), 2, 6, 6))
    for weight, (freed, pitch, armature) in zip(found, kinds.reshape(-1, 3, 6), strict=True):
        axes = np.flatnonzero((freed != 0.0) & (armature < HELD))
        motion = np.eye(6)[:, axes]
        motion[3:] += np.eye(6)[:3, axes] * pitch[axes]
        motion *= scale[:, None]
        held = load_subspace(motion / np.linalg.norm(motion, axis=0)) * scale[:, None]
        forces = np.abs(held[3:]).max(axis=0, initial=0.0) > 0.0
        weight[0] = held * np.where(forces, mass * length**2, inertia) @ held.T
        along = scale[:, None] * motion / (motion**2).sum(axis=0)
        weight[1] = along * armature[axes] @ along.T
    return aligned(found.reshape(-1)), which


class Extrapolation:
    """Goes on from where two iterations lead to [Anderson 1965, of depth one]; all ranks make it together and call.

    Exact where all but one part of the error are gone already, as close to a singular position, where one combination
    of constraints is almost none, and all others are met at once.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    carried, weighed : sequence of arrays
        This rank's state, an affine function of itself in each iteration: what only goes along, and that of which the
        changes tell how far to go.

    Attributes
    ----------
    still : bool
        Whether progress is so slow that millions of iterations would be skipped.
    """

    def __init__(self, comm: MPI.Comm, carried: Sequence[Floats], weighed: Sequence[Floats]) -> None:
        self._comm, self._parts = comm, [*carried, *weighed]
        self._first = sum(part.size for part in carried)
        self._ends = np.cumsum([part.size for part in self._parts])[:-1]
        self._begun = self._found = self._moved = np.concatenate(self._parts)
        self.forget()

    def forget(self) -> None:
        """Begin with another solution."""
        self._known, self.still = 0, False

    def take(self, slow: bool) -> bool:
        """Take the state after an iteration, and replace it where progress is slow; gives whether it has."""
        found = np.concatenate(self._parts)
        earlier, moved = self._found, found - self._begun
        before, self._moved, self._found, self._begun = self._moved, moved, found, found
        self._known += 1
        if not slow or self._known < 3:
            return False
        turned = (moved - before)[self._first :]
        sums = np.array([moved[self._first :] @ turned, turned @ turned])
        if self._comm.size > 1:
            self._comm.Allreduce(MPI.IN_PLACE, sums)
        if not sums[1] > 0.0:
            self.still = True
            return False
        share = sums[0] / sums[1]
        if not abs(share) <= FARTHEST:
            self.still = True
            return False
        self._begun = found - share * (found - earlier)
        for part, values in zip(self._parts, np.split(self._begun, self._ends), strict=True):
            part[:] = values
        return True
