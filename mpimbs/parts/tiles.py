"""Tiles: what a subchain is swept by.

A tile is a stretch of a chain, cut into W equal pieces, one a lane, that are swept side by side; or one piece alone
(W = 1), which may be a whole tree. Tiles of the same joints and bodies share one `Structure`.

Here are the tables that the compiled passes of `parts.passes` read, and the room that they write.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.sizes import tuned
from mpimbs.kernels.memory import Table, aligned_zeros, columns, schema
from mpimbs.model.contents import Contents
from mpimbs.parts.side_by_side import in_lanes
from mpimbs.sweep.build import Build, build, inboard_bodies
from mpimbs.sweep.structure import (
    BIAS,
    ELIMINATED,
    GATHERED,
    JUNCTION,
    PIVOT,
    PLACE,
    TURN,
    TURNING,
    Handles,
    Springs,
    Structure,
)
from mpimbs.values.handles import RESPONSE, SCRATCH, SIZE


class TileRow(NamedTuple):
    """Columns of the table of tiles."""

    kind: int
    width: int
    lane: int  # the first one
    step: int  # where its steps begin, its coordinates and speeds, and its rooms
    q: int
    u: int
    place: int
    bias: int
    pivot: int


TILE = columns(TileRow)


class TileKind(NamedTuple):
    """The tables that equal tiles share."""

    structure: Structure
    springs: Springs
    coordinates: int  # of a lane
    plain: int  # whether the rates of the coordinates are the speeds


class TilePlan(NamedTuple):
    """Arguments of the passes over the tiles of a subchain, in compiled code."""

    handles: Handles  # of the subchain; `blocks` are those of all lanes, its own the first: [lanes * SIZE] handle
    # equations, or [lanes * GATHERED] of lanes that hang by themselves
    tiles: Integers  # [tiles * columns]: `TILE`
    kinds: Integers  # the tables of all kinds, one after the other
    steps: int  # of all tiles
    tip: int  # whether nothing hangs outboard
    kept: int  # KEEP_ALL, KEEP_PIVOTS or KEEP_NOTHING
    interleaved: int  # whether the numbers of lanes stand side by side in vectors of coordinates and speeds
    on_bodies: int  # whether they do in what is told of the lanes: `turns` to `loads`
    place: Floats
    bias: Floats
    pivot: Floats
    junction: Floats
    wrench: Floats  # room for those of a tile, side by side
    wrenches: Floats  # [m * 6]: in sequence; or empty
    q: Floats  # room for those of a tile, side by side; so are the following
    rates: Floats
    u: Floats
    tau: Floats
    total: Floats  # joint forces
    udot: Floats
    turns: Floats  # [lanes * TURNING]: boundary turn of every lane
    omegas: Floats  # [lanes * 3]: angular velocity of its handle 1
    responses: Floats  # [lanes * RESPONSE]
    loads: Floats  # [lanes * 12]: A1 and f2
    lane_room: Floats  # [width * SIZE]
    scratch: Floats  # [SCRATCH]
    leading: int  # number of the tile of the early sweep; -1: none
    eliminated: Floats  # [m * ELIMINATED] of that tile
    early_block: Floats  # [width * SIZE]


KIND_OF_TILE = schema(TileKind)
PLAN = schema(TilePlan)

# What a subchain keeps from one pass to the next: all of its workspace, or the pivots, while they are not too large
# (`Sizes`); else nothing. What is not kept is made again, tile by tile.
KEEP_ALL, KEEP_PIVOTS, KEEP_NOTHING = range(3)

# What the lanes of tiles are: pieces of one chain; systems of their own, evaluated tile by tile; or subtrees that hang
# on bodies outside (`parts.lane_subtrees`).
JOINED, ALONE, ON_BODIES = range(3)


class Tile(NamedTuple):
    """A stretch of a subchain's bodies and in how many lanes it is swept."""

    first: int
    length: int  # bodies of a lane
    width: int

    @property
    def last(self) -> int:
        """The body after the tile's last."""
        return self.first + self.length * self.width


class LaneSize(NamedTuple):
    """The size of a lane of a tile."""

    steps: int
    coordinates: int
    speeds: int


class Placed(NamedTuple):
    """A tile of a kind: how many lanes it has, and how many are before it."""

    kind: int
    width: int
    lane: int


