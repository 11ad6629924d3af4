"""Limbs: closed subtrees of the same shape that are swept side by side, a lane each, wherever they hang.

What of an interval's bodies is in no limb is its trunk. It is swept in doubles, with a slot for each body on which
limbs hang.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.spatial.memory import Table, aligned_zeros
from mpimbs.sweep.build import Build, different_rows, join_steps
from mpimbs.sweep.limb_passes import LimbsPlan
from mpimbs.sweep.side_by_side import side_by_side
from mpimbs.sweep.structure import BODY, FIRST_Q, FIRST_U, LAST_U, SINK, SLIDES, TURN, Springs, Structure
from mpimbs.sweep.tiles import HUNG, Kinds, Placed, Tiles

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Group(NamedTuple):
    """Closed subtrees whose sweeps take the same steps, to be swept side by side.

    Attributes
    ----------
    places : array [tiles, width]
        Where each begins in the depth-first order of `Build`.
    lanes : int
        How many of these there are; those beyond repeat others, where a tile is not full.
    """

    places: Integers
    lanes: int


class _Numbers(NamedTuple):
    """Where numbers of some steps stand among those of all."""

    steps: Integers  # [m, 8] or [lanes, m, 8], of the first lane: numbered from 0 on
    coordinates: Integers  # [..., nq]
    speeds: Integers  # [..., nu]


def _numbers(made: Build, steps: Integers) -> _Numbers:
    """Number the coordinates and speeds of some steps [..., m] from 0 on, one after the other."""
    rows = made.structure.steps[steps]
    first = rows.reshape(-1, *rows.shape[-2:])[0].copy()
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


def _structure(made: Build, steps: Integers, speeds: Integers) -> Structure:
    """The structure of some steps, whose numbers are those, and of their speeds; an empty armature stays so."""
    s = made.structure
    armature = s.armature[speeds] if s.armature.size else s.armature
    return s._replace(steps=steps, axes=s.axes[speeds], pitch=s.pitch[speeds], armature=armature)


def _chosen(springs: Springs, coordinates: Integers, speeds: Integers) -> Springs:
    """Joint forces of some coordinates and speeds; empty arrays stay so."""
    index = {"rest": coordinates}
    return Springs(*(a[index.get(name, speeds)] if a.size else a for name, a in springs._asdict().items()))


class _Shape:
    """The limbs of one group.

    Parameters
    ----------
    made : Build
        All bodies.
    begins : array [n + 1]
        First step of the body at each place.
    group : Group
    """

    def __init__(self, made: Build, begins: Integers, group: Group) -> None:
        self._made = made
        self.tiles, self.width = group.places.shape
        place = int(group.places[0, 0])
        self._bodies = made.order[place : place + int(made.sizes[place])]
        self._first = int(begins[place])
        count = int(begins[place + len(self._bodies)]) - self._first
        self.steps = begins[group.places][..., None] + np.arange(count)
        self.numbers = _numbers(made, self.steps)

    def add_to(self, kinds: Kinds) -> Integers:
        """Add what the tiles are made of; gives the number of the kind of each [tiles]."""
        springs = _chosen(self._made.springs, self.numbers.coordinates, self.numbers.speeds)
        pitch, armature = self._made.structure.pitch[self.numbers.speeds], self._made.structure.armature
        sliding = self._made.structure.steps[self.steps][..., (BODY, SLIDES)]
        differing = [sliding, pitch, *(a for a in springs if a.size)]
        differing += [armature[self.numbers.speeds]] if armature.size else []
        rows = np.concatenate([a.reshape(self.tiles, -1).astype(np.float64) for a in differing], axis=1)
        which = different_rows(rows)[1]
        first = np.unique(which, return_index=True)[1]
        added = [kinds.add(self._side_by_side(int(tile)), self.numbers.coordinates.shape[-1], self.width)
                 for tile in first]  # fmt: skip
        return np.array(added)[which]

    def _side_by_side(self, tile: int) -> Build:
        """Put the lanes of a tile side by side."""
        made, bodies = self._made, self._bodies
        base = self.numbers.steps.copy()
        place_of = np.full(len(made.parent), -1)
        place_of[bodies] = np.arange(len(bodies))
        parent = place_of[made.parent[bodies]]
        parent[0] = -1
        ends = made.first_step[bodies] - self._first, made.body_step[bodies] - self._first
        junctions = join_steps(base, parent, *ends, boundaries=1)
        pieces = []
        for lane in range(self.width):
            steps = base.copy()
            steps[:, (BODY, SLIDES)] = made.structure.steps[self.steps[tile, lane]][:, (BODY, SLIDES)]
            q, u = self.numbers.coordinates[tile, lane], self.numbers.speeds[tile, lane]
            structure = _structure(made, steps, u)
            springs = _chosen(made.springs, q, u)
            pieces.append(made._replace(structure=structure, springs=springs, junctions=junctions))
        return side_by_side(pieces)


def _interleaved(index: Integers) -> Integers:
    """Indices of tiles [tiles, width, numbers] as their lanes have them side by side."""
    return np.swapaxes(index, 1, 2).ravel()


class Limbs:
    """The limbs of an interval, and its trunk.

    Parameters
    ----------
    made : Build
        All bodies of the interval.
    boundaries : int
        Bodies outside on which these hang.
    groups : list of Group
        One at least.
    wrenches : bool
        Whether wrenches act on bodies.

    Attributes
    ----------
    trunk : Build
        The other bodies; `first_step` and `body_step` are those of all bodies of the interval, where they are in it.
        Its last junction is one that nobody reads.
    plan : int64 array
        What the compiled passes are given (`sweep.limb_passes`).
    """

    def __init__(self, made: Build, boundaries: int, groups: list[Group], wrenches: bool) -> None:
        n = len(made.order)
        begins = np.append(made.first_step[made.order], len(made.structure.steps))
        shapes = [_Shape(made, begins, group) for group in groups]
        kinds, chosen, lane = Kinds(), [], 0
        for shape in shapes:
            for kind in shape.add_to(kinds).tolist():
                chosen.append(Placed(kind, shape.width, lane))
                lane += shape.width
        self._tiles = Tiles(kinds, chosen, tip=True, wrenches=wrenches, lanes_are=HUNG)
        self.width = self._tiles.width

        inside = np.zeros(n + 1, np.int64)  # of limbs: changes from place to place
        for group in groups:
            places = group.places.ravel()[: group.lanes]
            np.add.at(inside, places, 1)
            np.add.at(inside, places + made.sizes[places], -1)
        bodies = made.order[np.cumsum(inside)[:n] == 0]
        roots = made.order[np.concatenate([group.places.ravel() for group in groups])]
        on = made.parent[roots]
        self._trunk_steps, numbers = self._make_trunk(made, bodies, boundaries, np.unique(on[on >= 0]))

        slots = np.where(on >= 0, self.trunk.structure.steps[self.trunk.body_step[on], SINK], -1 - on)
        repeated = np.concatenate([np.arange(group.places.size) >= group.lanes for group in groups])
        q = [_interleaved(shape.numbers.coordinates) for shape in shapes]
        u = [_interleaved(shape.numbers.speeds) for shape in shapes]
        trunk_q, trunk_u = (sum(part.size for part in parts) for parts in (q, u))
        q_index, u_index = np.concatenate([*q, numbers.coordinates]), np.concatenate([*u, numbers.speeds])
        six = np.arange(6)
        steps = [(6 * shape.steps[..., None] + six).reshape(shape.tiles, shape.width, -1) for shape in shapes]
        self._wrenched = np.concatenate([_interleaved(part) for part in steps]) if wrenches else np.zeros(0, np.int64)
        plan = LimbsPlan(
            tiles=self._tiles.plan,
            q_index=q_index,
            u_index=u_index,
            **{name: aligned_zeros(len(q_index)) for name in ("q", "rates")},
            **{name: aligned_zeros(len(u_index)) for name in ("u", "tau", "udot")},
            slots=slots,
            sums=np.where(repeated, self.trunk.junctions - 1, slots),
            trunk_q=trunk_q,
            trunk_u=trunk_u,
        )
        self._table = Table(plan)
        self.plan = self._table.data

    def _make_trunk(
        self, made: Build, bodies: Integers, boundaries: int, hung_on: Integers
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
        junctions = join_steps(numbers.steps, parent, first, last, boundaries, number[hung_on])
        u = numbers.speeds
        own = np.full((2, len(made.parent)), -1)
        own[:, bodies] = first, last
        self.trunk = made._replace(
            structure=_structure(made, numbers.steps, u),
            springs=_chosen(made.springs, numbers.coordinates, u),
            junctions=junctions + 1,
            first_step=own[0],
            body_step=own[1],
        )
        return steps, numbers

    def set_wrenches(self, wrenches: Floats, of_trunk: Floats) -> None:
        """Set the external wrenches on all steps in sequence [m * 6], and write those of the trunk's [m' * 6]."""
        self._tiles.wrenches[:] = wrenches[self._wrenched]
        of_trunk.reshape(-1, 6)[:] = wrenches.reshape(-1, 6)[self._trunk_steps]
