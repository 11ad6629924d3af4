"""From a model's columns to the arrays of the sweeps: frames turned so that joint axes are unit axes, depth-first
order."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.model import JOINT_TYPES, Columns
from mpimbs.model.order.order import heaviest_last
from mpimbs.sweep.along_joints import acts_as_servo
from mpimbs.sweep.structure import (
    ADDED,
    BODY,
    FIRST_Q,
    FIRST_U,
    FIXED,
    FROM_BEFORE,
    HELD,
    LAST_U,
    SINK,
    SLIDES,
    SOURCE,
    TURN,
    Springs,
    Structure,
)

NO_BODIES = np.zeros(0, np.int64)

# The joint types as tables: [type, number of the step within the joint].
_DEPTH = max(len(kind.steps) for kind in JOINT_TYPES)
_COUNT = np.array([len(kind.steps) for kind in JOINT_TYPES])
_TURN = np.zeros((len(JOINT_TYPES), _DEPTH), np.int64)
_SPEEDS = np.zeros((len(JOINT_TYPES), _DEPTH), np.int64)
_SLIDES = np.zeros((len(JOINT_TYPES), _DEPTH), np.int64)
_AXES = np.zeros((len(JOINT_TYPES), _DEPTH, 6), np.int64)
_ALIGN = np.full((len(JOINT_TYPES), _DEPTH, 3), np.nan)  # NaN: the joint's own axis
_DIRECTION = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}
for _i, _kind in enumerate(JOINT_TYPES):
    for _j, _step in enumerate(_kind.steps):
        _TURN[_i, _j] = _step.turn
        _SPEEDS[_i, _j] = len(_step.axes)
        _SLIDES[_i, _j] = sum(axis >= 3 for axis in _step.axes)
        _AXES[_i, _j, : len(_step.axes)] = _step.axes
        _ALIGN[_i, _j] = _DIRECTION.get(_step.align, np.nan)


class Build(NamedTuple):
    """A subchain or tree made ready for the sweeps: its steps, depth first with the heaviest child last."""

    structure: Structure
    springs: Springs
    junctions: int  # of which the first are those of the bodies outside
    body_step: Integers  # [n]: the step that carries each body
    body_frame: Floats  # [n, 3, 3]: step frame components to body frame components
    first_step: Integers  # [n]: the first step of each body's joint
    parent: Integers  # [n]: -1 - k of the body k outside
    order: Integers  # [n]: the bodies in the order of their steps
    sizes: Integers  # [n]: bodies of the subtree of each of these


def turned_to(axis: Floats) -> Floats:
    """Rotations whose z column is a given unit axis; exact permutations for coordinate axes.

    Parameters
    ----------
    axis : array [n, 3]

    Returns
    -------
    array [n, 3, 3]
        Components in the turned frame to components in the frame of `axis`.
    """
    largest = np.argmax(np.abs(axis), axis=1)
    reference = np.zeros_like(axis)
    reference[np.arange(len(axis)), (largest + 1) % 3] = 1.0
    x = reference - np.sum(reference * axis, axis=1, keepdims=True) * axis
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.stack([x, np.cross(axis, x), axis], axis=2)


def matrices_of(quaternions: Floats) -> Floats:
    """Rotation matrices [n, 3, 3] of quaternions w x y z [n, 4]; exactly the identity for the unit one."""
    if np.array_equal(quaternions, np.broadcast_to((1.0, 0.0, 0.0, 0.0), quaternions.shape)):
        return np.broadcast_to(np.eye(3), (len(quaternions), 3, 3))
    from scipy.spatial.transform import Rotation  # takes 0.2 s, a fifth of the start of a run

    return Rotation.from_quat(quaternions[:, [1, 2, 3, 0]]).as_matrix()


def different_rows(table: Floats) -> tuple[Floats, Integers]:
    """Different rows of a table [n, m], in the order in which they first come, and for each row which of them it is."""
    rows = np.ascontiguousarray(table)
    bits = rows.view(np.uint64)
    which = _numbered_as_they_come(bits @ _weights(bits.shape[1]))  # modulo 2^64
    first = np.unique(which, return_index=True)[1]
    if not np.array_equal(bits[first][which], bits):  # two different rows of one sum, once in 10^7 tables of 10^6 rows
        which = _numbered_as_they_come(bits.view([("", np.uint64)] * bits.shape[1]).ravel())
        first = np.unique(which, return_index=True)[1]
    return np.ascontiguousarray(rows[first]), which


@functools.cache  # making them takes longer than most sums that they weigh
def _weights(count: int) -> npt.NDArray[np.uint64]:
    return np.random.default_rng(1).integers(0, 2**63, count, np.uint64) * np.uint64(2) + np.uint64(1)


def _numbered_as_they_come(values: npt.NDArray[Any]) -> Integers:
    """Number the different values in the order in which they first come; give each one's number [n]."""
    _, first, which = np.unique(values, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[which]


class _Steps(NamedTuple):
    """The steps of the joints of n bodies, in depth-first order."""

    parent: Integers  # [n]: local, -1 - k of inboard body k
    order: Integers  # [n]: the bodies, depth first
    sizes: Integers  # [n]: bodies of the subtree of each of these
    first: Integers  # [n]: first step of each body's joint
    last: Integers  # [n]: last step of it, which carries the body
    body: Integers  # [m]: of each step
    kind: Integers  # [m]: joint type of each step, the row of the tables above ...
    slot: Integers  # [m]: ... and its number within its joint, the column


def _steps(columns: Columns, inboard: Integers) -> _Steps:
    """Put the joints of the bodies in depth-first order, step by step."""
    kind = columns.joint_type.astype(np.int64)
    parent = columns.parent - columns.first
    roots = np.flatnonzero(parent < 0)
    parent[roots] = -1 - _slots(columns.parent[roots], inboard)
    order, sizes = heaviest_last(np.maximum(parent, -1))
    count = _COUNT[kind[order]]
    end = np.cumsum(count)
    body = np.repeat(order, count)
    last = np.empty(len(kind), np.int64)
    last[order] = end - 1
    slot = np.arange(len(body)) - np.repeat(end - count, count)
    return _Steps(parent, order, sizes, last - _COUNT[kind] + 1, last, body, kind[body], slot)


def _slots(parents: Integers, inboard: Integers) -> Integers:
    """Which of the bodies outside [k], ascending, each root hangs on, given their parents.

    Where a body is there several times, the last root on it has the first of its slots, and so on.
    """
    order = np.argsort(parents, kind="stable")
    number = np.empty(len(parents), np.int64)  # among those on the same body
    number[order] = np.arange(len(parents)) - np.searchsorted(parents[order], parents[order])
    first, behind = (np.searchsorted(inboard, parents, side) for side in ("left", "right"))
    slots: Integers = np.maximum(first, behind - 1 - number)
    return slots


def inboard_bodies(columns: Columns) -> Integers:
    """Bodies outside that these hang on [k], ascending; -1 is the world."""
    return np.unique(columns.parent[columns.parent < columns.first])


def build(columns: Columns, boundary_frames: Floats | None = None, inboard: Integers | None = None) -> Build:
    """Make the arrays of the sweeps from a model's columns.

    Parameters
    ----------
    columns : Columns
        The bodies of the subchain or tree.
    boundary_frames : array [k, 3, 3], optional
        The `body_frame` of each of the bodies outside that they hang on; identity by default, as of the world.
    inboard : array [k], optional
        These, as `inboard_bodies` gives them by default; a body that is there as often as bodies hang on it has a slot
        for each of them.
    """
    inboard = inboard_bodies(columns) if inboard is None else inboard
    if boundary_frames is None:
        boundary_frames = np.broadcast_to(np.eye(3), (len(inboard), 3, 3))
    made = _steps(columns, inboard)
    steps = np.empty((len(made.body), 8), np.int64)
    axes, pitch = _freedoms(steps, columns, made)
    junctions = join_steps(steps, made.parent, made.first, made.last, len(inboard))
    different, steps[:, BODY], body_frame = _fixed(columns, made, boundary_frames)
    path = path_to(made.order[-1], made.parent, made.first, made.last)
    fixed, added = parted(different)
    structure = Structure(steps, axes, fixed, pitch, _pivots_of(columns), path, added)
    tree = made.first, made.parent, made.order, made.sizes
    return Build(structure, _springs(columns), junctions, made.last, body_frame, *tree)


def _fixed(columns: Columns, made: _Steps, boundary_frames: Floats) -> tuple[Floats, Integers, Floats]:
    """Make what is fixed of the steps, [different, FIXED] or more, as `parted` takes it; which row each step has [m];
    the `body_frame` of each body.

    It is computed once for all bodies that are alike, on parents that are.
    """
    own = columns.alike
    above = np.where(made.parent >= 0, own[made.parent], own.max() - made.parent)
    place, here = _first_of_each((above * (own.max() + 1) + own)[made.order])
    few, which = made.order[place], np.empty(len(own), np.int64)
    which[made.order] = here
    some = columns.some(few)
    count = made.last[few] - made.first[few] + 1
    last = np.cumsum(count) - 1
    first = last - count + 1
    body = np.repeat(np.arange(len(few)), count)
    slot = np.arange(len(body)) - first[body]
    align = _ALIGN[some.joint_type.astype(np.int64)[body], slot]
    frame = turned_to(np.where(np.isnan(align), some.axis[body], align))  # every step's z, or only frame, is the axis
    body_frame = frame[last]
    parent = made.parent[few]
    inside = parent >= 0
    on = np.empty((len(few), 3, 3))
    on[inside], on[~inside] = body_frame[which[parent[inside]]], boundary_frames[-1 - parent[~inside]]
    heavier = columns.added_mass
    fixed = np.zeros((len(body), FIXED + ADDED * (heavier is not None)))
    _place(fixed, some, first, frame, on)
    fixed[last, 12:FIXED] = _bodies(some, body_frame)
    if some.added_mass is not None:
        fixed[last, FIXED:] = turned_inertias(some.added_mass, body_frame)
    different, row = different_rows(fixed)
    return different, row[first[which[made.body]] + made.slot], body_frame[which]


def parted(different: Floats, lanes: int = 1) -> tuple[Floats, Floats]:
    """Part rows of what is fixed of steps and of what is added to their bodies, if anything is: `Structure.fixed` and
    `Structure.added`."""
    at = FIXED * lanes
    return different[:, :at].ravel(), different[:, at:].ravel()


def turned_inertias(matrices: Floats, frames: Floats) -> Floats:
    """Symmetric parts of 6x6 matrices [n, 6, 6] in frames turned in theirs [n, 3, 3]: upper triangles [n, ADDED]."""
    change = np.zeros((len(frames), 6, 6))
    change[:, :3, :3] = change[:, 3:, 3:] = frames
    whole = np.swapaxes(change, 1, 2) @ matrices @ change
    upper = np.triu_indices(6)
    found: Floats = 0.5 * (whole + np.swapaxes(whole, 1, 2))[:, upper[0], upper[1]]
    return found


def _first_of_each(keys: Integers) -> tuple[Integers, Integers]:
    """Where each of the different keys, none negative, first stands, by rising place; which of them each one is [n]."""
    if len(keys) and keys.max() < 4 * len(keys) + 1000:  # a table is faster than to sort
        where = np.full(int(keys.max()) + 1, -1)
        where[keys[::-1]] = np.arange(len(keys))[::-1]
        first = np.sort(where[where >= 0])
        where[keys[first]] = np.arange(len(first))
        return first, where[keys]
    which = _numbered_as_they_come(keys)
    return np.unique(which, return_index=True)[1], which


def _place(fixed: Floats, columns: Columns, first: Integers, frame: Floats, above: Floats) -> None:
    """Write the frame of each step in that of its parent: rotation and position.

    Given the first step of each body, the frames of the steps [m, 3, 3] and those of the bodies' parents [n, 3, 3].
    """
    previous = np.concatenate([np.eye(3)[None], frame[:-1]])
    rotation = np.swapaxes(frame, 1, 2) @ previous
    joint = np.swapaxes(matrices_of(columns.rotation), 1, 2)
    rotation[first] = np.swapaxes(frame[first], 1, 2) @ joint @ above
    fixed[:, 0:9] = rotation.reshape(-1, 9)
    fixed[first, 9:12] = np.einsum("nji,nj->ni", above, columns.position)


def _bodies(columns: Columns, body_frame: Floats) -> Floats:
    """Inertia 6 about the origin, first moment of mass 3 and mass of each body, in the frame of its step [n, 10]."""
    xx, yy, zz, xy, xz, yz = columns.inertia.T
    central = np.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], axis=1).reshape(-1, 3, 3)
    center = np.einsum("nji,nj->ni", body_frame, columns.center_of_mass)
    h = columns.mass[:, None] * center
    shift = np.einsum("nk,nk->n", h, center)[:, None, None] * np.eye(3) - h[:, :, None] * center[:, None, :]
    about = np.swapaxes(body_frame, 1, 2) @ central @ body_frame + shift
    upper = np.triu_indices(3)
    return np.concatenate([about[:, upper[0], upper[1]], h, columns.mass[:, None]], axis=1)


