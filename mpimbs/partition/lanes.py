"""Cuts of a rank's subchain into tiles, and of a tile into lanes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.sizes import tuned
from mpimbs.spatial.lanes import WIDTHS, native_width
from mpimbs.sweep.tiles import Tile

Integers = npt.NDArray[np.int64]
Patterns = npt.NDArray[np.integer]


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
    return width if bodies >= width * tuned().least_lane else 1


def width_of(wanted: int) -> int:
    """Check a number of lanes that the user asks for; InputError if there is none such."""
    if wanted not in (1, *WIDTHS):
        raise InputError(f"{wanted} lanes: give one of {', '.join(map(str, (1, *WIDTHS)))} (1 for none)")
    return wanted


def cut_tiles(
    patterns: Patterns,
    width: int,
    least: int | None = None,
    most: int | None = None,
    path: npt.NDArray[np.bool_] | None = None,
) -> list[Tile]:
    """Cut a subchain into tiles whose lanes agree in their joints; what does not fit is swept as one piece.

    Parameters
    ----------
    patterns : array [n]
        A number for each body's joint: equal where the sweeps take the same steps.
    width : int
        Number of lanes; 1 for none.
    least, most : int, optional
        Bodies of a lane; by default those of `Sizes`.
    path : array [n], optional
        Whether a lane can begin at each body, and end before it; by default, of a chain, at all.

    Returns
    -------
    list of Tile
        In sequence, over all bodies: each tile begins at the first body at which one can.
    """
    least = tuned().least_lane if least is None else least
    most = tuned().most_lane if most is None else most
    n = len(patterns)
    tiles: list[Tile] = []
    cuts = None if path is None else np.append(path, True)
    longest = _longest_lanes(patterns, width, least, most, cuts) if width > 1 else np.zeros(0, np.int64)
    begins = np.flatnonzero(longest)
    alone = 0  # the first of the bodies that are in no tile yet
    while (k := int(np.searchsorted(begins, alone))) < len(begins):
        at = int(begins[k])
        rest = None if cuts is None else cuts[at:]
        length = _even_length(patterns[at:], int(longest[at]), width, least, most, rest)
        if at > alone:
            tiles.append(Tile(alone, at - alone, 1))
        tiles.append(Tile(at, length, width))
        alone = at + length * width
    if n > alone:
        tiles.append(Tile(alone, n - alone, 1))
    return tiles


Cuts = npt.NDArray[np.bool_] | None


def _longest_lanes(patterns: Patterns, width: int, least: int, most: int, cuts: Cuts) -> Integers:
    """Bodies of a lane of the longest tile that begins at each body; 0 if none does.

    A tile begins where the patterns equal those `length` bodies further (width - 1) * length times in succession, and
    where it and its end can be cut [n + 1].
    """
    n = len(patterns)
    longest = np.zeros(n, np.int64)
    for length in range(least, min(most, n // width) + 1):
        span = (width - 1) * length
        here, further = patterns[:-length], patterns[length:]
        if not (here[::span] == further[::span]).any():
            continue  # so many in succession would hit one of these
        differs = np.flatnonzero(here != further)
        first = np.concatenate(([0], differs + 1))
        last = np.concatenate((differs, [n - length])) - span
        wide = first <= last
        for a, b in zip(first[wide].tolist(), last[wide].tolist(), strict=True):
            if cuts is None:
                longest[a : b + 1] = length
            else:
                ends = slice(a + width * length, b + 1 + width * length)
                longest[a + np.flatnonzero(cuts[a : b + 1] & cuts[ends])] = length
    return longest


def _even_length(patterns: Patterns, longest: int, width: int, least: int, most: int, cuts: Cuts) -> int:
    """Bodies of a lane of the tile that begins here: as many as make the tiles of the rest alike, else the longest."""
    rest = len(patterns)
    even = rest // (width * -(-rest // (width * most)))
    if longest > even:
        for length in range(even, max(even // 2, least - 1), -1):
            ends = cuts is None or cuts[length : width * length + 1 : length].all()
            if ends and (patterns[length : width * length] == patterns[: (width - 1) * length]).all():
                return length
    return longest
