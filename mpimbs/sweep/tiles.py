"""Tiles: what a subchain is swept by.

A tile is a stretch of a chain, cut into W equal pieces, one a lane, that are swept side by side; or one piece alone
(W = 1), which may be a whole tree. Tiles of the same joints and bodies share one `Structure`.

Here are the tables that the compiled passes of `sweep.passes` read, and the room that they write.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.model import Columns, System
from mpimbs.sizes import tuned
from mpimbs.spatial.handles import RESPONSE, SCRATCH, SIZE
from mpimbs.spatial.memory import Floats, Integers, Table, aligned_zeros, schema
from mpimbs.sweep.build import Build, build, inboard_bodies
from mpimbs.sweep.side_by_side import in_lanes
from mpimbs.sweep.structure import (
    BIAS,
    ELIMINATED,
    JUNCTION,
    PIVOT,
    PLACE,
    TURN,
    TURNING,
    Springs,
    Structure,
)

# Columns of the table of tiles.
KIND, WIDTH, FIRST_LANE, STEP_AT, Q_AT, U_AT, PLACE_ROOM, BIAS_ROOM, PIVOT_ROOM = range(9)
TILE = 9


class TileKind(NamedTuple):
    """What equal tiles share."""

    structure: Structure
    springs: Springs
    coordinates: int  # of a lane
    plain: int  # whether the rates of the coordinates are the speeds


class TilePlan(NamedTuple):
    """What the compiled passes over the tiles of a subchain are given."""

    tiles: Integers  # [tiles * TILE]: the columns above
    kinds: Integers  # the tables of all kinds, one after the other
    tip: int  # whether nothing hangs outboard
    kept: int  # ALL, PIVOTS_ONLY or NOTHING
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
    blocks: Floats  # [lanes * SIZE]: handle equations
    responses: Floats  # [lanes * RESPONSE]
    loads: Floats  # [lanes * 12]: A1 and f2
    turn: Floats  # [TURNING]: of the subchain
    handle_loads: Floats  # [12]: A1 and f2 of the subchain
    lane_room: Floats  # [width * SIZE]
    scratch: Floats  # [SCRATCH]
    leading: int  # number of the tile whose inertias may go ahead of the velocities; -1: none
    eliminated: Floats  # [m * ELIMINATED] of that tile
    ahead_block: Floats  # [width * SIZE]


KIND_OF_TILE = schema(TileKind)
PLAN = schema(TilePlan)

# What a subchain keeps from one pass to the next: all of its workspace, or the pivots, while they are not too large
# (`Sizes`); else nothing. What is not kept is made again, tile by tile.
ALL, PIVOTS_ONLY, NOTHING = range(3)


class Tile(NamedTuple):
    """A stretch of a subchain's bodies and in how many lanes it is swept."""

    first: int
    length: int  # bodies of a lane
    width: int

    @property
    def last(self) -> int:
        """The body after the tile's last."""
        return self.first + self.length * self.width


class Kinds:
    """The different kinds of tiles: what is made ready for the sweeps, in so many lanes."""

    def __init__(self) -> None:
        self._tables: list[Table] = []
        self.sizes: list[tuple[int, int, int]] = []  # steps, speeds, coordinates of a lane
        self.junctions = 0  # times lanes

    def add(self, made: Build, coordinates: int, width: int) -> int:
        """Add a kind of `width` lanes with so many coordinates each; returns its number."""
        s = made.structure
        structure, springs = Structure(*map(_aligned, s)), Springs(*map(_aligned, made.springs))
        plain = not (s.steps[:, TURN] == 4).any()
        self._tables.append(Table(TileKind(structure, springs, coordinates, int(plain))))
        self.sizes.append((len(s.steps), len(s.axes), coordinates))
        self.junctions = max(self.junctions, made.junctions * width)
        return len(self._tables) - 1

    def table(self) -> Integers:
        """The tables of all kinds, one after the other."""
        return np.concatenate([table.data for table in self._tables])


