"""Sine, cosine and the angle of a point for the number types of the kernels.

Of a double they are numpy's. Of lanes they are computed for all lanes at once, by polynomials and without a branch
per lane; numbers beyond the polynomials' range, infinities and NaN are left to numpy, lane by lane.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import (
    absolute,
    all_between,
    copy_sign,
    extract,
    implement,
    insert,
    largest,
    where_less,
    width,
)

# --- what kernels call ----------------------------------------------------------------------------------------------


@functools.singledispatch
def sine_cosine(angle: Any) -> tuple[Any, Any]:
    """Sine and cosine of an angle (rad) of type T. Other number types register their own for uncompiled use."""
    return math.sin(angle), math.cos(angle)


@functools.singledispatch
def arc_tangent(y: Any, x: Any) -> Any:
    """Angle (rad) of the point (x, y), both of type T. Other number types register their own for uncompiled use."""
    return math.atan2(y, x)


# `singledispatch` objects are not plain functions, which is what numba resolves: kernels call these.
def sincos(angle: Any) -> tuple[Any, Any]:
    """Sine and cosine of an angle (rad) of type T."""
    return sine_cosine(angle)


def atan2(y: Any, x: Any) -> Any:
    """Angle (rad) of the point (x, y), both of type T."""
    return arc_tangent(y, x)


implement(sincos, lambda angle: (np.sin(angle), np.cos(angle)), lambda angle: _sincos_lanes(angle))
implement(atan2, lambda y, x: np.arctan2(y, x), lambda y, x: _atan2_lanes(y, x))


# --- sine and cosine ------------------------------------------------------------------------------------------------

# pi/2 = HALF_PI_1 + HALF_PI_2 + HALF_PI_3 to 2^-108, in multiples of 2^-26 and of 2^-53, and the rest as a double.
HALF_PI_1 = float.fromhex("0x1.921fb54p+0")
HALF_PI_2 = float.fromhex("0x1.10b4620p-30")
HALF_PI_3 = float.fromhex("-0x1.cb3b399d747f2p-55")
TWO_OVER_PI = 2.0 / math.pi
ROUNDER = 1.5 * 2.0**52  # a sum with it is rounded to an integer, and ends in the bits of this integer
LARGEST_ANGLE = 2.0**26  # rad

# sin r = r + r^3 S(r^2) to 4e-18 relative, cos r = 1 - r^2 / 2 + r^4 C(r^2) to 1e-18, for |r| <= pi/4: minimax.
S0 = -0.16666666666666632
S1 = 0.008333333333322425
S2 = -0.00019841269829817018
S3 = 2.755731369523677e-06
S4 = -2.5050758653528508e-08
S5 = 1.5896827887818586e-10
C0 = 0.0416666666666666
C1 = -0.0013888888888874138
C2 = 2.4801587289491776e-05
C3 = -2.7557314355209453e-07
C4 = 2.0875723678128895e-09
C5 = -1.1359669463222429e-11


@kernel(inline=True)
def _reduce(angle):
    """Number k of quarter turns nearest to an angle, as the sum k + ROUNDER, and the rest in two parts, high and low.

    The rest is angle - k pi/2, and |k| < 2^26. Both of k's first products have at most 53 bits, and both of their
    differences are multiples of 2^-53 below 1: all exact, with and without fused multiply-add. The third product and
    what follows it are wrong by less than 2^-80.
    """
    shifted = angle * TWO_OVER_PI + ROUNDER
    k = shifted - ROUNDER
    near = (angle - k * HALF_PI_1) - k * HALF_PI_2
    high = near - k * HALF_PI_3
    return shifted, high, (near - high) - k * HALF_PI_3


@kernel(inline=True)
def _sincos_octants(r, low):
    """Sine and cosine of r + low, for |r| <= pi/4 and a low part of at most half a last place of r."""
    z = r * r
    h = 1.0 - 0.5 * z
    sine = r + (r * z * (S0 + z * (S1 + z * (S2 + z * (S3 + z * (S4 + z * S5))))) + h * low)
    rest = z * z * (C0 + z * (C1 + z * (C2 + z * (C3 + z * (C4 + z * C5))))) - r * low
    return sine, h + (((1.0 - h) - 0.5 * z) + rest)


@intrinsic
def _turn_quarters(typing_context: Any, shifted: Any, sine: Any, cosine: Any) -> Any:
    """Sine and cosine of k quarter turns more, where `shifted` is k + ROUNDER."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        integers = ir.VectorType(ir.IntType(64), shifted.width)

        def constant(number: int) -> Any:
            return ir.Constant(integers, [number] * shifted.width)

        def negate(value: Any, flag: Any) -> Any:
            """Change the sign where the second-lowest bit of `flag` is set."""
            sign = builder.shl(builder.and_(flag, constant(2)), constant(62))
            return builder.bitcast(builder.xor(builder.bitcast(value, integers), sign), value.type)

        k = builder.bitcast(args[0], integers)
        even = builder.icmp_signed("==", builder.and_(k, constant(1)), constant(0))
        s = builder.select(even, args[1], args[2])
        c = builder.select(even, args[2], args[1])
        turned = [negate(s, k), negate(c, builder.add(k, constant(1)))]
        return context.make_tuple(builder, sig.return_type, turned)

    return types.UniTuple(sine, 2)(shifted, sine, sine), lower


