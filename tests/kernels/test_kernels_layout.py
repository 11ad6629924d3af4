"""Numbers in sequence and side by side in lanes: each is the other's inverse, and writes nothing beside its own."""

import numpy as np
import pytest

from mpimbs.kernels.compiler import interpreted, kernel
from mpimbs.kernels.lanes import WIDTHS, zero_lanes
from mpimbs.kernels.layout import interleave, separate
from oracles.dense import Array

GUARD = 5  # numbers before and after what may be written


@kernel
def _interleave2(sequence, first, stride, count, lanes):
    interleave(zero_lanes(2), sequence, first, stride, count, lanes)


@kernel
def _interleave4(sequence, first, stride, count, lanes):
    interleave(zero_lanes(4), sequence, first, stride, count, lanes)


@kernel
def _interleave8(sequence, first, stride, count, lanes):
    interleave(zero_lanes(8), sequence, first, stride, count, lanes)


@kernel
def _separate2(lanes, count, sequence, first, stride):
    separate(zero_lanes(2), lanes, count, sequence, first, stride)


@kernel
def _separate4(lanes, count, sequence, first, stride):
    separate(zero_lanes(4), lanes, count, sequence, first, stride)


@kernel
def _separate8(lanes, count, sequence, first, stride):
    separate(zero_lanes(8), lanes, count, sequence, first, stride)


COMPILED = {2: (_interleave2, _separate2), 4: (_interleave4, _separate4), 8: (_interleave8, _separate8)}


def guarded(size: int) -> tuple[Array, Array]:
    """NaN everywhere: an array, and its part of the given size which may be written."""
    whole = np.full(size + 2 * GUARD, np.nan)
    return whole, whole[GUARD : GUARD + size]


@pytest.mark.parametrize("w", WIDTHS)
@pytest.mark.parametrize("gap", [0, 1, 7])
@pytest.mark.parametrize("first", [0, 3, 8])
def test_there_and_back(w: int, first: int, gap: int) -> None:
    """Any count of numbers, `gap` unused ones between the lanes."""
    forth, back = COMPILED[w]
    for count in range(3 * w + 1):
        stride = count + gap
        size = first + w * stride
        sequence = np.random.default_rng(count).normal(size=size + GUARD)
        where = first + stride * np.arange(w) + np.arange(count)[:, None]  # [item, lane]
        room, lanes = guarded(count * w)
        forth(sequence, first, stride, count, lanes)
        expected, inside = guarded(count * w)
        inside[:] = sequence[where].ravel()
        assert np.array_equal(room, expected, equal_nan=True), f"{count} numbers of {w} lanes side by side"
        room, again = guarded(size)
        back(lanes, count, again, first, stride)
        expected, inside = guarded(size)
        inside[where] = sequence[where]
        assert np.array_equal(room, expected, equal_nan=True), f"{count} numbers of {w} lanes in sequence"


def test_uncompiled() -> None:
    """Uncompiled there is one lane: numbers in sequence are side by side already."""
    sequence, lanes, back = np.arange(7.0), np.full(4, np.nan), np.full(7, np.nan)
    interpreted(interleave)(0.0, sequence, 2, 4, 4, lanes)
    assert np.array_equal(lanes, sequence[2:6])
    interpreted(separate)(0.0, lanes, 4, back, 2, 4)
    assert np.array_equal(back[2:6], lanes) and np.isnan(back[[0, 1, 6]]).all()
