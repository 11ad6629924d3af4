"""Sine, cosine and the angle of a point in lanes, against many digits (mpmath) and numpy, over all doubles."""

from collections.abc import Callable

import numpy as np
import pytest
from mpmath import mp, mpf

from mpimbs.kernels.compiler import interpreted, kernel
from mpimbs.kernels.lanes import WIDTHS, load, store, width, zero_lanes
from mpimbs.kernels.trigonometry import (
    LARGEST_ANGLE,
    LARGEST_SUM,
    ROUNDER,
    SMALLEST_SUM,
    _reduce,
    _sincos_octants,
    atan2,
    sincos,
)
from oracles.dense import Array
from tolerances import assert_close

DIGITS = 60  # of the reference; what mpmath needs more to reduce an angle of 1e308 it takes by itself
COUNT = 2000  # numbers of each kind, a multiple of the widths

Outputs = Callable[[Array, Array, Array, Array], None]


@kernel
def _functions(zero, a, b, c, d):
    """Write into `c` the angles of the points (y, x) = (a, b); if `b` is empty, into `c`, `d` the functions of `a`."""
    for i in range(0, a.shape[0], width(zero)):
        if b.shape[0] > 0:
            store(c, i, atan2(load(zero, a, i), load(zero, b, i)))
        else:
            s, k = sincos(load(zero, a, i))
            store(c, i, s)
            store(d, i, k)


@kernel
def _functions2(a, b, c, d):
    _functions(zero_lanes(2), a, b, c, d)


@kernel
def _functions4(a, b, c, d):
    _functions(zero_lanes(4), a, b, c, d)


@kernel
def _functions8(a, b, c, d):
    _functions(zero_lanes(8), a, b, c, d)


FUNCTIONS: dict[int, Outputs] = {2: _functions2, 4: _functions4, 8: _functions8}


def in_lanes(w: int, angles: Array) -> tuple[Array, Array]:
    """Sines and cosines of angles, w side by side."""
    sines, cosines = np.full(len(angles), np.nan), np.full(len(angles), np.nan)
    FUNCTIONS[w](angles, np.empty(0), sines, cosines)
    return sines, cosines


def angles_in_lanes(w: int, y: Array, x: Array) -> Array:
    """Angles of points, w side by side."""
    angles = np.full(len(y), np.nan)
    FUNCTIONS[w](y, x, angles, angles)
    return angles


def differences(ours: Array, exact: list[mpf]) -> Array:
    """Errors, of which no digit is lost."""
    return np.array([float(mpf(value) - reference) for value, reference in zip(ours.tolist(), exact, strict=True)])


def magnitudes(low: float, high: float, count: int) -> Array:
    """Numbers of both signs, log-uniform in powers of two."""
    rng = np.random.default_rng(7)
    return np.ldexp(rng.uniform(0.5, 1.0, count) * rng.choice([-1, 1], count), rng.integers(low, high, count))


def nearest(eighths: Array) -> Array:
    """The doubles nearest to multiples of pi/4, and their neighbours."""
    with mp.workdps(DIGITS):
        x = np.array([float(int(k) * mp.pi / 4) for k in eighths])
    return np.concatenate((np.nextafter(x, -np.inf), x, np.nextafter(x, np.inf)))


