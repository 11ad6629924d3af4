"""From a model's columns to the arrays of the sweeps: frames turned so that joint axes are unit axes, depth-first
order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.model import JOINT_TYPES, Columns
from mpimbs.sweep.structure import (
    BODY,
    CARRIED,
    FIRST_Q,
    FIRST_U,
    FIXED,
    LAST_U,
    SINK,
    SLIDES,
    SOURCE,
    TURN,
    Springs,
    Structure,
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

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
    """A subchain made ready for the sweeps."""

    structure: Structure
    springs: Springs
    junctions: int
    body_step: Integers  # [n]: the step that carries each body
    body_frame: Floats  # [n, 3, 3]: step frame components to body frame components


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
    found: dict[bytes, int] = {}
    which = np.array([found.setdefault(row.tobytes(), len(found)) for row in rows], np.int64)
    first = np.unique(which, return_index=True)[1]
    return np.ascontiguousarray(rows[first]), which


def depth_first(parent: Integers) -> Integers:
    """Depth-first order of the bodies of a tree: a body's last child in the list follows it at once.

    Parameters
    ----------
    parent : array [n]
        Local parent, -1 at the boundary; every parent before its children.
    """
    n = len(parent)
    if np.array_equal(parent, np.arange(-1, n - 1)):
        return np.arange(n)
    children: list[list[int]] = [[] for _ in range(n + 1)]
    for body, above in enumerate(parent.tolist()):
        children[above].append(body)
    order, stack = [], children[-1][::-1]
    while stack:
        body = stack.pop()
        order.append(body)
        stack.extend(children[body][::-1])
    return np.array(order, np.int64)


def build(columns: Columns, boundary_frame: Floats | None = None) -> Build:
    """Make the arrays of the sweeps from a model's columns.

    Parameters
    ----------
    columns : Columns
        The bodies of the subchain or tree; parents outside of it are the boundary.
    boundary_frame : array [3, 3], optional
        `body_frame` of the body that the subchain hangs on, which another process owns; identity for the world.
    """
    kind = columns.joint_type.astype(np.int64)
    n = len(kind)
    parent = np.where(columns.parent >= columns.first, columns.parent - columns.first, -1)
    order = depth_first(parent)
    count = _COUNT[kind[order]]
    end = np.cumsum(count)
    body = np.repeat(order, count)  # body of each step
    slot = np.arange(len(body)) - np.repeat(end - count, count)  # number of the step within its joint
    body_step = np.empty(n, np.int64)
    body_step[order] = end - 1
    first_step = body_step - _COUNT[kind] + 1

    # Frames: every step's z (or its only frame) turned to the joint's axis.
    align = _ALIGN[kind[body], slot]
    axis = np.where(np.isnan(align), columns.axis[body], align)
    frame = turned_to(axis)
    body_frame = frame[body_step]
    above = np.concatenate([body_frame, np.eye(3)[None] if boundary_frame is None else boundary_frame[None]])[parent]
    previous = np.concatenate([np.eye(3)[None], frame[:-1]])
    position = np.zeros((len(body), 3))
    rotation = np.swapaxes(frame, 1, 2) @ previous
    rotation[first_step] = (
        np.swapaxes(frame[first_step], 1, 2) @ np.swapaxes(matrices_of(columns.rotation), 1, 2) @ above
    )
    position[first_step] = np.einsum("nji,nj->ni", above, columns.position)

    # Bodies, in the frame of the last step of their joint, about its origin.
    xx, yy, zz, xy, xz, yz = columns.inertia.T
    central = np.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], axis=1).reshape(n, 3, 3)
    center = np.einsum("nji,nj->ni", body_frame, columns.center_of_mass)
    h = columns.mass[:, None] * center
    shift = np.einsum("nk,nk->n", h, center)[:, None, None] * np.eye(3) - h[:, :, None] * center[:, None, :]
    about = np.swapaxes(body_frame, 1, 2) @ central @ body_frame + shift
    fixed = np.zeros((len(body), FIXED))
    fixed[:, 0:9] = rotation.reshape(-1, 9)
    fixed[:, 9:12] = position
    upper = np.triu_indices(3)
    fixed[body_step, 12:18] = about[:, upper[0], upper[1]]
    fixed[body_step, 18:21] = h
    fixed[body_step, 21] = columns.mass

    # Coordinates and axes, in the model's order.
    speeds = _SPEEDS[kind[body], slot]
    coordinates = _TURN[kind[body], slot] + _SLIDES[kind[body], slot]
    before_u = np.cumsum(speeds) - speeds
    before_q = np.cumsum(coordinates) - coordinates
    steps = np.empty((len(body), 8), np.int64)
    steps[:, TURN] = _TURN[kind[body], slot]
    steps[:, FIRST_Q] = columns.q_offset[body] + before_q - before_q[first_step[body]]
    steps[:, FIRST_U] = columns.u_offset[body] + before_u - before_u[first_step[body]]
    steps[:, LAST_U] = steps[:, FIRST_U] + speeds
    steps[:, SLIDES] = (_SLIDES[kind[body], slot] > 0) | (columns.pitch[body] != 0.0)
    freed = np.arange(6) < speeds[:, None]
    degree = (steps[:, FIRST_U, None] + np.arange(6))[freed]
    axes = np.empty(columns.u_offset[-1], np.int64)
    pitch = np.zeros(columns.u_offset[-1])
    axes[degree] = _AXES[kind[body], slot][freed]
    pitch[degree] = np.broadcast_to(columns.pitch[body][:, None], freed.shape)[freed]

    # Junctions: the boundary, and bodies with a child that does not follow at once.
    steps[:, SOURCE] = CARRIED
    steps[:, SINK] = -1
    carried = np.zeros(n, bool)
    carried[order[1:]] = parent[order[1:]] == order[:-1]
    branching = np.unique(parent[~carried & (parent >= 0)])
    junction = np.zeros(n + 1, np.int64)
    junction[branching] = np.arange(1, len(branching) + 1)
    steps[first_step[~carried], SOURCE] = junction[parent[~carried]]
    steps[body_step[branching], SINK] = junction[branching]

    different, steps[:, BODY] = different_rows(fixed)
    structure = Structure(steps, axes, different.ravel(), pitch)
    sprung, damped = columns.stiffness.any(), columns.damping.any() or columns.torque.any()
    springs = Springs(
        columns.stiffness[: None if sprung else 0].copy(),
        columns.rest[: None if sprung else 0].copy(),
        columns.damping[: None if damped else 0].copy(),
        columns.torque[: None if damped else 0].copy(),
    )
    return Build(structure, springs, len(branching) + 1, body_step, body_frame)
