"""Springs between points: their lengths, directions and tensions, from where the points are and how they move."""

from __future__ import annotations

import numpy as np

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.tuples import load3, store_numbers
from mpimbs.spatial.vectors import dot3, scale3, sub3

STIFFNESS, DAMPING, REST, TENSION_ONLY, LAW = range(5)  # what a spring is; the last is their number
LENGTH, RATE, ELASTIC, TENSION, FOUND = range(5)  # what is found of one; the last is their number


@kernel
def stretch(zero, ends, pairs, laws, found, directions):
    """Write length (m), its rate (m/s), the elastic part of the tension and the tension (N) of springs, and directions.

    With the length l: elastic = k (l - rest), tension = elastic + d dl/dt. A rope has none where l <= rest, and no
    negative one. Where the points coincide, the direction is zero.

    Parameters
    ----------
    ends : array [points * 6]
        Positions and velocities (m, m/s).
    pairs : int64 array [n * 2]
        The two points of each spring.
    laws : array [n * LAW]
    found : array [n * FOUND]
        Written.
    directions : array [n * 3]
        Written: unit vectors from the first point to the second.
    """
    for k in range(pairs.size // 2):
        first, second = 6 * pairs[2 * k], 6 * pairs[2 * k + 1]
        across = sub3(load3(zero, ends, second), load3(zero, ends, first))
        apart = sub3(load3(zero, ends, second + 3), load3(zero, ends, first + 3))
        length = np.sqrt(dot3(across, across))
        direction = scale3(1.0 / length, across) if length > 0.0 else (zero, zero, zero)
        rate = dot3(direction, apart)
        law = LAW * k
        elastic = laws[law + STIFFNESS] * (length - laws[law + REST])
        tension = elastic + laws[law + DAMPING] * rate
        if laws[law + TENSION_ONLY] != 0.0:
            elastic = max(elastic, 0.0)
            tension = max(tension, 0.0) if length > laws[law + REST] else 0.0
        store_numbers(zero, found, FOUND * k, (length, rate, elastic, tension))
        store_numbers(zero, directions, 3 * k, direction)


@kernel
def pulls(zero, springs, signs, found, directions, force):
    """Write the force [n * 3] on each end of springs: `signs` [n] is 1 for a first end and -1 for a second.

    `springs` [n] says of which spring it is an end; `found` and `directions` are as `stretch` wrote them.
    """
    for j in range(springs.size):
        k = springs[j]
        tension = signs[j] * found[FOUND * k + TENSION]
        store_numbers(zero, force, 3 * j, scale3(tension, load3(zero, directions, 3 * k)))
