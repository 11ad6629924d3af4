"""The joints that close loops, as the sweeps see them: what each asks of the accelerations of its two bodies.

A loop joint has a frame on each of two bodies, a and b; either may be the world. C, orthonormal [6, m], spans the loads
that it transmits, m = 6 less its degrees of freedom; it is constant in a frame T at the joint on b: b's joint frame, or
of a joint of several steps, the frame behind the first. With A of the bodies' origins (not "spatial" ones),

    C^T (A_b - A_a) = s        E_b = X_b^T C        E_a = - X_a^T C        E_b^T A_b + E_a^T A_a = s

where s is what velocities leave [design, section 12]: with the angular velocity w of a, that of b relative to it, j, of
which j1 turns in the first step, the sliding velocity v of the joint in a, and r, x from the bodies' origins to it,

    s = C^T (w x j + j1 x j2,  w x (w x r) + 2 w x v - w_b x (w_b x x))

A gear is among them, though no joint; see `loops.acceleration_constraints`.
"""

from __future__ import annotations

from math import atan2
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import sqrt
from mpimbs.kernels.memory import Rows
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.spatial.rows import ROW, add_row, columns_of_part, load_columns, scale_row, store_row
from mpimbs.spatial.vectors import (
    add3,
    cross,
    dot3,
    multiply,
    quaternion_matrix,
    rotate,
    rotate_back,
    scale3,
    sub3,
    transpose,
)
from mpimbs.sweep.joint_forces import spring_moment
from mpimbs.sweep.structure import BOUNDARY
from mpimbs.values.value import SIX

# Columns of the rows of loop joints: where the motions of the ends are; how the joint turns (below); its constraints;
# which ends are the world; whether it has a pitch; how many of its freedoms are driven; which geometry it has.
MOTION_A, MOTION_B, TURNS, CONSTRAINTS, WORLD, PITCHED, DRIVEN, GEOMETRY = range(8)
NOT, ABOUT_Z, BALL, ABOUT_X_AND_Y, SLID_ABOUT_Z, GEARED = range(6)
NO_WORLD, WORLD_IS_A, WORLD_IS_B = range(3)
# Numbers of an end: rotation from step components to joint components 9, position in the step's frame 3. Of the first
# end of a gear they begin with f_a, f_b, f.
END_SIZE = 12
# Where in the motion of an end of a gear, which is an item of its own, the coordinate and the speed of the joint are.
GEAR_Q, GEAR_U = 9, 12
# What is written of a joint: E of a and of b, [6, 8]; -s, violations of position and velocity; what drives it on a and
# on b; the energy of its springs (J), the power of what else drives it (W), and angles from rest, turns counted.
CLOSURE = 2 * SIX + 6 * ROW
MINUS_S, POSITION, VELOCITY, DRIVE_A, DRIVE_B, ENERGY = (2 * SIX + k * ROW for k in range(6))
ROOM_OF_A_LANE = 2 * END_SIZE + SIX + 2 * BOUNDARY + CLOSURE
# Numbers of a freedom that is driven: its axis in T, stiffness, damping, torque, rest 1 or 4, which angle; of the three
# of a ball xy, xz, yz of the stiffness. Behind the rest of an angle how far it was from that, turns counted, when last
# looked at (rad): it is taken nearest to it.
DRIVE = 10
AXIS, SPRING, DAMPING, TORQUE, REST, WOUND, ANGLE, CROSS_SPRING = 0, 1, 2, 3, 4, 5, 8, 9
_TWO_PI = 2.0 * np.pi
_TINY = 1e-300  # beside which zero alone counts
_SMALL = 1e-5  # square of a sine whose sixth power is beyond rounding
_UNIT = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


