"""An interval of a tree's bodies in depth-first order: what a rank sweeps of a tree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.memory import Table, aligned_zeros
from mpimbs.loops.loop_events import Closings, closings_of
from mpimbs.loops.loop_table import ELSEWHERE, LoopTable
from mpimbs.loops.loops import LoopArrays, Loops
from mpimbs.model.contents import Contents
from mpimbs.parts.interval_passes import IntervalPlan
from mpimbs.parts.lane_subtrees import Chosen, LaneSubtrees, elsewhere
from mpimbs.parts.looped_tiles import LoopedLanes, LoopedTileLoops
from mpimbs.parts.open_bodies import HEAD, OWN, none_open, open_value
from mpimbs.parts.part import PartOfOne, Taken
from mpimbs.parts.subchain import AT_REST, BoundaryLayout, Outside, Subchain
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import NO_BODIES, Build, with_slots
from mpimbs.sweep.structure import BOUNDARY, TURNING, Handles, Springs, Structure, workspace
from mpimbs.values.handles import SIZE
from mpimbs.values.value import Description, Room, without_loops


class IntervalSubchain(Subchain):
    """The bodies of an interval as one piece, which knows what lies outside."""

    def __init__(self, system: Contents, first: int, last: int, outside: Outside) -> None:
        super().__init__(system, first, last)
        self.outside, self.inboard = outside, outside.inboard

    def nothing_before(self, numbers: int) -> Floats:
        """Give the begin of a scan over ranks: that nothing is open before."""
        return none_open(self.first, self.outside.most, numbers)

    def boundaries(self, scanned: Floats, numbers: int) -> Floats:
        """Turns or motions of the bodies inboard [k, numbers], from those of the open bodies before."""
        found = scanned[HEAD:].reshape(-1, 2 + numbers)[:, 2:]
        world = AT_REST[:numbers]
        return np.array([found[place] if place >= 0 else world for place in self.outside.before])

    def boundary_layout(self) -> BoundaryLayout:
        """Give where compiled code writes and reads motions of a scan over ranks."""
        before = np.array(self.outside.before, np.int64)
        return BoundaryLayout(open_value(self.outside, self.last, BOUNDARY), HEAD + OWN, OWN + BOUNDARY, before)

    def boundary_motion(self, q: Floats, u: Floats) -> Floats:
        """Give the motions of the open bodies while the bodies inboard are held, for a scan."""
        value = open_value(self.outside, self.last, BOUNDARY)
        value[HEAD:].reshape(-1, 2 + BOUNDARY)[: len(self.outer), 2:] = self.relative_motions(q, u)
        return value


class IntervalPart(PartOfOne):
    """An interval of a tree's bodies in depth-first order, of which a rank has one or several (`parts.intervals`).

    Swept as one piece in doubles, but for subtrees that are swept side by side.

    Parameters
    ----------
    system : Contents
        In depth-first order.
    first, last : int
        The bodies.
    outside : Outside
        Of these.
    choose : callable
        Gives the subtrees of the bodies made ready; see `partition.lane_subtrees`.
    table : LoopTable, optional
        The loops of which an end is here, of the bodies by their numbers here; none by default.

    Attributes
    ----------
    value : Description
        Of their equations.
    blocks : array [1, room.size()]
        These, as in `values.value`.
    loads : array [1, (room.inboard + room.open) * 6]
        Accelerations of the inboard bodies, loads on the open ones.
    swept : Swept
        How many bodies are swept in which way.
    work : Workspace
        What the sweep in doubles writes.
    total : array [nu]
        Forces of its joints, written by the passes.
    """

    def __init__(
        self,
        system: Contents,
        first: int,
        last: int,
        outside: Outside,
        choose: Callable[[Build], Chosen],
        table: LoopTable | None = None,
    ) -> None:
        whole = IntervalSubchain(system, first, last, outside)
        super().__init__(whole)
        self.outside = outside
        chosen = choose(whole.made)
        self.swept = chosen.swept(whole.made.sizes)
        wrenches, boundaries = system.has_wrenches(first, last), len(outside.inboard)
        looped_tiles = [
            LoopedLanes(whole.made, looped_tile, table, outside.inboard)
            for looped_tile in chosen.looped_tiles
            if table is not None
        ]
        closings, own = (
            (None, NO_BODIES) if table is None else _closings(whole.made, table, chosen, looped_tiles, outside, first)
        )
        slotted = closings.slotted if closings else NO_BODIES
        self._subtrees = (
            LaneSubtrees(whole.made, boundaries, chosen, wrenches, slotted, looped_tiles) if chosen.any else None
        )
        self.width = self._subtrees.width if self._subtrees else 1
        if self._subtrees:
            self._made = self._subtrees.trunk
        else:
            self._made = with_slots(whole.made, boundaries, slotted) if len(slotted) else whole.made
        s = self._made.structure
        self.work = (
            workspace(len(s.steps), len(s.axes), self._made.junctions, wrenches=wrenches)
            if self._made is not whole.made
            else whole.work
        )
        self._wrench = self.work.wrench
        self.total = np.zeros(len(s.axes))
        self.loops: Loops | None = None
        self.all_loops: list[Loops] = []
        if table is not None and closings is not None:
            self._close(system, table, closings, own, looped_tiles)
        self.turn = open_value(outside, last, TURNING)
        self.value = self._described()
        self.make(self.value.room)

    def _close(
        self, system: Contents, table: LoopTable, closings: Closings, own: Integers, looped_tiles: list[LoopedLanes]
    ) -> None:
        """Make the loops ready, those of the trunk (`own`) and of the looped tiles."""
        made, trunk, aim = self._made, table.some(own, table.bodies), np.zeros(4)
        steps, frames = made.body_step, made.body_frame
        slots = len(self.outside.inboard)
        arrays = LoopArrays(system, [trunk], made, closings, steps[None], frames, slots, aim)
        self._loop_arrays, self._looped_tiles = arrays, None
        self.loops, self.all_loops = arrays.lanes[0], arrays.lanes
        if self._subtrees and looped_tiles:
            lanes, on = self._subtrees.looped_lanes, self._subtrees.looped_slots
            self._looped_tiles = LoopedTileLoops(system, table, looped_tiles, lanes, on, arrays, own, steps, frames)
            self._subtrees.close_looped_tiles(self._looped_tiles.rows, self._looped_tiles.copies)
            self.all_loops = arrays.lanes + self._looped_tiles.lanes

    def make(self, room: Room) -> None:
        """Make the tables of the passes, for values of some room."""
        self.room, outside, s = room, self.outside, self._made.structure
        if self._subtrees and self._subtrees.has_open:
            path, reach = NO_BODIES, NO_BODIES
        else:
            path, reach = self._whole.path_out(self._made)
        self.blocks = aligned_zeros(room.size()).reshape(1, room.size())
        self.loads = np.zeros((1, 6 * (room.inboard + room.open)))
        plan = IntervalPlan(
            Handles(self.turn, self.blocks, self.loads),
            s,
            self._made.springs,
            self.work,
            room=room,
            inboard=outside.before,
            path=path,
            reach=reach,
            total=self.total,
            columns=aligned_zeros(0 if self.loops else len(reach) * len(s.axes) * ROW),
            block=aligned_zeros(SIZE),
            subtrees=self._subtrees.plan if self._subtrees else NO_BODIES,
            held=AT_REST[:TURNING].copy(),
            loops=self._loop_arrays.plan if self.loops else NO_BODIES,
        )
        self._table = Table(plan)
        self.plan = self._table.data

    def _described(self) -> Description:
        o = self.outside
        if self.loops:
            groups = self.loops.groups(o.open, o.ends, self._whole.first, self._whole.system)
            return Description(self._whole.last, o.inboard.tolist(), groups, True)
        return without_loops(
            self._whole.last, o.inboard.tolist(), list(zip(o.open.tolist(), o.ends.tolist(), strict=True))
        )

    def open_loads(self, values: Floats) -> Floats:
        """Loads on the open bodies [h, 6], of boundary values [room.inboard + room.open, 6]."""
        found = values[self.room.inboard :]
        return found[self.loops.open_bodies] if self.loops else found[: len(self.outside.open)]

    def wrenches_taken(self) -> Taken:
        """Where its sweeps read external wrenches, as of `Part`."""
        if self._subtrees:
            return self._subtrees.wrenches_taken(self._wrench)
        return [] if self._wrench is self.whole.wrenches else [(self._wrench, np.arange(self._wrench.size))]

    def joints(self) -> list[tuple[Structure, Springs]]:
        """The arrays that the sweeps read of all joints, each once."""
        return [(self._made.structure, self._made.springs), *(self._subtrees.joints() if self._subtrees else [])]


def _closings(
    made: Build, table: LoopTable, chosen: Chosen, looped_tiles: list[LoopedLanes], outside: Outside, first: int
) -> tuple[Closings, Integers]:
    """Where the loops of the trunk are closed, given what looped tiles hand over; which loops of the table it has."""
    trunk = elsewhere(made, chosen)
    in_trunk = np.zeros(len(made.order), bool)
    in_trunk[made.order[trunk]] = True
    here = (table.bodies >= 0) & in_trunk[np.maximum(table.bodies, 0)]
    own = np.flatnonzero(here.any(axis=1))
    number = np.full(len(table), -1)
    number[own] = np.arange(len(own))
    handed = [
        each
        for looped_tile, lanes in zip(chosen.looped_tiles, looped_tiles, strict=True)
        for each in lanes.handed(made, looped_tile, trunk, number)
    ]
    ends = np.where(here | (table.bodies < 0), table.bodies, ELSEWHERE)[own]
    gears = np.flatnonzero(np.isin(own, table.gears))
    return closings_of(ends, gears, made, outside.inboard, outside.open - first, handed), own
