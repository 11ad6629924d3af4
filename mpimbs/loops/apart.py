"""What an evaluation has found of loops: how far they are from closed, how much of that is rounding, what they do.

All of it is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import sqrt
from mpimbs.kernels.memory import FloatItem, Rows, Table, borrowed, read, schema
from mpimbs.kernels.tuples import load9
from mpimbs.loops.loop_joints import POSITION
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.vectors import rotate

ROUNDING = 1e-15  # rad, and m of the size of a loop and of how far it is from the origin: closer loops don't close
# Columns of rows, behind where an array of numbers is (address, size): how far numbers are apart; which loop it is, or
# how far motions are apart. Of windings there is an array that is read, too. Of ends there is which number drives
# stand at, the loads, how far these are apart, and which step it is, or which speed.
STRIDE, LOOP, OF_MOTION, TAKEN, DRIVEN, CARRIED, OF_CARRIED, ACTS_ON = 2, 3, 3, 2, 3, 4, 6, 7
_NUMBERS, _TAKEN, _CARRIED = FloatItem(0), FloatItem(TAKEN), FloatItem(CARRIED)


class MeasuredLoops(NamedTuple):
    """Where a rank's loops are measured."""

    loops: Rows  # [n, 8]: the columns above; each is measured there
    motions: Rows  # [parts, 8]: of the steps that carry their ends
    windings: Rows  # [any, 8]: angles against springs, where turns are counted, and where they are measured
    units: Floats  # [n * 2 * ROW]: of violations; as they are, and of the loops' lengths
    roundings: Floats  # [n * 3]: of positions, by coordinates, by neither, by distances (1/m)


class ActingLoops(NamedTuple):
    """Where it stands what a rank's loops carry, and on what that acts."""

    ends: Rows  # [k, 8]: the columns above, of ends on its bodies, but of gears
    turns: Floats  # [k * 9]: into the frames of the steps
    gears: Rows  # [any, 8]


MEASURED, ACTING = schema(MeasuredLoops), schema(ActingLoops)


@kernel
def add_what_loops_do(acting, wrenches, tau):
    """Add what loops carry to wrenches on steps [m * 6], in their frames, and of gears to forces along joints [nu]."""
    p, wrenches, tau = read(acting, ACTING), borrowed(wrenches), borrowed(tau)
    for k in range(p.ends.shape[0]):
        row, turn = p.ends[k], load9(0.0, p.turns, 9 * k)
        for half in range(0, 6, 3):
            x, y, z = rotate(turn, (_acting(row, half), _acting(row, half + 1), _acting(row, half + 2)))
            at = 6 * row[ACTS_ON] + half
            wrenches[at] += x
            wrenches[at + 1] += y
            wrenches[at + 2] += z
    for k in range(p.gears.shape[0]):
        row = p.gears[k]
        tau[row[ACTS_ON]] += read(row, _NUMBERS)[0] * read(row, _CARRIED)[0]


@kernel
def _acting(row, i):
    """A number of the load on an end, in the frame in which it was measured."""
    numbers, loads, stride, apart = read(row, _NUMBERS), read(row, _CARRIED), row[STRIDE], row[OF_CARRIED]
    found = 0.0
    for j in range(ROW):
        found += numbers[(i * ROW + j) * stride] * loads[j * apart]
    return found + numbers[(row[DRIVEN] + i) * stride]


@kernel
def measure_apart(measured, found):
    """Write how far this rank's loops are from closed, as last measured [loops * 4]: norms over what joints constrain.

    Of positions and velocities, m and rad, m/s and rad/s, together; and the same in units of the loops' lengths: rad,
    and rad/s. Infinite where they can't be measured.
    """
    p, found = read(measured, MEASURED), borrowed(found)
    for k in range(p.loops.shape[0]):
        row = p.loops[k]
        numbers, stride = read(row, _NUMBERS), row[STRIDE]
        for number in range(4):
            square = 0.0
            for i in range(ROW):
                at = (POSITION + number % 2 * ROW + i) * stride
                value = numbers[at] / p.units[(2 * k + number // 2) * ROW + i]
                square += value * value
            found[4 * row[LOOP] + number] = sqrt(square) if square >= 0.0 else np.inf


@kernel
def farthest_end(measured):
    """How far a step that carries an end of a loop is from the world's origin (m), as last measured, if it is known."""
    p, farthest = read(measured, MEASURED), 0.0
    for k in range(p.motions.shape[0]):
        row, most = p.motions[k], 0.0
        numbers = read(row, _NUMBERS)
        for first in range(0, numbers.size, row[OF_MOTION]):
            for i in range(3):
                size = abs(numbers[first + i * row[STRIDE]])
                most = max(most, size) if size < np.inf else np.inf
        farthest = max(farthest, most if most < np.inf else 0.0)
    return farthest


@kernel
def round_places(measured, farthest, largest, found):
    """Write how much of positions in units of the loops' lengths is rounding [loops], of steps as far as `farthest` (m)
    and coordinates as large as `largest`."""
    p, found = read(measured, MEASURED), borrowed(found)
    for k in range(p.loops.shape[0]):
        times = largest * p.roundings[3 * k] + p.roundings[3 * k + 1] + farthest * p.roundings[3 * k + 2]
        found[p.loops[k, LOOP]] = ROUNDING * (1.0 + times)


@kernel
def count_turns(measured):
    """Take angles along loops' joints from here on nearest to those just measured."""
    p = read(measured, MEASURED)
    for k in range(p.windings.shape[0]):
        row = p.windings[k]
        read(row, _NUMBERS)[0] = read(row, _TAKEN)[0]


def of_some_loops(parts: Iterable[Any]) -> Table:
    """Give the table of some loops together, from what there is of each: `MeasuredLoops`, or `ActingLoops`."""
    some = list(parts)
    return Table(type(some[0])(*(np.concatenate(field) for field in zip(*some, strict=True))))


def numbers_at(numbers: npt.NDArray[Any]) -> tuple[int, int]:
    """Give where an array begins that others may interleave, and how many numbers there are to its last one."""
    last = sum((count - 1) * stride for count, stride in zip(numbers.shape, numbers.strides, strict=True))
    return numbers.__array_interface__["data"][0], last // numbers.itemsize + 1
