"""Bodies without inertia in some direction, such as links between two hinges: what lies on them resists their joints.

Such a body is eliminated together with what it carries: it needs nothing of its own, but can't be apart from that. What
resists its joint is what its children leave of their own inertia. Bodies farther out leave no less [Featherstone 2008,
eq. 7.23: articulated inertia is singular along the axes of the joint that is eliminated, and along no others], so a
look at the bodies around is enough.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpimbs.base.arrays import Floats, Integers, cross_matrix
from mpimbs.base.errors import InputError
from mpimbs.model.body import Body
from mpimbs.model.contents import Contents
from mpimbs.model.joint import Joint

LEAST = 1e-11  # of what would resist with all joints beyond locked: what rounding leaves of nothing
_NONE = np.zeros(0, np.int64)
_TOWARDS = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


def thin_bodies(system: Contents, ends: bool = False) -> Integers:
    """Return the bodies without inertia in some direction whose joints no motion drives, in order: int64.

    With `ends`, of those that are repeated the first and the last.
    """
    found = [
        segment.first + place + segment.places * np.unique([0, segment.count - 1] if ends else np.arange(segment.count))
        for segment in system.segments
        if any(map(_yields, segment.bodies))
        for place in segment.where(_yields)
    ]
    return np.sort(np.concatenate(found)) if found else _NONE


def _yields(body: Body) -> bool:
    return body.thin and body.joint.motion is None


def check_resistance(
    system: Contents, thin: Integers, together: Callable[[Integers], Integers] | None = None, where: str = ""
) -> None:
    """Refuse bodies of which one moves against nothing, in the position in which the system begins.

    Parameters
    ----------
    thin : int64 array
        Bodies to look at.
    together : callable, optional
        Of children of one body, those that are swept with it; by default all are.
    where : str
        What the message says of these.

    Raises
    ------
    InputError
        Names the body.
    """
    if not len(thin):
        return
    resistance = Resistance(system)
    for k in thin[::-1].tolist():
        children = resistance.children_of(k)
        if not resistance.suffices(k, children if together is None else together(children)):
            reason = "joints on it move it the same way" if len(children) else "nothing lies on it"
            raise InputError(
                f"system {system.name!r}: nothing resists the joint of body {system.name_of(k)!r}{where}: it has no "
                f"inertia of its own there, and {reason}; give it mass and inertia, or fix or remove a joint"
            )


class Resistance:
    """The resistance to the joints of thin bodies, in the position in which the system begins."""

    def __init__(self, system: Contents) -> None:
        self._system, self._parents = system, system.parents()

    def children_of(self, k: int) -> Integers:
        """The bodies on body k, in order."""
        return np.flatnonzero(self._parents == k)

    def suffices(self, k: int, children: Integers) -> bool:
        """Whether body k and some of its children resist its joint."""
        joint = self._system.body(k).joint
        axes, _ = _motions(joint)
        if not axes.size:
            return True
        rotors = np.diag(np.broadcast_to(joint.armature, axes.shape[1]))
        try:
            whole = np.sqrt(np.diag(axes.T @ self._beyond(k, children, True) @ axes + rotors))
            pivot = axes.T @ self._beyond(k, children, False) @ axes + rotors  # D = S^T I S
        except RecursionError:  # no hundred joints are resisted by one body
            return False
        return bool(whole.all() and np.linalg.eigvalsh(pivot / np.outer(whole, whole))[0] >= LEAST)

    def _beyond(self, k: int, children: Integers, locked: bool) -> Floats:
        """The articulated inertia [6, 6] of body k about its origin, or that with all joints beyond locked."""
        inertia = _inertia(self._system.body(k))
        for child in children.tolist():
            body = self._system.body(child)
            own = self._beyond(child, self.children_of(child) if body.thin else _NONE, locked)
            axes, back = _motions(body.joint)
            if body.joint.motion is None and not locked and axes.size:
                pivot = axes.T @ own @ axes + np.diag(np.broadcast_to(body.joint.armature, axes.shape[1]))
                own = own - own @ axes @ np.linalg.pinv(pivot, hermitian=True) @ axes.T @ own
            inertia = inertia + back.T @ own @ back
        return inertia


def _inertia(body: Body) -> Floats:
    """The spatial inertia [6, 6] of a body about its origin, in its frame."""
    xx, yy, zz, xy, xz, yz = body.inertia
    across = cross_matrix(body.center_of_mass)  # of the center, as a matrix
    found = np.block([
        [np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) - body.mass * across @ across, body.mass * across],
        [-body.mass * across, body.mass * np.eye(3)],
    ])  # fmt: skip
    return found + np.array(body.added_mass) if body.added_mass else found


def _motions(joint: Joint) -> tuple[Floats, Floats]:
    """Give the motions that a joint allows, in its body's frame [6, nu], and what takes the parent's there [6, 6].

    In the position in which it begins; translations of several steps are of the parent's axes, which span the same.
    """
    from scipy.spatial.transform import Rotation

    rotation, position = Rotation.from_quat(joint.rotation, scalar_first=True).as_matrix(), np.array(joint.position)
    coordinates, axes = list(joint.q), list[Floats]()
    for step in joint.kind.steps:
        z = joint.axis if step.align == "axis" else _TOWARDS[step.align]
        if step.turn == 4:
            turned = Rotation.from_quat(coordinates[:4], scalar_first=True).as_matrix()
        else:
            turned = Rotation.from_rotvec((coordinates[0] if step.turn else 0.0) * np.array(z)).as_matrix()
        slides = [axis for axis in step.axes if axis >= 3]
        distances = coordinates[step.turn : step.turn + len(slides)]
        coordinates = coordinates[step.turn + len(slides) :]
        frame = np.eye(3) if len(slides) > 1 or step.turn == 4 else _upright(z)
        shift = sum((d * frame[:, axis - 3] for d, axis in zip(distances, slides, strict=True)), np.zeros(3))
        axes = [_moved(turned, shift) @ column for column in axes]
        for axis in step.axes:
            turn, slide = np.zeros(3), np.zeros(3)
            (slide if axis >= 3 else turn)[:] = turned.T @ frame[:, axis % 3] if step.turn != 4 else np.eye(3)[axis % 3]
            axes.append(np.append(turn, slide + joint.pitch * turn))
        position = position + rotation @ shift
        rotation = rotation @ turned
    back = _moved(rotation, position)
    return (np.stack(axes, axis=1) if axes else np.zeros((6, 0))), back


def _moved(rotation: Floats, position: Floats) -> Floats:
    """Give the matrix that takes motions to a frame that lies so in theirs [6, 6]."""
    return np.block([[rotation.T, np.zeros((3, 3))], [-rotation.T @ cross_matrix(position), rotation.T]])


def _upright(z: tuple[float, ...]) -> Floats:
    """A rotation whose third axis is z."""
    first = np.cross(z, np.eye(3)[np.argmin(np.abs(z))])
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(z, first), np.array(z)], axis=1)
