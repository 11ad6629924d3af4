"""Rigid-body and articulated-body inertias as tuples, and what the sweeps do with them.

A spatial inertia about a frame's origin is a 21-tuple: the upper triangle, row by row, of the symmetric 6x6 matrix
[[A, B], [B^T, C]], A (3x3) the rotational part, B the coupling, C the mass part. A rigid body is given by ten numbers,
in its frame: A (00 01 02 11 12 22, kg m^2, about the origin), h = m c (kg m), m (kg).
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.spatial.vectors import add3, cross, dot6, rotate_back, scale3, sub3

#   index of (row, column) in the 21-tuple
#    0  1  2 |  3  4  5
#       6  7 |  8  9 10
#         11 | 12 13 14
#            | 15 16 17
#            |    18 19
#            |       20


@kernel(inline=True)
def symmetric_times(a, w):
    """Symmetric 3x3 matrix (00 01 02 11 12 22) times 3-vector."""
    return (
        a[0] * w[0] + a[1] * w[1] + a[2] * w[2],
        a[1] * w[0] + a[3] * w[1] + a[4] * w[2],
        a[2] * w[0] + a[4] * w[1] + a[5] * w[2],
    )


@kernel(inline=True)
def momentum(a, h, m, v):
    """Momentum I v about the frame's origin of a rigid body with the twist v: (A w + h x v, m v - h x w)."""
    w = v[0:3]
    u = v[3:6]
    return add3(symmetric_times(a, w), cross(h, u)) + sub3(scale3(m, u), cross(h, w))


@kernel(inline=True)
def add_body(i, a, h, m):
    """Articulated inertia plus that of a rigid body."""
    return (
        (i[0] + a[0], i[1] + a[1], i[2] + a[2], i[3], i[4] - h[2], i[5] + h[1])
        + (i[6] + a[3], i[7] + a[4], i[8] + h[2], i[9], i[10] - h[0])
        + (i[11] + a[5], i[12] - h[1], i[13] + h[0], i[14])
        + (i[15] + m, i[16], i[17], i[18] + m, i[19], i[20] + m)
    )


@kernel(inline=True)
def row(i, axis):
    """Row (and column) of a symmetric 6x6 matrix."""
    if axis == 2:
        return (i[2], i[7], i[11], i[12], i[13], i[14])
    if axis == 0:
        return (i[0], i[1], i[2], i[3], i[4], i[5])
    if axis == 1:
        return (i[1], i[6], i[7], i[8], i[9], i[10])
    if axis == 5:
        return (i[5], i[10], i[14], i[17], i[19], i[20])
    if axis == 3:
        return (i[3], i[8], i[12], i[15], i[16], i[17])
    return (i[4], i[9], i[13], i[16], i[18], i[19])


@kernel(inline=True)
def apply(i, v):
    """Symmetric 6x6 matrix times spatial vector."""
    return (
        dot6(i[0:6], v),
        dot6((i[1], i[6], i[7], i[8], i[9], i[10]), v),
        dot6((i[2], i[7], i[11], i[12], i[13], i[14]), v),
        dot6((i[3], i[8], i[12], i[15], i[16], i[17]), v),
        dot6((i[4], i[9], i[13], i[16], i[18], i[19]), v),
        dot6((i[5], i[10], i[14], i[17], i[19], i[20]), v),
    )


@kernel(inline=True)
def add_outer(i, x, s):
    """Symmetric 6x6 matrix plus x s s^T."""
    a, b, c, d, e, f = x * s[0], x * s[1], x * s[2], x * s[3], x * s[4], x * s[5]
    return (
        i[0] + a * s[0],
        i[1] + a * s[1],
        i[2] + a * s[2],
        i[3] + a * s[3],
        i[4] + a * s[4],
        i[5] + a * s[5],
        i[6] + b * s[1],
        i[7] + b * s[2],
        i[8] + b * s[3],
        i[9] + b * s[4],
        i[10] + b * s[5],
        i[11] + c * s[2],
        i[12] + c * s[3],
        i[13] + c * s[4],
        i[14] + c * s[5],
        i[15] + d * s[3],
        i[16] + d * s[4],
        i[17] + d * s[5],
        i[18] + e * s[4],
        i[19] + e * s[5],
        i[20] + f * s[5],
    )