class ClosingJoints(NamedTuple):
    """Loop joints: what is fixed of them, and what an evaluation writes."""

    rows: Rows  # [n, 8]: the columns above
    ends: Floats  # [geometries * 2 * END_SIZE]
    subspaces: Floats  # [geometries * SIX]: C in T, [6, 8]
    pitch: Floats  # [n]: m/rad
    motions: Floats  # [any * BOUNDARY]: of the steps that carry the ends, absolute
    geared: Rows  # [any, 8]: of the ends of gears here, which motion is theirs, and the step of the joint
    drives: Floats  # [n * 6 * DRIVE]: the freedoms of each that are driven
    closures: Floats  # [n * CLOSURE], written
    asked: Floats  # [n * ROW]: what is asked of accelerations beside that they keep loops closed, in terms of C
    root: Floats  # [6]: acceleration of the world, -g
    room: Floats  # [ROOM_OF_A_LANE], of lanes


@kernel(inline=True)
def _about_z(s, c):
    return (c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 1.0)


@kernel(inline=True)
def _about_x(s, c):
    return (1.0, 0.0, 0.0, 0.0, c, -s, 0.0, s, c)


@kernel(inline=True)
def _about_y(s, c):
    return (c, 0.0, s, 0.0, 1.0, 0.0, -s, 0.0, c)


@kernel(inline=True)
def _direction(y, x):
    """Sine and cosine of the angle of a point (x, y); of the origin, of none."""
    size = sqrt(y * y + x * x)
    if size > 0.0:
        return y / size, x / size
    return 0.0, 1.0


@kernel(inline=True)
def turned_by(turns, relative):
    """How b's joint frame is turned in a's by the joint's own angles, which fit it best; T in a's, and T as it is with
    these angles; sines and cosines.

    `relative` takes b's components to a's, as both that are given do.
    """
    none = (0.0, 1.0)
    if turns == NOT:
        return _UNIT, relative, _UNIT, none, none
    if turns == BALL:
        return relative, relative, relative, none, none
    if turns == ABOUT_X_AND_Y:
        first = _direction(relative[7], relative[4])
        about_x = _about_x(first[0], first[1])
        rest = multiply(transpose(about_x), relative)
        second = _direction(rest[2] - rest[6], rest[0] + rest[8])
        return multiply(about_x, _about_y(second[0], second[1])), about_x, about_x, first, second
    first = _direction(relative[3] - relative[1], relative[0] + relative[4])
    turned = _about_z(first[0], first[1])
    if turns == SLID_ABOUT_Z:
        return turned, _UNIT, _UNIT, first, none
    return turned, relative, turned, first, none


@kernel(inline=True)
def rotation_vector_of_matrix(r):
    """Rotation vector (rad) of a rotation matrix, of length a, half a turn at the most; and (a / 2) / tan(a / 2).

    Of small turns sin(a) n is in what of the matrix is not symmetric. Near half a turn nothing is left of it but a
    sign: n n^T is in what is symmetric, and its longest column gives n.
    """
    v = (0.5 * (r[7] - r[5]), 0.5 * (r[2] - r[6]), 0.5 * (r[3] - r[1]))
    square = v[0] * v[0] + v[1] * v[1] + v[2] * v[2]
    cosine = 0.5 * (r[0] + r[4] + r[8] - 1.0)
    if cosine > 0.0:
        if square < _SMALL:  # angle / sine by its series
            ratio = 1.0 + square * (1.0 / 6.0 + square * (3.0 / 40.0))
        else:
            sine = sqrt(square)
            ratio = atan2(sine, cosine) / sine
        return scale3(ratio, v), 0.5 * ratio * (1.0 + cosine)
    # R + R^T - 2 cos(a) = 2 (1 - cos(a)) n n^T
    xx, yy, zz = 2.0 * (r[0] - cosine), 2.0 * (r[4] - cosine), 2.0 * (r[8] - cosine)
    xy, xz, yz = r[1] + r[3], r[2] + r[6], r[5] + r[7]
    if xx >= yy and xx >= zz:
        n = (xx, xy, xz)
    elif yy >= zz:
        n = (xy, yy, yz)
    else:
        n = (xz, yz, zz)
    sine = sqrt(square)
    angle, size = atan2(sine, cosine), sqrt(dot3(n, n))
    if dot3(n, v) < 0.0:
        size = -size
    return scale3(angle / size, n), 0.5 * angle * sine / (1.0 - cosine)


