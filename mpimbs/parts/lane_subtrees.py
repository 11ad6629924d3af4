"""LaneSubtrees: what of an interval's bodies is swept in lanes.

Closed subtrees of the same shape are swept side by side, a lane each, wherever they hang. A stretch is a subtree along
whose longest path shapes repeat, as they do in a chain: it is cut at bodies of the path into pieces, which are swept
and joined as those of a chain. What is in no subtree is the trunk. It is swept in doubles, with a slot for each body on
which subtrees hang.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.memory import Table, aligned_zeros
from mpimbs.parts.looped_tiles import LoopedLanes, LoopedTile
from mpimbs.parts.part import Taken
from mpimbs.parts.pieces import PIECE, sequence_rows
from mpimbs.parts.side_by_side import lanes_of_steps, put_side_by_side
from mpimbs.parts.subtree_passes import IS_OPEN, SLOT, SubtreesPlan
from mpimbs.parts.tiles import JOINED, ON_BODIES, Kinds, Placed, Tile, Tiles
from mpimbs.sweep.build import NO_BODIES, Build, different_rows, join_steps, path_to
from mpimbs.sweep.structure import BODY, FIRST_Q, FIRST_U, LAST_U, SINK, SLIDES, TURN, TURNING, Springs, Structure

NO_ROWS = np.zeros((0, 8), np.int64)


class Group(NamedTuple):
    """Closed subtrees whose sweeps take the same steps, to be swept side by side."""

    places: Integers  # [tiles, width]: where each begins in the depth-first order of `Build`
    lanes: int  # how many of these there are; those beyond repeat others, where a tile is not full


class Stretch(NamedTuple):
    """A subtree that is cut along a path into pieces, in lanes where their sweeps take the same steps."""

    first: int  # its bodies have the places first to last - 1 in the depth-first order of `Build`
    last: int
    tiles: list[Tile]  # in sequence, over these places
    path: Integers  # places of the bodies of the path, from `first` on; every piece begins at one
    is_open: bool  # whether the last body of the path has children elsewhere; none other has


class Swept(NamedTuple):
    """Numbers of bodies by how they are swept."""

    subtrees: int  # of closed subtrees side by side, those of looped tiles among them
    stretches: int  # of stretches, in pieces along a path
    trunk: int  # all others, in doubles


class Chosen(NamedTuple):
    """The subtrees of an interval; no body is in two."""

    groups: list[Group]
    stretches: list[Stretch]
    looped_tiles: list[LoopedTile]

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self.groups or self.stretches or self.looped_tiles)

    def swept(self, sizes: Integers) -> Swept:
        """Count bodies by how they are swept; `sizes` [n] are those of the subtrees at the places of all."""
        beside = sum(group.lanes * int(sizes[group.places[0, 0]]) for group in self.groups)
        beside += sum(looped_tile.last - looped_tile.first for looped_tile in self.looped_tiles)
        along = sum(stretch.last - stretch.first for stretch in self.stretches)
        return Swept(beside, along, len(sizes) - beside - along)


NO_SUBTREES = Chosen([], [], [])


class _Numbers(NamedTuple):
    """Where numbers of some steps stand among those of all."""

    steps: Integers  # [m, 8]: of the first lane, numbered from 0 on
    coordinates: Integers  # [..., nq]
    speeds: Integers  # [..., nu]


def _numbers(made: Build, steps: Integers) -> _Numbers:
    """Number the coordinates and speeds of some steps [..., m] from 0 on, one after the other."""
    rows = made.structure.steps[steps]
    first = rows[(0,) * (steps.ndim - 1)].copy()
    speeds = first[:, LAST_U] - first[:, FIRST_U]
    coordinates = speeds + (first[:, TURN] == 4)
    first[:, FIRST_Q] = np.cumsum(coordinates) - coordinates
    first[:, LAST_U] = np.cumsum(speeds)
    first[:, FIRST_U] = first[:, LAST_U] - speeds
    found = []
    for column, counts in ((FIRST_Q, coordinates), (FIRST_U, speeds)):
        begins = np.repeat(first[:, column], counts)
        found.append(np.repeat(rows[..., column], counts, axis=-1) + np.arange(len(begins)) - begins)
    return _Numbers(first, *found)


def _structure(made: Build, steps: Integers, speeds: Integers, path: Integers) -> Structure:
    """The structure of some steps, whose numbers are those, and of their speeds."""
    s = made.structure
    return Structure(steps, s.axes[speeds], s.fixed, s.pitch[speeds], _picked(s.armature, speeds), path, s.added)


def _chosen(springs: Springs, coordinates: Integers, speeds: Integers) -> Springs:
    """Joint forces of some coordinates and speeds."""
    index = {"rest": coordinates}
    return Springs(*(_picked(a, index.get(name, speeds)) for name, a in springs._asdict().items()))


def _picked(values: Floats, numbers: Integers) -> Floats:
    """Some of these values [..., n]; of none, none [..., 0]."""
    return values[numbers] if values.size else np.zeros((*numbers.shape[:-1], 0))


class _Pieces:
    """Pieces whose sweeps take the same steps, in tiles.

    Parameters
    ----------
    made : Build
        All bodies.
    begins : array [n + 1]
        First step of the body at each place.
    places : array [tiles, width]
        Where the pieces begin.
    count : int
        Bodies of each.
    tip : int
        Which of these another piece hangs on; -1: none.
    slotted : array, optional
        Bodies of a piece, counted from 0, that get slots.
    """

    def __init__(
        self, made: Build, begins: Integers, places: Integers, count: int, tip: int = -1, slotted: Integers = NO_BODIES
    ) -> None:
        self._made, self._tip, self._slotted = made, tip, slotted
        self.tiles, self.width = places.shape
        place = int(places[0, 0])
        self._bodies = made.order[place : place + count]
        self._first = int(begins[place])
        steps = int(begins[place + count]) - self._first
        self.steps = begins[places][..., None] + np.arange(steps)
        self.numbers = _numbers(made, self.steps)

    def add_to(self, kinds: Kinds) -> Integers:
        """Add what the tiles are made of; gives the number of the kind of each [tiles]."""
        s, (_, q, u) = self._made.structure, self.numbers
        sliding = s.steps[self.steps][..., (BODY, SLIDES)]
        differing = [sliding, s.pitch[u], _picked(s.armature, u), *_chosen(self._made.springs, q, u)]
        rows = np.concatenate([a.reshape(self.tiles, -1).astype(np.float64) for a in differing], axis=1)
        which = different_rows(rows)[1]
        first = np.unique(which, return_index=True)[1]
        added = [kinds.add(made, q.shape[-1], self.width) for made in self.side_by_side(first)]
        return np.array(added)[which]

    def side_by_side(self, tiles: Integers) -> list[Build]:
        """Put the lanes of each of some tiles side by side; bodies are counted from 0."""
        made, bodies, s = self._made, self._bodies, self._made.structure
        steps = self.numbers.steps.copy()
        place_of = np.full(len(made.parent), -1)
        place_of[bodies] = np.arange(len(bodies))
        parent = np.where(made.parent[bodies] >= 0, place_of[made.parent[bodies]], -1)
        ends = made.first_step[bodies] - self._first, made.body_step[bodies] - self._first
        junctions = join_steps(steps, parent, *ends, 1, self._slotted)
        q, u = self.numbers.coordinates[tiles], self.numbers.speeds[tiles]
        lane = s._replace(steps=steps, axes=s.axes[u[0, 0]], path=path_to(self._tip, parent, *ends))
        piece = made._replace(
            junctions=junctions, parent=parent, order=np.arange(len(bodies)), first_step=ends[0], body_step=ends[1]
        )
        freedoms = s.pitch[u], _picked(s.armature, u), _chosen(made.springs, q, u)
        lanes = lanes_of_steps(s, self.steps[tiles], *freedoms)
        return [piece._replace(structure=own, springs=forces) for own, forces in put_side_by_side(lane, lanes)]


class _Sequence:
    """Tiles of pieces, in sequence, and what of the rank's numbers is theirs."""

    def __init__(self, pieces: list[_Pieces], tip: bool, wrenches: bool, lanes_are: int) -> None:
        kinds, chosen, lane = Kinds(), [], 0
        for part in pieces:
            for kind in part.add_to(kinds).tolist():
                chosen.append(Placed(kind, part.width, lane))
                lane += part.width
        self.tiles = Tiles(kinds, chosen, tip, wrenches, lanes_are, interleaved=True)
        six = np.arange(6)
        steps = [(6 * part.steps[..., None] + six).reshape(part.tiles, part.width, -1) for part in pieces]
        self.wrenched = _interleaved(steps) if wrenches else NO_BODIES
        self.coordinates = _interleaved([part.numbers.coordinates for part in pieces])
        self.speeds = _interleaved([part.numbers.speeds for part in pieces])


