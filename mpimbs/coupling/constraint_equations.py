"""The constraint-load equations of separated joints, from the handle equations of the subchains [Duan & Anderson].

A subchain k that begins with a separated joint has B, the joint's constraint subspace in the parent's frame (6 minus
its degrees of freedom), and its left inverse B+. Its handle equations, which include the joint, are

    I = B L B^T    E = B G    p = B d + g        L = B+ I B+^T    G = B+ E    d = B+ p

so that the load on handle 1 is f1 = B x + g, where g is what drives the joint and x, the unknown, the constraint load:
x = L B^T A1 - G f2 + d. In the acceleration form, with the joint separated,

    B^T A1 = L^-1 (x + G f2 - d)        A2 = P22 f2 + H^T x + b2        H = L^-1 G, P22 = W + G^T H, b2 = c - H^T d

Across the joint f2 = -(B x + g) on the left, and B^T (A2 of the left - A1 of the right) = 0: row k of the equations
[Duan & Anderson 2000, eq. 14-21],

    (L^-1 + B^T P22' B) x  -  H B" x"  -  B^T H'^T x'  =  B^T (b2' - P22' g) + L^-1 d + H g"

with ' for the subchain before and " for the one behind: symmetric, positive definite, block tridiagonal.

What a rank keeps of its subchains stands in slots 1 to count; slot 0 has what it is told of the subchain before, slot
count + 1 what it is told of the one behind. All matrices are six rows of eight doubles, with the vector beside them.
"""

from __future__ import annotations

from mpimbs.parallel.halo import FROM_LEFT, FROM_RIGHT, TO_LEFT, TO_RIGHT, swap
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import COMPLIANCE, INERTIA, SIZE, TRANSFER, item
from mpimbs.spatial.memory import assign, floats, integers
from mpimbs.spatial.rows import ROW, eight_rows, transposed_rows
from mpimbs.spatial.six import (
    EXTRA,
    LARGEST_FACTOR,
    UNITS,
    eliminated,
    extra_differences,
    extras,
    negatives,
    products,
    six_rows,
    solve_with_exchanges,
    sums,
    symmetric,
    transposed_products,
    write_six,
)
from mpimbs.spatial.vectors import add3, cross, load3, load9, rotate_back, store3
from mpimbs.sweep.motion import joint_places
from mpimbs.sweep.structure import PLACE, Structure

_SIX = 6 * ROW
SEPARATED = 2 * _SIX  # [B | g], [B+]
OUTER = 2 * _SIX  # [P22 | b2], [H]
OWN = 3 * _SIX  # [L | d], [L^-1 | L^-1 d], [G]

# Items of the table of a rank's equations. sizes: constraint loads of the joint of every slot; of slot 0 and the last
# those that other ranks own. joint_slots: the slots of own joints. diagonal, beside: values of the matrix on this
# rank's columns and on others', by rows; right: right-hand side; loads: the solution.
EQUATION_ITEMS = (
    *("halo", "load_halo", "sizes", "joint_slots", "first", "steps", "axes", "fixed", "pitch", "subspaces", "pads"),
    *("place", "joints", "outers", "owns", "scratch", "diagonal", "beside", "right", "solution", "loads"),
)
HALO, LOAD_HALO, SIZES, JOINT_SLOTS, FIRST, STEPS, AXES, FIXED, PITCH, SUBSPACES, PADS = range(0, 22, 2)
PLACES, JOINTS, OUTERS, OWNS, WORK, DIAGONAL, BESIDE, RIGHT, SOLUTION, LOADS = range(22, 2 * len(EQUATION_ITEMS), 2)


