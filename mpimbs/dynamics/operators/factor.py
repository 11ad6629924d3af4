"""The inertia matrix in a state, factored: its inverse times any number of vectors, each by a load sweep.

Of chains, over any ranks and in lanes, and of trees on one rank. What the ranks have is joined by a butterfly as
handle equations are, once, and then their loads alone: 128 bytes at each of ceil(log2 P) exchanges. Of other systems
nothing is kept: there each answer is an evaluation at rest.
"""

from __future__ import annotations

import copy
import functools
import weakref
from typing import NamedTuple, Protocol

import numpy as np
from numba.core.errors import NumbaError

from mpimbs.base.arguments import check_array
from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.kernels.calling import address_of, call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, aligned_zeros, assign, borrowed, put_at, read, schema, span
from mpimbs.kernels.widths import by_width
from mpimbs.model.variants import resting
from mpimbs.parallel.butterfly import IS_LEFT, Butterfly, exchange, left_and_right, levels, levels_of
from mpimbs.parallel.exchange import expect
from mpimbs.parallel.native import free_tags, own_tags
from mpimbs.partition.chain import chosen_width, cut_chain
from mpimbs.parts.factored import FactoredTiles, factor_sweep, loads_inward, loads_outward
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.subchains import Subchains
from mpimbs.parts.tiles import Tile, subchain_tiles
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.structure import HELD
from mpimbs.values.handles import RESPONSE, SCRATCH, SIZE, combine, item, respond
from mpimbs.values.load_joins import LOADS_JOINED, PAIR, join_loads, keep_join, part_loads


class FactorPlan(NamedTuple):
    """Arguments of the compiled factorization on a rank."""

    part: Integers  # `parts.factored.FactoredPlan`
    blocks: Integers  # butterfly of handle equations
    values: Integers  # butterfly of loads
    block: Floats  # [SIZE]: of the part
    value: Floats  # [PAIR]: p and c of the part
    outer: Floats  # [PAIR]: A1 and f2 of the part
    responses: Floats  # [levels * RESPONSE]
    joins: Floats  # [levels * LOADS_JOINED]
    between: Floats  # [levels * PAIR]
    shared: Floats  # [PAIR]
    copy: Floats  # [SIZE]
    scratch: Floats  # [SCRATCH]
    nu: int


FACTOR = schema(FactorPlan)


@kernel(merge=True)
def _factor(zero, plan):
    p = read(plan, FACTOR)
    factor_sweep(zero, p.part)
    schedule, mine, theirs = levels(p.blocks)
    count = schedule.shape[0]
    if count > 0:
        expect(p.blocks)
        assign(mine[0], p.block)
    for level in range(count):
        exchange(p.blocks, level)
        left, right = left_and_right(schedule, mine, theirs, level)
        response = item(p.responses, level, RESPONSE)
        respond(left, right, response, p.scratch, True)
        keep_join(left, right, response, p.copy, p.scratch, item(p.joins, level, LOADS_JOINED), True)
        if level + 1 < count:
            combine(left, right, response, mine[level + 1], True)
    return True


@kernel(merge=True)
def _solve(zero, plan, f, out):
    """Whether the arrays have the part's sizes; else nothing was done."""
    f, out = borrowed(f), borrowed(out)
    p = read(plan, FACTOR)
    if f.size != p.nu or out.size != p.nu:
        return False
    schedule, mine, theirs = levels(p.values)
    count = schedule.shape[0]
    if count > 0:
        expect(p.values)
    loads_inward(zero, p.part, f)
    acceleration, load = span(p.outer, 0, ROW), span(p.outer, ROW, ROW)
    for i in range(PAIR):
        p.outer[i] = 0.0
    for level in range(count):
        if level == 0:
            assign(mine[0], p.value)
        exchange(p.values, level)
        left, right = left_and_right(schedule, mine, theirs, level)
        joined = mine[level + 1] if level + 1 < count else p.shared
        join_loads(left, right, item(p.joins, level, LOADS_JOINED), item(p.between, level, PAIR), joined, True)
    for level in range(count - 1, -1, -1):
        kept, between = item(p.joins, level, LOADS_JOINED), item(p.between, level, PAIR)
        shared_acceleration, shared_load = span(p.shared, 0, ROW), span(p.shared, ROW, ROW)
        part_loads(kept, between, acceleration, load, shared_acceleration, shared_load, True)
        if schedule[level, IS_LEFT]:
            assign(load, shared_load)
        else:
            assign(acceleration, shared_acceleration)
    loads_outward(zero, p.part, f, out)
    return True


