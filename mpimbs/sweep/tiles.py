"""Tiles: what a subchain is swept by.

A tile is a stretch of a chain, cut into W equal pieces, one a lane, that are swept side by side; or one piece alone
(W = 1), which may be a whole tree. Tiles of the same joints and bodies share one `Structure`.

Here are the tables that the compiled passes of `sweep.passes` read, and the room that they write.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.model import System
from mpimbs.spatial.handles import RESPONSE, SCRATCH, SIZE
from mpimbs.spatial.memory import Table, aligned_zeros
from mpimbs.sweep.build import Build, build, different_rows
from mpimbs.sweep.structure import (
    BIAS,
    BODY,
    FIXED,
    JUNCTION,
    PIVOT,
    PLACE,
    TURN,
    TURNING,
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Columns of the table of tiles.
KIND, WIDTH, FIRST_LANE, STEP_AT, Q_AT, U_AT, PLACE_ROOM, BIAS_ROOM, PIVOT_ROOM, Q_ROOM, U_ROOM = range(11)
TILE = 11

# Items of the table of a kind of tile, and of the plan of a subchain; the compiled passes read 2 * the number.
KIND_ITEMS = ("steps", "axes", "fixed", "pitch", "stiffness", "rest", "damping", "torque", "coordinates", "plain")
PLAN_ITEMS = (
    *("tiles", "kinds", "tip", "kept", "place", "bias", "pivot", "junction", "wrench", "wrenches"),
    *("q", "u", "tau", "total", "udot", "rates", "turns", "omegas", "blocks", "responses", "loads"),
    *("turn", "handle_loads", "lane_room", "scratch"),
)

# What a subchain keeps from one pass to the next: all of its workspace while it is at most so large; the pivots while
# they are; else nothing. What is not kept is made again, tile by tile (bytes; a second-level cache, and a core's share of
# a third-level one: memory beyond is slower than the sweep, most of all when every core of a processor reads it).
ALL, PIVOTS_ONLY, NOTHING = range(3)
ALL_BYTES = 1 << 20
PIVOT_BYTES = 1 << 22


class Tile(NamedTuple):
    """A stretch of a subchain's bodies and in how many lanes it is swept."""

    first: int
    length: int  # bodies of a lane
    width: int

    @property
    def last(self) -> int:
        """The body after the tile's last."""
        return self.first + self.length * self.width


def in_lanes(made: Build, width: int) -> Build:
    """Cut a chain made ready for the sweeps into W equal pieces of the same joints, side by side.

    Parameters
    ----------
    made : Build
    width : int
        Number of lanes, which divides the steps.
    """
    s = made.structure
    m, nu = len(s.steps) // width, len(s.axes) // width
    steps = s.steps.reshape(width, m, -1)[0].copy()
    which = np.stack([s.steps[:, BODY].reshape(width, m)[lane] for lane in range(width)], axis=1)
    together, steps[:, BODY] = different_rows(which.astype(float))
    rows = s.fixed.reshape(-1, FIXED)[together.astype(np.int64)]  # [different, lane, FIXED]
    fixed = np.ascontiguousarray(np.swapaxes(rows, 1, 2)).ravel()
    springs = type(made.springs)(*(_interleaved(values, width) for values in made.springs))
    structure = s._replace(steps=steps, axes=s.axes[:nu].copy(), fixed=fixed, pitch=_interleaved(s.pitch, width))
    return made._replace(structure=structure, springs=springs)


def _interleaved(values: Floats, width: int) -> Floats:
    return np.ascontiguousarray(values.reshape(width, -1).T).ravel()