def _interleaved(parts: list[Integers]) -> Integers:
    """Indices of the lanes of tiles, parts of [tiles, width, numbers], side by side as sweeps have them."""
    return np.concatenate([np.swapaxes(part, 1, 2).ravel() for part in parts])


def _pieces_of(made: Build, begins: Integers, stretch: Stretch) -> list[_Pieces]:
    """The pieces of a stretch, tile by tile."""
    pieces = []
    for tile in stretch.tiles:
        places = tile.first + tile.length * np.arange(tile.width)
        last = int(np.searchsorted(stretch.path, tile.first + tile.length)) - 1
        tip = int(stretch.path[last]) - tile.first
        pieces.append(_Pieces(made, begins, places.reshape(1, -1), tile.length, tip))
    return pieces


def elsewhere(made: Build, chosen: Chosen) -> Integers:
    """Places in no subtree."""
    inside = np.zeros(len(made.order) + 1, np.int64)  # changes from place to place
    for group in chosen.groups:
        places = group.places.ravel()[: group.lanes]
        np.add.at(inside, places, 1)
        np.add.at(inside, places + made.sizes[places], -1)
    for ends in [(part.first, part.last) for part in chosen.stretches] + [
        (s.first, s.last) for s in chosen.looped_tiles
    ]:
        inside[list(ends)] += 1, -1
    return np.flatnonzero(np.cumsum(inside)[:-1] == 0)