# By the number of lanes.
FACTOR_IN, SOLVE_IN = by_width(_factor), by_width(_solve)


class Factor(Protocol):
    """The inertia matrix of the spanning tree in a state, with what joints are heavier by, in factors.

    `InertiaMatrix.factor` makes it. All ranks call its methods together.
    """

    def at(self, q: Floats, armature: Floats | None = None) -> None:
        """Factor in another state, of which no factors are kept then.

        Parameters
        ----------
        q : array [nq]
            This rank's coordinates.
        armature : array [nu], optional
            What is added to the diagonal: rotors beside those of the model, and all that acts alike (kg m^2, kg).

        Raises
        ------
        InputError
            On all ranks: an array of another size; as `Dynamics.accelerations`.
        """
        ...

    def solve(self, f: Floats, out: Floats | None = None) -> Floats:
        """Give the accelerations [nu] (M + armature)^-1 f by generalized forces `f` [nu] (N m, N), this rank's parts.

        Parameters
        ----------
        f, out : array [nu]
            Contiguous doubles; `out` is written, and given back. They may be the same.

        Raises
        ------
        InputError
            On the rank that gave an array of another size or type; the others find accelerations that are not finite.
        """
        ...

    def close(self) -> None:
        """Free what MPI holds; `Dynamics.close` does, too."""
        ...


class Factors:
    """Makes the factors of a system, and has what they share: all ranks use one after the other.

    All ranks make it together and call. Factors themselves are freed when nobody keeps them: that may be at another
    time on each rank, so nothing of theirs is agreed on.

    Parameters
    ----------
    divided : DividedSystem
    """

    def __init__(self, divided: DividedSystem) -> None:
        self._divided = divided
        self._made: weakref.WeakSet[LoadSweeps] = weakref.WeakSet()

    def make(self) -> Factor:
        """Make what factors the inertia matrix of the system."""
        return self.load_sweeps() or AtRest(self._divided, self)

    def load_sweeps(self, apart: bool = False) -> LoadSweeps | None:
        """Make what factors it for load sweeps, where there are any; see `LoadSweeps`."""
        divided = self._divided
        system = divided.subchain.system
        alone = divided.comm.size == 1 and divided.subchain.n_bodies == system.n_bodies
        if not (system.is_chain or alone):
            return None
        self._made.add(made := LoadSweeps(divided, self._tag, apart))
        return made

    @functools.cached_property
    def _tag(self) -> int:
        """The first message tag of all load sweeps: no two are under way at a time."""
        return own_tags(self._divided.comm, 2 * levels_of(self._divided.comm))

    @functools.cached_property
    def heavier(self) -> HeavierJoints:
        """Give the solver of heavier joints, where there are no load sweeps."""
        return HeavierJoints(self._divided)

    def close(self) -> None:
        """Free what MPI holds; all ranks call."""
        for made in list(self._made):
            made.close()
        if "_tag" in self.__dict__:
            free_tags(self._divided.comm, self._tag)
        if "heavier" in self.__dict__:
            self.heavier.close()