@kernel
def _place_joint(place, subspace, size, joint):
    """Bring a joint's constraint subspace [size rows of 8] to the parent's frame: [B | 0], and its left inverse."""
    r = load9(0.0, place, 0)
    p = load3(0.0, place, 9)
    for i in range(6):
        joint[i * ROW + EXTRA] = 0.0
        for k in range(size, 6):  # what is not finite would stay there
            joint[i * ROW + k] = 0.0
    for k in range(size):
        moment = rotate_back(r, load3(0.0, subspace, k * ROW))
        force = rotate_back(r, load3(0.0, subspace, k * ROW + 3))
        column = add3(moment, cross(p, force))
        for i in range(3):
            joint[i * ROW + k] = column[i]
            joint[(3 + i) * ROW + k] = force[i]
        store3(0.0, joint, _SIX + k * ROW, moment)
        store3(0.0, joint, _SIX + k * ROW + 3, add3(force, cross(p, moment)))


@kernel
def _open(block, pad, joint, own, outer, scratch):
    """Find what a subchain's equations give with its first joint separated: `own`, `outer`, and g in `joint`."""
    left = products(joint, _SIX, six_rows(block, INERTIA))
    write_six(scratch, 0, left)
    across = transposed_rows(eight_rows(six_rows(joint, _SIX)))
    near = symmetric(sums(products(scratch, 0, across), extras(left)))  # [L | d]
    write_six(own, 0, near)
    far = products(joint, _SIX, six_rows(block, TRANSFER))  # G
    write_six(own, 2 * _SIX, far)
    matrix = sums(near, six_rows(pad, 0))
    x = sums(six_rows(UNITS, 0), extras(near))
    inverse, transfer, factor = eliminated(matrix, x, far, True)
    if not factor <= LARGEST_FACTOR:
        write_six(scratch, 0, matrix)
        write_six(scratch, _SIX, x)
        write_six(scratch, 2 * _SIX, far)
        solve_with_exchanges(scratch[0:_SIX], scratch[_SIX : 3 * _SIX], 2)
        inverse, transfer = six_rows(scratch, _SIX), six_rows(scratch, 2 * _SIX)
    write_six(own, _SIX, inverse)
    # [P22 | b2] = [W | c] + G^T [H | -L^-1 d];  g = p - B d
    moved = sums(transfer, negatives(extras(inverse)))
    write_six(outer, 0, symmetric(sums(six_rows(block, COMPLIANCE), transposed_products(own, 2 * _SIX, moved))))
    write_six(outer, _SIX, transfer)
    beside = extra_differences(six_rows(block, INERTIA), products(joint, 0, near))
    write_six(joint, 0, sums(six_rows(joint, 0), beside))


@kernel
def _base(block, root, outer):
    """Write P22 = W and b2 = c + E^T A1 of the chain's first subchain, which hangs on the root."""
    write_six(outer, 0, six_rows(block, COMPLIANCE))
    for i in range(6):
        s = block[COMPLIANCE + i * ROW + EXTRA]
        for k in range(6):
            s += block[TRANSFER + k * ROW + i] * root[k]
        outer[i * ROW + EXTRA] = s