class Tiles:
    """The tables of a list of tiles, and all room that an evaluation needs.

    Parameters
    ----------
    kinds : Kinds
    chosen : list of (int, int, int)
        Kind, number of lanes, and number of lanes before it of each tile; lanes of equal number take one place each
        in the vectors, or of joined tiles, as many as they need.
    tip : bool
        Nothing hangs outboard of the last tile.
    wrenches : bool
        Whether wrenches act on bodies.
    joined : bool
        Whether the lanes are pieces of one chain, or systems of their own.

    Attributes
    ----------
    plan : int64 array
        What the compiled passes are given.
    width : int
        Lanes of the widest tile.
    kept : int
        ALL, PIVOTS_ONLY or NOTHING.
    steps : int
        Steps of all tiles.
    leading : int
        Number of the tile whose inertias may go ahead of the velocities (`sweep.ahead`): the largest in lanes, where
        all is kept. -1: none.
    wrenches : array [m * 6]
        External wrenches on the steps in sequence, or empty.
    loads : array [lanes * 12]
        (A1, f2) of every lane.
    eliminated : array [m * ELIMINATED]
        What the leading tile's sweep has left to that after it.
    """

    def __init__(
        self, kinds: Kinds, chosen: list[tuple[int, int, int]], tip: bool, wrenches: bool, joined: bool = True
    ) -> None:
        self._kinds = kinds  # it keeps the arrays alive whose addresses the plan holds
        self.width = max(width for _, width, _ in chosen)
        rows = np.zeros((len(chosen), TILE), np.int64)
        sizes = np.zeros((len(chosen), 6), np.int64)
        step = at_q = at_u = 0
        for row, size, (kind, w, lane) in zip(rows, sizes, chosen, strict=True):
            m, nu, nq = kinds.sizes[kind]
            if not joined:
                step, at_q, at_u = lane * m, lane * nq, lane * nu
            row[:PLACE_ROOM] = (kind, w, lane if joined else 0, step, at_q, at_u)
            size[:] = (m * PLACE * w, m * BIAS * w, nu * PIVOT * w, nq * w, nu * w, m * 6 * w * wrenches)
            step, at_q, at_u = step + m * w, at_q + nq * w, at_u + nu * w
        ends, most = np.cumsum(sizes, axis=0), sizes.max(axis=0)
        if not joined or len(chosen) == 1 or 8 * ends[-1, :3].sum() <= tuned().all_bytes:
            self.kept = ALL
        else:
            self.kept = PIVOTS_ONLY if 8 * ends[-1, 2] <= tuned().pivot_bytes else NOTHING
        shared = most.copy()
        for column, i in ((PLACE_ROOM, 0), (BIAS_ROOM, 1), (PIVOT_ROOM, 2)):
            if joined and (self.kept == ALL or (self.kept == PIVOTS_ONLY and i == 2)):
                rows[:, column] = ends[:, i] - sizes[:, i]
                shared[i] = ends[-1, i]
        lanes = chosen[-1][2] + chosen[-1][1] if joined else self.width
        side_by_side = [kinds.sizes[kind][0] * w if w > 1 else 0 for kind, w, _ in chosen]  # steps
        may_lead = joined and self.kept == ALL and any(side_by_side)
        self.leading = int(np.argmax(side_by_side)) if may_lead else -1
        self.steps = step
        self.wrenches = np.zeros(step * 6 * wrenches)
        self.loads = np.zeros(lanes * 12)
        self.eliminated = aligned_zeros(max(side_by_side) * ELIMINATED * may_lead)
        plan = TilePlan(
            tiles=rows.ravel(),
            kinds=kinds.table(),
            tip=int(tip),
            kept=self.kept,
            place=aligned_zeros(int(shared[0])),
            bias=aligned_zeros(int(shared[1])),
            pivot=aligned_zeros(int(shared[2])),
            junction=aligned_zeros(kinds.junctions * JUNCTION),
            wrench=aligned_zeros(int(most[5])),
            wrenches=self.wrenches,
            **{name: aligned_zeros(int(most[3])) for name in ("q", "rates")},
            **{name: aligned_zeros(int(most[4])) for name in ("u", "tau", "total", "udot")},
            turns=np.zeros(lanes * TURNING),
            omegas=np.zeros(lanes * 3),
            blocks=aligned_zeros(lanes * SIZE),
            responses=aligned_zeros(lanes * RESPONSE),
            loads=self.loads,
            turn=np.zeros(TURNING),
            handle_loads=np.zeros(12),
            lane_room=aligned_zeros(SIZE * self.width),
            scratch=aligned_zeros(SCRATCH),
            leading=self.leading,
            eliminated=self.eliminated,
            ahead_block=aligned_zeros(SIZE * self.width),
        )
        self._table = Table(plan)
        self.plan = self._table.data


def _aligned(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    aligned = aligned_zeros(values.size).view(values.dtype).reshape(values.shape)
    aligned[...] = values
    return aligned


def subchain_tiles(system: System, tiles: list[Tile], tip: bool, wrenches: bool) -> Tiles:
    """Make the tiles of a subchain; those of the same bodies share what they are made of.

    Parameters
    ----------
    system : System
    tiles : list of Tile
        In sequence, over the bodies of the subchain.
    tip, wrenches : bool
        See `Tiles`.
    """
    kinds = Kinds()
    found: dict[object, int] = {}
    chosen, lane = [], 0
    for tile in tiles:
        key = (tile.length, tile.width, system.likeness(max(tile.first - 1, 0), tile.last))
        if key not in found:
            columns = system.columns(tile.first, tile.last)
            made = build(columns, boundary_frames(system, columns))
            made = in_lanes(made, tile.width) if tile.width > 1 else made
            found[key] = kinds.add(made, len(columns.q) // tile.width, tile.width)
        chosen.append((found[key], tile.width, lane))
        lane += tile.width
    return Tiles(kinds, chosen, tip, wrenches)


def boundary_frames(system: System, columns: Columns) -> Floats:
    """`body_frame` of each of the bodies outside that a range of bodies hangs on [k, 3, 3]; identity for the world."""
    frames = [build(system.columns(k, k + 1)).body_frame[0] if k >= 0 else np.eye(3) for k in inboard_bodies(columns)]
    return np.array(frames)