class LoadSweeps:
    """A `Factor` by the factored load sweep.

    Parameters
    ----------
    divided : DividedSystem
        Of a chain, or of a tree on one rank.
    tag : int
        The first of twice `levels_of` message tags, of factors of which no two are used at a time.
    apart : bool
        As `Contents.apart`.

    Attributes
    ----------
    joints : list of (Structure, Springs)
        What is factored; springs have no part in it.
    rotors : array [nu]
        Of the model's joints (kg m^2, kg).
    q, armature : array [nq], [nu]
        The state, and rotors and all else that joints are heavier by: for `take`.
    """

    def __init__(self, divided: DividedSystem, tag: int, apart: bool = False) -> None:
        comm, subchain = divided.comm, divided.subchain
        system, first, last = copy.copy(subchain.system), subchain.first, subchain.last
        system.apart = apart
        self._comm, self._nu, self._checked = comm, subchain.nu, divided.agreed
        self._still = divided.still
        cut = [Tile(0, last - first, 1)]
        if system.is_chain:
            width = divided.division.width or chosen_width(last - first, None)
            cut = cut_chain(system.joint_patterns(first, last), width)
        cut = [tile._replace(first=first + tile.first) for tile in cut]
        tiles = subchain_tiles(system, cut, subchain.tip, False, factored=True)
        self._tiles, self.joints = FactoredTiles(tiles, subchain.nq, self._nu), tiles.kinds.joints
        self.q, self.armature = self._tiles.q, self._tiles.armature
        rotors = subchain.structure.armature
        self.rotors = rotors if rotors.size else np.zeros(self._nu)
        count = max(levels_of(comm), 1)
        blocks, values = Butterfly(comm, SIZE, tag=tag), Butterfly(comm, PAIR, tag=tag + levels_of(comm))
        self._free = weakref.finalize(self, _free, blocks, values)
        self._free.atexit = False  # MPI frees the rest
        plan = FactorPlan(
            part=self._tiles.plan,
            blocks=blocks.plan,
            values=values.plan,
            block=self._tiles.block,
            value=self._tiles.value,
            outer=self._tiles.outer,
            responses=aligned_zeros(count * RESPONSE),
            joins=aligned_zeros(count * LOADS_JOINED),
            between=aligned_zeros(count * PAIR),
            shared=aligned_zeros(PAIR),
            copy=aligned_zeros(SIZE),
            scratch=aligned_zeros(SCRATCH),
            nu=self._nu,
        )
        self._table = Table(plan)
        self._plan = self._table.data
        self._run, self._answer = FACTOR_IN[tiles.width], SOLVE_IN[tiles.width]

    def at(self, q: Floats, armature: Floats | None = None) -> None:
        """As of `Factor`."""
        q, _, armature = self._checked(q, self._still, armature, "armature")
        self.q[:] = q
        if armature is not None:
            np.add(self.rotors, armature, out=self.armature)
        self.take(armature is not None)

    def take(self, heavier: bool = True) -> None:
        """Factor in the state `q`, with `armature` if `heavier`."""
        self._tiles.heavier = heavier
        self._run(self._plan)

    @functools.cached_property
    def compiled(self) -> tuple[int, int, Integers]:
        """Where compiled code finds `take`, of what is heavier, and `solve`, and the table that both are given first
        (`kernels.calling`)."""
        self._tiles.heavier, room = True, np.empty(0)
        return address_of(self._run, self._plan), address_of(self._answer, self._plan, room, room), self._plan

    def solve(self, f: Floats, out: Floats | None = None) -> Floats:
        """As of `Factor`."""
        if out is None:
            out = np.empty(self._nu)
        try:
            if self._answer(self._plan, f, out):
                return out
        except (TypeError, NumbaError):
            pass
        if self._comm.size > 1:  # the others wait for this rank's part
            self._answer(self._plan, np.full(self._nu, np.nan), np.empty(self._nu))
        _refuse(f, out, self._nu)
        return out

    def close(self) -> None:
        """As of `Factor`."""
        self._free()


def _free(*butterflies: Butterfly) -> None:
    for butterfly in butterflies:
        butterfly.free()


class RestingPlan(NamedTuple):
    """Arguments of answers at rest in compiled code."""

    evaluation: int  # where it is, and its table
    rank: Integers
    q: Floats  # [nq]: the state
    still: Floats  # [nu]: zeros
    rates: Floats  # [nq]: room
    armature: Floats  # [nu]: how heavy rotors are
    seen: Integers  # addresses of those that sweeps have, and are not held; and their speeds
    speeds: Integers


RESTING = schema(RestingPlan)


@kernel
def take_rotors(plan):
    """Have the sweeps see how heavy rotors are."""
    p = read(plan, RESTING)
    put_at(p.seen, p.armature, p.speeds)
    return True


@kernel
def answer_at_rest(plan, f, out):
    """Write the accelerations [nu] by generalized forces [nu]."""
    p = read(plan, RESTING)
    return call_at(p.evaluation, (p.rank, p.q, p.still, borrowed(f), borrowed(out), p.rates))


