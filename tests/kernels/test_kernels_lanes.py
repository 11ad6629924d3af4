"""The lane type: each lane computes what a double would."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba.core.errors import TypingError

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import WIDTHS, absolute, largest, load, native_width, sqrt, store, width, zero_lanes
from mpimbs.kernels.trigonometry import atan2, sincos
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from tolerances import assert_close

RESULTS = 18


@kernel
def _compute(zero, a, b, x, out):
    """All operations on two numbers of type T and a double."""
    w = width(zero)
    p, q = load(zero, a, 0), load(zero, b, 0)
    s, c = sincos(p)
    store(out, 0 * w, p + q)
    store(out, 1 * w, p - q)
    store(out, 2 * w, p * q)
    store(out, 3 * w, p / q)
    store(out, 4 * w, p + x)
    store(out, 5 * w, x - p)
    store(out, 6 * w, p * x)
    store(out, 7 * w, x / q)
    store(out, 8 * w, -p)
    store(out, 9 * w, s)
    store(out, 10 * w, c)
    store(out, 11 * w, sqrt(p * p))
    store(out, 12 * w, atan2(p, q))
    store(out, 13 * w, zero)
    store(out, 14 * w, x * p - q)
    store(out, 15 * w, p / x + 1.0)
    store(out, 16 * w, absolute(p))
    store(out, 17 * w, largest(p, q))
    return w


@kernel
def _compute2(a, b, x, out):
    return _compute(zero_lanes(2), a, b, x, out)


@kernel
def _compute4(a, b, x, out):
    return _compute(zero_lanes(4), a, b, x, out)


@kernel
def _compute8(a, b, x, out):
    return _compute(zero_lanes(8), a, b, x, out)


@kernel
def _compute1(a, b, x, out):
    return _compute(0.0, a, b, x, out)


@kernel
def _roots(zero, x, out):
    for i in range(0, out.shape[0], width(zero)):
        store(out, i, sqrt(load(zero, x, i)))


@kernel
def _roots2(x, out):
    _roots(zero_lanes(2), x, out)


@kernel
def _roots4(x, out):
    _roots(zero_lanes(4), x, out)


@kernel
def _roots8(x, out):
    _roots(zero_lanes(8), x, out)


ROOTS: dict[int, Callable[..., Any]] = {2: _roots2, 4: _roots4, 8: _roots8}
COMPUTE: dict[int, Callable[..., Any]] = {1: _compute1, 2: _compute2, 4: _compute4, 8: _compute8}


@pytest.mark.parametrize("w", [1, *WIDTHS])
def test_operations(w: int) -> None:
    rng = np.random.default_rng(w)
    a, b, x = rng.uniform(-3, 3, w), rng.uniform(0.5, 3, w) * rng.choice([-1, 1], w), 0.7
    out = np.full(RESULTS * w + 3, np.nan)
    assert COMPUTE[w](a, b, x, out) == w
    rows = [a + b, a - b, a * b, a / b, a + x, x - a, a * x, x / b, -a, np.sin(a), np.cos(a), np.abs(a)]
    rows += [np.arctan2(a, b), 0 * a, x * a - b, a / x + 1.0, np.abs(a), np.maximum(a, b)]
    assert_close("results", out[: RESULTS * w].reshape(-1, w), rows, "rounding")
    assert np.isnan(out[RESULTS * w :]).all(), "written beyond the end"


def test_lanes_keep_what_is_not_finite() -> None:
    """Division by zero and NaN stay in their lane, so that a broken state is seen."""
    a, b = np.array([1.0, np.nan, -1.0, 2.0]), np.array([0.0, 1.0, 0.0, 4.0])
    out = np.empty(RESULTS * 4)
    _compute4(a, b, 1.0, out)
    quotient = out[12:16]
    assert np.isposinf(quotient[0]) and np.isnan(quotient[1]) and np.isneginf(quotient[2]) and quotient[3] == 0.5


@pytest.mark.parametrize("w", [1, *WIDTHS])
@pytest.mark.parametrize(("a", "b"), [(np.nan, 1.0), (1.0, np.nan), (-np.inf, np.nan), (np.nan, np.nan)])
def test_largest_keeps_nan(w: int, a: float, b: float) -> None:
    """Unlike Python's max, so that a broken state is seen; compiled or not."""
    out = np.empty(RESULTS * w)
    COMPUTE[w](np.full(w, a), np.full(w, b), 1.0, out)
    assert np.isnan(out[17 * w :]).all() and np.isnan(largest(a, b))


def test_square_root_is_exact() -> None:
    """Rounded correctly, in lanes as in doubles, and NaN of negative numbers."""
    x = np.concatenate(
        (2.0 ** np.random.default_rng(1).uniform(-1074, 1024, 1003), [0.0, 5e-324, np.inf, -1.0, np.nan])
    )
    for w in WIDTHS:
        found = np.empty(len(x) // w * w)
        ROOTS[w](x, found)
        with np.errstate(invalid="ignore"):
            assert np.array_equal(found, np.sqrt(x[: len(found)]), equal_nan=True)


@kernel
def _copy(zero, source, target):
    store_numbers(zero, target, 1, load3(zero, source, 0))
    store_numbers(zero, target, 4, load6(zero, source, 3))
    store_numbers(zero, target, 10, load9(zero, source, 9))


@kernel
def _copy_lanes(source, target):
    _copy(zero_lanes(4), source, target)


def test_vectors_of_lanes_are_interleaved() -> None:
    """Item i of W lanes is at [i W, (i + 1) W), at no special alignment."""
    room = np.arange(4 * 18 + 1.0)
    source, target = room[1:], np.zeros(4 * 19)
    _copy_lanes(source, target)
    assert np.array_equal(target, np.concatenate((np.zeros(4), source)))


def test_native_width() -> None:
    assert native_width() in WIDTHS


def test_lanes_are_for_compiled_code() -> None:
    with pytest.raises(TypeError, match="compiled"):
        zero_lanes(4)


@kernel
def _three_lanes():
    return width(zero_lanes(3))


def test_no_other_widths() -> None:
    with pytest.raises((TypingError, KeyError)):
        _three_lanes()
