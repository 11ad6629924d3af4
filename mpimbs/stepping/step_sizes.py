"""Sizes of the steps of a run and what keeps them from being larger; what steps leave to the next, for checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.stepping.projection import ProjectionState
from mpimbs.stepping.schemes import STIFF
from mpimbs.stepping.stability import ProbeState

SHARE = 0.8  # of the largest stable step: above, stability limits the steps; looser tolerances gain nothing


@dataclass
class Spread:
    """The least, largest and sum of positive numbers, and how many there are."""

    least: float = np.inf
    most: float = 0.0
    total: float = 0.0
    count: int = 0

    def take(self, values: Sequence[float]) -> None:
        """Take some more."""
        self.least, self.most = min(self.least, *values), max(self.most, *values)
        total = self.total
        for value in values:  # in order: many at once give the same bits as one by one
            total += value
        self.total, self.count = total, self.count + len(values)

    def join(self, other: Spread) -> None:
        """Take those of another one."""
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


@dataclass
class StepSizes:
    """Takes accepted steps of an adaptive step control."""

    # sizes (s) of the steps that nothing has shortened, and of those that the time of a sample, or another, has
    free: Spread = field(default_factory=Spread)
    cut: Spread = field(default_factory=Spread)
    shares: Spread = field(default_factory=Spread)  # of the largest stable step
    near: int = 0  # how many were near that

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
        if min(sizes) < 0.0:  # the last of them, or one that did not get there: what followed it was rejected
            free = [size for size in sizes if size > 0.0]
            self.cut.take([-size for size in sizes if size < 0.0])
        if not free:
            return
        self.free.take(free)
        if largest < np.inf:
            shares = [size / largest for size in free]
            self.shares.take(shares)
            self.near += len([share for share in shares if share >= SHARE])

    def join(self, other: StepSizes) -> None:
        """Take the steps of another one too."""
        for name in ("free", "cut", "shares"):
            getattr(self, name).join(getattr(other, name))
        self.near += other.near

    def statistics(self) -> dict[str, Any]:
        """Smallest, largest and mean size (s) of the steps that no sample has shortened, if they are not the fewer; how
        many a sample has shortened; what limits most of them, and their mean share of the largest stable step."""
        free, cut = self.free.count, self.cut.count
        if not free + cut:
            return {}
        by_samples = cut > free
        sizes = self.cut if by_samples else self.free
        found = {"smallest": sizes.least, "largest": sizes.most, "mean": sizes.total / sizes.count, "shortened": cut}
        if by_samples:
            return found | {"limited_by": "samples"}
        if not (count := self.shares.count):
            return found
        limit = "stability" if self.near_stable else "accuracy"
        return found | {"limited_by": limit, "share_of_stable": self.shares.total / count}

    @property
    def near_stable(self) -> bool:
        """Whether most of those that are known beside the largest stable step were near it."""
        return 2 * self.near >= self.shares.count > 0


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


RATES = ("q_rate", "u_rate")  # where the next step begins, if it does not evaluate them itself
ANCHORS = "u_anchor"  # of friction, of all speeds: see `sweep.grip`


class StepMemory(NamedTuple):
    """The memory that the steps leave to the next, beside the state."""

    time: float  # time reached, and size of the next step (s)
    step: float
    steps: int  # so far
    rejected: int
    norm_error: float  # see `Integrator`; of all ranks
    # of every rank, if the system has any: work on its bodies (J), and its rate where the next step begins (W)
    work: list[list[float]]
    sizes: StepSizes
    probe: ProbeState | None
    # this rank's parts of `RATES`, where these are known, and of `ANCHORS`, where there is friction
    vectors: dict[str, Floats]
    projection: ProjectionState | None = None
    tension: list[int] | None = None  # of `StageMatrix`
    again: bool = False  # whether the last attempt of a step was rejected
    error: float = 1.0  # of the step before, over the tolerance
    refining: bool | None = None  # whether solutions with loops are refined; see `ClosedLoops`

    def of_another(self, **changes: Any) -> StepMemory:
        """Give the memory for an integrator whose first step takes nothing from the last one: what acts has changed."""
        kept = {name: values for name, values in self.vectors.items() if name == ANCHORS}
        return self._replace(probe=None, vectors=kept, again=False, refining=None, **changes)
