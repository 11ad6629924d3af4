"""The joints that close loops, as the sweeps see them: what each asks of the accelerations of its two bodies.

A loop joint has a frame on each of two bodies, a and b; either may be the world. C, orthonormal [6, m], spans the loads
that it transmits, m = 6 less its degrees of freedom; it is constant in a frame T at the joint on b: b's joint frame, or
of a joint of several steps, the frame behind the first. With A of the bodies' origins (not "spatial" ones),

    C^T (A_b - A_a) = s        E_b = X_b^T C        E_a = - X_a^T C        E_b^T A_b + E_a^T A_a = s

where s is what velocities leave [design, section 12]: with the angular velocity w of a, that of b relative to it, j, of
which j1 turns in the first step, the sliding velocity v of the joint in a, and r, x from the bodies' origins to it,

    s = C^T (w x j + j1 x j2,  w x (w x r) + 2 w x v - w_b x (w_b x x))
"""

from __future__ import annotations

from math import atan2, cos, sin, sqrt
from typing import NamedTuple

import numpy as np

from mpimbs.spatial.columns import SIX
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import Floats, Rows
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.tuples import load3, load6, load9, store_numbers
from mpimbs.spatial.vectors import (
    add3,
    cross,
    dot3,
    dot6,
    multiply,
    quaternion_matrix,
    rotate,
    rotate_back,
    scale3,
    sub3,
    transpose,
)
from mpimbs.sweep.structure import BIAS, BOUNDARY

# Columns of the rows of loop joints: where the motions of the ends are; how the joint turns (below); its constraints;
# which ends are the world; whether it has a pitch; how many of its freedoms are driven.
MOTION_A, MOTION_B, TURNS, CONSTRAINTS, WORLD, PITCHED, DRIVEN = range(7)
NOT, ABOUT_Z, BALL, ABOUT_X_AND_Y, SLID_ABOUT_Z = range(5)
NO_WORLD, WORLD_IS_A, WORLD_IS_B = range(3)
END_SIZE = 12  # numbers of an end: rotation from step components to joint components 9, position in the step's frame 3
# What is written of a joint: E of a and of b, [6, 8]; -s, violations of position and velocity, C^T root; what drives it
# on a and on b; the energy of its springs (J), and the power of what else drives it (W).
CLOSURE = 2 * SIX + 7 * ROW
MINUS_S, POSITION, VELOCITY, ROOT, DRIVE_A, DRIVE_B, ENERGY = (2 * SIX + k * ROW for k in range(7))
DRIVE = 9  # numbers of a freedom that is driven: its axis in T, stiffness, damping, torque, rest 1 or 4, which angle
AXIS, SPRING, DAMPING, TORQUE, REST, ANGLE = 0, 1, 2, 3, 4, 8
_TWO_PI = 2.0 * np.pi
_E_X = (1.0, 0.0, 0.0)
_UNIT = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


class ClosingJoints(NamedTuple):
    """What is fixed of some loop joints, and what an evaluation writes of them."""

    rows: Rows  # [n, 8]: the columns above
    ends: Floats  # [n * 2 * END_SIZE]
    subspaces: Floats  # [n * SIX]: rows of C^T in T
    pitch: Floats  # [n]: m/rad
    motions: Floats  # [any * BOUNDARY]: of the steps that carry the ends, absolute
    drives: Floats  # [n * 6 * DRIVE]: the freedoms of each that are driven
    closures: Floats  # [n * CLOSURE], written
    root: Floats  # [6]: acceleration of the world, -g


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
def turned_by(turns, relative):
    """How b's joint frame is turned in a's by the joint's own angles, which fit it best; T in a's; and the angles.

    `relative` takes b's components to a's, as both that are given do.
    """
    if turns == NOT:
        return _UNIT, relative, 0.0, 0.0
    if turns == BALL:
        return relative, relative, 0.0, 0.0
    if turns == ABOUT_X_AND_Y:
        first = atan2(relative[7], relative[4])
        about_x = _about_x(sin(first), cos(first))
        rest = multiply(transpose(about_x), relative)
        second = atan2(rest[2] - rest[6], rest[0] + rest[8])
        return multiply(about_x, _about_y(sin(second), cos(second))), about_x, first, second
    angle = atan2(relative[3] - relative[1], relative[0] + relative[4])
    turned = _about_z(sin(angle), cos(angle))
    if turns == SLID_ABOUT_Z:
        return turned, _UNIT, angle, 0.0
    return turned, relative, angle, 0.0