@kernel(inline=True)
def _within_half_a_turn(angle):
    return angle - _TWO_PI * round(angle / _TWO_PI)


@kernel
def _driven(count, drives, pitched, relative, angles, slid, speed, out):
    """Load of what drives a joint's freedoms, in T: springs, dampers, torques; and their energy and power."""
    moment, force = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    turned, pull, half = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 1.0  # of a ball
    energy, power = 0.0, 0.0
    for number in range(count):
        at = number * DRIVE
        axis = int(drives[at + AXIS])
        unit = (1.0 if axis % 3 == 0 else 0.0, 1.0 if axis % 3 == 1 else 0.0, 1.0 if axis % 3 == 2 else 0.0)
        rate = dot3(unit, speed[3:6] if axis >= 3 else speed[0:3])
        if axis >= 3:
            away = dot3(unit, slid) - drives[at + REST]
        elif drives[at + ANGLE] >= 2.0:
            w, v = drives[at + REST], load3(0.0, drives, at + REST + 1)
            rest = quaternion_matrix((w, v[0], v[1], v[2]))
            turned, half = rotation_vector_of_matrix(multiply(transpose(rest), relative))
            away = dot3(unit, turned)
            pull = add3(pull, scale3(drives[at + SPRING] * away, unit))
        else:
            angle = angles[0] if drives[at + ANGLE] == 0.0 else angles[1]
            away = angle - drives[at + REST]
            if not pitched:  # whose displacement tells how often it has turned
                near = drives[at + WOUND]
                away = near + _within_half_a_turn(away - near)
            out[ENERGY + 2 + number] = away
        given = drives[at + TORQUE] - drives[at + DAMPING] * rate
        spring = drives[at + SPRING] * away
        load = given if axis < 3 and drives[at + ANGLE] >= 2.0 else given - spring
        energy += 0.5 * spring * away
        power += given * rate
        if axis >= 3:
            force = add3(force, scale3(load, unit))
        else:
            moment = add3(moment, scale3(load, unit))
    out[ENERGY], out[ENERGY + 1] = energy, power
    if count == 3:
        xy, xz, yz = drives[CROSS_SPRING], drives[DRIVE + CROSS_SPRING], drives[2 * DRIVE + CROSS_SPRING]
        x, y, z = turned
        pull = add3(pull, (xy * y + xz * z, xy * x + yz * z, xz * x + yz * y))
        out[ENERGY] += xy * x * y + xz * x * z + yz * y * z
    return sub3(moment, spring_moment(turned, pull, half)) + force


@kernel(inline=True)
def _weighted(zero, subspace, x, first):
    """C^T x, of the columns from `first` on."""
    low = add_row(
        scale_row(x[0], load_columns(zero, subspace, first)), scale_row(x[1], load_columns(zero, subspace, ROW + first))
    )
    middle = add_row(
        scale_row(x[2], load_columns(zero, subspace, 2 * ROW + first)),
        scale_row(x[3], load_columns(zero, subspace, 3 * ROW + first)),
    )
    high = add_row(
        scale_row(x[4], load_columns(zero, subspace, 4 * ROW + first)),
        scale_row(x[5], load_columns(zero, subspace, 5 * ROW + first)),
    )
    return add_row(add_row(low, middle), high)


@kernel(inline=True)
def _three(zero, r, subspace, at):
    """R times three rows of C."""
    x, y = load_columns(zero, subspace, at), load_columns(zero, subspace, at + ROW)
    z = load_columns(zero, subspace, at + 2 * ROW)
    return (
        add_row(add_row(scale_row(r[0], x), scale_row(r[1], y)), scale_row(r[2], z)),
        add_row(add_row(scale_row(r[3], x), scale_row(r[4], y)), scale_row(r[5], z)),
        add_row(add_row(scale_row(r[6], x), scale_row(r[7], y)), scale_row(r[8], z)),
    )