def _freedoms(steps: Integers, columns: Columns, made: _Steps) -> tuple[Integers, Floats]:
    """Write where the coordinates of each step are, in the model's order; axis and pitch of each freedom [nu]."""
    body, at = made.body, (made.kind, made.slot)
    speeds, coordinates = _SPEEDS[at], _TURN[at] + _SLIDES[at]
    before_u = np.cumsum(speeds) - speeds
    before_q = np.cumsum(coordinates) - coordinates
    steps[:, TURN] = _TURN[at]
    steps[:, FIRST_Q] = columns.q_offset[body] + before_q - before_q[made.first[body]]
    steps[:, FIRST_U] = columns.u_offset[body] + before_u - before_u[made.first[body]]
    steps[:, LAST_U] = steps[:, FIRST_U] + speeds
    steps[:, SLIDES] = (_SLIDES[at] > 0) | (columns.pitch[body] != 0.0)
    step, degree = freedoms_of(steps)
    number = degree - steps[step, FIRST_U]
    axes = np.empty(columns.u_offset[-1], np.int64)
    pitch = np.zeros(columns.u_offset[-1])
    axes[degree] = _AXES[made.kind[step], made.slot[step], number]
    pitch[degree] = columns.pitch[body[step]]
    return axes, pitch


def freedoms_of(steps: Integers) -> tuple[Integers, Integers]:
    """Give the step of each freedom of steps [m, 8], in sequence, and which speed is along it [nu]."""
    counts = steps[:, LAST_U] - steps[:, FIRST_U]
    step = np.repeat(np.arange(len(steps)), counts)
    return step, steps[step, FIRST_U] + np.arange(len(step)) - np.repeat(np.cumsum(counts) - counts, counts)


