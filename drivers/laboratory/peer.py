"""What all peers share: what a peer is, why it may give no figure, and the loads of the joints that it is handed.

A peer is another program for multibody dynamics in which the same system is built at the same state. Each has a module
of its own, `peer_<name>`, which alone imports it; the table of them and the comparison are in `peers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from mpimbs.dynamics.resources import free_memory
from mpimbs.model import JOINT_TYPES, Columns, System

Floats = npt.NDArray[np.float64]

SHARE = 0.5  # of the free memory that a peer may take


class UnavailableError(Exception):
    """A peer gives no figure: a short reason, a colon, the details or the remedy."""


@dataclass(frozen=True)
class Peer:
    """A system in another program, at one state.

    Attributes
    ----------
    version : str
        Of the program.
    ways : dict of str to function
        The ways in which it evaluates forward dynamics, each a function without arguments; what is timed.
    in_our_order : function
        From what such a function returns to the generalized accelerations [nu] (rad/s^2, m/s^2), in the model's order.
    rough : dict of str to float
        Of a way that is known to be less accurate than `peers.AGREEMENT`: the difference up to which it is timed.
    """

    version: str
    ways: dict[str, Callable[[], Any]]
    in_our_order: Callable[[Any], Floats]
    rough: dict[str, float] = field(default_factory=dict)


@contextmanager
def installed(module: str, package: str) -> Iterator[None]:
    """Say how to install a program whose import fails inside."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module:
            raise
        raise UnavailableError(f"not installed: pip install {package}") from error
    except ImportError as error:
        raise UnavailableError(f"does not load: {error}") from error


def check_need(need: float, growth: str, memory: float | None) -> None:
    """Refuse to build what needs more memory than a peer may take.

    Parameters
    ----------
    need : float
        Bytes.
    growth : str
        How it grows, such as "n^3".
    memory : float, optional
        What may be taken (bytes); half of what is free by default.

    Raises
    ------
    UnavailableError
    """
    allowed = SHARE * free_memory(swap=False) if memory is None else memory
    if need > allowed:
        shares = f"needs {need / 1e9:.3g} GB of the {allowed / 1e9:.3g} GB it may take"
        raise UnavailableError(f"out of memory (data grow as {growth}): {shares}")


def check_model(system: System, types: set[str], program: str, loop_types: Collection[str] = ()) -> Columns:
    """Give the columns of a system, or say what a program, which knows these types of joints, can't take of it.

    Raises
    ------
    UnavailableError
    """
    columns = system.columns()
    closing = sorted({loop.type for loop in system.loops} - set(loop_types))
    if closing:
        raise UnavailableError(f"not comparable: the model closes loops, and {program} none by a {closing[0]} joint")
    if columns.wrenches or columns.added_mass is not None:
        raise UnavailableError("not comparable: the model's wrenches on bodies are not handed to peers")
    if system.springs:
        raise UnavailableError("not comparable: springs between bodies are not handed to peers")
    if system.force_functions:
        raise UnavailableError("not comparable: functions of the state are not handed to peers")
    unknown = sorted({JOINT_TYPES[k].name for k in np.unique(columns.joint_type)} - types)
    if unknown:
        raise UnavailableError(f"not comparable: {program} has no {' and no '.join(unknown)} joint")
    return columns


def turned(c: Columns) -> npt.NDArray[np.bool_]:
    """Say of each body [n] whether its joint's coordinates begin with a quaternion."""
    return np.array([kind.quaternion for kind in JOINT_TYPES])[c.joint_type]


def rotations(c: Columns, q: Floats) -> Rotation:
    """Give the rotations of all joints with quaternions: body components into those of the joint frame."""
    w_first = q[c.q_offset[:-1][turned(c)][:, None] + np.arange(4)]
    return Rotation.from_quat(w_first[:, [1, 2, 3, 0]].reshape(-1, 4))


def plain_joint_forces(c: Columns, q: Floats, u: Floats, tau: Floats | None = None) -> Floats:
    """Give the generalized forces [nu] (N m, N) of springs, dampers, torques at time 0 and `tau`, by plain formulas.

    Peers don't have them all, so they get them as numbers: the time of a peer does not contain their evaluation, that
    of this package does.
    """
    loads = c.torque - c.damping * u + (0.0 if tau is None else tau)
    for k, function in c.torque_functions:
        loads[c.u_offset[k] : c.u_offset[k + 1]] += function(0.0)

    # Angles and displacements: -k (q - rest).
    quaternion = turned(c)
    plain_q, plain_u = (~np.repeat(quaternion, np.diff(offset)) for offset in (c.q_offset, c.u_offset))
    loads[plain_u] -= c.stiffness[plain_u] * (q - c.rest)[plain_q]

    # Quaternions: J^-T K x of the rotation vector x from rest, in body components.
    if quaternion.any():
        rotation = rotations(c, q)
        first = c.u_offset[:-1][quaternion][:, None] + np.arange(3)
        x = (rotations(c, c.rest).inv() * rotation).as_rotvec()
        k = c.stiffness[first][:, :, None] * np.eye(3)
        k[:, [0, 0, 1], [1, 2, 2]] = k[:, [1, 2, 2], [0, 0, 1]] = c.cross_stiffness[first]
        pull = np.einsum("nij,nj->ni", k, x)
        half = np.linalg.norm(x, axis=1, keepdims=True) / 2
        bend = (1 - 1 / np.sinc(half / np.pi) * np.cos(half)) / np.maximum(4 * half**2, 1e-300)
        loads[first] -= pull - np.cross(x, pull) / 2 + bend * np.cross(x, np.cross(x, pull))

        # Positions of free joints: -k (q - rest) along the axes of the joint frame, in body components.
        free = np.diff(c.u_offset)[quaternion] == 6
        if free.any():
            at = c.q_offset[:-1][quaternion][free][:, None] + np.arange(4, 7)
            pull = c.stiffness[first[free] + 3] * (q - c.rest)[at]
            loads[first[free] + 3] -= rotation[free].inv().apply(pull)
    return loads