def some_angles(kind: str) -> Array:
    """Angles (rad) of one kind, as many as fill the lanes."""
    rng = np.random.default_rng(3)
    eighths = int(LARGEST_ANGLE * 4 / np.pi)
    large = np.exp(rng.uniform(0, np.log(eighths), COUNT)).astype(int)
    limit = np.array([LARGEST_ANGLE, np.nextafter(LARGEST_ANGLE, 0), np.nextafter(LARGEST_ANGLE, np.inf)])
    # The doubles nearest to multiples of pi/2, from continued fractions: 1.7e-18 to 2e-16 off.
    hard = [45.553093477052, 46066.74387591393, 321307.9594422229, 1698673.2849629424]
    hard += [14461176.67027838, 21255869.81013015, 28922353.34055676, 57844706.68111352]
    kinds = {
        "a few turns": rng.uniform(-10, 10, 4 * COUNT),
        "first eighth": rng.uniform(-np.pi / 4, np.pi / 4, 4 * COUNT),
        "many turns": rng.uniform(-LARGEST_ANGLE, LARGEST_ANGLE, COUNT),
        "quarter turns": nearest(np.concatenate((np.arange(-40, 40, 2), large // 2 * 2, -large // 2 * 2))),
        "odd eighths": nearest(np.concatenate((np.arange(-39, 41, 2), large // 2 * 2 + 1, -large // 2 * 2 - 1))),
        "all magnitudes": magnitudes(-1020, 1024, COUNT),
        "subnormal": np.concatenate((magnitudes(-1073, -1021, 200), [0.0, -0.0, 5e-324, -5e-324])),
        "limit": np.concatenate((limit, -limit, [1e300, -1e300])),
        "hard": np.concatenate((hard, np.negative(hard))),
    }
    x = kinds[kind]
    return np.concatenate((x, np.zeros(-len(x) % max(WIDTHS))))


KINDS = ["a few turns", "first eighth", "many turns", "quarter turns", "odd eighths", "all magnitudes", "subnormal"]
KINDS += ["limit", "hard"]


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", KINDS)
def test_sine_and_cosine(kind: str) -> None:
    """Within 2^-53 of the true value for every finite double, whatever the number of lanes."""
    x = some_angles(kind)
    assert np.isfinite(x).all()
    with mp.workdps(DIGITS):
        exact = [mp.cos_sin(mpf(value)) for value in x.tolist()]
        for w in WIDTHS:
            sines, cosines = in_lanes(w, x)
            for name, ours, part in (("cosine", cosines, 0), ("sine", sines, 1)):
                found = differences(ours, [pair[part] for pair in exact])
                assert_close(f"{name}, {w} lanes", found, np.zeros(len(x)), "sine", scale=1.0)
            assert_close(f"{w} lanes beside numpy", (sines, cosines), (np.sin(x), np.cos(x)), "two sines", scale=1.0)


@pytest.mark.parametrize("w", WIDTHS)
@pytest.mark.parametrize("odd", [1e9, -1e308, np.inf, -np.inf, np.nan])
def test_lanes_do_not_mix(w: int, odd: float) -> None:
    """One lane beyond the limit, or not finite, has what numpy gives, and the others what they have without it."""
    x = np.random.default_rng(w).uniform(-3, 3, w)
    before = in_lanes(w, x)
    with np.errstate(invalid="ignore"):
        expected = np.sin(odd), np.cos(odd)
    for lane in range(w):
        mixed = x.copy()
        mixed[lane] = odd
        for ours, usual, alone in zip(in_lanes(w, mixed), before, expected, strict=True):
            usual = usual.copy()
            usual[lane] = alone
            assert np.allclose(ours, usual, rtol=0, atol=2.0**-52, equal_nan=True)
            others = np.arange(w) != lane
            assert np.array_equal(ours[others], usual[others])


def test_reduction_without_fused_multiply_add() -> None:
    """Python's own arithmetic never fuses: the steps of `sincos` are right without it too, on any processor."""
    reduce, octants = interpreted(_reduce), interpreted(_sincos_octants)
    kinds = ("a few turns", "many turns", "quarter turns", "odd eighths", "hard")
    x = np.concatenate([some_angles(kind)[:COUNT] for kind in kinds])
    x = x[np.abs(x) <= LARGEST_ANGLE]
    rests, sines, cosines = [], [], []
    with mp.workdps(DIGITS):
        for value in x.tolist():
            shifted, high, low = reduce(value)
            turns = shifted - ROUNDER
            rests.append(float(value - turns * mp.pi / 2 - high - low))
            assert abs(high) <= np.pi / 4 * (1 + 2.0**-26) and abs(low) <= np.spacing(abs(high)) / 2 + 2.0**-81
            sine, cosine = octants(high, low)
            sines.append(float(sine - mp.sin(mpf(high) + low)))
            cosines.append(float(cosine - mp.cos(mpf(high) + low)))
    zeros = np.zeros(len(x))
    assert_close("rest of the quarter turns", rests, zeros, "reduction", scale=1.0)
    assert_close("sine", sines, zeros, "sine", scale=1.0)
    assert_close("cosine", cosines, zeros, "sine", scale=1.0)


def some_points(kind: str) -> tuple[Array, Array]:
    """Points (y, x) of one kind."""
    rng = np.random.default_rng(5)
    around = rng.uniform(-np.pi, np.pi, 4 * COUNT)
    borders = np.repeat(np.arange(-8, 8) * np.pi / 8, COUNT // 8) + rng.uniform(-1e-3, 1e-3, 2 * COUNT)
    kinds = {
        "around": (np.sin(around), np.cos(around)),
        "borders of octants": (np.sin(borders), np.cos(borders)),
        "all magnitudes": (magnitudes(-1020, 1024, COUNT), magnitudes(-1020, 1024, COUNT)[::-1].copy()),
        "alike": (magnitudes(-1020, 1024, COUNT), magnitudes(-1020, 1024, COUNT) * rng.uniform(0.5, 1.0, COUNT)),
        "small angles": (magnitudes(-1000, 0, COUNT), np.ones(COUNT)),
        "nearly pi": (magnitudes(-1000, 0, COUNT), -np.ones(COUNT)),
        "limits": (
            np.array(
                [SMALLEST_SUM, SMALLEST_SUM / 2, SMALLEST_SUM / 4, LARGEST_SUM, LARGEST_SUM / 2, 1e-320, 1.0, 0.1]
            ),
            np.array(
                [SMALLEST_SUM, SMALLEST_SUM / 2, SMALLEST_SUM / 8, LARGEST_SUM, LARGEST_SUM / 2, 1e-310, 1e9, 1.0]
            ),
        ),
    }
    return kinds[kind]


@pytest.mark.parametrize(
    "kind", ["around", "borders of octants", "all magnitudes", "alike", "small angles", "nearly pi", "limits"]
)
def test_angle_of_a_point(kind: str) -> None:
    y, x = some_points(kind)
    with mp.workdps(DIGITS):
        exact = [mp.atan2(v, u) for v, u in zip(y.tolist(), x.tolist(), strict=True)]
        size = np.array([max(abs(float(angle)), np.finfo(float).tiny) for angle in exact])
        for w in WIDTHS:
            found = differences(angles_in_lanes(w, y, x), exact)
            assert_close(f"relative error, {w} lanes", found / size, np.zeros(len(x)), "angle", scale=1.0)


@pytest.mark.parametrize("w", WIDTHS)
def test_angles_of_special_points(w: int) -> None:
    """Zeros of both signs, infinities and NaN as in numpy, whatever is in the other lanes."""
    values = [0.0, -0.0, 1.0, -2.0, 5e-324, 1.7e308, -1.7e308, np.inf, -np.inf, np.nan]
    y, x = (grid.ravel() for grid in np.meshgrid(values, values))
    y, x = (np.concatenate((part, np.ones(-len(part) % 8))) for part in (y, x))
    order = np.random.default_rng(w).permutation(len(y))
    y, x = y[order], x[order]
    ours, theirs = angles_in_lanes(w, y, x), np.arctan2(y, x)
    assert np.array_equal(np.isnan(ours), np.isnan(theirs))
    known = ~np.isnan(theirs)
    assert np.array_equal(np.signbit(ours[known]), np.signbit(theirs[known]))
    assert_close("angles", ours[known], theirs[known], "two sines", scale=np.pi)