@kernel
def form(table, q, blocks, root):
    """Form this rank's rows of the equations; all ranks call. One message in each direction [Duan & Anderson, 4.1].

    Parameters
    ----------
    q : array [nq]
        Coordinates of this rank.
    blocks : array [count * SIZE]
        Handle equations of this rank's subchains.
    root : array [6]
        Acceleration of the root.
    """
    count = blocks.size // SIZE
    sizes = integers(table, SIZES)
    joints, outers, owns = floats(table, JOINTS), floats(table, OUTERS), floats(table, OWNS)
    scratch, place = floats(table, WORK), floats(table, PLACES)
    slots = integers(table, JOINT_SLOTS)
    steps = integers(table, STEPS)
    structure = Structure(
        steps.reshape((steps.size // 8, 8)), integers(table, AXES), floats(table, FIXED), floats(table, PITCH)
    )
    joint_places(0.0, structure, q, place)
    if table[FIRST]:
        _base(blocks[0:SIZE], root, item(outers, 1, OUTER))
    for number in range(slots.size):
        slot = slots[number]
        joint = item(joints, slot, SEPARATED)
        subspace = item(floats(table, SUBSPACES), number, _SIX)
        _place_joint(item(place, number, PLACE), subspace, sizes[slot], joint)
        block, own, outer = item(blocks, slot - 1, SIZE), item(owns, slot, OWN), item(outers, slot, OUTER)
        _open(block, item(floats(table, PADS), number, _SIX), joint, own, outer, scratch)
    halo = integers(table, HALO)
    assign(floats(halo, TO_LEFT), joints[SEPARATED : SEPARATED + _SIX])
    assign(floats(halo, TO_RIGHT), item(outers, count, OUTER))
    swap(halo)
    assign(item(outers, 0, OUTER), floats(halo, FROM_LEFT))
    assign(joints[(count + 1) * SEPARATED : (count + 1) * SEPARATED + _SIX], floats(halo, FROM_RIGHT))
    _rows(table, count)


@kernel
def _rows(table, count):
    """Write the rows of this rank's joints into the values of the matrix and into the right-hand side."""
    sizes = integers(table, SIZES)
    joints, outers, owns = floats(table, JOINTS), floats(table, OUTERS), floats(table, OWNS)
    scratch = floats(table, WORK)
    diagonal, beside, right = floats(table, DIAGONAL), floats(table, BESIDE), floats(table, RIGHT)
    slots = integers(table, JOINT_SLOTS)
    at = at_beside = at_row = 0
    for number in range(slots.size):
        slot = slots[number]
        before, size, behind = sizes[slot - 1], sizes[slot], sizes[slot + 1]
        joint, own = item(joints, slot, SEPARATED), item(owns, slot, OWN)
        inner, outer = item(outers, slot - 1, OUTER), item(outers, slot, OUTER)
        here, last = six_rows(joint, 0), slot == count
        # -H' B; -H B";  L^-1 + B^T P22' B
        write_six(scratch, 0, products(inner, _SIX, here))
        next_one = products(outer, _SIX, six_rows(joints, (slot + 1) * SEPARATED))
        write_six(scratch, _SIX, next_one)
        product = products(inner, 0, here)
        product = sums(product, negatives(extras(six_rows(inner, 0))))
        mine = transposed_products(joint, 0, product)
        forces = extra_differences(sums(six_rows(own, _SIX), next_one), mine)
        mine = symmetric(sums(six_rows(own, _SIX), mine))
        write_six(scratch, 2 * _SIX, sums(sums(mine, negatives(extras(mine))), forces))
        first = slot == 1
        for i in range(size):
            for k in range(before):
                if first:
                    beside[at_beside] = -scratch[k * ROW + i]
                    at_beside += 1
                else:
                    diagonal[at] = -scratch[k * ROW + i]
                    at += 1
            for k in range(size):
                diagonal[at] = scratch[2 * _SIX + i * ROW + k]
                at += 1
            for k in range(behind):
                if last:
                    beside[at_beside] = -scratch[_SIX + i * ROW + k]
                    at_beside += 1
                else:
                    diagonal[at] = -scratch[_SIX + i * ROW + k]
                    at += 1
            right[at_row] = scratch[2 * _SIX + i * ROW + EXTRA]
            at_row += 1


@kernel
def _spread_solution(table, solution):
    """Bring the constraint loads of this rank, [rows], to their slots, and those of the neighbours beside them."""
    sizes = integers(table, SIZES)
    loads = floats(table, LOADS)
    halo = integers(table, LOAD_HALO)
    at = 0
    for slot in range(1, sizes.size - 1):
        for i in range(sizes[slot]):
            loads[slot * ROW + i] = solution[at]
            at += 1
    count = sizes.size - 2
    assign(floats(halo, TO_LEFT), loads[ROW : 2 * ROW])
    assign(floats(halo, TO_RIGHT), loads[count * ROW : (count + 1) * ROW])
    swap(halo)
    assign(loads[0:ROW], floats(halo, FROM_LEFT))
    assign(loads[(count + 1) * ROW :], floats(halo, FROM_RIGHT))


@kernel
def boundary_values(table, root, values):
    """Find A1 and f2 of this rank's subchains, `values` [count * 12], from the solution; all ranks call."""
    _spread_solution(table, floats(table, SOLUTION))
    loads = floats(table, LOADS)
    joints, outers = floats(table, JOINTS), floats(table, OUTERS)
    count = integers(table, SIZES).size - 2
    for slot in range(1, count + 1):
        at = (slot - 1) * 12
        behind = slot + 1
        for i in range(6):  # f2 = -(B" x" + g")
            row = behind * SEPARATED + i * ROW
            s = joints[row + EXTRA]
            for k in range(6):
                s += joints[row + k] * loads[behind * ROW + k]
            values[at + 6 + i] = -s
        if slot == 1 and table[FIRST]:
            assign(values[at : at + 6], root)
            continue
        for i in range(6):  # A1 = P22' f2' + H'^T x' + b2' with f2' = -(B x + g)
            values[at + i] = outers[(slot - 1) * OUTER + i * ROW + EXTRA]
        for k in range(6):
            row = slot * SEPARATED + k * ROW
            f = joints[row + EXTRA]
            for i in range(6):
                f += joints[row + i] * loads[slot * ROW + i]
            x = loads[(slot - 1) * ROW + k]
            for i in range(6):
                inner = (slot - 1) * OUTER + k * ROW + i
                values[at + i] += outers[_SIX + inner] * x - outers[inner] * f


@kernel
def forced_blocks(table, blocks, residual, forced):
    """Write the handle equations whose constraint loads solve the equations for another right-hand side, `residual`.

    The same I, E and W with p = B L r and c = G^T r, and the root at rest: b2 = 0 and L^-1 d = r then.
    """
    owns, joints = floats(table, OWNS), floats(table, JOINTS)
    sizes = integers(table, SIZES)
    at = 0
    for slot in range(1, sizes.size - 1):
        base = (slot - 1) * SIZE
        assign(forced[base : base + SIZE], blocks[base : base + SIZE])
        for i in range(6):
            forced[base + INERTIA + i * ROW + EXTRA] = 0.0
            forced[base + COMPLIANCE + i * ROW + EXTRA] = 0.0
        for k in range(sizes[slot]):
            d = 0.0
            for i in range(sizes[slot]):
                d += owns[slot * OWN + k * ROW + i] * residual[at + i]
            for i in range(6):
                forced[base + INERTIA + i * ROW + EXTRA] += joints[slot * SEPARATED + i * ROW + k] * d
                forced[base + COMPLIANCE + i * ROW + EXTRA] += (
                    owns[slot * OWN + 2 * _SIX + k * ROW + i] * residual[at + k]
                )
        at += sizes[slot]


@kernel
def constraint_loads(table, values, residual, solution):
    """Constraint loads x = L (B^T A1 + r) - G f2 [rows] of boundary values [count * 12] that `forced_blocks` led to."""
    owns, joints = floats(table, OWNS), floats(table, JOINTS)
    sizes = integers(table, SIZES)
    at = 0
    for slot in range(1, sizes.size - 1):
        first = (slot - 1) * 12
        for k in range(sizes[slot]):
            solution[at + k] = 0.0
            for i in range(6):
                solution[at + k] -= owns[slot * OWN + 2 * _SIX + k * ROW + i] * values[first + 6 + i]
        for i in range(sizes[slot]):
            mismatch = residual[at + i]
            for k in range(6):
                mismatch += joints[slot * SEPARATED + k * ROW + i] * values[first + k]
            for k in range(sizes[slot]):
                solution[at + k] += owns[slot * OWN + k * ROW + i] * mismatch
        at += sizes[slot]
