"""The bodies of a rank, halved down to single ones: the divide and conquer in the acceleration form, of chains. No MPI.

The paper's experiment [Critchley 2007, eq. 12-52]: its counts and digits are those of this form, which nothing else
here has; what joins single bodies at all is `assembly` with `leaves="bodies"`. A body is a leaf, the last may have a
subchain that is swept hang on it (`dca-terminal`). Kinematics are the sweeps' own (`sweep.motion`). The nodes of a
halving are blocks of `values.assembly`: the leaves in the order of the bodies, then the joins in the order in which
they are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Rows, Table, aligned_zeros, assign, read, schema
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.parts.part import PartByHandles, PartOfOne, Taken
from mpimbs.parts.sequence import SEQUENCE, inward_of_all, motion_of_all, outward_of_all
from mpimbs.parts.subchain import Subchain
from mpimbs.parts.subchains import Subchains
from mpimbs.parts.tiles import boundary_frames
from mpimbs.spatial.rows import ROW, add_row, eight_rows, scale_row, store_symmetric, transposed_rows
from mpimbs.spatial.six import EXTRA, six_rows, sums, write_six
from mpimbs.spatial.vectors import add6, add_along, motion_inward
from mpimbs.sweep.added import add_inertia
from mpimbs.sweep.build import build, inboard_bodies
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import (
    chain_frame_change,
    coordinate_rates,
    join_turn,
    joint_places,
    relative_turn,
    velocity_terms,
)
from mpimbs.sweep.structure import (
    ADDED,
    BIAS,
    BODY,
    FIRST_U,
    FIXED,
    LAST_U,
    PLACE,
    TURNING,
    Handles,
    Springs,
    Structure,
    Workspace,
    workspace,
)
from mpimbs.values.assembly import (
    ASSEMBLY,
    AXES,
    BLOCK,
    CROSS,
    FAR,
    JOINT,
    NEAR,
    RECORD,
    ROTOR,
    assemble_pair,
    disassemble_pair,
    far_acceleration,
    inverse_six,
    release,
)
from mpimbs.values.handles import INERTIA, item

if TYPE_CHECKING:
    from mpimbs.model.contents import Contents
# Columns of the joins.
LEFT, RIGHT, BEGIN, MIDDLE, END = range(5)
INVERSE = 6 * ROW  # numbers of a body's inverse inertia
LEAF_SCRATCH = 8 * ROW


class Halving(NamedTuple):
    """The arrays of a halving over m bodies: without owners (`kernels.memory`), since numba counts what is sliced."""

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


class DcaBodiesPlan(NamedTuple):
    """Arguments of the passes over the bodies of the DCA, in compiled code."""

    handles: Handles  # the equations of all of them: those of the acceleration form [ASSEMBLY]
    structure: Structure
    springs: Springs
    work: Workspace
    halving: Halving
    coordinates: int  # of the leaves; their speeds are as many as axes
    terminal: Integers  # the table of the subchain that hangs on the last leaf (`parts.sequence`); empty for none
    hanging: Floats  # its handle equations; empty for none
    inner: Floats  # [TURNING]: of its handle 1
    inboard: Floats  # [12]: A1 and f2 of it: acceleration of the last leaf, and no load


DCA_BODIES = schema(DcaBodiesPlan)


def bisection(count: int) -> Integers:
    """Give the joins of a sequence halved down to its leaves, each after those that it needs, from left to right.

    Parameters
    ----------
    count : int
        Leaves; the left half is the larger by at most one.

    Returns
    -------
    array [count - 1, 5]
        Numbers of the left and the right node, first leaf of the left, first leaf of the right, leaf after the last of
        the right. Leaves are the nodes 0 to count - 1, join k makes node count + k.
    """
    spans = [np.array([[0, count]])]
    while len(wide := spans[-1][spans[-1][:, 1] - spans[-1][:, 0] > 1]):
        middle = (wide.sum(axis=1) + 1) // 2
        halves = np.stack([wide[:, 0], middle, middle, wide[:, 1]], axis=1)
        spans.append(halves.reshape(-1, 2))
    begin, end = np.concatenate(spans).T
    joined = end - begin > 1
    begin, end = begin[joined], end[joined]
    order = np.lexsort((end - begin, end))
    begin, end = begin[order], end[order]
    middle = (begin + end + 1) // 2
    # The number of the node over a span: a leaf, or found among the spans, which are sorted by (end, length).
    key = end * (count + 1) + (end - begin)

    def node(first: Integers, last: Integers) -> Integers:
        found = np.searchsorted(key, last * (count + 1) + (last - first))
        return np.where(last - first == 1, first, count + found)

    return np.stack([node(begin, middle), node(middle, end), begin, middle, end], axis=1).astype(np.int64)


def inverse_inertias(system: Contents, first: int, structure: Structure, last_step: Integers) -> Floats:
    """Inverse inertias of the different bodies of a structure, as six rows each; zeros where a step carries none.

    Raises
    ------
    InputError
        One is not positive definite.
    """
    fixed, added = structure.fixed.reshape(-1, FIXED), structure.added.reshape(-1, ADDED)
    made_by = structure.steps[last_step, BODY]
    inverses = np.zeros((len(fixed), 6, ROW))
    for number, body in zip(*np.unique(made_by, return_index=True), strict=True):
        xx, xy, xz, yy, yz, zz, hx, hy, hz, mass = fixed[number, 12:]
        h = np.array([[0.0, -hz, hy], [hz, 0.0, -hx], [-hy, hx, 0.0]])
        inertia = np.block([[np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), h], [h.T, mass * np.eye(3)]])
        if len(added):
            own = np.zeros((6, 6))
            own[np.triu_indices(6)] = added[number]
            inertia += own + np.triu(own, 1).T
        try:
            factor = np.linalg.inv(np.linalg.cholesky(inertia))
        except np.linalg.LinAlgError:
            raise InputError(
                f"body '{system.name_of(first + int(body))}' of system '{system.name}' has no inverse inertia, which "
                "the coupling dca needs of each: give it mass and moments of inertia about all axes, or choose "
                "`coupling='dcae'`"
            ) from None
        inverses[number, :, :6] = factor.T @ factor
    return inverses.ravel()


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

    `terminal` [SIZE of `values.handles`] stands for what hangs on the last body and was swept; empty for nothing.
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
            assemble_pair(left, right, record, item(halving.nodes, count + number, BLOCK))
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
    disassemble_pair(halving.world, whole, joint, freed, record, f1, f2, item(loads, 0, 6), udot[axis : axis + freed])
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
        disassemble_pair(left, right, joint, freed, record, f1, f2, item(loads, middle, 6), udot[axis : axis + freed])
    far_acceleration(item(halving.nodes, count - 1, BLOCK), item(loads, count - 1, 6), outer[6:12], acceleration)


@kernel(merge=True)
def none_early(zero, part):
    """Nothing: there is no early sweep."""


@kernel(merge=True)
def motion_of_bodies(zero, part, q, u):
    """Pass 1: the joint frames, and the boundary turn of all bodies but those that are swept."""
    h = read(part, DCA_BODIES)
    joint_places(0.0, h.structure, q, h.work.place)
    relative_turn(0.0, h.structure, h.work, u, h.handles.turn)
    if h.terminal.size > 0:
        motion_of_all(zero, h.terminal, q[h.coordinates :], u[h.structure.axes.size :])


@kernel(merge=True)
def inward_of_bodies(zero, part, q, u, tau, turn, early):
    """Pass 2: the equations of all bodies, given the turn of handle 1 [TURNING]."""
    h = read(part, DCA_BODIES)
    if h.terminal.size > 0:
        join_turn(0.0, turn, h.handles.turn, h.inner)
        nu = h.structure.axes.size
        forces = tau[nu:] if tau.size > 0 else tau
        inward_of_all(zero, h.terminal, q[h.coordinates :], u[nu:], forces, h.inner, False)
    velocity_terms(0.0, h.structure, h.work, u, load3(0.0, turn, 9))
    joint_forces(0.0, h.structure, h.springs, q, u, tau, h.halving.total)
    assemble_bodies(0.0, h.structure, h.work, h.halving, h.hanging, h.handles.blocks)


@kernel(merge=True)
def outward_of_bodies(zero, part, q, u, tau, udot, rates):
    """Pass 3: accelerations and rates of the coordinates, given A1 and f2 in the table."""
    h = read(part, DCA_BODIES)
    spread_bodies(h.structure, h.halving, h.handles.loads, udot, h.inboard)
    coordinate_rates(0.0, h.structure, q, u, rates)
    if h.terminal.size > 0:
        assign(read(h.terminal, SEQUENCE.handles.loads), h.inboard)
        nq, nu = h.coordinates, h.structure.axes.size
        forces = tau[nu:] if tau.size > 0 else tau
        outward_of_all(zero, h.terminal, q[nq:], u[nu:], forces, udot[nu:], rates[nq:])


class DcaBodies(PartOfOne, PartByHandles):
    """Consecutive bodies of a chain, halved down to single ones: the leaves.

    Where they end at the tip, the last may be swept instead.

    It is used as `Subchains` of one subchain are; its equations are those of the acceleration form, with the inboard
    joint behind them [1, ASSEMBLY].

    Parameters
    ----------
    system : Contents
        A chain.
    first, last : int
        The bodies.
    terminal : Subchain, optional
        Swept in O(n), in place of leaves: those of the bodies that end at the tip.

    Attributes
    ----------
    leaves : int
        Number of bodies that are leaves.
    width : int
        Lanes in which the terminal subchain is swept.
    plan : int64 array
        What the compiled passes are given.
    blocks, loads : array [1, ASSEMBLY], [1, 12]
        See `sweep.structure.Handles`.

    Raises
    ------
    InputError
        A body has no inverse inertia.
    """

    def __init__(self, system: Contents, first: int, last: int, terminal: Subchain | None = None) -> None:
        leaves = last if terminal is None else terminal.first
        super().__init__(Subchain(system, first, last))
        self._terminal = None if terminal is None else Subchains([terminal])
        self.width = 1 if self._terminal is None else self._terminal.width
        nq, nu = system.sizes(first, leaves)
        columns = system.columns(first, leaves)
        made = build(columns, boundary_frames(system, inboard_bodies(columns)))
        self._steps = len(made.structure.steps)
        wrenches = system.has_wrenches(first, leaves)
        work = workspace(self._steps, nu, made.junctions, wrenches=wrenches)
        self._wrench = work.wrench
        count = self.leaves = leaves - first
        halving = Halving(
            np.pad(bisection(count), ((0, 0), (0, 3))),
            made.body_step,
            inverse_inertias(system, first, made.structure, made.body_step),
            aligned_zeros((2 * count - 1) * BLOCK),
            aligned_zeros(count * JOINT),
            aligned_zeros(count * RECORD),
            np.zeros((count + 1) * 6),
            np.zeros(nu),
            aligned_zeros(LEAF_SCRATCH),
            aligned_zeros(BLOCK),
        )
        self.blocks = aligned_zeros(ASSEMBLY).reshape(1, ASSEMBLY)
        self.loads = np.zeros((1, 12))
        plan = DcaBodiesPlan(
            Handles(np.zeros(TURNING), self.blocks, self.loads),
            made.structure,
            made.springs,
            work,
            halving,
            coordinates=nq,
            terminal=np.zeros(0, np.int64) if self._terminal is None else self._terminal.plan,
            hanging=np.zeros(0) if self._terminal is None else self._terminal.blocks.reshape(-1),
            inner=np.zeros(TURNING),
            inboard=np.zeros(12),
        )
        self._table = Table(plan)
        self.plan = self._table.data

    def handle_loads(self) -> tuple[Floats, Floats]:
        """Acceleration A1 of handle 1 [1, 6] and load f2 on handle 2 [1, 6], as they stand."""
        return self.loads[:, :6].copy(), self.loads[:, 6:].copy()

    def wrenches_taken(self) -> Taken:
        """Where its sweeps read external wrenches, as of `Part`."""
        behind = [] if self._terminal is None else self._terminal.wrenches_taken()
        own = self._wrench, np.arange(self._wrench.size)
        return [own, *((room, 6 * self._steps + numbers) for room, numbers in behind)]
