"""What the phases of an evaluation cost: counts and times, per body."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from laboratory.counting import REGISTERS, Counted, CountedArray, Counts, UsefulCounts, counting
from laboratory.phases import (
    JOINS,
    KERNELS,
    RUN,
    TILE_PHASES,
    Arguments,
    Pieces,
    arguments,
    flat,
    join_pieces,
    phases_of,
    pieces,
    run_joins,
    swept,
)
from mpimbs.bench.laps import least_each
from mpimbs.kernels.lanes import WIDTHS
from mpimbs.kernels.memory import Table
from mpimbs.model import System
from mpimbs.values.handles import SIZE

# --- counts ---------------------------------------------------------------------------------------------------------


def count_phases(a: Arguments, useful: bool = False) -> dict[str, Counts]:
    """Count what each phase does for a whole chain.

    Parameters
    ----------
    a : Arguments
        Of doubles; the phases write into it, as the compiled ones do.
    useful : bool
        As in `count`.
    """
    found = {}
    for name, compiled in KERNELS.items():
        found[name] = count(compiled, 0.0, a, useful=useful)
    return found


def count_joins(joining: Pieces) -> Counts:
    """Count what the joins of pieces do; they are written, as by the compiled ones."""
    return count(join_pieces, joining)


def count(compiled: Any, *given: Any, useful: bool = False, whole: bool = False) -> Counts:
    """Count what a kernel does, which writes into the arrays that it is given.

    Parameters
    ----------
    compiled : numba dispatcher
    given
        Its arguments. A Python float is a literal, a NumPy one is not; spare items of arrays are masked.
    useful, whole : bool
        Count what is useful, or registers whole; see `laboratory.counting`.
    """
    counts = UsefulCounts() if useful else Counts()
    counted = tuple(_counted(part, counts) for part in given)
    counting(compiled, REGISTERS if whole else None)(*counted)
    for part, array in zip(flat(counted), flat(given), strict=True):
        if isinstance(part, CountedArray):
            np.ma.getdata(array)[...] = part.values
    return counts


def _counted(given: Any, counts: Counts) -> Any:
    if isinstance(given, tuple):
        parts = [_counted(part, counts) for part in given]
        return type(given)(*parts) if hasattr(given, "_fields") else tuple(parts)
    if isinstance(given, np.ndarray):
        return CountedArray(given, counts)
    return Counted(float(given), counts, type(given) is float) if isinstance(given, float) else given


def counts_per_body(short: System, long: System, useful: bool = False) -> dict[str, Counts]:
    """Counts of each phase per body, from two chains of different lengths."""
    few, many = (count_phases(arguments(system), useful) for system in (short, long))
    return {name: (many[name] - few[name]) / (long.n_bodies - short.n_bodies) for name in many}


def counts_of_tile(short: System, long: System, bodies: int, lanes: int) -> dict[str, Counts]:
    """Counts of each of `TILE_PHASES` per body of a tile, what it does once for all bodies among them.

    Parameters
    ----------
    short, long : System
        Two chains of the same kind, which are counted.
    bodies : int
        Bodies of a lane.
    lanes : int
        Number of lanes.
    """
    per_body = counts_per_body(short, long)
    a = arguments(long)
    whole = count_phases(a)
    found = {name: (whole[name] + per_body[name] * (bodies - long.n_bodies)) / bodies for name in TILE_PHASES[:-1]}
    return found | {JOINS: count_joins(pieces(np.tile(a.block, (lanes, 1)))) / (bodies * lanes)}


# --- times ----------------------------------------------------------------------------------------------------------


def time_phases(system: System, lanes: int = 1, seconds: float = 0.05) -> dict[str, float]:
    """Time each phase alone, over and over on the same arrays, which stay in the innermost cache that holds them.

    Parameters
    ----------
    system : System
        A chain.
    lanes : int
        1 for doubles, or a number of lanes that its bodies are cut into.
    seconds : float
        Wall time for each phase (s).

    Returns
    -------
    dict
        ns per body of each phase; in lanes, of the joins too.
    """
    if lanes not in (1, *WIDTHS):
        raise ValueError(f"no lanes of width {lanes}")
    a = swept(system, lanes)
    table = Table(a)
    found = {}
    for number, name in enumerate(KERNELS):
        if name in phases_of(lanes):
            found[name] = least_each(partial(_run_phase, RUN[lanes], number, table.data), seconds)
    if lanes > 1:
        joining = Table(pieces(a.block.reshape(SIZE, lanes).T))
        found[JOINS] = least_each(lambda times: run_joins(times, joining.data), seconds)
    return {name: 1e9 * once / system.n_bodies for name, once in found.items()}


def _run_phase(run: Any, number: int, table: Any, times: int) -> None:
    run(times, number, table)
