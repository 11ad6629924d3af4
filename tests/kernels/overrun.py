"""Kernels that read and write outside their arrays, for the test of the checked build, which runs this."""

import sys

import numpy as np

from mpimbs.kernels.calling import address_of, call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, store, zero_lanes
from mpimbs.kernels.memory import aligned_room, span
from mpimbs.kernels.tuples import load6


@kernel(inline=True)
def _part(numbers, first, count):
    return span(numbers, first, count)[0]


@kernel
def spans(numbers, at):
    return _part(numbers, at, 12)


@kernel
def loads(numbers, at):
    return load(0.0, numbers, at)


@kernel
def stores(numbers, at):
    store(numbers, at, load(zero_lanes(4), numbers, 0))


@kernel
def tuples(numbers, at):
    return load6(0.0, numbers, at)[0]


@kernel
def items(numbers, at):
    return numbers[at]


@kernel
def _written(numbers, at):
    numbers[at] = 0.0
    return True


@kernel
def _called(address, numbers, at):
    return call_at(address, (numbers, at))


def by_address(numbers, at):
    return _called(address_of(_written, numbers, at), numbers, at)


if __name__ == "__main__":
    numbers = np.zeros(20)
    for function, last in ((spans, 8), (loads, 19), (stores, 16), (tuples, 14), (items, 19), (by_address, 19)):
        function(numbers, last)
        for at in (last + 1, -1):
            try:
                function(numbers, at)
                print("nothing")
            except IndexError as error:
                print(type(error).__name__, error)
    print(np.isnan(aligned_room(5)).all(), np.isnan(np.empty_like(numbers)).all())
    sys.exit()