@kernel(inline=True)
def _write_columns(zero, subspace, r, arm, sign, out, at, first):
    """Write what the loads of C from column `first` on do to a body, [6, 8]: R from T to the body's components, the
    arm from its origin."""
    f, n = _three(zero, r, subspace, 3 * ROW + first), _three(zero, r, subspace, first)
    n0 = add_row(n[0], add_row(scale_row(arm[1], f[2]), scale_row(-arm[2], f[1])))
    n1 = add_row(n[1], add_row(scale_row(arm[2], f[0]), scale_row(-arm[0], f[2])))
    n2 = add_row(n[2], add_row(scale_row(arm[0], f[1]), scale_row(-arm[1], f[0])))
    at += first
    store_row(zero, out, at, scale_row(sign, n0))
    store_row(zero, out, at + ROW, scale_row(sign, n1))
    store_row(zero, out, at + 2 * ROW, scale_row(sign, n2))
    store_row(zero, out, at + 3 * ROW, scale_row(sign, f[0]))
    store_row(zero, out, at + 4 * ROW, scale_row(sign, f[1]))
    store_row(zero, out, at + 5 * ROW, scale_row(sign, f[2]))


@kernel(inline=True)
def _frame_in_a(zero, turns, relative):
    """T in a's joint frame, `turned_by` says of what."""
    if turns in (NOT, SLID_ABOUT_Z):
        one = zero + 1.0
        return (one, zero, zero, zero, one, zero, zero, zero, one)
    if turns == ABOUT_X_AND_Y:
        size = sqrt(relative[7] * relative[7] + relative[4] * relative[4]) + _TINY
        s, c = relative[7] / size, (relative[4] + _TINY) / size
        one = zero + 1.0
        return (one, zero, zero, zero, c, -s, zero, s, c)
    return relative


@kernel(inline=True)
def _seen_from_a(zero, ends, a, b):
    """Of the ends of a loop, given their motions: b's joint frame in a's, b's position and velocity from a's, the
    angular velocities of the bodies, in their joint frames, and what takes the world's components to a's joint frame.

    The position `apart` is in a's joint frame; so are how b turns, `turn`, and slides, `slide`, relative to a.
    """
    to_step_a, to_step_b = load9(zero, a, 0), load9(zero, b, 0)
    to_a, to_b = load9(zero, ends, 0), load9(zero, ends, END_SIZE)  # step to joint components
    at_a, at_b = load3(zero, ends, 9), load3(zero, ends, END_SIZE + 9)
    joint_a, joint_b = multiply(to_a, to_step_a), multiply(to_b, to_step_b)  # from the world's
    relative = multiply(joint_a, transpose(joint_b))
    apart = add3(sub3(load3(zero, b, 9), load3(zero, a, 9)), rotate_back(to_step_b, at_b))
    apart = rotate(joint_a, sub3(apart, rotate_back(to_step_a, at_a)))
    twist_a, twist_b = load6(zero, a, 12), load6(zero, b, 12)
    w, w_b = rotate(to_a, twist_a[0:3]), rotate(to_b, twist_b[0:3])
    turn = sub3(rotate(relative, w_b), w)
    there = rotate_back(to_step_b, add3(twist_b[3:6], cross(twist_b[0:3], at_b)))
    here = rotate_back(to_step_a, add3(twist_a[3:6], cross(twist_a[0:3], at_a)))
    slide = sub3(rotate(joint_a, sub3(there, here)), cross(w, apart))
    return relative, apart, turn, slide, w, w_b, joint_a


