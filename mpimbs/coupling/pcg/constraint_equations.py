"""The equations of the constraint loads, from the handle equations of the pieces: element by element, compiled.

A piece is a subchain, or an interval of a tree, which may hang on several bodies. x are loads that others give it, in
groups of six: on the open bodies that it carries, and of loops that are open between it and others; y are their
accelerations. Each of its joints on a body outside is separated: with B, the joint's constraint subspace in the
parent's frame (6 minus its degrees of freedom), and its left inverse B+, the handle equations of what hangs there are

    I = B L B^T    E_j = B G_j    p = B d + g        L = B+ I B+^T    G_j = B+ E_j    d = B+ p

so that the load on handle 1 is f = B l + g, where g is what drives the joint and l, unknown, the constraint load. In
the acceleration form [Duan & Anderson, 4.1] a piece is the compliance of the loads l of its joints and of x:

    B^T A = L^-1 (l + sum_j G_j x_j - d)             y_j = sum H_j^T l + sum_k P_jk x_k + r_j
    H_j = L^-1 G_j    P_jk = W_jk + sum G_j^T H_k    r_j = c_j - sum H_j^T d

where the sums without a name are over its joints; A of what hangs on the world is known. On an open body x is
- sum (B l + g) of the joints that hang there, of a loop the unknown itself. So the loads of a piece are S z + s of the
unknowns z, and that neither joints nor loops let go of what they join, B^T (y - A) = 0 and sum y = 0, is

    sum over pieces of S^T (D (S z + s) + r) = 0        D = [L^-1  H]    r = [-L^-1 d]
                                                            [H^T   P]        [r_j    ]

symmetric; of a tree positive definite, of a chain block tridiagonal [Duan & Anderson 2000, eq. 14-21]. Of loops that
are redundant the matrix is singular, and the equations are consistent [paper 004, section 3.4, eq. 22]; what is left
of no constraint at all, beyond its noise (`values.fronts`), has a diagonal of its own and no load.

Who owns an unknown forms its rows, of what it has and of what others send: H and P of pieces that it acts on, [B | g]
of all that acts on these. All matrices are six rows of eight doubles, with a vector and noise beside them.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Rows, assign, read, schema
from mpimbs.kernels.tuples import load3, load9, store_numbers
from mpimbs.parallel.exchange import SWAP, swap
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
from mpimbs.spatial.vectors import add3, cross, rotate_back
from mpimbs.sweep.motion import joint_places
from mpimbs.sweep.structure import PLACE, Structure
from mpimbs.values.fronts import ROUNDED
from mpimbs.values.handles import item
from mpimbs.values.value import SIX

NOISE = EXTRA + 1  # column of the noise of a loop's diagonal
# Columns of the rows of what is taken from the handle equations: see `parts.part.Block`, and where it goes.
AT, BESIDE, NOISE_AT, GOES_TO = range(4)
# Columns of the rows of this rank's joints: its piece, how many of this one's groups it moves, where its own matrices
# begin, and H of these groups; which row takes its [I | p], where A is in the boundary values; the piece that it hangs
# on, and which group of that one.
PIECE, MOVES, OWN_AT, H_AT, TAKES, ACCELERATION_AT, ON, GROUP = range(8)
INVERSE, LEFT_INVERSE, TRANSFERS = SIX, 2 * SIX, 3 * SIX  # of its own: [L | d], [L^-1 | -L^-1 d], [B+], [G_j]
# Columns of the rows of pieces, this rank's first: how many groups, the number of the first, and where P begins; of
# this rank's, which rows take [W_jj | c_j], and where x begins in the boundary values.
GROUPS, FIRST_GROUP, P_AT, TAKES_W, LOAD_AT = range(5)
SIZE, FIRST_ROW = range(2)  # columns of the rows of this rank's unknowns
# Columns of the rows of blocks of the matrix: the unknowns of its rows and columns, what it is made of, and where that
# is; its first value, how many there are in a row of the part of the matrix, whether this is the one beside the
# diagonal, and how many values a row of the block has.
ROWS_OF, COLUMNS_OF, MADE, FROM, VALUE, STRIDE, BESIDE_IT, COLUMNS = range(8)
ROWS_HANG, COLUMNS_HANG, ACROSS = 1, 2, 4  # how it is made: of B of the rows, of the columns; of H, transposed
FIRST, TO, COUNT = range(3)  # columns of the rows of numbers that are copied
UNKNOWN, ONTO, HANGS = range(3)  # of those of what acts on groups: whether as a joint that hangs there
JOINT, H_OF, LOADS_OF = range(3)  # of those of joints, and loads inboard of them, with their H
WORLD_AT, E_AT, OF_PIECE = range(3)  # of those of what hangs on the world: A in the boundary values, E, piece; or -1


class Equations(NamedTuple):
    """Arguments of the kernels that form a rank's equations."""

    exchange: Integers
    load_exchange: Integers
    sent: Rows  # of `matrices` to others
    received: Rows
    loads_sent: Rows  # of `loads`
    loads_received: Rows
    taken: Rows
    unknowns: Rows  # of this rank
    joints: Rows  # of this rank: the first of its unknowns
    pieces: Rows  # of which this rank's are the first
    own_pieces: int
    worlds: Rows
    acting: Rows
    inboard: Rows
    blocks: Rows
    singular: int
    on_diagonal: Integers  # [rows]: where these values are in `diagonal`
    joint: Structure  # the first step of each separated joint
    subspaces: Floats  # [own joints * SIX]
    place: Floats  # [own joints * PLACE]
    matrices: Floats  # [B | g] of all unknowns that are known here, this rank's first; H and P of pieces; its own
    scratch: Floats  # [2 * SIX]
    diagonal: Floats  # values of the matrix on this rank's columns, by rows
    beside: Floats  # and on others'
    right: Floats  # [rows]: right-hand side
    noise: Floats  # [rows]: of the diagonal
    solution: Floats  # [rows]
    loads: Floats  # [unknowns * ROW]: the solution
    acting_loads: Floats  # [groups * 6]: x


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
def _take(taken, blocks, matrices):
    """Take the handle equations of this rank's pieces to where they are separated."""
    for number in range(taken.shape[0]):
        row = taken[number]
        to = row[GOES_TO]
        if row[AT] >= 0:
            write_six(matrices, to, six_rows(blocks, row[AT]))
        else:
            matrices[to : to + SIX] = 0.0