class AlongAxes:
    """Takes loads on steps along the axes that these free."""

    def __init__(self, structure: Structure) -> None:
        step, speed = freedoms_of(structure.steps)
        axis, self._at = structure.axes[speed], np.empty(len(structure.axes), np.int64)
        self._at[speed] = 6 * step + axis
        self._screws = np.flatnonzero(structure.pitch)  # no other axis has a pitch
        self._pitch = structure.pitch[self._screws]
        self._slides = self._at[self._screws] // 6 * 6 + (self._at[self._screws] + 3) % 6

    def __call__(self, loads: Floats) -> Floats:
        """Give the components [nu] of loads on steps [m, 6], in their frames."""
        flat = loads.reshape(-1)
        found: Floats = flat[self._at]
        found[self._screws] += self._pitch * flat[self._slides]
        return found


def path_to(body: int, parent: Integers, first: Integers, last: Integers) -> Integers:
    """The steps from handle 1 to a body; arguments as of `join_steps`."""
    if np.array_equal(parent, np.arange(-1, len(parent) - 1)):
        return np.arange(int(last[body]) + 1)
    bodies = []
    while body >= 0:
        bodies.append(body)
        body = int(parent[body])
    first, last = first[bodies[::-1]], last[bodies[::-1]]
    counts = last - first + 1
    end = np.cumsum(counts)
    return np.arange(end[-1] if len(end) else 0) + np.repeat(first - (end - counts), counts)