@kernel(inline=True)
def rotation_vector(r):
    """Rotation vector (rad) of a rotation matrix; of half a turn no direction is left."""
    v = (0.5 * (r[7] - r[5]), 0.5 * (r[2] - r[6]), 0.5 * (r[3] - r[1]))
    sine = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2])
    cosine = 0.5 * (r[0] + r[4] + r[8] - 1.0)
    factor = atan2(sine, cosine) / sine if sine > 1e-9 else 1.0
    return scale3(factor, v)


@kernel(inline=True)
def _within_half_a_turn(angle):
    return angle - _TWO_PI * round(angle / _TWO_PI)


@kernel
def _driven(count, drives, pitched, relative, angles, slid, speed, out):
    """Load of what drives a joint's freedoms, in T: springs, dampers, torques; and their energy and power."""
    moment, force = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
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
            away = dot3(unit, rotation_vector(multiply(transpose(rest), relative)))
        else:
            angle = angles[0] if drives[at + ANGLE] == 0.0 else angles[1]
            away = angle - drives[at + REST]
            if not pitched:  # whose displacement tells how often it has turned
                away = _within_half_a_turn(away)
        given = drives[at + TORQUE] - drives[at + DAMPING] * rate
        load = given - drives[at + SPRING] * away
        energy += 0.5 * drives[at + SPRING] * away * away
        power += given * rate
        if axis >= 3:
            force = add3(force, scale3(load, unit))
        else:
            moment = add3(moment, scale3(load, unit))
    out[ENERGY], out[ENERGY + 1] = energy, power
    return moment + force