@kernel
def _separate(matrices, scratch, number, size, row, piece):
    """Separate a joint: L, d and g, L^-1 and H; adds what it adds to [P | r] of its piece."""
    joint, own, groups = number * SIX, row[OWN_AT], piece[GROUPS]
    left, given = own + LEFT_INVERSE, six_rows(matrices, own)  # [I | p]
    inertia = products(matrices, left, given)
    across = transposed_rows(eight_rows(six_rows(matrices, left)))
    write_six(scratch, 0, inertia)
    near = symmetric(sums(products(scratch, 0, across), extras(inertia)))  # [L | d]
    write_six(matrices, own, near)
    for i in range(size, 6):
        matrices[own + i * ROW + i] = 1.0
    free = extra_differences(given, products(matrices, joint, near))  # g = p - B d
    write_six(matrices, joint, sums(six_rows(matrices, joint), free))
    matrix, x = six_rows(matrices, own), sums(six_rows(UNITS, 0), negatives(extras(near)))
    inverse, _, factor = eliminated(matrix, x, x, False)
    if not factor <= LARGEST_FACTOR:
        write_six(scratch, 0, matrix)
        write_six(scratch, SIX, x)
        solve_with_exchanges(scratch[0:SIX], scratch[SIX : 2 * SIX], 1)
        inverse = six_rows(scratch, SIX)
    write_six(matrices, own + INVERSE, inverse)
    for k in range(row[MOVES]):
        far = own + TRANSFERS + k * SIX
        write_six(matrices, far, products(matrices, left, six_rows(matrices, far)))  # G
    for k in range(row[MOVES]):
        response = products(matrices, own + INVERSE, six_rows(matrices, own + TRANSFERS + k * SIX))
        write_six(matrices, row[H_AT] + k * SIX, response)
        for j in range(groups):
            at, far = piece[P_AT] + (j * groups + k) * SIX, own + TRANSFERS + j * SIX
            if j == k:
                more = transposed_products(matrices, far, sums(response, extras(inverse)))
                write_six(matrices, at, symmetric(sums(six_rows(matrices, at), more)))
            else:
                write_six(matrices, at, sums(six_rows(matrices, at), transposed_products(matrices, far, response)))


@kernel
def _add_world(matrices, transfer, piece, root):
    """Add what the world does to the accelerations of what hangs on it: E^T A."""
    groups = piece[GROUPS]
    for j in range(groups):
        at, far = piece[P_AT] + j * (groups + 1) * SIX, transfer + j * SIX
        for i in range(6):
            for k in range(6):
                matrices[at + i * ROW + EXTRA] += matrices[far + k * ROW + i] * root[k]


@kernel
def _swap(exchange, sent, received, values):
    """Send numbers of `values` to other ranks, and receive theirs in it."""
    to_others, from_others = read(exchange, SWAP.to_others), read(exchange, SWAP.from_others)
    for number in range(sent.shape[0]):
        at, to, count = sent[number, FIRST], sent[number, TO], sent[number, COUNT]
        assign(to_others[to : to + count], values[at : at + count])
    swap(exchange)
    for number in range(received.shape[0]):
        at, to, count = received[number, FIRST], received[number, TO], received[number, COUNT]
        assign(values[to : to + count], from_others[at : at + count])