def join_steps(
    steps: Integers,
    parent: Integers,
    first: Integers,
    last: Integers,
    boundaries: int,
    outside_bodies: Integers = NO_BODIES,
) -> int:
    """Write from which junction each step takes its motion and into which it gathers loads; how many there are.

    Junctions are the bodies outside, and those with a child that does not follow at once.

    Parameters
    ----------
    steps : array [m, 8]
    parent, first, last : array [n]
        Of each body: -1 - k where it lies on the body k outside; its first step, and the one that carries it.
    boundaries : int
        Bodies outside.
    outside_bodies : array, optional
        Bodies on which others hang that are not among these: junctions, too.
    """
    steps[:, SOURCE] = FROM_BEFORE
    steps[:, SINK] = -1
    inside = parent >= 0
    carried = np.zeros(len(parent), bool)
    carried[inside] = first[inside] == last[parent[inside]] + 1
    slotted = np.zeros(len(parent), bool)
    slotted[parent[~carried & inside]] = slotted[outside_bodies] = True
    branching = np.flatnonzero(slotted)
    junction = np.zeros(len(parent) + boundaries, np.int64)
    junction[branching] = np.arange(boundaries, boundaries + len(branching))
    junction[len(parent) :] = np.arange(boundaries)[::-1]
    steps[first[~carried], SOURCE] = junction[parent[~carried]]
    steps[last[branching], SINK] = junction[branching]
    return boundaries + len(branching)