@kernel(inline=True)
def _sincos_lanes(angle):
    """Sine and cosine of lanes.

    They are right to 2^-53 = 1.11e-16, absolute. The last rounding takes a half of it. Of the rest, the sine has 4e-17
    from the roundings of its second term, at most 0.08; the cosine has 3e-17 from that of z, and 1e-17 of its third.
    """
    shifted, r, low = _reduce(angle)
    sine, cosine = _sincos_octants(r, low)
    sine, cosine = _turn_quarters(shifted, sine, cosine)
    if not all_between(angle, -LARGEST_ANGLE, LARGEST_ANGLE):
        sine, cosine = _sincos_beyond(angle, sine, cosine)
    return sine, cosine


@kernel
def _sincos_beyond(angle, sine, cosine):
    """Replace the sine and the cosine of the lanes whose angle is not within LARGEST_ANGLE."""
    for lane in range(width(angle)):
        x = extract(angle, lane)
        if not abs(x) <= LARGEST_ANGLE:
            sine = insert(sine, lane, np.sin(x))
            cosine = insert(cosine, lane, np.cos(x))
    return sine, cosine


# --- angle of a point -----------------------------------------------------------------------------------------------

TAN_EIGHTH_PI = math.sqrt(2.0) - 1.0
SMALLEST_SUM = 2.0**-1000
LARGEST_SUM = 2.0**1000

# atan t = t + t^3 A(t^2) to 3e-18 relative, for |t| <= tan(pi/8): minimax.
A0 = -0.333333333333332
A1 = 0.19999999999954082
A2 = -0.142857142802484
A3 = 0.11111110786131731
A4 = -0.09090897836266766
A5 = 0.0769206163382939
A6 = -0.0666312034639081
A7 = 0.05848008643826097
A8 = -0.050398442903728184
A9 = 0.03807829017203709
A10 = -0.01792224588344411


@kernel(inline=True)
def _atan2_lanes(y, x):
    """Angle of a point of lanes, right to 5e-16 relative.

    With a the larger of |x|, |y| and b the smaller,

        atan(b / a) = atan(b / a)                      b <= tan(pi/8) a
                    = pi/4 + atan((b - a) / (b + a))   otherwise

    and the angle is this one, or the rest to pi/2 if |y| > |x|, then the rest to pi if x < 0, with the sign of y.
    """
    across = absolute(x)
    up = absolute(y)
    a = largest(across, up)
    b = where_less(up, across, up, across)
    # angle = start + atan(above / below)
    limit = TAN_EIGHTH_PI * a
    start = where_less(limit, b, 0.25 * math.pi, 0.0)
    above = where_less(limit, b, b - a, b)
    below = where_less(limit, b, b + a, a)
    start = where_less(across, up, 0.5 * math.pi - start, start)
    above = where_less(across, up, -above, above)
    start = where_less(x, 0.0, math.pi - start, start)
    above = where_less(x, 0.0, -above, above)
    t = above / below
    z = t * t
    tail = A5 + z * (A6 + z * (A7 + z * (A8 + z * (A9 + z * A10))))
    tail = A0 + z * (A1 + z * (A2 + z * (A3 + z * (A4 + z * tail))))
    angle = copy_sign(start + (t + t * z * tail), y)
    if not all_between(a + b, SMALLEST_SUM, LARGEST_SUM):
        angle = _atan2_beyond(y, x, angle)
    return angle


@kernel
def _atan2_beyond(y, x, angle):
    """Replace the angle of the lanes with a point too near or too far, or with infinities or NaN."""
    for lane in range(width(y)):
        v, u = extract(y, lane), extract(x, lane)
        if not SMALLEST_SUM <= abs(v) + abs(u) <= LARGEST_SUM:
            angle = insert(angle, lane, np.arctan2(v, u))
    return angle
