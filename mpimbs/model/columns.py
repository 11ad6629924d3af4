"""A range of bodies as columns of numbers: what the sweeps read.

`expand` turns a few template bodies and the template of every body into `Columns`, without a loop over
bodies, so that a rank expands its own part of a system of millions of bodies in well under a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpimbs.model.body import Body, Wrench
from mpimbs.model.joints import joint_index
from mpimbs.model.segments import Integers, counts
from mpimbs.model.table import TimeFunction

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """The bodies `first` to `first + n - 1` of a system, one row for each; SI units, quaternions w x y z.

    Attributes
    ----------
    first : int
        Index in the system of the first body here.
    parent : int64 [n]
        Index in the system of each body's parent; -1 is the world.
    joint_type : int8 [n]
        Row of `JOINT_TYPES`.
    axis : float [n, 3]
        Unit axis of the joint in the joint frame; z for types that take none.
    pitch : float [n]
        m/rad; 0 for types that take none.
    position, rotation : float [n, 3], float [n, 4]
        Origin (m) and unit quaternion of the joint frame in the parent's frame, at q = 0.
    mass : float [n]
        kg.
    center_of_mass : float [n, 3]
        m, body frame (origin at the inboard joint).
    inertia : float [n, 6]
        xx yy zz xy xz yz about the center of mass, body axes, kg m^2.
    q_offset, u_offset : int64 [n + 1]
        Body k of these owns `q[q_offset[k]:q_offset[k + 1]]`, and u likewise; both start at 0.
    q, rest : float [nq]
        Initial coordinates, and those at which the springs carry no load; rad, m or quaternions.
    u, stiffness, damping, torque : float [nu]
        Initial speeds (rad/s, m/s), and of each free axis the spring (N m/rad, N/m), the damper (N m s/rad, N
        s/m) and the constant actuation (N m, N), which is 0 where a function of time stands in its place.
    torque_functions : list of (int, function)
        Local body and the function of time that drives its joint.
    wrenches : list of (int, Wrench)
        Local body and what acts on it; a body may come several times.
    """

    first: int
    parent: Integers
    joint_type: NDArray[np.int8]
    axis: Floats
    pitch: Floats
    position: Floats
    rotation: Floats
    mass: Floats
    center_of_mass: Floats
    inertia: Floats
    q_offset: Integers
    u_offset: Integers
    q: Floats
    rest: Floats
    u: Floats
    stiffness: Floats
    damping: Floats
    torque: Floats
    torque_functions: list[tuple[int, TimeFunction]]
    wrenches: list[tuple[int, Wrench]]

    @property
    def n(self) -> int:
        """Number of bodies."""
        return len(self.parent)


def offsets(sizes: Integers) -> Integers:
    """Return where each of the blocks of these sizes begins, and at last where all end: int64 [n + 1]."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def expand(first: int, parent: Integers, bodies: Sequence[Body], rows: Integers) -> Columns:
    """Expand template bodies to columns.

    Parameters
    ----------
    first : int
        Index in the system of the first body of the columns.
    parent : int64 [n]
        Index in the system of each body's parent.
    bodies : sequence of Body
        The templates.
    rows : int64 [n]
        Which template each body follows.
    """
    joints = [body.joint for body in bodies]
    nq, nu = counts(bodies)
    q_offset, u_offset = offsets(nq[rows]), offsets(nu[rows])
    driven = [callable(joint.torque) for joint in joints]
    constant = [(0.0,) * joint.kind.nu if callable(joint.torque) else joint.torque for joint in joints]

    def column(values: Sequence[object], *shape: int) -> Floats:
        return np.array(values, np.float64).reshape(len(bodies), *shape).take(rows, axis=0)

    q_index, u_index = _block_index(nq, rows, q_offset), _block_index(nu, rows, u_offset)
    return Columns(
        first=first,
        parent=parent,
        joint_type=np.array([joint_index(joint.type) for joint in joints], np.int8)[rows],
        axis=column([joint.axis for joint in joints], 3),
        pitch=column([joint.pitch for joint in joints]),
        position=column([joint.position for joint in joints], 3),
        rotation=column([joint.rotation for joint in joints], 4),
        mass=column([body.mass for body in bodies]),
        center_of_mass=column([body.center_of_mass for body in bodies], 3),
        inertia=column([body.inertia for body in bodies], 6),
        q_offset=q_offset,
        u_offset=u_offset,
        q=_joined([joint.q for joint in joints])[q_index],
        rest=_joined([joint.rest for joint in joints])[q_index],
        u=_joined([joint.u for joint in joints])[u_index],
        stiffness=_joined([joint.stiffness for joint in joints])[u_index],
        damping=_joined([joint.damping for joint in joints])[u_index],
        torque=_joined(constant)[u_index],
        torque_functions=[(k, joints[rows[k]].torque) for k in _where(driven, rows)],
        wrenches=[(k, w) for k in _where([bool(b.wrench) for b in bodies], rows) for w in bodies[rows[k]].wrench],
    )


def initial_state(bodies: Sequence[Body], rows: Integers) -> tuple[Floats, Floats]:
    """Return the initial coordinates q and speeds u of expanded bodies; arguments as in `expand`."""
    nq, nu = counts(bodies)
    joints = [body.joint for body in bodies]
    q_index, u_index = (_block_index(size, rows, offsets(size[rows])) for size in (nq, nu))
    return _joined([joint.q for joint in joints])[q_index], _joined([joint.u for joint in joints])[u_index]


def _joined(blocks: Sequence[tuple[float, ...]]) -> Floats:
    return np.array([value for block in blocks for value in block], np.float64)


def _block_index(sizes: Integers, rows: Integers, offset: Integers) -> Integers:
    """Return where, in the joined blocks of the templates, each number of the expanded blocks stands."""
    shift = offsets(sizes)[rows] - offset[:-1]
    return np.arange(offset[-1]) + np.repeat(shift, sizes[rows])


def _where(selected: Sequence[bool], rows: Integers) -> list[int]:
    """Return the bodies whose template is selected."""
    return np.flatnonzero(np.array(selected, bool)[rows]).tolist()