class LaneSubtrees:
    """The subtrees of an interval, and its trunk.

    Parameters
    ----------
    made : Build
        All bodies of the interval.
    boundaries : int
        Bodies outside on which these hang.
    chosen : Chosen
        The subtrees, one at least.
    wrenches : bool
        Whether wrenches act on bodies.
    slotted : array
        Further bodies of the trunk that get slots.
    looped_tiles : sequence of LoopedLanes
        The lanes of the looped tiles.
    """

    def __init__(
        self,
        made: Build,
        boundaries: int,
        chosen: Chosen,
        wrenches: bool,
        slotted: Integers = NO_BODIES,
        looped_tiles: Sequence[LoopedLanes] = (),
    ) -> None:
        begins = np.append(made.first_step[made.order], len(made.structure.steps))
        groups, stretches, cut = chosen
        alike = [_Pieces(made, begins, group.places, int(made.sizes[group.places[0, 0]])) for group in groups]
        self._beside = [_Sequence(alike, True, wrenches, ON_BODIES)] if groups else []
        self._along = [
            _Sequence(_pieces_of(made, begins, stretch), not stretch.is_open, wrenches, JOINED) for stretch in stretches
        ]
        pieces = [
            _Pieces(made, begins, each.places.reshape(1, -1), each.length, -1, lanes.closings.slotted)
            for each, lanes in zip(cut, looped_tiles, strict=True)
        ]
        # The pieces of each looped tile side by side, their bodies counted from 0.
        self.looped_lanes = [part.side_by_side(np.zeros(1, np.int64))[0] for part in pieces]
        self._looped_tiles = [_Sequence([part], True, wrenches, ON_BODIES) for part in pieces]
        self._sequences = self._beside + self._along + self._looped_tiles
        self.has_open = any(stretch.is_open for stretch in stretches)  # the interval's open body
        self.width = max(sequence.tiles.width for sequence in self._sequences)

        places = np.concatenate([group.places.ravel() for group in groups]) if groups else NO_BODIES
        firsts = np.array([stretch.first for stretch in stretches], np.int64)
        on = made.parent[made.order[np.concatenate((places, firsts))]]
        on_looped_tiles = np.array([lanes.on for lanes in looped_tiles], np.int64)
        bodies = made.order[elsewhere(made, chosen)]
        slotted = np.concatenate((on[on >= 0], on_looped_tiles[on_looped_tiles >= 0], slotted))
        self._trunk_steps, numbers = self._make_trunk(made, bodies, boundaries, np.unique(slotted))
        self.looped_slots = [self._slot(int(body)) for body in on_looped_tiles]  # of the trunk, that they hang on
        slots = -1 - on
        slots[on >= 0] = self.trunk.structure.steps[self.trunk.body_step[on[on >= 0]], SINK]
        repeated = [np.arange(group.places.size) >= group.lanes for group in groups]
        q_index = [*(sequence.coordinates for sequence in self._sequences), numbers.coordinates]
        u_index = [*(sequence.speeds for sequence in self._sequences), numbers.speeds]
        q_sizes, u_sizes = ([part.size for part in index] for index in (q_index, u_index))
        lanes = len(places)
        along = self._rows(self._along, self._beside)
        along[:, SLOT], along[:, IS_OPEN] = slots[lanes:], [stretch.is_open for stretch in stretches]
        self._plan = SubtreesPlan(
            tiles=self._beside[0].tiles.plan if groups else NO_BODIES,
            slots=slots[:lanes],
            sums=np.where(np.concatenate(repeated), self.trunk.junctions - 1, slots[:lanes]) if groups else NO_BODIES,
            stretches=along,
            looped_tiles=self._rows(self._looped_tiles, self._beside + self._along),
            copies=NO_ROWS,
            turn=np.zeros(TURNING),
            q_index=np.concatenate(q_index),
            u_index=np.concatenate(u_index),
            **{name: aligned_zeros(sum(q_sizes)) for name in ("q", "rates")},
            **{name: aligned_zeros(sum(u_sizes)) for name in ("u", "tau", "udot")},
            trunk_q=sum(q_sizes[:-1]),
            trunk_u=sum(u_sizes[:-1]),
        )
        self._table = Table(self._plan)
        self.plan = self._table.data  # what the compiled passes are given (`parts.subtree_passes`)

    @staticmethod
    def _rows(sequences: list[_Sequence], before: list[_Sequence]) -> Integers:
        """The rows of some sequences that stand behind others."""
        rows = sequence_rows([(part.tiles.plan, part.coordinates.size, part.speeds.size) for part in sequences])
        for part in before:
            rows[:, [PIECE.q, PIECE.u]] += part.coordinates.size, part.speeds.size
        return rows

    def _slot(self, body: int) -> int:
        """The slot of a body of the trunk, or outside."""
        return int(self.trunk.structure.steps[self.trunk.body_step[body], SINK]) if body >= 0 else -1 - body

    def close_looped_tiles(self, rows: Integers, copies: Integers) -> None:
        """Say where the loops of the looped tiles are: what looped tiles add to their rows, and copies of motions."""
        self._plan.looped_tiles[:] += rows
        self._plan = self._plan._replace(copies=copies)
        self._table = Table(self._plan)
        self.plan = self._table.data

    def _make_trunk(
        self, made: Build, bodies: Integers, boundaries: int, outside_bodies: Integers
    ) -> tuple[Integers, _Numbers]:
        """Make the trunk of bodies in depth-first order, with slots for some; give its steps and their numbers."""
        number = np.full(len(made.parent), -1)
        number[bodies] = np.arange(len(bodies))
        counts = made.body_step[bodies] - made.first_step[bodies] + 1
        last = np.cumsum(counts) - 1
        first = last - counts + 1
        steps = np.repeat(made.first_step[bodies] - first, counts) + np.arange(int(counts.sum()))
        numbers = _numbers(made, steps)
        above = made.parent[bodies]
        parent = np.where(above >= 0, number[above], above)
        junctions = join_steps(numbers.steps, parent, first, last, boundaries, number[outside_bodies])
        u = numbers.speeds
        own = np.full((2, len(made.parent)), -1)
        own[:, bodies] = first, last
        # The other bodies; `first_step` and `body_step` are those of all bodies of the interval, where they are in it.
        # Its last junction is one that nobody reads.
        self.trunk = made._replace(
            structure=_structure(made, numbers.steps, u, NO_BODIES),
            springs=_chosen(made.springs, numbers.coordinates, u),
            junctions=junctions + 1,
            first_step=own[0],
            body_step=own[1],
        )
        return steps, numbers

    def wrenches_taken(self, of_trunk: Floats) -> Taken:
        """Where sweeps read external wrenches, and what of all takes the room of the trunk's [m' * 6]."""
        of_tiles = [(sequence.tiles.wrenches, sequence.wrenched) for sequence in self._sequences]
        numbers = (6 * self._trunk_steps[:, None] + np.arange(6)).ravel()
        return [*of_tiles, (of_trunk, numbers[: of_trunk.size])]

    def joints(self) -> list[tuple[Structure, Springs]]:
        """The arrays that the sweeps of the subtrees read of their joints, each once."""
        return [pair for sequence in self._sequences for pair in sequence.tiles.kinds.joints]
