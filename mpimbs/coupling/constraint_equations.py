"""The constraint-load equations of separated joints, from the handle equations of the pieces [Duan & Anderson].

A piece is a subchain, or an interval of a tree, which may hang on several bodies and carry several. One of its joints
on a body outside, separated, has B, the joint's constraint subspace in the parent's frame (6 minus its degrees of
freedom), and its left inverse B+. The handle equations of what hangs there, which include the joint and the loads f_j
on the open bodies that it carries, are

    I = B L B^T    E_j = B G_j    p = B d + g        L = B+ I B+^T    G_j = B+ E_j    d = B+ p

so that the load on handle 1 is f1 = B x + g, where g is what drives the joint and x, the unknown, the constraint load:
x = L B^T A1 - sum_j G_j f_j + d. In the acceleration form, with the joint separated,

    B^T A1 = L^-1 (x + sum_j G_j f_j - d)            a_j = sum_k P_jk f_k + H_j^T x + b_j
    H_j = L^-1 G_j    P_jk = W_jk + G_j^T H_k    b_j = c_j - H_j^T d

Across the joint B^T (a_j - A1) = 0, with a_j of the open body that it hangs on, which carries f_j = - sum (B x + g) of
all the joints that hang there. With ' for the piece that a joint hangs on, its other open bodies k and the joint x' by
which it hangs itself, and " for the joints that hang on what the joint carries, its row of the equations is

    L^-1 x  +  sum_k B^T P_jk' sum B x  -  sum H_j B" x"  -  B^T H_j'^T x'
        =  B^T (b_j' - sum_k P_jk' sum g) + L^-1 d + sum H_j g"

symmetric, positive definite; of a chain, where every piece carries one joint, block tridiagonal [Duan & Anderson 2000,
eq. 14-21]. All matrices are six rows of eight doubles, with the vector beside them.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.parallel.exchange import SWAP, swap
from mpimbs.spatial.columns import SIX
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import item
from mpimbs.spatial.memory import Floats, Integers, Rows, assign, read, schema
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
from mpimbs.spatial.tuples import load3, load9, store_numbers
from mpimbs.spatial.vectors import add3, cross, rotate_back
from mpimbs.sweep.motion import joint_places
from mpimbs.sweep.structure import PLACE, Structure

# Columns of the rows of this rank's joints: where [I | p] is in the handle equations, the number of constraint loads,
# where its own matrices begin, its first row of the equations; the piece that it hangs on and which of its open bodies;
# the piece whose open bodies it carries (-1: none); where A1 is in the boundary values.
INERTIA_AT, LOADS, OWN_AT, FIRST_ROW, ON, HANDLE, CARRIES, ACCELERATION_AT = range(8)
# Columns of the rows of pieces, this rank's and those that its joints hang on: how many open bodies, where [P | b] and
# H of these begin, the joint that carries them (-1: none), number of the first of them; of this rank's, where E and
# [W | c] begin, how many matrices apart the rows of W are, and where the loads begin in the boundary values.
OPEN_BODIES, OUTER_AT, CARRIER, FIRST_OPEN, TRANSFER_AT, COMPLIANCE_AT, APART, LOAD_AT = range(8)
# Columns of the rows of blocks of the matrix: the joint whose row it is, and the one whose column; what the block is,
# and where P or H is; whether it stands beside the diagonal part; its first value, how many there are
# in a row of the part, and in one of the block.
JOINT, OTHER, KIND, AT, BESIDE, VALUE, STRIDE, COLUMNS = range(8)
ITSELF, NEXT_TO, INNER, BEHIND_IT = range(4)  # kinds: the joint, one next to it, the one inboard, one that it carries
FROM, TO, COUNT = range(3)  # columns of the rows of numbers that are copied
INVERSE, LEFT_INVERSE, TRANSFERS = SIX, 2 * SIX, 3 * SIX  # of a joint's own: [L | d], [L^-1 | L^-1 d], [B+], [G_j]


class Equations(NamedTuple):
    """What forms a rank's equations."""

    exchange: Integers
    load_exchange: Integers
    sent: Rows  # of `shared` to others
    received: Rows
    loads_sent: Rows  # of `loads`
    loads_received: Rows
    joints: Rows  # [own joints, 8]
    pieces: Rows  # [pieces, 8]: of which this rank's are the first
    own_pieces: int
    blocks: Rows  # [blocks of the matrix, 8]
    hanging: Rows  # [any, 8]: joints, and the open bodies that they hang on; in order of these
    worlds: Integers  # where A1 of what hangs on the world is in the boundary values
    joint: Structure  # the first step of each separated joint
    subspaces: Floats  # [own joints * SIX]
    pads: Floats  # [own joints * SIX]
    place: Floats  # [own joints * PLACE]
    shared: Floats  # [B | g] of all joints that are known here, this rank's first; then P and H of pieces
    owns: Floats  # what else there is of this rank's joints
    scratch: Floats  # [(2 + most open bodies) * SIX]
    diagonal: Floats  # values of the matrix on this rank's columns, by rows
    beside: Floats  # and on others'
    right: Floats  # [rows]: right-hand side
    solution: Floats  # [rows]
    loads: Floats  # [joints * ROW]: the solution by joints
    outer_loads: Floats  # [open bodies * 6]