class Kinds:
    """The different kinds of tiles: what is made ready for the sweeps, in so many lanes."""

    def __init__(self) -> None:
        self._tables: list[Table] = []
        self.joints: list[tuple[Structure, Springs]] = []  # what the sweeps read of each kind
        self._sizes: list[LaneSize] = []
        self.junctions = 0  # times lanes

    def add(self, made: Build, coordinates: int, width: int) -> int:
        """Add a kind of `width` lanes with so many coordinates each; returns its number."""
        s = made.structure
        self.joints.append((s, made.springs))
        plain = not (s.steps[:, TURN] == 4).any()
        self._tables.append(Table(TileKind(s, made.springs, coordinates, int(plain))))
        self._sizes.append(LaneSize(len(s.steps), coordinates, len(s.axes)))
        self.junctions = max(self.junctions, made.junctions * width)
        return len(self._tables) - 1

    def lane_of(self, tile: Placed) -> LaneSize:
        """The size of a lane of a tile."""
        return self._sizes[tile.kind]

    def table(self) -> Integers:
        """The tables of all kinds, one after the other."""
        return np.concatenate([table.data for table in self._tables])


class Needs(NamedTuple):
    """Room that each of some tiles needs, in doubles [tiles]."""

    place: Integers
    bias: Integers
    pivot: Integers
    coordinates: Integers
    speeds: Integers
    wrenches: Integers
    eliminated: Integers


class Tiles:
    """The tables of a list of tiles, and all room that an evaluation needs.

    Parameters
    ----------
    chosen : list of Placed
        The tiles; lanes of equal number take one place each in the vectors, or of joined tiles, as many as they need.
    tip : bool
        Nothing hangs outboard of the last tile.
    wrenches : bool
        Whether wrenches act on bodies.
    lanes_are : int
        JOINED, ALONE or ON_BODIES.
    interleaved : bool
        Whether the numbers of a tile's lanes stand side by side in vectors, which are made for the sweeps then.
    factored : bool
        Whether they are for factored load sweeps: pivots are kept however large they are, and nothing has speeds.
    """

    def __init__(
        self,
        kinds: Kinds,
        chosen: list[Placed],
        tip: bool,
        wrenches: bool,
        lanes_are: int = JOINED,
        interleaved: bool = False,
        factored: bool = False,
    ) -> None:
        self.kinds = kinds  # it keeps the arrays alive whose addresses the plan holds
        self.width = max(tile.width for tile in chosen)  # lanes
        alone = lanes_are == ALONE
        rows, self.steps = _in_sequence(kinds, chosen, alone)
        needs = _needs(kinds, chosen, wrenches)
        # KEEP_ALL, KEEP_PIVOTS or KEEP_NOTHING
        self.kept = KEEP_ALL if alone else min(_kept(needs), KEEP_PIVOTS if factored else KEEP_NOTHING)
        place, bias, pivot = _rooms(rows, needs, KEEP_NOTHING if alone else self.kept, factored)
        # Number of the tile of the early sweep (`parts.passes.sweep_early`): the largest in lanes, where all is kept.
        self.leading = _leading(kinds, chosen) if not interleaved and self.kept == KEEP_ALL and not alone else -1
        lanes = self.width if alone else chosen[-1].lane + chosen[-1].width
        self.wrenches = np.zeros(self.steps * 6 * wrenches)  # external ones, on the steps in sequence
        self.loads, self.omegas = aligned_zeros(lanes * 12), aligned_zeros(lanes * 3)
        self.blocks = aligned_zeros(lanes * (GATHERED if lanes_are == ON_BODIES else SIZE))
        # What the leading tile's sweep has left to that after it [m * ELIMINATED].
        self.eliminated = aligned_zeros(int(needs.eliminated[self.leading]) if self.leading >= 0 else 0)
        plan = TilePlan(
            handles=Handles(np.zeros(TURNING), self.blocks, np.zeros(12)),
            tiles=rows.ravel(),
            kinds=kinds.table(),
            steps=self.steps,
            tip=int(tip),
            kept=self.kept,
            interleaved=int(interleaved),
            on_bodies=int(lanes_are == ON_BODIES),
            place=aligned_zeros(place),
            bias=aligned_zeros(bias),
            pivot=aligned_zeros(pivot),
            junction=aligned_zeros(kinds.junctions * JUNCTION),
            wrench=aligned_zeros(int(needs.wrenches.max())),
            wrenches=self.wrenches,
            **{name: aligned_zeros(int(needs.coordinates.max())) for name in ("q", "rates")},
            **{name: aligned_zeros(int(needs.speeds.max())) for name in ("u", "tau", "total", "udot")},
            turns=np.zeros(lanes * TURNING),
            omegas=self.omegas,
            responses=aligned_zeros(lanes * RESPONSE),
            loads=self.loads,
            lane_room=aligned_zeros(SIZE * self.width),
            scratch=aligned_zeros(SCRATCH),
            leading=self.leading,
            eliminated=self.eliminated,
            early_block=aligned_zeros(SIZE * self.width),
        )
        self._table = Table(plan)
        self.plan = self._table.data  # what the compiled passes are given


