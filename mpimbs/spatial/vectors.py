"""Tuples of numbers as 3-vectors, 3x3 matrices and spatial 6-vectors, and their algebra in compiled kernels.

A 3x3 matrix is a 9-tuple, row by row. A spatial vector is a 6-tuple, angular part first. A frame change from a frame P
to a frame C is (rotation, position): `rotation` takes components in P to components in C, `position` is the origin of C
in P.

A joint's unit axes in its own frame are numbered: 0..2 rotation about x, y, z, 3..5 translation along x, y, z. The
motion subspace column of an axis is s = e_axis, or for a rotation with a pitch (m/rad) s = e_axis + pitch e_(axis+3);
what picks by the number of the axis is written once for every joint type.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import sqrt


@kernel(inline=True)
def add3(a, b):
    """Sum of two 3-vectors."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


@kernel(inline=True)
def sub3(a, b):
    """Difference of two 3-vectors."""
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


@kernel(inline=True)
def scale3(x, a):
    """Number times 3-vector."""
    return (x * a[0], x * a[1], x * a[2])


@kernel(inline=True)
def dot3(a, b):
    """Scalar product of two 3-vectors."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@kernel(inline=True)
def cross(a, b):
    """Vector product a x b."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


@kernel(inline=True)
def rotate(r, v):
    """Matrix times vector, R v: components in the new frame."""
    return (dot3(r[0:3], v), dot3(r[3:6], v), dot3(r[6:9], v))


@kernel(inline=True)
def rotate_back(r, v):
    """Transposed matrix times vector, R^T v: components in the old frame."""
    return (
        r[0] * v[0] + r[3] * v[1] + r[6] * v[2],
        r[1] * v[0] + r[4] * v[1] + r[7] * v[2],
        r[2] * v[0] + r[5] * v[1] + r[8] * v[2],
    )


@kernel(inline=True)
def transpose(a):
    """Transposed 3x3 matrix."""
    return (a[0], a[3], a[6], a[1], a[4], a[7], a[2], a[5], a[8])


@kernel(inline=True)
def multiply(a, b):
    """Product A B of two 3x3 matrices."""
    c = transpose(b)
    return rotate(c, a[0:3]) + rotate(c, a[3:6]) + rotate(c, a[6:9])


@kernel(inline=True)
def turn_z(s, c, r):
    """Rotation Rz(angle)^T R: the frame R turned further about its own z axis by an angle with sine s, cosine c."""
    return (
        c * r[0] + s * r[3],
        c * r[1] + s * r[4],
        c * r[2] + s * r[5],
        c * r[3] - s * r[0],
        c * r[4] - s * r[1],
        c * r[5] - s * r[2],
        r[6],
        r[7],
        r[8],
    )


@kernel(inline=True)
def normalised(q):
    """Quaternion of unit length."""
    f = 1.0 / sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    return (f * q[0], f * q[1], f * q[2], f * q[3])


@kernel(inline=True)
def quaternion_matrix(q):
    """Rotation matrix of a unit quaternion w x y z: body components to components in the frame it is measured in."""
    w, x, y, z = q
    return (
        1.0 - 2.0 * (y * y + z * z),
        2.0 * (x * y - w * z),
        2.0 * (x * z + w * y),
        2.0 * (x * y + w * z),
        1.0 - 2.0 * (x * x + z * z),
        2.0 * (y * z - w * x),
        2.0 * (x * z - w * y),
        2.0 * (y * z + w * x),
        1.0 - 2.0 * (x * x + y * y),
    )


@kernel(inline=True)
def quaternion_product(a, b):
    """Product a b of two quaternions w x y z: the rotation b, then a."""
    return (
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


@kernel(inline=True)
def add6(a, b):
    """Sum of two spatial vectors."""
    return add3(a[0:3], b[0:3]) + add3(a[3:6], b[3:6])


@kernel(inline=True)
def sub6(a, b):
    """Difference of two 6-vectors."""
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3], a[4] - b[4], a[5] - b[5])


@kernel(inline=True)
def scale6(x, a):
    """Number times spatial vector."""
    return scale3(x, a[0:3]) + scale3(x, a[3:6])


@kernel(inline=True)
def dot6(a, b):
    """Scalar product of a motion and a force vector, in either order."""
    return dot3(a[0:3], b[0:3]) + dot3(a[3:6], b[3:6])


@kernel(inline=True)
def motion_outward(r, p, m):
    """Motion vector in the child frame, X m = (R w, R (v - p x w)), of one given in the parent frame."""
    return rotate(r, m[0:3]) + rotate(r, sub3(m[3:6], cross(p, m[0:3])))


@kernel(inline=True)
def motion_inward(r, p, m):
    """Move a twist or spatial acceleration inward: the inverse of `motion_outward`."""
    angular = rotate_back(r, m[0:3])
    return angular + add3(rotate_back(r, m[3:6]), cross(p, angular))


@kernel(inline=True)
def force_inward(r, p, f):
    """Force vector in the parent frame, X^T f = (R^T n + p x R^T f, R^T f), of one given in the child frame."""
    linear = rotate_back(r, f[3:6])
    return add3(rotate_back(r, f[0:3]), cross(p, linear)) + linear


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