EQUATIONS = schema(Equations)


@kernel
def _place_joint(place, subspace, size, joint, left_inverse):
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
        store_numbers(0.0, left_inverse, k * ROW, moment)
        store_numbers(0.0, left_inverse, k * ROW + 3, add3(force, cross(p, moment)))


@kernel
def place_joints(first_steps, q, place, subspaces, sizes, driven, left_inverses):
    """Bring constraint subspaces [joints * SIX] to the parents' frames: [B | 0] in `driven`, and left inverses."""
    joint_places(0.0, first_steps, q, place)
    for number in range(sizes.size):
        subspace, joint, left = (
            item(subspaces, number, SIX),
            item(driven, number, SIX),
            item(left_inverses, number, SIX),
        )
        _place_joint(item(place, number, PLACE), subspace, sizes[number], joint, left)


@kernel
def _separate(blocks, shared, owns, pads, scratch, number, row, piece):
    """Separate a joint, and find [P | b] and H of the open bodies of a piece, if it carries them; g in [B | g]."""
    joint, own, inertia = number * SIX, row[OWN_AT], row[INERTIA_AT]
    count = piece[OPEN_BODIES] if row[CARRIES] >= 0 else 0
    outer = piece[OUTER_AT]
    response = outer + count * count * SIX
    left = products(owns, own + LEFT_INVERSE, six_rows(blocks, inertia))
    write_six(scratch, 0, left)
    across = transposed_rows(eight_rows(six_rows(owns, own + LEFT_INVERSE)))
    near = symmetric(sums(products(scratch, 0, across), extras(left)))  # [L | d]
    write_six(owns, own, near)
    beside = extra_differences(six_rows(blocks, inertia), products(shared, joint, near))  # g = p - B d
    write_six(shared, joint, sums(six_rows(shared, joint), beside))
    matrix = sums(near, six_rows(pads, joint))
    x = sums(six_rows(UNITS, 0), extras(near))
    far = x
    for j in range(count):  # G
        far = products(owns, own + LEFT_INVERSE, six_rows(blocks, piece[TRANSFER_AT] + j * SIX))
        write_six(owns, own + TRANSFERS + j * SIX, far)
    inverse, transfer, factor = eliminated(matrix, x, far, True)
    if count > 1 or not factor <= LARGEST_FACTOR:
        write_six(scratch, 0, matrix)
        write_six(scratch, SIX, x)
        for j in range(count):
            write_six(scratch, (2 + j) * SIX, six_rows(owns, own + TRANSFERS + j * SIX))
        solve_with_exchanges(scratch[0:SIX], scratch[SIX : (2 + count) * SIX], 1 + count)
        inverse = six_rows(scratch, SIX)
        transfer = six_rows(scratch, 2 * SIX)
    write_six(owns, own + INVERSE, inverse)
    less = negatives(extras(inverse))
    for k in range(count):
        if k > 0:
            transfer = six_rows(scratch, (2 + k) * SIX)
        write_six(shared, response + k * SIX, transfer)
        for j in range(count):  # [W | c] + G^T [H | -L^-1 d]
            compliance, far = (
                six_rows(blocks, piece[COMPLIANCE_AT] + (j * piece[APART] + k) * SIX),
                own + TRANSFERS + j * SIX,
            )
            if j == k:
                rows = symmetric(sums(compliance, transposed_products(owns, far, sums(transfer, less))))
            else:
                rows = sums(compliance, transposed_products(owns, far, transfer))
            write_six(shared, outer + (j * count + k) * SIX, rows)