class Tiles:
    """The tiles of a subchain: their tables and all room that an evaluation needs.

    Parameters
    ----------
    system : System
    tiles : sequence of Tile
        In sequence, over the bodies of the subchain.
    tip : bool
        Nothing hangs outboard of the last tile.
    wrenches : bool
        Whether wrenches act on bodies.

    Attributes
    ----------
    plan : int64 array
        What the compiled passes are given.
    width : int
        Lanes of the widest tile.
    turn, block, handle_loads : arrays [TURNING], [SIZE], [12]
        Boundary turn, handle equations, and (A1, f2) of the whole subchain.
    wrenches : array [m * 6]
        External wrenches on the steps in sequence, or empty.
    """

    def __init__(self, system: System, tiles: list[Tile], tip: bool, wrenches: bool) -> None:
        kinds = self._kinds = _Kinds(system)  # it keeps the arrays alive whose addresses the plan holds
        self.width = max(tile.width for tile in tiles)
        rows = np.zeros((len(tiles), TILE), np.int64)
        sizes = np.zeros((len(tiles), 6), np.int64)
        lane = step = at_q = at_u = 0
        for row, size, tile in zip(rows, sizes, tiles, strict=True):
            kind = kinds.of(tile)
            m, nu, nq = kinds.sizes[kind]
            w = tile.width
            row[:PLACE_ROOM] = (kind, w, lane, step, at_q, at_u)
            size[:] = (m * PLACE * w, m * BIAS * w, nu * PIVOT * w, nq * w, nu * w, m * 6 * w * wrenches)
            lane, step, at_q, at_u = lane + w, step + m * w, at_q + nq * w, at_u + nu * w
        ends, most = np.cumsum(sizes, axis=0), sizes.max(axis=0)
        if len(tiles) == 1 or 8 * ends[-1, :3].sum() <= ALL_BYTES:
            self.kept = ALL
        else:
            self.kept = PIVOTS_ONLY if 8 * ends[-1, 2] <= PIVOT_BYTES else NOTHING
        shared = most.copy()
        for column, i in ((PLACE_ROOM, 0), (BIAS_ROOM, 1), (PIVOT_ROOM, 2), (Q_ROOM, 3), (U_ROOM, 4)):
            if self.kept == ALL or (self.kept == PIVOTS_ONLY and i == 2):
                rows[:, column] = ends[:, i] - sizes[:, i]
                shared[i] = ends[-1, i]
        self.wrenches = np.zeros(step * 6 * wrenches)
        self.turn, self.handle_loads = np.zeros(TURNING), np.zeros(12)
        blocks = aligned_zeros(lane * SIZE)
        self.block = blocks[:SIZE]
        self._table = Table(PLAN_ITEMS)
        items: dict[str, npt.NDArray[Any] | int] = {
            "tiles": rows.ravel(),
            "kinds": kinds.table(),
            "tip": int(tip),
            "kept": self.kept,
            "place": aligned_zeros(int(shared[0])),
            "bias": aligned_zeros(int(shared[1])),
            "pivot": aligned_zeros(int(shared[2])),
            "junction": aligned_zeros(max(kinds.junctions * JUNCTION, JUNCTION * self.width)),
            "wrench": aligned_zeros(int(most[5])),
            "wrenches": self.wrenches,
            "q": aligned_zeros(int(shared[3])),
            "u": aligned_zeros(int(shared[4])),
            **{name: aligned_zeros(int(most[4])) for name in ("tau", "total", "udot")},
            "rates": aligned_zeros(int(most[3])),
            "turns": np.zeros(lane * TURNING),
            "omegas": np.zeros(lane * 3),
            "blocks": blocks,
            "responses": aligned_zeros(lane * RESPONSE),
            "loads": np.zeros(lane * 12),
            "turn": self.turn,
            "handle_loads": self.handle_loads,
            "lane_room": aligned_zeros(SIZE * self.width),
            "scratch": aligned_zeros(SCRATCH),
        }
        for name, value in items.items():
            self._table.add(name, value)
        self.plan = self._table.data


class _Kinds:
    """The kinds of tiles of a subchain, each made once."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._found: dict[object, int] = {}
        self._tables: list[Table] = []
        self.sizes: list[tuple[int, int, int]] = []  # steps, speeds, coordinates of a lane
        self.junctions = 1

    def of(self, tile: Tile) -> int:
        """Number of a tile's kind."""
        key = (tile.length, tile.width, self._system.likeness(max(tile.first - 1, 0), tile.last))
        if key not in self._found:
            self._found[key] = len(self._tables)
            self._make(tile)
        return self._found[key]

    def _make(self, tile: Tile) -> None:
        columns = self._system.columns(tile.first, tile.last)
        made = build(columns, boundary_frame(self._system, tile.first))
        m, nu, nq = len(made.structure.steps), len(made.structure.axes), len(columns.q)
        if tile.width > 1:
            made = in_lanes(made, tile.width)
        s = made.structure
        table = Table(KIND_ITEMS)
        for name, values in {**s._asdict(), **made.springs._asdict()}.items():
            if values.dtype == np.float64:
                room = aligned_zeros(values.size)
                room[:] = values
                values = room
            table.add(name, values.ravel())
        w = tile.width
        table.add("coordinates", nq // w)
        table.add("plain", int(not (s.steps[:, TURN] == 4).any()))
        self._tables.append(table)
        self.sizes.append((m // w, nu // w, nq // w))
        self.junctions = max(self.junctions, made.junctions)

    def table(self) -> Integers:
        """The tables of all kinds, one after the other."""
        self._all = np.concatenate([table.data for table in self._tables])
        return self._all


def boundary_frame(system: System, first: int) -> Floats | None:
    """`body_frame` of the body that a stretch of a chain hangs on; None for the world."""
    return build(system.columns(first - 1, first)).body_frame[0] if first > 0 else None