@kernel(inline=True)
def add_symmetric(i, j):
    """Sum of two symmetric 6x6 matrices."""
    return (
        (i[0] + j[0], i[1] + j[1], i[2] + j[2], i[3] + j[3], i[4] + j[4], i[5] + j[5], i[6] + j[6])
        + (i[7] + j[7], i[8] + j[8], i[9] + j[9], i[10] + j[10], i[11] + j[11], i[12] + j[12], i[13] + j[13])
        + (i[14] + j[14], i[15] + j[15], i[16] + j[16], i[17] + j[17], i[18] + j[18], i[19] + j[19], i[20] + j[20])
    )


@kernel(inline=True)
def _rotate_symmetric(r, a):
    """R^T A R of a symmetric 3x3 matrix (00 01 02 11 12 22)."""
    # columns of A R, row by row: T = A R
    t0 = rotate_back(r, (a[0], a[1], a[2]))
    t1 = rotate_back(r, (a[1], a[3], a[4]))
    t2 = rotate_back(r, (a[2], a[4], a[5]))
    return (
        r[0] * t0[0] + r[3] * t1[0] + r[6] * t2[0],
        r[0] * t0[1] + r[3] * t1[1] + r[6] * t2[1],
        r[0] * t0[2] + r[3] * t1[2] + r[6] * t2[2],
        r[1] * t0[1] + r[4] * t1[1] + r[7] * t2[1],
        r[1] * t0[2] + r[4] * t1[2] + r[7] * t2[2],
        r[2] * t0[2] + r[5] * t1[2] + r[8] * t2[2],
    )


@kernel(inline=True)
def _combine(x, a, y, b):
    """Combination x a + y b of two 3-vectors."""
    return (x * a[0] + y * b[0], x * a[1] + y * b[1], x * a[2] + y * b[2])


@kernel(inline=True)
def _rotate_corner(r, a00, a01, a11):
    """R^T A R of a symmetric 3x3 matrix whose row and column 2 vanish."""
    t0 = _combine(a00, r[0:3], a01, r[3:6])
    t1 = _combine(a01, r[0:3], a11, r[3:6])
    return (
        r[0] * t0[0] + r[3] * t1[0],
        r[0] * t0[1] + r[3] * t1[1],
        r[0] * t0[2] + r[3] * t1[2],
        r[1] * t0[1] + r[4] * t1[1],
        r[1] * t0[2] + r[4] * t1[2],
        r[2] * t0[2] + r[5] * t1[2],
    )


@kernel(inline=True)
def _rotate_two_rows(r, b0, b1):
    """R^T B R, by its rows, of a 3x3 matrix whose row 2 vanishes."""
    t0 = rotate_back(r, b0)
    t1 = rotate_back(r, b1)
    return _combine(r[0], t0, r[3], t1), _combine(r[1], t0, r[4], t1), _combine(r[2], t0, r[5], t1)


@kernel(inline=True)
def _shift(p, a, b0, b1, b2, c):
    """Inertia about the parent's origin of one about the child's, turned already: A and C as six numbers, B by rows."""
    # with P = [p]x:  B' = B + P C,   A' = A + P B^T - B' P
    k0 = cross(p, (c[0], c[1], c[2]))
    k1 = cross(p, (c[1], c[3], c[4]))
    k2 = cross(p, (c[2], c[4], c[5]))
    d0 = (b0[0] + k0[0], b0[1] + k1[0], b0[2] + k2[0])
    d1 = (b1[0] + k0[1], b1[1] + k1[1], b1[2] + k2[1])
    d2 = (b2[0] + k0[2], b2[1] + k1[2], b2[2] + k2[2])
    # columns of P B^T are p x (rows of B); rows of -B' P are p x (rows of B')
    e0 = cross(p, b0)
    e1 = cross(p, b1)
    e2 = cross(p, b2)
    f0 = cross(p, d0)
    f1 = cross(p, d1)
    f2 = cross(p, d2)
    return (
        (a[0] + e0[0] + f0[0], a[1] + e1[0] + f0[1], a[2] + e2[0] + f0[2], d0[0], d0[1], d0[2])
        + (a[3] + e1[1] + f1[1], a[4] + e2[1] + f1[2], d1[0], d1[1], d1[2])
        + (a[5] + e2[2] + f2[2], d2[0], d2[1], d2[2])
        + c
    )