@kernel
def form(table, q, blocks, root):
    """Form this rank's rows of the equations; all ranks call. One message to each neighbour.

    Parameters
    ----------
    q : array [nq]
        Coordinates of this rank.
    blocks : array
        Handle equations of this rank's pieces.
    root : array [6]
        Acceleration of the root.
    """
    e = read(table, EQUATIONS)
    joint_places(0.0, e.joint, q, e.place)
    _take(e.taken, blocks, e.matrices)
    for number in range(e.joints.shape[0]):
        row, size = e.joints[number], e.unknowns[number, SIZE]
        joint, left_inverse = item(e.matrices, number, SIX), e.matrices[row[OWN_AT] + LEFT_INVERSE :]
        _place_joint(item(e.place, number, PLACE), item(e.subspaces, number, SIX), size, joint, left_inverse)
        _separate(e.matrices, e.scratch, number, size, row, e.pieces[row[PIECE]])
    for number in range(e.worlds.shape[0]):
        if e.worlds[number, OF_PIECE] >= 0:
            _add_world(e.matrices, e.worlds[number, E_AT], e.pieces[e.worlds[number, OF_PIECE]], root)
    for number in range(e.taken.shape[0] if e.singular > 0 else 0):
        row = e.taken[number]
        for i in range(6 if row[NOISE_AT] >= 0 else 0):
            e.matrices[row[GOES_TO] + i * ROW + NOISE] = blocks[row[NOISE_AT] + i]
    _swap(e.exchange, e.sent, e.received, e.matrices)
    _add_blocks(e.blocks, e.unknowns, e.matrices, e.scratch, e.diagonal, e.beside, e.right, e.noise)
    if e.singular > 0:
        _leave_idle(e.on_diagonal, e.diagonal, e.right, e.noise)


@kernel
def _add_blocks(blocks, unknowns, matrices, scratch, diagonal, beside, right, noise):
    """Write S^T D S, the values of the matrix, and - S^T (D s + r), the right-hand side, block by block."""
    diagonal[:], beside[:], right[:], noise[:] = 0.0, 0.0, 0.0, 0.0
    for number in range(blocks.shape[0]):
        block = blocks[number]
        made, at, own, other = block[MADE], block[FROM], block[ROWS_OF] * SIX, block[COLUMNS_OF] * SIX
        size, first = unknowns[block[ROWS_OF], SIZE], unknowns[block[ROWS_OF], FIRST_ROW]
        values = beside if block[BESIDE_IT] else diagonal
        sign = -1.0 if made & ROWS_HANG else 1.0
        given = six_rows(matrices, at)
        if made & ACROSS:
            write_six(scratch, 0, products(matrices, at, six_rows(matrices, own)) if made & ROWS_HANG else given)
            for i in range(size):
                for k in range(block[COLUMNS]):
                    values[block[VALUE] + i * block[STRIDE] + k] += sign * scratch[k * ROW + i]
            continue
        rows = given
        if made & COLUMNS_HANG:  # [B | g] x
            sign = -sign
            rows = products(matrices, at, six_rows(matrices, other))
        itself = own == other
        if itself and made & COLUMNS_HANG:
            rows = sums(rows, negatives(extras(given)))
        if made & ROWS_HANG:
            rows = transposed_products(matrices, own, rows)
        elif itself:
            for i in range(size):
                noise[first + i] += matrices[at + i * ROW + NOISE]
        write_six(scratch, 0, symmetric(rows) if itself else rows)
        for i in range(size):
            for k in range(block[COLUMNS]):
                values[block[VALUE] + i * block[STRIDE] + k] += sign * scratch[i * ROW + k]
            right[first + i] -= sign * scratch[i * ROW + EXTRA]


@kernel
def _leave_idle(on_diagonal, diagonal, right, noise):
    """Give what is left of no constraint a diagonal of its own, and no load."""
    most, unseen = 0.0, 0.0  # the largest that is left of constraints, and that the sums leave as noise
    for row in range(right.size):
        unseen = max(unseen, noise[row])
        if diagonal[on_diagonal[row]] > noise[row]:
            most = max(most, diagonal[on_diagonal[row]])
    own = most or unseen / ROUNDED or 1.0
    for row in range(right.size):
        if diagonal[on_diagonal[row]] <= noise[row]:
            diagonal[on_diagonal[row]] = own
            right[row] = 0.0