@kernel
def _base(blocks, transfer_at, compliance_at, apart, count, root, outer):
    """Write P = W and b = c + E^T A1 of open bodies that are carried by what hangs on the root."""
    for j in range(count):
        for k in range(count):
            write_six(outer, (j * count + k) * SIX, six_rows(blocks, compliance_at + (j * apart + k) * SIX))
        for i in range(6):
            s = blocks[compliance_at + j * (apart + 1) * SIX + i * ROW + EXTRA]
            for k in range(6):
                s += blocks[transfer_at + j * SIX + k * ROW + i] * root[k]
            outer[j * (count + 1) * SIX + i * ROW + EXTRA] = s


@kernel
def _swap(exchange, sent, received, values):
    """Send numbers of `values` to other ranks, and receive theirs in it."""
    to_others, from_others = read(exchange, SWAP.to_others), read(exchange, SWAP.from_others)
    for number in range(sent.shape[0]):
        at, to, count = sent[number, FROM], sent[number, TO], sent[number, COUNT]
        assign(to_others[to : to + count], values[at : at + count])
    swap(exchange)
    for number in range(received.shape[0]):
        at, to, count = received[number, FROM], received[number, TO], received[number, COUNT]
        assign(values[to : to + count], from_others[at : at + count])


@kernel
def form(table, q, blocks, root):
    """Form this rank's rows of the equations; all ranks call. One message to each neighbour [Duan & Anderson, 4.1].

    Parameters
    ----------
    q : array [nq]
        Coordinates of this rank.
    blocks : array
        Handle equations of this rank's pieces.
    root : array [6]
        Acceleration of the root.
    """
    shared, owns, scratch = read(table, EQUATIONS.shared), read(table, EQUATIONS.owns), read(table, EQUATIONS.scratch)
    joints, pieces, place = read(table, EQUATIONS.joints), read(table, EQUATIONS.pieces), read(table, EQUATIONS.place)
    subspaces, pads = read(table, EQUATIONS.subspaces), read(table, EQUATIONS.pads)
    joint_places(0.0, read(table, EQUATIONS.joint), q, place)
    for number in range(joints.shape[0]):
        row = joints[number]
        joint, left_inverse = item(shared, number, SIX), owns[row[OWN_AT] + LEFT_INVERSE :]
        _place_joint(item(place, number, PLACE), item(subspaces, number, SIX), row[LOADS], joint, left_inverse)
        _separate(blocks, shared, owns, pads, scratch, number, row, pieces[max(row[CARRIES], 0)])
    for number in range(read(table, EQUATIONS.own_pieces)):
        piece = pieces[number]
        if piece[CARRIER] < 0:
            outer = shared[piece[OUTER_AT] :]
            _base(blocks, piece[TRANSFER_AT], piece[COMPLIANCE_AT], piece[APART], piece[OPEN_BODIES], root, outer)
    _swap(read(table, EQUATIONS.exchange), read(table, EQUATIONS.sent), read(table, EQUATIONS.received), shared)
    _rows(table)


