"""Fits of measured times to terms of any kind, constraint loads [Duan & Anderson, eq. 23], and butterflies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from mpimbs.base.arrays import Floats


def fit(terms: npt.ArrayLike, seconds: npt.ArrayLike) -> Floats:
    """Time of each of some terms (s), none below zero, by least squares of relative errors where any time was taken.

    Parameters
    ----------
    terms : array [points, terms]
    seconds : array [points]
    """
    rows, times = np.asarray(terms, np.float64), np.asarray(seconds, np.float64)
    some = times > 0.0
    if not some.any():
        return np.zeros(rows.shape[1])
    return np.asarray(nnls(rows[some] / times[some, None], np.ones(some.sum()))[0], np.float64)


class PowerLaw(NamedTuple):
    """y = factor * x^exponent."""

    factor: float
    exponent: float

    def __call__(self, x: npt.ArrayLike) -> Floats:
        return self.factor * np.asarray(x, np.float64) ** self.exponent


def fit_power_law(x: npt.ArrayLike, y: npt.ArrayLike) -> PowerLaw:
    """Fit a power law to positive numbers, by least squares of the logarithms.

    Parameters
    ----------
    x, y : array [points]
        Two points at least.
    """
    exponent, offset = np.polyfit(np.log(np.asarray(x, np.float64)), np.log(np.asarray(y, np.float64)), 1)
    return PowerLaw(float(np.exp(offset)), float(exponent))


class Point(NamedTuple):
    """One measurement: n degrees of freedom, m constraint loads, subchains, ranks, and seconds of an evaluation."""

    n: int
    m: int
    subchains: int
    ranks: int
    seconds: float


class CostModel(NamedTuple):
    """Seconds of an evaluation: C1 n / R + C2 n m / (N R) + m^gamma (C3 N / R + C4 log2 R).

    N subchains on R ranks; with N = R it is equation 23 of Duan & Anderson, whose processors have one subchain each
    (they write log2(N - 1)).
    """

    gamma: float
    c1: float
    c2: float
    c3: float
    c4: float

    def __call__(self, n: int, m: int, subchains: int, ranks: int) -> float:
        """Seconds of an evaluation."""
        return float(load_terms(n, m, subchains, ranks, self.gamma) @ np.array(self[1:]))


def load_terms(n: int, m: int, subchains: int, ranks: int, gamma: float) -> Floats:
    """Give what the coefficients of a `CostModel` are multiplied by."""
    iterating = float(m) ** gamma if m else 0.0
    return np.array([n / ranks, n * m / (subchains * ranks), iterating * subchains / ranks, iterating * np.log2(ranks)])


def fit_cost_model(points: Sequence[Point], gamma: float) -> CostModel:
    """Fit the coefficients; `gamma` is how iterations grow with the constraint loads, see `fit_power_law`."""
    return CostModel(gamma, *fit([load_terms(*p[:4], gamma) for p in points], [p.seconds for p in points]).tolist())


class ButterflyModel(NamedTuple):
    """Seconds of an evaluation by a butterfly: C0 + C1 n / P + C2 ceil(log2 P), as [Critchley 2007, eq. 43 and 72]."""

    c0: float
    c1: float
    c2: float

    def __call__(self, n: int, ranks: int) -> float:
        """Seconds of an evaluation of n bodies on P ranks."""
        return float(butterfly_terms(n, ranks) @ np.array(self))

    def best_ranks(self, n: int) -> int:
        """P of least time, of those up to n."""
        powers = 2 ** np.arange(int(n).bit_length())
        return int(min((p for p in powers.tolist() if p <= n), key=lambda p: self(n, p)))


def butterfly_terms(n: int, ranks: int) -> Floats:
    """Give what the coefficients of a `ButterflyModel` are multiplied by."""
    return np.array([1.0, n / ranks, (ranks - 1).bit_length()])


def fit_butterfly_model(points: Sequence[tuple[int, int, float]]) -> ButterflyModel:
    """Fit the coefficients to n, ranks and seconds of some points: what these don't tell of is fitted as zero."""
    return ButterflyModel(*fit([butterfly_terms(*p[:2]) for p in points], [p[2] for p in points]).tolist())
