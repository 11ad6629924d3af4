"""Composite inertias over ranks: the lines of all degrees of freedom, from which every rank makes its rows of the
inertia matrix, and Jacobians."""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.settings import DOUBLING, FORMS, RECURSIVE  # noqa: F401
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.dynamics.pipeline import scan_composites
from mpimbs.kernels.memory import Table, aligned_room, aligned_zeros
from mpimbs.model.order.order import last_of_subtrees
from mpimbs.parallel.scan import Scan
from mpimbs.parts.subchain import AT_REST
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.handed import anything_handed, nothing_handed
from mpimbs.sweep.inertia.composite import (
    COMPOSITE,
    FRAME,
    LINE,
    MOMENT_OF,
    NOT_OPEN,
    composites,
    hand_on,
    join_composites,
    take_up,
    twists,
)
from mpimbs.sweep.inertia.inertia_alone import AlonePlan, alone
from mpimbs.sweep.inertia.inertia_rows import BLOCK_ROWS, BLOCK_SIDE, ROOM, inertia_entries, inertia_rows
from mpimbs.sweep.inertia.inverse_of_chains import inverse_of_chain
from mpimbs.sweep.loads import factor, inverse_rows
from mpimbs.sweep.structure import FIRST_U, JUNCTION, LAST_U
from mpimbs.values.handles import SIZE

ROWS, SPARSE, UPPER, AIJ, SBAIJ = LAYOUTS = ("rows", "csr", "upper", "aij", "sbaij")


class Pattern(NamedTuple):
    """Where the numbers of this rank's rows stand that are not always zero: as of compressed sparse rows."""

    begins: Integers  # [nu + 1]
    rows: Integers  # [count], by place
    columns: Integers  # [count], by place
    numbers: Integers  # [count]: columns of the matrix


def upper_pattern(parts: Composites) -> Pattern:
    """The pattern of this rank's rows from the diagonal on."""
    mine = np.arange(parts.first, parts.last)
    rows, columns = _runs(mine, mine, parts.ends[mine] - mine)
    numbers = np.sort(np.stack((parts.numbers[rows], parts.numbers[columns])), axis=0)
    return _pattern(parts, rows, columns, *numbers)


def whole_pattern(parts: Composites) -> Pattern:
    """The pattern of this rank's rows."""
    mine, above = np.arange(parts.first, parts.last), np.arange(parts.last)
    begin = np.maximum(above + 1, parts.first)
    columns, rows = _runs(above, begin, np.maximum(np.minimum(parts.ends[: parts.last], parts.last) - begin, 0))
    within = _runs(mine, mine, parts.ends[mine] - mine)
    rows, columns = np.concatenate((within[0], rows)), np.concatenate((within[1], columns))
    return _pattern(parts, rows, columns, parts.numbers[rows], parts.numbers[columns])