@kernel
def _rows(table):
    """Write the rows of this rank's joints into the values of the matrix and into the right-hand side."""
    shared, owns, scratch = read(table, EQUATIONS.shared), read(table, EQUATIONS.owns), read(table, EQUATIONS.scratch)
    diagonal, beside = read(table, EQUATIONS.diagonal), read(table, EQUATIONS.beside)
    joints, blocks, right = read(table, EQUATIONS.joints), read(table, EQUATIONS.blocks), read(table, EQUATIONS.right)
    right[:] = 0.0
    for number in range(blocks.shape[0]):
        block = blocks[number]
        kind, at, own, other = block[KIND], block[AT], block[JOINT] * SIX, block[OTHER] * SIX
        row = joints[block[JOINT]]
        values = beside if block[BESIDE] else diagonal
        if kind == INNER:  # -(H' B)^T
            write_six(scratch, 0, products(shared, at, six_rows(shared, own)))
            for i in range(row[LOADS]):
                for k in range(block[COLUMNS]):
                    values[block[VALUE] + i * block[STRIDE] + k] = -scratch[k * ROW + i]
            continue
        sign = -1.0
        if kind == BEHIND_IT:  # H [B" | g"]
            write_six(scratch, 0, products(shared, at, six_rows(shared, other)))
        else:  # B^T P' [B | g]; and [L^-1 | -L^-1 d], -B^T b' of the joint itself
            sign = 1.0
            product = products(shared, at, six_rows(shared, other))
            if kind == NEXT_TO:
                write_six(scratch, 0, transposed_products(shared, own, product))
            else:
                product = sums(product, negatives(extras(six_rows(shared, at))))
                inverse = six_rows(owns, row[OWN_AT] + INVERSE)
                less = negatives(extras(inverse))
                mine = sums(transposed_products(shared, own, product), sums(less, less))
                write_six(scratch, 0, symmetric(sums(mine, inverse)))
        for i in range(row[LOADS]):
            value = block[VALUE] + i * block[STRIDE]
            for k in range(block[COLUMNS]):
                values[value + k] = sign * scratch[i * ROW + k]
            right[row[FIRST_ROW] + i] -= sign * scratch[i * ROW + EXTRA]


@kernel
def _spread_solution(table, solution):
    """Bring the constraint loads of this rank, [rows], to their joints, and those that others know beside them."""
    joints, loads = read(table, EQUATIONS.joints), read(table, EQUATIONS.loads)
    for number in range(joints.shape[0]):
        for i in range(joints[number, LOADS]):
            loads[number * ROW + i] = solution[joints[number, FIRST_ROW] + i]
    sent, received = read(table, EQUATIONS.loads_sent), read(table, EQUATIONS.loads_received)
    _swap(read(table, EQUATIONS.load_exchange), sent, received, loads)