def with_slots(made: Build, boundaries: int, bodies: Integers) -> Build:
    """Give the same structure with slots for some of its bodies, too; `boundaries` is the number of bodies outside."""
    steps = made.structure.steps.copy()
    junctions = join_steps(steps, made.parent, made.first_step, made.body_step, boundaries, bodies)
    return made._replace(structure=made.structure._replace(steps=steps), junctions=junctions)


def rotors_of(columns: Columns) -> Floats:
    """Inertias of the rotors of all freedoms [nu], or none where there is none."""
    return columns.armature[: None if columns.armature.any() else 0].copy()


def _pivots_of(columns: Columns) -> Floats:
    """Give what is added to the pivots of all freedoms [nu]: rotors, and what holds axes that follow; or none."""
    if not columns.prescribed.any():
        return rotors_of(columns)
    return np.where(columns.prescribed, HELD, columns.armature)


def _springs(columns: Columns) -> Springs:
    """Joint forces of the model, of the kinds that there are."""
    sprung, damped = columns.stiffness.any(), columns.damping.any() or columns.torque.any()
    stops = ("lower", "upper", "stop_stiffness", "stop_damping")
    return Springs(
        columns.stiffness[: None if sprung else 0].copy(),
        columns.rest[: None if sprung else 0].copy(),
        columns.damping[: None if damped else 0].copy(),
        columns.torque[: None if damped else 0].copy(),
        columns.cross_stiffness[: None if columns.cross_stiffness.any() else 0].copy(),
        *(getattr(columns, name).copy() if columns.stopped else np.zeros(0) for name in stops),
        *(_servos(columns) if columns.bounded else [np.zeros(0)] * 7),
    )


def _servos(columns: Columns) -> list[Floats]:
    """Give the last seven fields of `Springs` [nu]."""
    c, there = columns, acts_as_servo(columns, True)
    given = c.servo_torque, c.servo_stiffness, c.servo_damping
    ends = np.where(there, c.servo_least, -np.inf), np.where(there, c.servo_most, np.inf)
    return [*(np.where(there, values, 0.0) for values in given), *ends, c.friction.copy(), c.rubbing.copy()]