@kernel
def close_joint(row, ends, subspace, pitch, drives, a, b, root, out):
    """Write what a loop joint asks, [CLOSURE], given the motions of its ends [BOUNDARY], absolute."""
    to_step_a, to_step_b = load9(0.0, a, 0), load9(0.0, b, 0)
    to_a, to_b = load9(0.0, ends, 0), load9(0.0, ends, END_SIZE)  # step to joint components
    at_a, at_b = load3(0.0, ends, 9), load3(0.0, ends, END_SIZE + 9)
    joint_a, joint_b = multiply(to_a, to_step_a), multiply(to_b, to_step_b)  # from the world's
    relative = multiply(joint_a, transpose(joint_b))
    apart = add3(sub3(load3(0.0, b, 9), load3(0.0, a, 9)), rotate_back(to_step_b, at_b))
    apart = rotate(joint_a, sub3(apart, rotate_back(to_step_a, at_a)))
    # Velocities, in a's joint frame.
    twist_a, twist_b = load6(0.0, a, 12), load6(0.0, b, 12)
    w = rotate(to_a, twist_a[0:3])
    w_b = rotate(to_b, twist_b[0:3])
    turn = sub3(rotate(relative, w_b), w)
    there = rotate_back(to_step_b, add3(twist_b[3:6], cross(twist_b[0:3], at_b)))
    here = rotate_back(to_step_a, add3(twist_a[3:6], cross(twist_a[0:3], at_a)))
    slide = sub3(rotate(joint_a, sub3(there, here)), cross(w, apart))
    turned, t, angle, second = turned_by(row[TURNS], relative)
    error = rotation_vector(multiply(relative, transpose(turned)))
    if row[PITCHED]:
        angle += _TWO_PI * round((apart[2] / pitch - angle) / _TWO_PI)
        shift = (0.0, 0.0, pitch * angle)
    else:
        shift = (0.0, 0.0, 0.0)
    # What velocities leave.
    angular = cross(w, turn)
    if row[TURNS] == ABOUT_X_AND_Y:
        angular = add3(angular, cross(scale3(turn[0], _E_X), turn))
    arm_a, arm_b = add3(rotate(to_a, at_a), apart), rotate(to_b, at_b)
    linear = add3(cross(w, cross(w, arm_a)), scale3(2.0, cross(w, slide)))
    linear = sub3(linear, rotate(relative, cross(w_b, cross(w_b, arm_b))))
    leaves = rotate_back(t, angular) + rotate_back(t, linear)
    violation = rotate_back(t, error) + rotate_back(t, sub3(apart, shift))
    speed = rotate_back(t, turn) + rotate_back(t, slide)
    weight = rotate(joint_a, load3(0.0, root, 3))
    weight = (0.0, 0.0, 0.0) + rotate_back(t, weight)
    sign = 1.0 if row[WORLD] == WORLD_IS_B else (-1.0 if row[WORLD] == WORLD_IS_A else 0.0)
    from_t_to_b = multiply(transpose(relative), t)
    if row[DRIVEN] > 0:
        slid = rotate_back(t, apart)
        driven = _driven(row[DRIVEN], drives, row[PITCHED] != 0, relative, (angle, second), slid, speed, out)
        moment, force = rotate(t, driven[0:3]), rotate(t, driven[3:6])
        n, f = rotate_back(to_a, add3(moment, cross(arm_a, force))), rotate_back(to_a, force)
        store_numbers(0.0, out, DRIVE_A, scale3(-1.0, n) + scale3(-1.0, f))
        moment, force = rotate(from_t_to_b, driven[0:3]), rotate(from_t_to_b, driven[3:6])
        n, f = rotate_back(to_b, add3(moment, cross(arm_b, force))), rotate_back(to_b, force)
        store_numbers(0.0, out, DRIVE_B, n + f)
    for k in range(row[CONSTRAINTS]):
        c = load6(0.0, subspace, k * ROW)
        moment, force = rotate(t, c[0:3]), rotate(t, c[3:6])
        n, f = rotate_back(to_a, add3(moment, cross(arm_a, force))), rotate_back(to_a, force)
        column = n + f
        for i in range(6):
            out[i * ROW + k] = -column[i]
        moment, force = rotate(from_t_to_b, c[0:3]), rotate(from_t_to_b, c[3:6])
        n, f = rotate_back(to_b, add3(moment, cross(arm_b, force))), rotate_back(to_b, force)
        column = n + f
        for i in range(6):
            out[SIX + i * ROW + k] = column[i]
        out[MINUS_S + k] = -dot6(c, leaves)
        out[POSITION + k] = dot6(c, violation)
        out[VELOCITY + k] = dot6(c, speed)
        out[ROOT + k] = sign * dot6(c, weight)


@kernel
def close_joints(loops):
    """Write what all loop joints ask, given the motions of their ends."""
    for number in range(loops.rows.shape[0]):
        row = loops.rows[number]
        a = loops.motions[row[MOTION_A] * BOUNDARY : (row[MOTION_A] + 1) * BOUNDARY]
        b = loops.motions[row[MOTION_B] * BOUNDARY : (row[MOTION_B] + 1) * BOUNDARY]
        ends = loops.ends[number * 2 * END_SIZE : (number + 1) * 2 * END_SIZE]
        subspace = loops.subspaces[number * SIX : (number + 1) * SIX]
        out = loops.closures[number * CLOSURE : (number + 1) * CLOSURE]
        drives = loops.drives[number * 6 * DRIVE : (number + 1) * 6 * DRIVE]
        close_joint(row, ends, subspace, loops.pitch[number], drives, a, b, loops.root, out)


@kernel
def drive_joints(loops, bias):
    """Add what drives the loop joints to the loads of the velocity terms [m * BIAS]."""
    for number in range(loops.rows.shape[0]):
        row = loops.rows[number]
        if row[DRIVEN] > 0:
            for end in range(2):
                step = row[MOTION_A + end]
                if step < bias.size // BIAS:
                    for i in range(6):
                        bias[step * BIAS + 6 + i] -= loops.closures[number * CLOSURE + DRIVE_A + ROW * end + i]