@kernel
def boundary_values(table, root, values):
    """Find accelerations and loads at the ends of this rank's pieces, `values`, from the solution; all ranks call."""
    e = read(table, EQUATIONS)
    x = e.acting_loads
    for number in range(e.unknowns.shape[0]):
        for i in range(e.unknowns[number, SIZE]):
            e.loads[number * ROW + i] = e.solution[e.unknowns[number, FIRST_ROW] + i]
    _swap(e.load_exchange, e.loads_sent, e.loads_received, e.loads)
    x[:] = 0.0
    for number in range(e.acting.shape[0]):
        unknown, group = e.acting[number, UNKNOWN], e.acting[number, ONTO]
        for i in range(6):
            if e.acting[number, HANGS]:
                row = unknown * SIX + i * ROW
                x[group * 6 + i] -= e.matrices[row + EXTRA]
                for k in range(6):
                    x[group * 6 + i] -= e.matrices[row + k] * e.loads[unknown * ROW + k]
            else:
                x[group * 6 + i] += e.loads[unknown * ROW + i]
    for number in range(e.own_pieces):
        piece = e.pieces[number]
        for i in range(6 * piece[GROUPS]):
            values[piece[LOAD_AT] + i] = x[6 * piece[FIRST_GROUP] + i]
    for number in range(e.worlds.shape[0]):
        assign(values[e.worlds[number, WORLD_AT] :], root)
    for number in range(e.joints.shape[0]):  # A = r_j + sum_k P_jk x_k + sum H_j^T l
        row = e.joints[number]
        piece, at, group = e.pieces[row[ON]], row[ACCELERATION_AT], row[GROUP]
        near = piece[P_AT] + group * piece[GROUPS] * SIX
        for i in range(6):
            values[at + i] = e.matrices[near + group * SIX + i * ROW + EXTRA]
            for k in range(6 * piece[GROUPS]):
                values[at + i] += e.matrices[near + k // 6 * SIX + i * ROW + k % 6] * x[6 * piece[FIRST_GROUP] + k]
    for number in range(e.inboard.shape[0]):
        row = e.inboard[number]
        for i in range(6):
            for k in range(6):
                more = e.matrices[row[H_OF] + k * ROW + i] * e.loads[row[LOADS_OF] * ROW + k]
                values[e.joints[row[JOINT], ACCELERATION_AT] + i] += more


@kernel
def forced_blocks(table, blocks, residual, forced):
    """Write the handle equations whose constraint loads solve the equations for another right-hand side, `residual`.

    The same I, E and W with p = B L r and c = G^T r, and the root at rest: r_j = 0 and L^-1 d = r then.
    """
    e = read(table, EQUATIONS)
    assign(forced, blocks)
    for number in range(e.taken.shape[0]):
        for i in range(6 if e.taken[number, BESIDE] >= 0 else 0):
            forced[e.taken[number, BESIDE] + i * ROW] = 0.0
    for number in range(e.joints.shape[0]):
        row, size, first = e.joints[number], e.unknowns[number, SIZE], e.unknowns[number, FIRST_ROW]
        for k in range(size):
            d = 0.0
            for i in range(size):
                d += e.matrices[row[OWN_AT] + k * ROW + i] * residual[first + i]
            for i in range(6):
                forced[e.taken[row[TAKES], BESIDE] + i * ROW] += e.matrices[number * SIX + i * ROW + k] * d
            for j in range(row[MOVES]):
                far, takes = row[OWN_AT] + TRANSFERS + j * SIX + k * ROW, e.pieces[row[PIECE], TAKES_W] + j
                for i in range(6):
                    forced[e.taken[takes, BESIDE] + i * ROW] += e.matrices[far + i] * residual[first + k]


@kernel
def constraint_loads(table, values, residual, solution):
    """Constraint loads l = L (B^T A + r) - sum_j G_j x_j [rows] of boundary values that `forced_blocks` led to."""
    e = read(table, EQUATIONS)
    for number in range(e.joints.shape[0]):
        row, size, first = e.joints[number], e.unknowns[number, SIZE], e.unknowns[number, FIRST_ROW]
        for k in range(size):
            solution[first + k] = 0.0
            for j in range(row[MOVES]):
                far, load = row[OWN_AT] + TRANSFERS + j * SIX + k * ROW, e.pieces[row[PIECE], LOAD_AT] + 6 * j
                for i in range(6):
                    solution[first + k] -= e.matrices[far + i] * values[load + i]
        for i in range(size):
            mismatch = residual[first + i]
            for k in range(6):
                mismatch += e.matrices[number * SIX + k * ROW + i] * values[row[ACCELERATION_AT] + k]
            for k in range(size):
                solution[first + k] += e.matrices[row[OWN_AT] + k * ROW + i] * mismatch
