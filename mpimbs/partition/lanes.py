"""Cuts of a rank's subchain into tiles, and of a tile into lanes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Integers
from mpimbs.base.errors import InputError
from mpimbs.base.sizes import tuned
from mpimbs.kernels.lanes import WIDTHS, native_width
from mpimbs.model.joints import joint_index
from mpimbs.parts.tiles import Tile

Patterns = npt.NDArray[np.integer]

FIXED_PATTERN = 2 * joint_index("fixed")  # the pattern of a body that is fixed to the one before
MOST_PATTERNS = 256  # of bodies


def chosen_width(bodies: int, wanted: int | None) -> int:
    """Choose the number of lanes for so many bodies of a rank.

    Parameters
    ----------
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
    places: Integers | None = None,
    longest: Integers | None = None,
) -> list[Tile]:
    """Cut a subchain into tiles whose lanes agree in their joints; what does not fit is swept as one piece.

    Parameters
    ----------
    patterns : array [n]
        A number for each link: equal where the sweeps take the same steps. Links are what lanes are made of: the
        bodies of a chain, as `Contents.joint_patterns` numbers them, or those of a path with all that hangs beside.
    width : int
        Number of lanes; 1 for none.
    least, most : int, optional
        Bodies of a lane; by default those of `Sizes`.
    places : array [n + 1], optional
        How many bodies are before each link, and in all; by default each is one body.
    longest : array [n], optional
        What `longest_lanes` gives, where that is known.

    Returns
    -------
    list of Tile
        In sequence, over all bodies: each tile begins at the first link at which one can.
    """
    least = tuned().least_lane if least is None else least
    most = tuned().most_lane if most is None else most
    n = len(patterns)
    at = np.arange(n + 1) if places is None else places
    if longest is None:
        longest = longest_lanes(patterns, width, least, most, places) if width > 1 else np.zeros(n, np.int64)
    tiles: list[Tile] = []
    begins = np.flatnonzero(longest)
    alone = 0  # the first of the links that are in no tile yet
    while (k := int(np.searchsorted(begins, alone))) < len(begins):
        link = int(begins[k])
        links = _even_length(patterns[link:], int(longest[link]), width, least, most, at[link:])
        if link > alone:
            tiles.append(Tile(int(at[alone]), int(at[link] - at[alone]), 1))
        tiles.append(Tile(int(at[link]), int(at[link + links] - at[link]), width))
        alone = link + links * width
    if n > alone:
        tiles.append(Tile(int(at[alone]), int(at[n] - at[alone]), 1))
    return tiles


def cut_chain(patterns: Patterns, width: int, least: int | None = None, most: int | None = None) -> list[Tile]:
    """Cut a piece of a chain into tiles as `cut_tiles` does; bodies that are fixed to the one before stay with it.

    The load between a light body that moves and a heavy one that is fixed to it is a small difference of large numbers:
    4e-8 of an acceleration was lost where a thousand bodies hang on one hinge.

    Parameters
    ----------
    patterns : array [n]
        Of the bodies, as `Contents.joint_patterns` numbers them.
    width, least, most
        As of `cut_tiles`.
    """
    begins = np.flatnonzero(np.append(True, patterns[1:] != FIXED_PATTERN))
    if len(begins) == len(patterns):
        return cut_tiles(patterns, width, least, most)
    places = np.append(begins, len(patterns))
    return cut_tiles(patterns[begins] + MOST_PATTERNS * np.diff(places), width, least, most, places)


def longest_lanes(
    patterns: Patterns, width: int, least: int, most: int, places: Integers | None = None, together: int | None = None
) -> Integers:
    """Links of a lane of the longest tile that begins at each link; 0 if none does [n].

    A tile begins where the patterns equal those `length` links further (width - 1) * length times in succession.

    Parameters
    ----------
    patterns, width, least, most, places
        As of `cut_tiles`.
    together : int, optional
        No tile has more links than so many; by default it may have all.
    """
    n = len(patterns)
    longest = np.zeros(n, np.int64)
    for length in range(least if places is None else 1, min(most, (together or n) // width) + 1):
        span = (width - 1) * length
        here, further = patterns[:-length], patterns[length:]
        if not (here[::span] == further[::span]).any():
            continue  # so many in succession would hit one of these
        differs = np.flatnonzero(here != further)
        first = np.concatenate(([0], differs + 1))
        last = np.concatenate((differs, [n - length])) - span
        wide = first <= last
        if places is None:
            for a, b in zip(first[wide].tolist(), last[wide].tolist(), strict=True):
                longest[a : b + 1] = length
        else:
            bodies = places[length:] - places[:-length]
            fits = np.zeros(n + 1, np.int64)
            fits[first[wide]] += 1
            fits[last[wide] + 1] -= 1
            inside = np.cumsum(fits)[: len(bodies)] > 0
            longest[np.flatnonzero(inside & (bodies >= least) & (bodies <= most))] = length
    return longest


def _even_length(patterns: Patterns, longest: int, width: int, least: int, most: int, places: Integers) -> int:
    """Links of a lane of the tile that begins here: as many as make the tiles of the rest alike, else the longest."""
    bodies = places - places[0]
    even = int(bodies[-1] // (width * -(-bodies[-1] // (width * most))))
    if bodies[longest] > even:
        first, last = np.searchsorted(bodies, (max(even // 2 + 1, least), even + 1)).tolist()
        for length in range(min(last - 1, len(patterns) // width), first - 1, -1):
            if (patterns[length : width * length] == patterns[: (width - 1) * length]).all():
                return length
    return longest
