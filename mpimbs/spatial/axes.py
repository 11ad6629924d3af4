"""A joint's unit axes in its own frame: 0..2 rotation about x, y, z, 3..5 translation along x, y, z.

The motion subspace column of an axis is s = e_axis, or for a rotation with a pitch (m/rad) s = e_axis + pitch
e_(axis+3). Each function here picks by the number of the axis, so that an elimination is written once for every joint
type.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel


@kernel(inline=True)
def component(v, axis):
    """Component of a 6-tuple (or a 6-tuple of rows) at an axis."""
    if axis == 2:
        return v[2]
    if axis == 0:
        return v[0]
    if axis == 1:
        return v[1]
    if axis == 5:
        return v[5]
    if axis == 3:
        return v[3]
    return v[4]


@kernel(inline=True)
def along(v, axis, pitch):
    """Scalar product s^T v of an axis and a spatial vector."""
    if axis == 2:
        return v[2] + pitch * v[5]
    if axis == 0:
        return v[0] + pitch * v[3]
    if axis == 1:
        return v[1] + pitch * v[4]
    return component(v, axis)


@kernel(inline=True)
def add_along(v, axis, pitch, x):
    """Spatial vector v + s x."""
    if axis == 2:
        return (v[0], v[1], v[2] + x, v[3], v[4], v[5] + pitch * x)
    if axis == 0:
        return (v[0] + x, v[1], v[2], v[3] + pitch * x, v[4], v[5])
    if axis == 1:
        return (v[0], v[1] + x, v[2], v[3], v[4] + pitch * x, v[5])
    if axis == 5:
        return (v[0], v[1], v[2], v[3], v[4], v[5] + x)
    if axis == 3:
        return (v[0], v[1], v[2], v[3] + x, v[4], v[5])
    return (v[0], v[1], v[2], v[3], v[4] + x, v[5])