@kernel(inline=True)
def close_joint(zero, row, ends, subspace, a, b, root, out):
    """Write what a loop joint asks, [CLOSURE] but for violations, given the motions of its ends [BOUNDARY], absolute;
    -s with what the acceleration of the world does to an end there."""
    relative, apart, turn, slide, w, w_b, joint_a = _seen_from_a(zero, ends, a, b)
    to_a, to_b = load9(zero, ends, 0), load9(zero, ends, END_SIZE)
    t = _frame_in_a(zero, row[TURNS], relative)
    # What velocities leave.
    angular = cross(w, turn)
    if row[TURNS] == ABOUT_X_AND_Y:
        angular = add3(angular, cross((turn[0], zero, zero), turn))
    arm_a = add3(rotate(to_a, load3(zero, ends, 9)), apart)
    arm_b = rotate(to_b, load3(zero, ends, END_SIZE + 9))
    linear = add3(cross(w, cross(w, arm_a)), scale3(2.0, cross(w, slide)))
    linear = sub3(linear, rotate(relative, cross(w_b, cross(w_b, arm_b))))
    if row[WORLD] != NO_WORLD:
        sign = 1.0 if row[WORLD] == WORLD_IS_A else -1.0
        linear = add3(linear, scale3(sign, rotate(joint_a, load3(0.0, root, 3))))
    leaves = rotate_back(t, angular) + rotate_back(t, linear)
    from_t_to_a, from_t_to_b = multiply(transpose(to_a), t), multiply(transpose(to_b), multiply(transpose(relative), t))
    arm_a, arm_b = rotate_back(to_a, arm_a), rotate_back(to_b, arm_b)
    for first in range(0, row[CONSTRAINTS], columns_of_part(zero)):
        _write_columns(zero, subspace, from_t_to_a, arm_a, -1.0, out, 0, first)
        _write_columns(zero, subspace, from_t_to_b, arm_b, 1.0, out, SIX, first)
        store_row(zero, out, MINUS_S + first, scale_row(-1.0, _weighted(zero, subspace, leaves, first)))


@kernel
def measure_joint(row, ends, subspace, pitch, drives, a, b, out):
    """Write how far a loop joint is from closed, and what drives it, given the motions of its ends."""
    relative, apart, turn, slide, _, _, _ = _seen_from_a(0.0, ends, a, b)
    turned, t, fitted, first, second = turned_by(row[TURNS], relative)
    angle = 0.0
    if row[PITCHED] or row[DRIVEN]:
        angle = atan2(first[0], first[1])
    error, _ = rotation_vector_of_matrix(multiply(relative, transpose(turned)))
    if row[PITCHED]:
        angle += _TWO_PI * round((apart[2] / pitch - angle) / _TWO_PI)
        shift = (0.0, 0.0, pitch * angle)
    else:
        shift = (0.0, 0.0, 0.0)
    violation = rotate_back(fitted, error) + rotate_back(fitted, sub3(apart, shift))
    speed = rotate_back(t, turn) + rotate_back(t, slide)
    if row[DRIVEN] > 0:
        to_a, to_b = load9(0.0, ends, 0), load9(0.0, ends, END_SIZE)
        arm_a = add3(rotate(to_a, load3(0.0, ends, 9)), apart)
        arm_b = rotate(to_b, load3(0.0, ends, END_SIZE + 9))
        slid = rotate_back(t, apart)
        driven = _driven(
            row[DRIVEN], drives, row[PITCHED] != 0, relative, (angle, atan2(second[0], second[1])), slid, speed, out
        )
        moment, force = rotate(t, driven[0:3]), rotate(t, driven[3:6])
        n, f = rotate_back(to_a, add3(moment, cross(arm_a, force))), rotate_back(to_a, force)
        store_numbers(0.0, out, DRIVE_A, scale3(-1.0, n) + scale3(-1.0, f))
        moment, force = rotate_back(relative, moment), rotate_back(relative, force)
        n, f = rotate_back(to_b, add3(moment, cross(arm_b, force))), rotate_back(to_b, force)
        store_numbers(0.0, out, DRIVE_B, n + f)
    store_row(0.0, out, POSITION, _weighted(0.0, subspace, violation, 0))
    store_row(0.0, out, VELOCITY, _weighted(0.0, subspace, speed, 0))