def _in_sequence(kinds: Kinds, chosen: list[Placed], alone: bool) -> tuple[Integers, int]:
    """Give the table of tiles [tiles, columns], without their rooms, and the number of all steps.

    Tiles follow one another; systems of their own are where their number says.
    """
    rows = np.zeros((len(chosen), len(TILE)), np.int64)
    begin = np.zeros(3, np.int64)  # step, coordinate, speed
    for row, tile in zip(rows, chosen, strict=True):
        lane = np.array(kinds.lane_of(tile))
        begin = tile.lane * lane if alone else begin
        row[: TILE.place] = (tile.kind, tile.width, 0 if alone else tile.lane, *begin)
        begin = begin + tile.width * lane
    return rows, int(begin[0])


def _needs(kinds: Kinds, chosen: list[Placed], wrenches: bool) -> Needs:
    """Give the room that the tiles need if none shares any."""
    sizes = np.array([kinds.lane_of(tile) for tile in chosen]) * [[tile.width] for tile in chosen]
    steps, coordinates, speeds = sizes.T
    return Needs(
        place=steps * PLACE,
        bias=steps * BIAS,
        pivot=speeds * PIVOT,
        coordinates=coordinates,
        speeds=speeds,
        wrenches=steps * 6 * wrenches,
        eliminated=steps * ELIMINATED,
    )


def _kept(needs: Needs) -> int:
    """Say what joined tiles keep; one alone keeps all, for no other writes to its room."""
    workspace = 8 * sum(int(need.sum()) for need in (needs.place, needs.bias, needs.pivot))
    if len(needs.place) == 1 or workspace <= tuned().all_bytes:
        return KEEP_ALL
    return KEEP_PIVOTS if 8 * needs.pivot.sum() <= tuned().pivot_bytes else KEEP_NOTHING


def _rooms(rows: Integers, needs: Needs, kept: int, still: bool) -> tuple[int, int, int]:
    """Write where the rooms of tiles begin, their own for what is kept, the same for all else; give the doubles.

    `still`: the bias is always zero.
    """
    doubles = []
    for column, need, own in (
        (TILE.place, needs.place, kept == KEEP_ALL),
        (TILE.bias, needs.bias, kept == KEEP_ALL and not still),
        (TILE.pivot, needs.pivot, kept != KEEP_NOTHING),
    ):
        if own:
            rows[:, column] = np.cumsum(need) - need
        doubles.append(int(need.sum() if own else need.max()))
    place, bias, pivot = doubles
    return place, bias, pivot


def _leading(kinds: Kinds, chosen: list[Placed]) -> int:
    """Give the number of the tile with the most steps of those in lanes; -1: there is none."""
    steps = [kinds.lane_of(tile).steps * tile.width if tile.width > 1 else 0 for tile in chosen]
    return int(np.argmax(steps)) if any(steps) else -1


def subchain_tiles(system: Contents, tiles: list[Tile], tip: bool, wrenches: bool, factored: bool = False) -> Tiles:
    """Make the tiles of a subchain; those of the same bodies share what they are made of.

    Parameters
    ----------
    tiles : list of Tile
        In sequence, over the bodies of the subchain.
    tip, wrenches, factored : bool
        See `Tiles`.
    """
    kinds = Kinds()
    found: dict[object, int] = {}
    chosen, lane = [], 0
    for tile in tiles:
        key = (tile.length, tile.width, system.likeness(max(tile.first - 1, 0), tile.last))
        if key not in found:
            bodies = system.columns(tile.first, tile.last)
            made = build(bodies, boundary_frames(system, inboard_bodies(bodies)))
            made = in_lanes(made, tile.width) if tile.width > 1 else made
            found[key] = kinds.add(made, len(bodies.q) // tile.width, tile.width)
        chosen.append(Placed(found[key], tile.width, lane))
        lane += tile.width
    return Tiles(kinds, chosen, tip, wrenches, factored=factored)


def boundary_frames(system: Contents, inboard: Integers) -> Floats:
    """`body_frame` of each of the bodies outside that a range of bodies hangs on [k, 3, 3]; identity for the world."""
    bodies, which = np.unique(inboard, return_inverse=True)
    frames = [build(system.columns(k, k + 1)).body_frame[0] if k >= 0 else np.eye(3) for k in bodies]
    return np.array(frames)[which]
