"""The passes of the divide and conquer over single bodies: each a leaf of a halving, in the acceleration form.

Kinematics are the sweeps' own (`sweep.motion`). The nodes of a halving are blocks of `spatial.assembly`: the leaves in
the order of the bodies, then the joins in the order in which they are made.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.spatial.assembly import (
    AXES,
    BLOCK,
    CROSS,
    FAR,
    JOINT,
    NEAR,
    RECORD,
    ROTOR,
    assemble,
    far_acceleration,
    inverse_six,
    release,
    spread,
)
from mpimbs.spatial.axes import add_along
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import INERTIA, item
from mpimbs.spatial.memory import Floats, Integers, Rows
from mpimbs.spatial.rows import ROW, add_row, eight_rows, scale_row, store_symmetric, transposed_rows
from mpimbs.spatial.six import EXTRA, six_rows, sums, write_six
from mpimbs.spatial.tuples import load3, load6, load9, store_numbers
from mpimbs.spatial.vectors import add6, motion_inward
from mpimbs.sweep.added import add_inertia
from mpimbs.sweep.motion import chain_frame_change
from mpimbs.sweep.structure import BIAS, BODY, FIRST_U, LAST_U, PLACE

# Columns of the joins.
LEFT, RIGHT, BEGIN, MIDDLE, END = range(5)
INVERSE = 6 * ROW  # numbers of a body's inverse inertia
LEAF_SCRATCH = 8 * ROW


class Halving(NamedTuple):
    """The arrays of a halving over m bodies: without owners (`spatial.memory`), since numba counts what is sliced."""

    joins: Rows  # [m - 1, 8]: nodes of left and right, first body, first body of the right, body after the last
    last_step: Integers  # [m]: the step that carries each body
    inverses: Floats  # [different bodies * INVERSE]: inverse inertia, in the frame of the step
    nodes: Floats  # [(2 m - 1) * BLOCK], written: blocks
    joints: Floats  # [m * JOINT], written: the inboard joint of each body
    records: Floats  # [m * RECORD], written: what `release` kept, of the joint at each body
    loads: Floats  # [(m + 1) * 6], written: the load that each body receives through its joint; last, minus f2
    total: Floats  # [nu], written: joint forces
    scratch: Floats  # [LEAF_SCRATCH]
    world: Floats  # [BLOCK]: zeros, but for the acceleration of what the first body hangs on, in place of b2


@kernel(inline=True)
def _moved_inward(r, p, rows):
    """Motion vectors, the columns of six rows, moved inward."""
    a = (rows[0], rows[1], rows[2])
    b = (rows[3], rows[4], rows[5])
    a = (_mixed(r[0], r[3], r[6], a), _mixed(r[1], r[4], r[7], a), _mixed(r[2], r[5], r[8], a))
    b = (_mixed(r[0], r[3], r[6], b), _mixed(r[1], r[4], r[7], b), _mixed(r[2], r[5], r[8], b))
    # p x a
    return a + (
        add_row(b[0], add_row(scale_row(p[1], a[2]), scale_row(-p[2], a[1]))),
        add_row(b[1], add_row(scale_row(p[2], a[0]), scale_row(-p[0], a[2]))),
        add_row(b[2], add_row(scale_row(p[0], a[1]), scale_row(-p[1], a[0]))),
    )


@kernel(inline=True)
def _mixed(x, y, z, rows):
    return add_row(add_row(scale_row(x, rows[0]), scale_row(y, rows[1])), scale_row(z, rows[2]))


@kernel
def joint_between(zero, structure, work, total, first, last, joint):
    """Write the joint of a body, whose steps are `first` to `last`, in the frame of the body before.

    Returns rotation and position of the body's frame in that of the body before.
    """
    rotation = load9(zero, work.place, first * PLACE)
    position = load3(zero, work.place, first * PLACE + 9)
    c = motion_inward(rotation, position, load6(zero, work.bias, first * BIAS))
    axis = AXES
    for step in range(first, last + 1):
        if step > first:
            r = load9(zero, work.place, step * PLACE)
            p = load3(zero, work.place, step * PLACE + 9)
            rotation, position = chain_frame_change(rotation, position, r, p)
            c = add6(c, motion_inward(rotation, position, load6(zero, work.bias, step * BIAS)))
        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
            unit = add_along((zero, zero, zero, zero, zero, zero), structure.axes[d], structure.pitch[d], zero + 1.0)
            store_numbers(zero, joint, axis, motion_inward(rotation, position, unit))
            joint[axis + EXTRA] = total[d]
            if structure.armature.size > 0:
                joint[axis + ROTOR] = structure.armature[d]
            axis += ROW
    store_numbers(zero, joint, 0, c)
    return rotation, position


@kernel
def leaf(rotation, position, inverse, force, block):
    """Write the equations of one body [Critchley 2007, eq. 12-14].

    Parameters
    ----------
    rotation, position
        Of the body's frame in that of the body before.
    inverse : six rows
        Inverse inertia in the body's frame, and zeros beside it.
    force : array [6]
        Its bias force, velocity terms less external loads (N m, N).
    block : array [BLOCK]
        Written.
    """
    # b2 = - I^-1 p
    for i in range(6):
        block[i] = -force[i]
    write_six(block, FAR, inverse)
    for i in range(6):
        b = block[FAR + i * ROW] * block[0]
        for k in range(1, 6):
            b += block[FAR + i * ROW + k] * block[k]
        block[FAR + i * ROW + EXTRA] = b
    # P12 = X^-1 I^-1,  P11 = X^-1 P12^T
    moved = _moved_inward(rotation, position, six_rows(block, FAR))
    write_six(block, CROSS, moved)
    across = transposed_rows(eight_rows(moved))
    near = _moved_inward(rotation, position, (across[0], across[1], across[2], across[3], across[4], across[5]))
    write_six(block, NEAR, near)
    for i in range(6):
        at = i * ROW + EXTRA
        block[NEAR + at] = block[CROSS + at]
        block[CROSS + at] = 0.0


@kernel
def _body(zero, structure, work, halving, body, terminal):
    """Write one leaf; the last body's inertia with that of all that hangs on it [Critchley 2007, eq. 50-52]."""
    first = halving.last_step[body - 1] + 1 if body > 0 else 0
    last = halving.last_step[body]
    rotation, position = joint_between(
        zero, structure, work, halving.total, first, last, item(halving.joints, body, JOINT)
    )
    kind = structure.steps[last, BODY]
    inverse = six_rows(halving.inverses, kind * INVERSE)
    force = item(halving.scratch, 6, ROW)
    for i in range(6):
        force[i] = work.bias[last * BIAS + 6 + i]
    if terminal.size > 0 and body + 1 == halving.last_step.shape[0]:
        for i in range(6):
            force[i] += terminal[INERTIA + i * ROW + EXTRA]
        none = (zero, zero, zero, zero, zero, zero)
        inertia = add_inertia(zero, structure, last, none + none + none + (zero, zero, zero))
        store_symmetric(zero, halving.scratch, 0, inertia)
        inverse = inverse_six(sums(six_rows(halving.scratch, 0), six_rows(terminal, INERTIA)))
    leaf(rotation, position, inverse, force, item(halving.nodes, body, BLOCK))