@kernel
def boundary_values(table, root, values):
    """Find accelerations and loads at the ends of this rank's pieces, `values`, from the solution; all ranks call."""
    _spread_solution(table, read(table, EQUATIONS.solution))
    shared, loads, outer_loads = (
        read(table, EQUATIONS.shared),
        read(table, EQUATIONS.loads),
        read(table, EQUATIONS.outer_loads),
    )
    joints, pieces, hanging = (
        read(table, EQUATIONS.joints),
        read(table, EQUATIONS.pieces),
        read(table, EQUATIONS.hanging),
    )
    outer_loads[:] = 0.0
    for number in range(hanging.shape[0]):  # f = -sum (B x + g)
        joint, body = hanging[number, 0], hanging[number, 1]
        for i in range(6):
            row = joint * SIX + i * ROW
            s = shared[row + EXTRA]
            for k in range(6):
                s += shared[row + k] * loads[joint * ROW + k]
            outer_loads[body * 6 + i] -= s
    for number in range(read(table, EQUATIONS.own_pieces)):
        piece = pieces[number]
        for i in range(6 * piece[OPEN_BODIES]):
            values[piece[LOAD_AT] + i] = outer_loads[6 * piece[FIRST_OPEN] + i]
    worlds = read(table, EQUATIONS.worlds)
    for number in range(worlds.size):
        assign(values[worlds[number] :], root)
    for number in range(joints.shape[0]):  # A1 = sum_k P_jk' f_k' + H_j'^T x' + b_j'
        joint = joints[number]
        piece = pieces[joint[ON]]
        count, at = piece[OPEN_BODIES], joint[ACCELERATION_AT]
        near = piece[OUTER_AT] + joint[HANDLE] * SIX
        for i in range(6):
            values[at + i] = shared[near + joint[HANDLE] * count * SIX + i * ROW + EXTRA]
        for k in range(6 * count):  # P_jk = P_kj^T
            f = outer_loads[6 * piece[FIRST_OPEN] + k]
            row = near + (k // 6) * count * SIX + (k % 6) * ROW
            for i in range(6):
                values[at + i] += shared[row + i] * f
        if piece[CARRIER] >= 0:
            far = piece[OUTER_AT] + (count * count + joint[HANDLE]) * SIX
            for k in range(6):
                x = loads[piece[CARRIER] * ROW + k]
                for i in range(6):
                    values[at + i] += shared[far + k * ROW + i] * x


@kernel
def forced_blocks(table, blocks, residual, forced):
    """Write the handle equations whose constraint loads solve the equations for another right-hand side, `residual`.

    The same I, E and W with p = B L r and c = G^T r, and the root at rest: b = 0 and L^-1 d = r then.
    """
    owns, shared = read(table, EQUATIONS.owns), read(table, EQUATIONS.shared)
    joints, pieces = read(table, EQUATIONS.joints), read(table, EQUATIONS.pieces)
    assign(forced, blocks)
    for number in range(read(table, EQUATIONS.own_pieces)):
        piece = pieces[number]
        for j in range(piece[OPEN_BODIES]):
            for i in range(6):
                forced[piece[COMPLIANCE_AT] + j * (piece[APART] + 1) * SIX + i * ROW + EXTRA] = 0.0
    for number in range(joints.shape[0]):
        row = joints[number]
        own, at, inertia = row[OWN_AT], row[FIRST_ROW], row[INERTIA_AT]
        for i in range(6):
            forced[inertia + i * ROW + EXTRA] = 0.0
        for k in range(row[LOADS]):
            d = 0.0
            for i in range(row[LOADS]):
                d += owns[own + k * ROW + i] * residual[at + i]
            for i in range(6):
                forced[inertia + i * ROW + EXTRA] += shared[number * SIX + i * ROW + k] * d
            if row[CARRIES] >= 0:
                piece = pieces[row[CARRIES]]
                for j in range(piece[OPEN_BODIES]):
                    compliance, far = piece[COMPLIANCE_AT] + j * (piece[APART] + 1) * SIX, own + TRANSFERS + j * SIX
                    for i in range(6):
                        forced[compliance + i * ROW + EXTRA] += owns[far + k * ROW + i] * residual[at + k]


@kernel
def constraint_loads(table, values, residual, solution):
    """Constraint loads x = L (B^T A1 + r) - sum_j G_j f_j [rows] of boundary values that `forced_blocks` led to."""
    owns, shared = read(table, EQUATIONS.owns), read(table, EQUATIONS.shared)
    joints, pieces = read(table, EQUATIONS.joints), read(table, EQUATIONS.pieces)
    for number in range(joints.shape[0]):
        row = joints[number]
        own, at, acceleration = row[OWN_AT], row[FIRST_ROW], row[ACCELERATION_AT]
        for k in range(row[LOADS]):
            solution[at + k] = 0.0
            if row[CARRIES] >= 0:
                piece = pieces[row[CARRIES]]
                for j in range(piece[OPEN_BODIES]):
                    far, load = own + TRANSFERS + j * SIX + k * ROW, piece[LOAD_AT] + 6 * j
                    for i in range(6):
                        solution[at + k] -= owns[far + i] * values[load + i]
        for i in range(row[LOADS]):
            mismatch = residual[at + i]
            for k in range(6):
                mismatch += shared[number * SIX + k * ROW + i] * values[acceleration + k]
            for k in range(row[LOADS]):
                solution[at + k] += owns[own + k * ROW + i] * mismatch
