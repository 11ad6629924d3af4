"""Sizes of the steps of a run: the smallest, the largest, their mean, and what keeps them from being larger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from mpimbs.stepping.schemes import STIFF

SHARE = 0.8  # of the largest stable step: above, stability limits the steps; looser tolerances gain nothing


@dataclass
class _Spread:
    """Least, largest and sum of positive numbers, and how many there are."""

    least: float = np.inf
    most: float = 0.0
    total: float = 0.0
    count: int = 0

    def take(self, values: Sequence[float]) -> None:
        self.least, self.most = min(self.least, *values), max(self.most, *values)
        total = self.total
        for value in values:  # in order: many at once give the same bits as one by one
            total += value
        self.total, self.count = total, self.count + len(values)

    def join(self, other: _Spread) -> None:
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.total, self.count = self.total + other.total, self.count + other.count


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
        free, cut, shares, self._near = memory or [[], [], [], 0]
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
        if not free:
            return
        self._free.take(free)
        if largest < np.inf:
            shares = [size / largest for size in free]
            self._shares.take(shares)
            self._near += len([share for share in shares if share >= SHARE])

    def join(self, other: StepSizes) -> None:
        """Take the steps of another one too."""
        for name in ("_free", "_cut", "_shares"):
            getattr(self, name).join(getattr(other, name))
        self._near += other._near

    def memory(self) -> list[Any]:
        """What the steps so far leave to the next, for JSON."""
        return [*(list(astuple(spread)) for spread in (self._free, self._cut, self._shares)), self._near]

    def statistics(self) -> dict[str, Any]:
        """Smallest, largest and mean size (s) of the steps that no sample has shortened, if they are not the fewer; how
        many a sample has shortened; what limits most of them, and their mean share of the largest stable step."""
        free, cut = self._free.count, self._cut.count
        if not free + cut:
            return {}
        by_samples = cut > free
        sizes = self._cut if by_samples else self._free
        found = {"smallest": sizes.least, "largest": sizes.most, "mean": sizes.total / sizes.count, "shortened": cut}
        if by_samples:
            return found | {"limited_by": "samples"}
        if not (count := self._shares.count):
            return found
        limit = "stability" if 2 * self._near >= count else "accuracy"
        return found | {"limited_by": limit, "share_of_stable": self._shares.total / count}


def steps_in_words(found: dict[str, Any]) -> str:
    """The statistics in a line, with what to do."""
    if "fixed" in found:
        return f"steps: {found['fixed']:.3g} s, fixed"
    text = "steps: {smallest:.2e} to {largest:.2e} s, {mean:.2e} s on average".format(**found)
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