@kernel
def assemble_bodies(zero, structure, work, halving, terminal, assembly):
    """Pass 2, its second part: the halves joined, up to the whole; `assembly` [ASSEMBLY] is written.

    `terminal` [SIZE of `spatial.handles`] stands for what hangs on the last body and was swept; empty for nothing.
    """
    count = halving.last_step.shape[0]
    made = 0
    for number in range(count):
        end = halving.joins[number, END] if number + 1 < count else count
        while made < end:
            _body(zero, structure, work, halving, made, terminal)
            made += 1
        if number + 1 < count:
            middle = halving.joins[number, MIDDLE]
            left = item(halving.nodes, halving.joins[number, LEFT], BLOCK)
            right = item(halving.nodes, halving.joins[number, RIGHT], BLOCK)
            record = item(halving.records, middle, RECORD)
            freed = _freed(structure, halving, middle)
            release(left, right, item(halving.joints, middle, JOINT), freed, record)
            assemble(left, right, record, item(halving.nodes, count + number, BLOCK))
    root = 2 * count - 2
    for i in range(BLOCK):
        assembly[i] = halving.nodes[root * BLOCK + i]
    for i in range(JOINT):
        assembly[BLOCK + i] = halving.joints[i]
    assembly[BLOCK + 6] = _freed(structure, halving, 0)


@kernel(inline=True)
def _first_axis(structure, halving, body):
    step = halving.last_step[body - 1] + 1 if body > 0 else 0
    return structure.steps[step, FIRST_U]


@kernel(inline=True)
def _freed(structure, halving, body):
    """Degrees of freedom of a body's joint."""
    return structure.steps[halving.last_step[body], LAST_U] - _first_axis(structure, halving, body)


@kernel
def spread_bodies(structure, halving, outer, udot, acceleration):
    """Pass 3: from the whole down to the leaves; writes the accelerations [nu] of all bodies' joints.

    `outer` [12] holds A1, acceleration of what the first body hangs on, and f2, load on the last. The first six numbers
    of `acceleration` are written: those of the last body.
    """
    count = halving.last_step.shape[0]
    loads = halving.loads
    for i in range(6):
        halving.world[FAR + i * ROW + EXTRA] = outer[i]
        loads[count * 6 + i] = -outer[6 + i]
    whole = item(halving.nodes, 2 * count - 2, BLOCK)
    record = item(halving.records, 0, RECORD)
    freed = _freed(structure, halving, 0)
    joint = item(halving.joints, 0, JOINT)
    release(halving.world, whole, joint, freed, record)
    f1 = item(halving.scratch, 6, ROW)
    f2 = item(halving.scratch, 7, ROW)
    for i in range(6):
        f1[i] = 0.0
        f2[i] = outer[6 + i]
    axis = _first_axis(structure, halving, 0)
    spread(halving.world, whole, joint, freed, record, f1, f2, item(loads, 0, 6), udot[axis : axis + freed])
    for number in range(count - 2, -1, -1):
        begin, middle, end = halving.joins[number, BEGIN], halving.joins[number, MIDDLE], halving.joins[number, END]
        left = item(halving.nodes, halving.joins[number, LEFT], BLOCK)
        right = item(halving.nodes, halving.joins[number, RIGHT], BLOCK)
        freed = _freed(structure, halving, middle)
        axis = _first_axis(structure, halving, middle)
        for i in range(6):
            f1[i] = loads[begin * 6 + i]
            f2[i] = -loads[end * 6 + i]
        record = item(halving.records, middle, RECORD)
        joint = item(halving.joints, middle, JOINT)
        spread(left, right, joint, freed, record, f1, f2, item(loads, middle, 6), udot[axis : axis + freed])
    far_acceleration(item(halving.nodes, count - 1, BLOCK), item(loads, count - 1, 6), outer[6:12], acceleration)