class HeavierJoints:
    """Answers at rest of a system whose joints are heavier, as `LoadSweeps` has them; all ranks make it and call.

    Parameters
    ----------
    divided : DividedSystem
    loops : bool
        Whether its loops hold.
    apart : bool
        As `Contents.apart`.

    Attributes
    ----------
    resting : DividedSystem
        The same bodies on the same ranks, on which nothing acts.
    joints : list of (Structure, Springs)
        What its parts sweep.
    rotors : array [nu]
        Of the model's joints (kg m^2, kg).
    q, armature : array [nq], [nu]
        The state, and rotors and all else that joints are heavier by: for `take`.
    """

    def __init__(self, divided: DividedSystem, loops: bool = False, apart: bool = False) -> None:
        self.rotors, self._still = divided.subchain.columns.armature, divided.still
        self.q, self.armature = np.zeros(divided.subchain.nq), self.rotors.copy()
        self._rates = np.empty_like(self.q)
        self.resting = divided.alike(resting(divided.system, loops, apart))
        numbers = np.arange(divided.system.nu)[divided.gather_u.part]
        order = np.argsort(numbers)
        addresses, speeds = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        parts = self.resting.subchains
        assert isinstance(parts, Subchains | Intervals)  # as those of dcae are
        self.joints = parts.joints()
        for structure, springs in self.joints:
            told = np.rint(springs.torque).astype(np.int64) - 1
            free = np.flatnonzero((structure.armature != HELD) & (told >= 0)) if told.size else told
            addresses.append(structure.armature.ctypes.data + 8 * free)
            speeds.append(order[np.searchsorted(numbers, told[free], sorter=order)])
            springs.torque[:] = 0.0
        rotors = np.concatenate(addresses).astype(np.int64), np.concatenate(speeds).astype(np.int64)
        state = self.q, self._still, self._rates, self.armature
        self._table = Table(RestingPlan(0, np.zeros(0, np.int64), *state, *rotors))

    def take(self) -> None:
        """Have the sweeps see `armature`; of the state, which may change, nothing is kept."""
        take_rotors(self._table.data)

    @functools.cached_property
    def compiled(self) -> tuple[int, int, Integers]:
        """As of `LoadSweeps`."""
        found = self.resting.evaluation.unforced
        assert found is not None  # as `dcae` joins
        for name in ("evaluation", "rank"):
            self._table.set(name, found[name])
        plan, room = self._table.data, np.empty(0)
        return address_of(take_rotors, plan), address_of(answer_at_rest, plan, room, room), plan

    def solve(self, f: Floats, out: Floats) -> Floats:
        """Write the accelerations [nu] by generalized forces, of this rank's arrays, which are read by address."""
        self.resting.evaluate_unforced(self.q, self._still, out, self._rates, f)
        return out

    def close(self) -> None:
        """Free what MPI holds; all ranks call."""
        self.resting.close()


class AtRest:
    """A `Factor` that keeps nothing but a state: each answer is an evaluation at rest, with loops opened.

    Parameters
    ----------
    divided : DividedSystem
    factors : Factors
        Whose `heavier` answers.
    """

    def __init__(self, divided: DividedSystem, factors: Factors) -> None:
        self._divided, self._factors, self._still = divided, factors, divided.still

    def at(self, q: Floats, armature: Floats | None = None) -> None:
        """As of `Factor`."""
        q, _, armature = self._divided.agreed(q, self._still, armature, "armature")
        self._q, self._added = q.copy(), self._still if armature is None else armature.copy()

    def solve(self, f: Floats, out: Floats | None = None) -> Floats:
        """As of `Factor`."""
        out = np.empty(len(self._still)) if out is None else out
        try:
            _refuse(f, out, len(self._still))
        except InputError:
            if self._divided.comm.size > 1:  # the others wait for this rank's part
                self._answer(np.full(len(self._still), np.nan))
            raise
        out[:] = self._answer(f)
        return out

    def _answer(self, f: Floats) -> Floats:
        heavier = self._factors.heavier
        heavier.q[:] = self._q
        np.add(heavier.rotors, self._added, out=heavier.armature)
        heavier.take()
        return heavier.solve(f, np.empty_like(f))

    def close(self) -> None:
        """As of `Factor`: there is nothing."""


def _refuse(f: Floats, out: Floats, size: int) -> None:
    """Refuse arrays that `solve` can't take; InputError."""
    check_array("f", f, (size,))
    check_array("out", out, (size,))
