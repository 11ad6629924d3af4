"""Looped tiles: what of bodies with loops is swept in lanes, consecutive closed subtrees on one body that repeat.

A looped tile is cut into equal pieces, a lane each. Loops within a piece are closed in its lane; of those that lead out
of it the columns are handed on to the trunk, where they meet those of the next piece, or of the trunk itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.memory import Table
from mpimbs.loops.loop_events import Closings, FromLoopedTile, Tree
from mpimbs.loops.loop_table import ELSEWHERE, LoopTable
from mpimbs.loops.loops import LoopArrays, Loops
from mpimbs.model.contents import Contents
from mpimbs.parts.looped_passes import FROM_FIRST, LOOPED_TILE_AT, TAKEN, TO_FIRST, WRITTEN, LoopedTilePlan
from mpimbs.sweep.build import NO_BODIES, Build
from mpimbs.values.fronts import C_ROW


class LoopedTile(NamedTuple):
    """The places and the lanes of a looped tile."""

    first: int  # the place of its first body in the depth-first order of `Build`
    length: int  # bodies of a lane
    width: int  # lanes, one after the other

    @property
    def last(self) -> int:
        """The place behind its last body."""
        return self.first + self.length * self.width

    @property
    def places(self) -> Integers:
        """Where each lane begins [width]."""
        return self.first + self.length * np.arange(self.width)


class LoopedLanes:
    """The loops of a looped tile's lanes, and where each is closed.

    Parameters
    ----------
    made : Build
        All bodies of the interval.
    table : LoopTable
        All loops of which an end is in the interval.
    inboard : array
        The bodies outside; -1 the world.

    Attributes
    ----------
    bodies : array [width, length]
    on : int
        The body that all hang on; -1 - k of the body k outside.
    alike : bool
        Whether all lanes have the same loops. The first and the last may lack some that lead to other lanes: then a
        loop stands there for each, that is not theirs.
    loops : array [width, loops of a lane]
        Which loops of the table each lane has, in an order that is the same for all.
    ends : array [loops of a lane, 2]
        Their bodies, counted from 0 in a lane; AT_WORLD, or ELSEWHERE.
    real : list of slices
        Which of its loops are a lane's own.
    closings : Closings
        Of the bodies of a lane.
    """

    def __init__(self, made: Build, looped_tile: LoopedTile, table: LoopTable, inboard: Integers) -> None:
        self.bodies = made.order[looped_tile.places[:, None] + np.arange(looped_tile.length)]
        self.on = int(made.parent[self.bodies[0, 0]])
        number = np.full(len(made.order), -1)
        number[self.bodies] = np.arange(looped_tile.length)
        self._lane_of = np.full(len(made.order), -1)
        self._lane_of[self.bodies] = np.arange(looped_tile.width)[:, None]
        self._table = table
        found = [self._of_lane(lane, number) for lane in range(looped_tile.width)]
        some, self.ends = found[looped_tile.width // 2]
        missing = [_missing(self.ends, found[lane][1]) for lane in (0, -1)]
        order = np.lexsort((missing[1], ~missing[0]))
        before, behind = (int(lacked.sum()) for lacked in missing)
        self.real = [slice(None)] * looped_tile.width
        self.real[0], self.real[-1] = slice(before, None), slice(0, len(order) - behind)
        self.ends = self.ends[order]
        self.loops = np.tile(some[order], (looped_tile.width, 1))
        self.alike = not (missing[0] & missing[1]).any()
        for lane, (loops, ends) in enumerate(found):
            there = self.real[lane]
            same = len(loops) == len(self.ends[there])
            if self.alike and same:
                sorted_as = np.lexsort((self.ends[there, 1], self.ends[there, 0]))
                self.alike = np.array_equal(ends, self.ends[there][sorted_as])
                self.loops[lane, np.arange(len(order))[there][sorted_as]] = loops
            self.alike = self.alike and same
        parent = np.where(made.parent[self.bodies[0]] >= 0, number[made.parent[self.bodies[0]]], -1)
        slots = [int(inboard[-1 - self.on]) if self.on < 0 else 0]
        self.closings = Closings(Tree(parent, np.arange(looped_tile.length), slots), self.ends, NO_BODIES, NO_BODIES)

    def _of_lane(self, lane: int, number: Integers) -> tuple[Integers, Integers]:
        """The loops of a lane, and their bodies there, in the order of these."""
        inside = self._table.bodies >= 0
        here = inside & (self._lane_of[np.maximum(self._table.bodies, 0)] == lane)
        some = np.flatnonzero(here.any(axis=1))
        bodies = self._table.bodies[some]
        local = np.where(here[some], number[bodies], np.where(bodies >= 0, ELSEWHERE, bodies))
        order = np.lexsort((local[:, 1], local[:, 0]))
        return some[order], local[order]

    def tables(self) -> list[LoopTable]:
        """The loops of each lane."""
        found = []
        for loops, there, bodies in zip(self.loops, self.real, self.bodies, strict=True):
            own = self._table.some(loops, self._table.bodies)
            lacked = np.ones(len(loops), bool)
            lacked[there] = False
            local = self.ends[lacked]
            own.bodies[lacked] = np.where(local >= 0, bodies[local], ELSEWHERE)
            found.append(own)
        return found

    def handed(self, made: Build, looped_tile: LoopedTile, trunk: Integers, of_trunk: Integers) -> list[FromLoopedTile]:
        """Give what the lanes hand over to the trunk, at its places and by its numbers of the loops (-1: none)."""
        found = []
        for lane, place in enumerate(looped_tile.places.tolist() if self.closings.open_groups else []):
            after = int(np.searchsorted(trunk, place))
            behind = int(made.order[trunk[after]]) if after < len(trunk) else -1
            loops = self.loops[lane, self.open_of(lane)]
            keys = [int(of_trunk[loop]) if of_trunk[loop] >= 0 else -1 - int(loop) for loop in loops]
            found.append(FromLoopedTile(place, self.on, behind, keys))
        return found

    def open_of(self, lane: int) -> list[int]:
        """Which of the loops of a lane are open in the end, in the order of the groups that it hands over."""
        own = set(np.arange(len(self.ends))[self.real[lane]].tolist())
        return [loop for loop in self.closings.open_groups if loop in own]

    def groups(self) -> Integers:
        """The groups of what is open, of each lane [open, lanes]; -1 of what it has not."""
        found = np.full((len(self.closings.open), len(self.bodies)), -1)
        for lane in range(len(self.bodies)):
            handed = self.open_of(lane)
            for row, (_, loop, _, _) in zip(found, self.closings.open, strict=True):
                row[lane] = handed.index(loop) if loop in handed else -1
        return found


def _missing(ends: Integers, others: Integers) -> npt.NDArray[np.bool_]:
    """Which loops that lead elsewhere are not among others, given the bodies of both [n, 2]."""
    there = {tuple(pair) for pair in others.tolist()}
    leads = (ends == ELSEWHERE).any(axis=1)
    return np.array([lead and tuple(pair) not in there for lead, pair in zip(leads, ends.tolist(), strict=True)], bool)


class _Motion(NamedTuple):
    """Where the motion of a body or of an end elsewhere stands: which arrays, which lane, and which item."""

    arrays: LoopArrays
    lane: int
    item: int


class LoopedTileLoops:
    """The loops of all looped tiles of an interval, joined to those of the trunk.

    Parameters
    ----------
    table : LoopTable
        As of `LoopedLanes`.
    looped_tiles : sequence of LoopedLanes
    lanes : sequence of Build
        The pieces of each side by side, their bodies counted from 0.
    slots : sequence of int
        Those of the trunk that they hang on.
    of_trunk : array
        Loops of the table that the trunk has.
    steps : array [n]
        Of the trunk.
    frames : array [n, 3, 3]
        Step to body components of all bodies of the interval.

    Attributes
    ----------
    lanes : list of Loops
    rows, copies : array [looped tiles, 8], [any, 8]
        As of `subtree_passes.SubtreesPlan`: of the rows the part that looped tiles add.
    """

    def __init__(
        self,
        system: Contents,
        table: LoopTable,
        looped_tiles: Sequence[LoopedLanes],
        lanes: Sequence[Build],
        slots: Sequence[int],
        trunk: LoopArrays,
        of_trunk: Integers,
        steps: Integers,
        frames: Floats,
    ) -> None:
        self._kept: list[tuple[Table, LoopArrays]] = []
        self.lanes: list[Loops] = []
        carriers = [(trunk, 0, steps)]
        far = _remote_ends(trunk, 0, table.bodies[of_trunk], steps)  # where ends are elsewhere, and on which body
        self.rows = np.zeros((len(looped_tiles), 8), np.int64)
        next_front = 0
        for row, looped_tile, made, slot in zip(self.rows, looped_tiles, lanes, slots, strict=True):
            here = np.full((len(looped_tile.bodies), len(steps)), -1)
            for lane, bodies in enumerate(looped_tile.bodies):
                here[lane, bodies] = made.body_step
            tables = looped_tile.tables()
            aim = trunk.lanes[0].aim
            arrays = LoopArrays(system, tables, made, looped_tile.closings, here, frames, 1, aim, looped_tile.real)
            self.lanes += arrays.lanes
            for lane, own in enumerate(tables):
                far += _remote_ends(arrays, lane, own.bodies, here[lane])
                carriers.append((arrays, lane, here[lane]))
            events, count = trunk.events, len(looped_tile.bodies) if looped_tile.closings.open_groups else 0
            fronts = range(next_front, next_front + count)
            next_front += count
            plan = LoopedTilePlan(
                loops=arrays.plan,
                slot=slot,
                fronts=np.array([events.where[front] for front in fronts], np.int64),
                lengths=np.array([events.lengths[front] for front in fronts], np.int64),
                first_row=C_ROW if looped_tile.closings.grounded else 0,
                groups=looped_tile.groups().ravel(),
            )
            self._kept.append((Table(plan), arrays))
            data = self._kept[-1][0].data
            row[[LOOPED_TILE_AT, LOOPED_TILE_AT + 1]] = data.ctypes.data, data.size
        moved = {body: _motion_of(body, carriers) for body in {body for _, body in far}}
        self.copies = np.array([_copy(to, moved[body]) for to, body in far], np.int64).reshape(-1, 8)


def _remote_ends(arrays: LoopArrays, lane: int, bodies: Integers, steps: Integers) -> list[tuple[_Motion, int]]:
    """Where the motions of ends elsewhere belong, and the bodies that they are on: those of the interval."""
    loops, ends = np.nonzero((bodies >= 0) & (steps[np.maximum(bodies, 0)] < 0))
    items = arrays.far_item + loops
    return [
        (_Motion(arrays, lane, int(item)), int(bodies[loop, end]))
        for item, loop, end in zip(items, loops, ends, strict=True)
    ]


def _motion_of(body: int, carriers: list[tuple[LoopArrays, int, Integers]]) -> _Motion:
    """Where the motion of a body's step stands."""
    arrays, lane, steps = next(carrier for carrier in carriers if carrier[2][body] >= 0)
    return _Motion(arrays, lane, int(steps[body]))


def _copy(to: _Motion, motion: _Motion) -> list[int]:
    row = [0] * 8
    for at, first, place in ((WRITTEN, TO_FIRST, to), (TAKEN, FROM_FIRST, motion)):
        array, begin, stride = place.arrays.motion_at(place.lane, place.item)
        row[at : at + 2] = array.ctypes.data, array.size
        row[first : first + 2] = begin, stride
    return row
