"""Cuts of a chain into subchains of equal cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.base.sizes import tuned
from mpimbs.model import JOINT_TYPES
from mpimbs.model.contents import Contents

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
