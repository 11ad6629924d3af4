"""Cuts of a rank's subchain into tiles, and of a tile into lanes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.spatial.lanes import WIDTHS, native_width
from mpimbs.sweep.tiles import Tile

Integers = npt.NDArray[np.int64]

# Measured (AVX-512): bodies of a lane from which on lanes are faster than one piece, and of the tile that is fastest
# per body: its arrays fit the second-level cache.
LEAST = 4
MOST = 128


def chosen_width(bodies: int, wanted: int | None) -> int:
    """Choose the number of lanes for so many bodies of a rank.

    Parameters
    ----------
    bodies : int
    wanted : int, optional
        What the user asks for; by default lanes are used where they are faster.

    Raises
    ------
    InputError
        There are no lanes of that number.
    """
    if wanted is not None:
        return width_of(wanted)
    width = native_width()
    return width if bodies >= width * LEAST else 1


def width_of(wanted: int) -> int:
    """Check a number of lanes that the user asks for; InputError if there is none such."""
    if wanted not in (1, *WIDTHS):
        raise InputError(f"{wanted} lanes: give one of {', '.join(map(str, (1, *WIDTHS)))} (1 for none)")
    return wanted


def cut_tiles(patterns: Integers, width: int, least: int = LEAST, most: int = MOST) -> list[Tile]:
    """Cut a subchain into tiles whose lanes agree in their joints; what does not fit is swept as one piece.

    Parameters
    ----------
    patterns : array [n]
        A number for each body's joint: equal where the sweeps take the same steps.
    width : int
        Number of lanes; 1 for none.
    least, most : int
        Bodies of a lane.

    Returns
    -------
    list of Tile
        In sequence, over all bodies.
    """
    n = len(patterns)
    tiles: list[Tile] = []
    alone = 0  # the first of the bodies that are in no tile yet
    at = 0
    while width > 1 and n - at >= width * least:
        count = -(-(n - at) // (width * most))  # tiles that the rest takes
        longest = max((n - at) // (width * count), least)
        shift, length = _next_tile(patterns[at : at + 4 * width * most], width, longest, least)
        at += shift
        if length:
            if at > alone:
                tiles.append(Tile(alone, at - alone, 1))
            tiles.append(Tile(at, length, width))
            at = alone = at + length * width
    if n > alone:
        tiles.append(Tile(alone, n - alone, 1))
    return tiles


def _next_tile(patterns: Integers, width: int, longest: int, least: int) -> tuple[int, int]:
    """Where the next tile may begin and its length of a lane; length 0 and how far to go on if there is none.

    Of all tiles the longest one of those that begin first.
    """
    if _repeats(patterns[: width * longest], longest):
        return 0, longest
    best = (len(patterns) - width * least + 1, 0)
    for length in range(longest, least - 1, -1):
        differs = np.concatenate([[0], np.cumsum(patterns[length:] != patterns[:-length])])
        span = (width - 1) * length
        good = np.flatnonzero(differs[span:] == differs[: len(differs) - span])
        if len(good) and good[0] < best[0]:
            best = (int(good[0]), length)
            if best[0] == 0:
                break
    return best


def _repeats(patterns: Integers, period: int) -> bool:
    return bool(np.array_equal(patterns[period:], patterns[:-period]))
