"""Sizes of the steps of a run: the smallest, the largest, the median, and what keeps them from being larger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpimbs.stepping.schemes import STIFF

WAITING = 4096  # numbers
PER_OCTAVE = 64  # classes of sizes: a median is right to half a percent
SHARE = 0.8  # of the largest stable step: above, stability limits the steps; looser tolerances gain nothing


class _Spread:
    """Counts positive numbers in classes of their logarithm, many at a time."""

    def __init__(self, least: float = np.inf, most: float = 0.0, classes: list[list[int]] | None = None) -> None:
        self._least, self._most = least, most
        self._counts = Counter({int(key): count for key, count in classes or []})
        self._waiting: list[float] = []

    def take(self, values: Sequence[float]) -> None:
        self._waiting.extend(values)
        if len(self._waiting) >= WAITING:
            self._count()

    def _count(self) -> None:
        if self._waiting:
            values, self._waiting = np.array(self._waiting), []
            self._least, self._most = min(self._least, float(values.min())), max(self._most, float(values.max()))
            keys, counts = np.unique(np.rint(PER_OCTAVE * np.log2(values)).astype(np.int64), return_counts=True)
            self._counts.update(dict(zip(keys.tolist(), counts.tolist(), strict=True)))

    def join(self, other: _Spread) -> None:
        for spread in (self, other):
            spread._count()
        self._least, self._most = min(self._least, other._least), max(self._most, other._most)
        self._counts += other._counts

    def memory(self) -> list[Any]:
        self._count()
        return [self._least, self._most, sorted(self._counts.items())]

    @property
    def count(self) -> int:
        self._count()
        return self._counts.total()

    @property
    def range(self) -> tuple[float, float]:
        self._count()
        return self._least, self._most

    @property
    def median(self) -> float:
        self._count()
        keys = sorted(self._counts)
        below = np.cumsum([self._counts[key] for key in keys])
        key = keys[int(np.searchsorted(below, 0.5 * below[-1]))]
        return float(np.clip(2.0 ** (key / PER_OCTAVE), *self.range))


def towards(left: float, step: float, fixed: bool) -> tuple[float, bool]:
    """Give the size (s) of a step towards a time that is `left` (s) ahead, and whether it is the last one before.

    The last steps before that time are shortened so that it is hit, where steps are not fixed two alike.
    """
    last = left <= step * (1.0 + 1e-6)
    return left if last else step if fixed or left > 2.0 * step else 0.5 * left, last


def first_step(size: Any, rate: Any) -> Any:
    """Give first steps (s) from norms of states and of their derivatives [Hairer, Norsett, Wanner, section II.4]."""
    still = (size == 0.0) | (rate == 0.0)
    return np.where(still, 1e-6, np.clip(0.01 * size / np.where(still, 1.0, rate), 1e-9, 1e-1))


class StepSizes:
    """Takes accepted steps of an adaptive step control.

    Parameters
    ----------
    memory : list, optional
        Go on from what `memory` gave.
    """

    def __init__(self, memory: list[Any] | None = None) -> None:
        free, cut, shares = memory or [[], [], []]
        self._free, self._cut, self._shares = _Spread(*free), _Spread(*cut), _Spread(*shares)

    def take(self, sizes: Sequence[float], largest: float = np.inf) -> None:
        """Take the sizes of steps (s).

        Parameters
        ----------
        sizes : sequence of float
            Negative where the time of a sample, or another one, has shortened them.
        largest : float
            The largest stable step (s); infinite where that is not known.
        """
        free = sizes
        if sizes[-1] < 0.0:  # only those before a time are, and the last of them
            free = [size for size in sizes if size > 0.0]
            self._cut.take([-size for size in sizes if size < 0.0])
        self._free.take(free)
        if largest < np.inf:
            self._shares.take([size / largest for size in free])

    def join(self, other: StepSizes) -> None:
        """Take the steps of another one too."""
        for name in ("_free", "_cut", "_shares"):
            getattr(self, name).join(getattr(other, name))

    def memory(self) -> list[Any]:
        """What the steps so far leave to the next, for JSON."""
        return [self._free.memory(), self._cut.memory(), self._shares.memory()]

    def statistics(self) -> dict[str, Any]:
        """Smallest, largest and median size (s) of the steps that no sample has shortened, if they are not the fewer;
        how many a sample has shortened; what limits them, and their median share of the largest stable step."""
        free, cut = self._free.count, self._cut.count
        if not free + cut:
            return {}
        by_samples = cut > free
        sizes = self._cut if by_samples else self._free
        found = {"smallest": sizes.range[0], "largest": sizes.range[1], "median": sizes.median, "shortened": cut}
        if by_samples:
            return found | {"limited_by": "samples"}
        if not self._shares.count:
            return found
        share = self._shares.median
        return found | {"limited_by": "stability" if share >= SHARE else "accuracy", "share_of_stable": share}


def told(found: dict[str, Any]) -> str:
    """The statistics in a line, with what to do."""
    if "fixed" in found:
        return f"steps: {found['fixed']:.3g} s, fixed"
    text = "steps: {smallest:.2e} to {largest:.2e} s, median {median:.2e} s".format(**found)
    limit = found.get("limited_by")
    if limit == "samples":
        return f"{text}; limited by the times of the samples: a longer time between them takes fewer steps"
    if limit is None:
        return text
    text += f"; limited by {limit} ({100 * found['share_of_stable']:.0f} % of the largest stable step): "
    if limit == "accuracy":
        return text + "a looser tolerance takes fewer"
    return text + (
        f"a looser tolerance takes no fewer, but implicit steps may (integrator {STIFF}), or a softer spring, a weaker "
        f"damper or more mass at body '{found['body']}' (fastest motion, {found['rate']:.2g} 1/s)"
    )