def _runs(numbers: Integers, begins: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Each number as often as its count says, beside so many that follow one another from where it begins."""
    ends = np.cumsum(counts)
    count = int(ends[-1]) if len(ends) else 0
    return np.repeat(numbers, counts), np.arange(count) + np.repeat(begins - ends + counts, counts)


def _pattern(parts: Composites, rows: Integers, columns: Integers, at: Integers, across: Integers) -> Pattern:
    """The pattern of numbers at some places, which are those of the rows `at` and the columns `across`."""
    order = np.lexsort((across, at))
    counts = np.bincount(at - parts.first, minlength=parts.last - parts.first)
    return Pattern(np.concatenate(([0], np.cumsum(counts))), rows[order], columns[order], across[order])


class Shell:
    """The matrix's products and diagonal, as PETSc calls them of a shell matrix."""

    def __init__(self, product: Any, solution: Any) -> None:
        self._product, self._solution = product, solution

    def mult(self, matrix: Any, x: Any, y: Any) -> None:
        y.getArray()[:] = self._product(x.getArray(readonly=True))

    multTranspose = mult  # noqa: N815 (PETSc's name)

    def solve(self, matrix: Any, b: Any, x: Any) -> None:
        x.getArray()[:] = self._solution(b.getArray(readonly=True))


def petsc_matrix(comm: MPI.Comm, layout: str, pattern: Pattern, data: Floats, n: int) -> Any:
    """Make a PETSc matrix over the ranks, "aij" or "sbaij", of numbers in a pattern; `n`: of this rank's rows."""
    from mpimbs.parallel.petsc import PETSc

    total = comm.allreduce(n)
    kinds = {AIJ: PETSc.Mat.Type.AIJ, SBAIJ: PETSc.Mat.Type.SBAIJ}
    matrix = PETSc.Mat().create(comm)
    matrix.setSizes(((n, total), (n, total)))
    matrix.setType(kinds[layout])
    matrix.setUp()
    matrix.setPreallocationCSR((pattern.begins.astype(PETSc.IntType), pattern.numbers.astype(PETSc.IntType), data))
    matrix.setOption(PETSc.Mat.Option.SYMMETRIC, True)
    matrix.assemble()
    return matrix


class Composites:
    """The lines of a system's freedoms (`sweep.inertia.composite`), over the ranks; all make it and call together.

    A composite inertia is all that hangs on a joint, on whichever ranks. Each rank gets what those behind it hand to
    its bodies: by recursive doubling, ceil(log2 P) exchanges, or from one rank to the one before, in P - 1 steps.

    Attributes
    ----------
    first, last : int
        This rank's degrees of freedom among all: first to last - 1.
    numbers : array [nu of all]
        Which degree of freedom stands at each place of a depth-first order: all that moves with one follows it there.
    places : array [nu]
        Where this rank's stand there.
    ends : array [nu of all]
        Of each place, that behind the last which moves with it.
    room : callable
        Gives room for this rank's rows [nu, nu of all].
    """

    def __init__(self, divided: DividedSystem) -> None:
        self._comm, self._subchain, self._boundary = divided.comm, divided.subchain, divided.boundary_motion
        system, made = self._subchain.system, self._subchain.made
        offsets = system.offsets()[1]
        self.first, self.last = (int(offsets[k]) for k in (self._subchain.first, self._subchain.last))
        self._n = system.nu
        self._counts = np.array(self._comm.allgather(self.last - self.first))
        self._blocks = _blocks(np.concatenate(([0], np.cumsum(self._counts))))
        self._pitch = -(-max(self._n, 1) // ROW) * ROW + ROW  # blocks begin anywhere
        # Of several ranks bodies are depth first. Of one they need not be: its steps are.
        bodies = np.arange(system.n_bodies) if self._comm.size > 1 else made.order
        sizes = np.diff(offsets)[bodies]
        begins = np.cumsum(sizes) - sizes
        self.numbers = np.repeat(offsets[bodies] - begins, sizes) + np.arange(self._n)
        self._in_sequence = bool((self.numbers == np.arange(self._n)).all())
        places = np.empty_like(self.numbers)
        places[self.numbers] = np.arange(self._n)
        self.places = places[self.first : self.last]
        place_of = np.empty_like(bodies)
        place_of[bodies] = np.arange(len(bodies))
        parents = system.parents()[bodies]
        body_ends = last_of_subtrees(np.where(parents < 0, -1, place_of[parents])) + 1
        self._ends = np.zeros(self._pitch, np.int64)
        self._ends[: self._n] = np.repeat(np.append(begins, self._n)[body_ends], sizes)
        self.ends = self._ends[: self._n]
        self._body_place, self._body_ends = place_of, body_ends
        self._carriers = np.repeat(np.arange(len(bodies)), sizes)[self.places]  # places of the bodies of this rank's
        armature = self._subchain.with_rotors.armature
        self._armature = armature[np.argsort(self.places)] if armature.size else armature
        self._lines = aligned_zeros(LINE * self._pitch)
        self._own = aligned_zeros(LINE * (self.last - self.first)) if self._comm.size > 1 else self._lines
        self._own_pitch = self._pitch if self._comm.size == 1 else self.last - self.first
        self._own_places = self.places if self._comm.size == 1 else self.places - self.first
        self._frames = aligned_zeros(len(made.structure.steps) * FRAME)
        outer = self._subchain.outer_steps if self._comm.size > 1 else np.zeros(0, np.int64)
        self._open_at = np.full(len(made.structure.steps), NOT_OPEN)
        self._open_at[outer] = np.arange(len(outer))
        self._outer_steps, self._beyond = outer, np.zeros(max(1, len(outer)) * COMPOSITE)
        self._still, self._room = np.zeros(self._subchain.nu), aligned_zeros(ROOM)
        most = self._comm.allreduce(max(self._subchain.most_open, len(self._subchain.inboard)), MPI.MAX) + 1
        self._handed = nothing_handed(most, COMPOSITE)
        self._scan = Scan(self._comm, self._handed, scan_composites, backward=True)
        self._few = self._comm.size == 1 and self._n <= BLOCK_ROWS  # whose matrix is made at once
        # The begin of rows matters where there is much to write.
        self.room = functools.partial(np.empty if self._few else _aligned_rows, (self.last - self.first, self._n))

    @property
    def exchanges(self) -> int:
        """How many exchanges follow one another to find what the ranks behind hand on, by doubling: the most of any
        rank; all call."""
        return self._comm.allreduce(self._scan.exchanges, MPI.MAX)

    @property
    def handed(self) -> int:
        """Doubles of a message of those."""
        return len(self._handed)

    def compile(self) -> None:
        """Compile, or load from the cache, what several ranks take beside."""
        nobody, room = np.zeros(0, np.int64), self._handed.copy()
        hand_on(self._subchain.work, 0, nobody, np.zeros(0), room)
        take_up(room, nobody, nobody, np.zeros(0), self._beyond)
        join_composites(0.0, room, room, room.copy())
        self.write_rows(0, 0, np.zeros(0))
        self._scan(room)

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        self._scan.close()

    def at(self, q: Floats, form: str = DOUBLING) -> Floats:
        """Give the lines of all degrees of freedom in a state [LINE, nu of all], by place; all call. Used again."""
        boundary = self.place(q)
        subchain, work = self._subchain, self._subchain.work
        self._beyond[:] = 0.0
        lines = self._own, self._own_pitch, self._own_places
        given = subchain.made.structure, work, self._frames, self._open_at, self._beyond, *lines
        composites(*given)
        if self._comm.size > 1:
            hand_on(work, subchain.first, np.ascontiguousarray(subchain.inboard), boundary, self._handed)
            behind = self._scan(self._handed) if form == DOUBLING else self._one_after_the_other()
            if anything_handed.py_func(behind):
                take_up(behind, np.ascontiguousarray(subchain.outer), self._outer_steps, self._frames, self._beyond)
                composites(*given)
            self._gather()
        return self._lines.reshape(LINE, -1)[:, : self._n]

    def twists(self, q: Floats) -> Floats:
        """Give twists and points of the lines of this rank's freedoms in a state [MOMENT_OF, nu]; all call."""
        self.place(q)
        found: Floats = self._own.reshape(LINE, -1)[:MOMENT_OF, self._own_places]
        return found

    def place(self, q: Floats) -> Floats:
        """Find the twists of this rank's lines in a state; gives the motions of what its bodies hang on; all call."""
        boundary = self._boundary(q, self._still).reshape(-1)
        lines = self._own, self._own_pitch, self._own_places
        twists(self._subchain.made.structure, self._subchain.work, q, boundary, self._frames, *lines)
        return boundary

    def _one_after_the_other(self) -> Floats:
        """Receive what the ranks behind hand on: each waits for the next, and tells the one before."""
        comm, behind = self._comm, np.zeros_like(self._handed)
        if comm.rank + 1 < comm.size:
            comm.Recv(behind, comm.rank + 1)
        if comm.rank > 0:
            together = np.empty_like(behind)
            join_composites(0.0, self._handed, behind, together)
            comm.Send(together, comm.rank - 1)
        return behind

    def _gather(self) -> None:
        """Have the lines of all ranks."""
        own, all_lines = np.ascontiguousarray(self._own.reshape(LINE, -1).T), np.empty((self._n, LINE))
        self._comm.Allgatherv(own, (all_lines, LINE * self._counts))
        self._lines.reshape(LINE, -1)[:, : self._n] = all_lines.T

    def moving(self, body: int) -> npt.NDArray[np.bool_]:
        """Which of this rank's degrees of freedom move a body [nu]."""
        place = self._body_place[body]
        return (self._carriers <= place) & (place < self._body_ends[self._carriers])

    def rows(self, out: Floats | None = None) -> Floats:
        """Give this rank's rows of the inertia matrix [nu, nu of all] of the lines found last."""
        out = self.room() if out is None else out
        given = self._lines, self._pitch, self._ends, self._blocks, self._armature
        inertia_rows(*given, self.first, self.last, self._n, out.reshape(-1), self._room)
        return out

    def write_rows(self, first: int, last: int, out: Floats) -> None:
        """Write any rows, by place, of the lines found last, without rotors."""
        given = self._lines, self._pitch, self._ends, _blocks(np.array([0, first, last, self._n])), np.zeros(0)
        inertia_rows(*given, first, last, self._n, out.reshape(-1), self._room)

    def matrix(self, q: Floats, form: str = DOUBLING, out: Floats | None = None) -> Floats:
        """Give this rank's rows of the inertia matrix in a state [nu, nu of all]; all ranks call."""
        if self._comm.size > 1:
            self.at(q, form)
            return self.rows(out)
        out = self.room() if out is None else out
        alone(self.plan, q, out)
        return out

    @functools.cached_property
    def plan(self) -> Integers:
        """The plan of `sweep.inertia.inertia_alone`, on one rank."""
        return self._alone.data

    def inverse(self, q: Floats) -> Floats:
        """Give the inverse of the inertia matrix in a state [n, n], on one rank."""
        made, work, n = self._subchain.made, self._subchain.work, self._n
        factor(made.structure, work, q, self._still, self._block)
        out = aligned_room(n * n).reshape(n, n)
        if self._subchain.system.is_chain:
            inverse_of_chain(made.structure, work, self._steps - 1, *self._chain_room, out.reshape(-1))
            return out
        room, junction = aligned_zeros(3 * n * ROW), aligned_zeros(made.junctions * JUNCTION * ROW)
        inverse_rows(made.structure, work, junction, self.numbers, self._steps, room, out.reshape(-1))
        return out

    @functools.cached_property
    def _block(self) -> Floats:
        return aligned_zeros(SIZE)

    @functools.cached_property
    def _chain_room(self) -> list[Floats]:
        """Room of `inverse_of_chain`."""
        n, blocks = self._n, -(-self._n // BLOCK_ROWS)
        sizes = (
            n * ROW,
            n,
            blocks * BLOCK_SIDE,
            blocks * BLOCK_SIDE,
            blocks * 6 * ROW,
            12 * ROW,
            BLOCK_ROWS * BLOCK_ROWS,
        )
        return [aligned_zeros(size) for size in sizes]

    @functools.cached_property
    def _steps(self) -> Integers:
        """Give the step behind that of each place."""
        rows = self._subchain.structure.steps
        found = np.repeat(np.arange(1, len(rows) + 1), rows[:, LAST_U] - rows[:, FIRST_U])
        speeds = np.concatenate([np.arange(row[FIRST_U], row[LAST_U]) for row in rows])
        steps = np.empty_like(found)
        steps[speeds] = found
        return steps[self.numbers]

    @functools.cached_property
    def _alone(self) -> Table:
        made, n, pitch = self._subchain.made, self._n, self._pitch - ROW * self._few
        places, armature, related = self.places, self._armature, np.zeros((0, 0))
        tiles = np.zeros((0, 2), np.int64)
        if self._few:
            places, armature = np.arange(n), self._subchain.with_rotors.armature
            related = np.zeros((pitch, pitch))
            related[:n, :n] = (self.places[:, None] < self.places) & (self.places < self.ends[self.places][:, None])
            related[np.arange(n), np.arange(n)] = 0.5
            tiles = np.argwhere(related.reshape(pitch // ROW, ROW, -1, ROW).any((1, 3))) * ROW
        plan = AlonePlan(
            made.structure,
            self._subchain.work,
            boundary=np.tile(AT_REST, len(self._subchain.inboard)),
            frames=self._frames,
            open_at=self._open_at,
            beyond=self._beyond,
            lines=aligned_zeros(LINE * pitch) if self._few else self._lines,
            pitch=pitch,
            places=places,
            ends=self._ends,
            blocks=self._blocks,
            armature=armature,
            room=aligned_zeros(2 * BLOCK_SIDE + pitch * pitch) if self._few else self._room,
            numbers=self.numbers,
            target=np.zeros(0 if self._in_sequence or self._few else n * n),
            related=related.ravel(),
            tiles=tiles.ravel(),
            nq=self._subchain.nq,
        )
        return Table(plan)

    def entries(self, rows: Integers, columns: Integers) -> Floats:
        """Give numbers of this rank's rows of the inertia matrix, by places of which one moves with the other."""
        out = np.empty(len(rows))
        inertia_entries(self._lines, self._pitch, self._armature, self.first, rows, columns, out)
        return out


def _blocks(cuts: Integers) -> Integers:
    """Where blocks of no more than BLOCK_ROWS begin, between the cuts; and the last cut."""
    between = [np.arange(begin, end, BLOCK_ROWS) for begin, end in itertools.pairwise(cuts)]
    return np.concatenate((*between, cuts[-1:]))


def _aligned_rows(shape: tuple[int, int]) -> Floats:
    """Give room for rows, the first of which begins with a cache line."""
    return aligned_room(shape[0] * shape[1]).reshape(shape)
