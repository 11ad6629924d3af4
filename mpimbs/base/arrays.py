"""What annotations call arrays of doubles and of 64-bit integers, and the matrix of a cross product."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def cross_matrix(v: Floats | tuple[float, ...]) -> Floats:
    """The matrix [3, 3] that takes w to v x w: numpy's cross takes ten times as long for one."""
    x, y, z = v
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
