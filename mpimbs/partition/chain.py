"""Cuts of a chain: into subchains of equal cost, of a rank's subchain into tiles, and of a tile into lanes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.base.sizes import tuned
from mpimbs.kernels.lanes import WIDTHS, native_width
from mpimbs.model import JOINT_TYPES
from mpimbs.model.contents import Contents
from mpimbs.model.joints import joint_index
from mpimbs.parts.tiles import Tile

# Shares of more than so many bodies a lane are cut at multiples of the lanes.
ALIGNED = 4

_STEPS = np.array([float(len(kind.steps)) for kind in JOINT_TYPES])
_AXES = np.array([float(kind.nu) for kind in JOINT_TYPES])


def tip_ratio_of(width: int, bodies: int) -> float:
    """How many times more bodies the tip's rank gets, for a number of lanes and of bodies of a rank."""
    joins = tuned().joins_in_bodies
    return tuned().tip_ratio if width == 1 else 1.0 + joins / max(bodies, 4 * joins)


def terminal_ratio(width: int) -> float:
    """How many times more bodies the last rank gets where it sweeps them and the others assemble them one by one."""
    return tuned().terminal_ratio * (tuned().swept_in_lanes if width > 1 else 1.0)


def body_costs(joint_types: npt.NDArray[np.integer]) -> Floats:
    """Relative cost of each body's sweep.

    Parameters
    ----------
    joint_types : array [n]
        Index of each body's joint type.
    """
    return (_STEPS + tuned().axis_cost * _AXES)[joint_types]


class BodyCosts:
    """The costs of all bodies of a system, a stretch at a time: those of 10^9 bodies fit no memory.

    Parameters
    ----------
    stretch : int
        Number of bodies.
    """

    def __init__(self, system: Contents, stretch: int = 2**18) -> None:
        self._system, self._stretch = system, stretch

    def __iter__(self) -> Iterator[Floats]:
        for lo in range(0, self._system.n_bodies, self._stretch):
            yield body_costs(self._system.joint_types(lo, min(lo + self._stretch, self._system.n_bodies)))


def split_chain(costs: Iterable[Floats], size: int, tip_ratio: float | None = None, width: int = 1) -> Integers:
    """Cut a chain into subchains of equal cost.

    Parameters
    ----------
    costs : iterable of arrays
        Relative cost of each body, in stretches of any lengths; gone through twice.
    size : int
        Number of subchains, any number from 1 to n.
    tip_ratio : float, optional
        How many times what a body costs at the tip it costs elsewhere: so many more bodies the last subchain gets;
        by default what was measured without lanes.
    width : int
        Number of lanes: where subchains are long, all but the tip's are a multiple of it.

    Returns
    -------
    array [size + 1]
        Subchain k has bodies cuts[k] to cuts[k + 1] - 1, at least one.

    Raises
    ------
    InputError
        A ratio that is not positive.
    """
    tip_ratio = tuned().tip_ratio if tip_ratio is None else tip_ratio
    if not tip_ratio > 0.0 or not np.isfinite(tip_ratio):
        raise InputError(f"tip ratio must be a positive number, got {tip_ratio:g}")
    n, total, least = 0, 0.0, np.inf
    for share, part in zip(_shares(costs), costs, strict=True):
        n, total, least = n + len(part), float(share[-1]), min(least, float(part.min()))
    targets = total * np.arange(size) / (size - 1 + tip_ratio) - 0.5 * least
    below = np.zeros(size, np.int64) + (targets > 0.0)  # how many shares, of no bodies first, are less than each
    for share in _shares(costs):
        below += np.searchsorted(share, targets)
    cuts = np.append(below, n)
    numbers = np.arange(size + 1)
    cuts = np.maximum.accumulate(cuts - numbers) + numbers  # at least one body each, from the left ...
    cuts = np.minimum(cuts, n - size + numbers)  # ... and from the right
    if np.diff(cuts).min() > ALIGNED * width:
        cuts[1:-1] = width * np.rint(cuts[1:-1] / width).astype(np.int64)
    return cuts


def costs_between(costs: Iterable[Floats], cuts: Integers) -> Floats:
    """Sum of the costs of the bodies cuts[k] to cuts[k + 1] - 1 for each k: [len(cuts) - 1]."""
    below = np.zeros(len(cuts))
    begin = 0
    for share in _shares(costs):
        end = begin + len(share)
        here = (cuts > begin) & (cuts <= end)
        below[here] = share[cuts[here] - begin - 1]
        begin = end
    return np.diff(below)


def _shares(costs: Iterable[Floats]) -> Iterator[Floats]:
    """Sum of the costs of all bodies up to each, stretch by stretch, added up in sequence as if they were one."""
    before = 0.0
    for part in costs:
        share = np.cumsum(np.concatenate(([before], part)))[1:]
        before = float(share[-1])
        yield share


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