@kernel(inline=True)
def inertia_inward(r, p, i):
    """Inertia X^T I X about the parent frame's origin, of one about the child frame's: a rotation, then a shift."""
    a = _rotate_symmetric(r, (i[0], i[1], i[2], i[6], i[7], i[11]))
    b0, b1, b2 = _rotate_two_rows(r, (i[3], i[4], i[5]), (i[8], i[9], i[10]))
    t2 = rotate_back(r, (i[12], i[13], i[14]))
    b0 = add3(b0, scale3(r[6], t2))
    b1 = add3(b1, scale3(r[7], t2))
    b2 = add3(b2, scale3(r[8], t2))
    return _shift(p, a, b0, b1, b2, _rotate_symmetric(r, i[15:21]))


@kernel(inline=True)
def rigid_turned(r, a, h):
    """A and h of a rigid body, turned back by a frame change."""
    return _rotate_symmetric(r, a), rotate_back(r, h)


@kernel(inline=True)
def rigid_shifted(p, a, h, m):
    """Ten numbers of a rigid body about another point, at -p."""
    # A' = A + 2 (h.p) 1 - h p^T - p h^T + m (p.p 1 - p p^T) = A + (h.p + k.p) 1 - sym,  k = h + m p
    k = add3(h, scale3(m, p))
    x, y, z = h[0] * p[0] + k[0] * p[0], h[1] * p[1] + k[1] * p[1], h[2] * p[2] + k[2] * p[2]
    return (
        (a[0] + y + z, a[1] - h[0] * p[1] - p[0] * k[1], a[2] - h[0] * p[2] - p[0] * k[2])
        + (a[3] + x + z, a[4] - h[1] * p[2] - p[1] * k[2], a[5] + x + y)
        + k
        + (m,)
    )


@kernel(inline=True)
def rigid_inward(r, p, a, h, m):
    """`inertia_inward` of a rigid body, or of several that hang together: ten numbers."""
    a, h = rigid_turned(r, a, h)
    return rigid_shifted(p, a, h, m)


# What an elimination leaves has zeros where the axis was: half of the work above after the commonest joints.


@kernel(inline=True)
def inertia_inward_from_hinge(r, p, i):
    """`inertia_inward` where the row and column of the rotation about z vanish, as a hinge leaves them."""
    a = _rotate_corner(r, i[0], i[1], i[6])
    b0, b1, b2 = _rotate_two_rows(r, (i[3], i[4], i[5]), (i[8], i[9], i[10]))
    return _shift(p, a, b0, b1, b2, _rotate_symmetric(r, i[15:21]))


@kernel(inline=True)
def inertia_inward_from_ball(r, p, i):
    """`inertia_inward` where all but the mass part C vanishes, as a joint that frees all rotations leaves it."""
    c = _rotate_symmetric(r, i[15:21])
    # with P = [p]x:  B' = P C,   A' = -B' P
    k0 = cross(p, (c[0], c[1], c[2]))
    k1 = cross(p, (c[1], c[3], c[4]))
    k2 = cross(p, (c[2], c[4], c[5]))
    f0 = cross(p, (k0[0], k1[0], k2[0]))
    f1 = cross(p, (k0[1], k1[1], k2[1]))
    f2 = cross(p, (k0[2], k1[2], k2[2]))
    return (
        (f0[0], f0[1], f0[2], k0[0], k1[0], k2[0])
        + (f1[1], f1[2], k0[1], k1[1], k2[1])
        + (f2[2], k0[2], k1[2], k2[2])
        + c
    )


@kernel(inline=True)
def add_applied_from_hinge(f, i, v):
    """Force vector f + I v, where the row and column of the rotation about z vanish."""
    w = (v[0], v[1], v[3], v[4], v[5])
    return (
        f[0] + _dot5((i[0], i[1], i[3], i[4], i[5]), w),
        f[1] + _dot5((i[1], i[6], i[8], i[9], i[10]), w),
        f[2],
        f[3] + _dot5((i[3], i[8], i[15], i[16], i[17]), w),
        f[4] + _dot5((i[4], i[9], i[16], i[18], i[19]), w),
        f[5] + _dot5((i[5], i[10], i[17], i[19], i[20]), w),
    )


@kernel(inline=True)
def add_applied_from_ball(f, i, v):
    """Force vector f + I v, where all but the mass part C vanishes."""
    return f[0:3] + add3(f[3:6], symmetric_times(i[15:21], v[3:6]))


@kernel(inline=True)
def _dot5(a, b):
    return a[0] * b[0] + a[1] * b[1] + (a[2] * b[2] + a[3] * b[3] + a[4] * b[4])
