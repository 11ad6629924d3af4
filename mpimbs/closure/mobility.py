"""What loops leave to move, and which of their loads are unique.

A load component is unique if and only if the rank is less without its constraint [Wojtyra 2005: Joint reaction forces
in multibody systems with redundant constraints, Multibody System Dynamics 14]. In a singular position, where a linkage
is stretched or folded flat, more can move at the moment than from any state nearby: both are found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mpimbs.closure.assembly import allowed_by, close_loops
from mpimbs.closure.dependence import dependence
from mpimbs.closure.jacobian import LoopJacobian
from mpimbs.model import JOINT_TYPES

Floats = npt.NDArray[np.float64]

_NAMES = tuple(f"{what} {axis}" for what in ("moment about", "force along") for axis in "xyz")
_WAYS = ("across", "across", "about"), ("across", "across", "along")
_NAMES_ON_AXIS = tuple(
    f"{what} {way} the axis" for what, ways in zip(("moment", "force"), _WAYS, strict=True) for way in ways
)
_STEPS = (1e-2, 1e-2, 1e-3, 1e-3)  # to states nearby, rad and m in units of a loop's size
_STUCK = 1e-6  # of a displacement of about one, what is left where nothing can move


@dataclass(frozen=True)
class Mobility:
    """What the loops of a system leave to move in a state.

    Attributes
    ----------
    freedoms : int
        Degrees of freedom of the tree, with its loops opened, but for joints that follow given motions.
    constraints : int
        Equations of the loops.
    rank : int
        Independent ones among them.
    undetermined : dict of str to tuple of str
        The loops whose loads are not unique, and which of their components; x, y, z those of the joint frame, which
        turns with the first axis of a universal joint.
    undetermined_joints : tuple of str
        The bodies whose joints to their parents carry loads that are not unique.
    """

    freedoms: int
    constraints: int
    rank: int
    undetermined: dict[str, tuple[str, ...]]
    undetermined_joints: tuple[str, ...]

    @property
    def mobility(self) -> int:
        """Degrees of freedom with the loops closed."""
        return self.freedoms - self.rank

    @property
    def redundant(self) -> int:
        """Constraints that repeat what others say."""
        return self.constraints - self.rank


def mobility(loops: LoopJacobian, q: Floats) -> Mobility:
    """Find what loops leave to move in a state, whose loops are closed.

    Raises
    ------
    TooLargeError
        Too many joints and loops depend on one another.
    """
    joints = loops.joints
    here = loops.at(q)
    found = dependence(here.matrix, joints.first)
    undetermined: dict[str, dict[str, None]] = {}
    for row in np.flatnonzero(found.samples.any(axis=1)).tolist():
        loop, axis = joints.loop[row], joints.axis[row]
        on_axis = JOINT_TYPES[joints.kind[loop]].takes_axis
        name = (_NAMES_ON_AXIS if on_axis else _NAMES)[axis]
        undetermined.setdefault(joints.names[loop], {})[name] = None
    named = {name: tuple(components) for name, components in undetermined.items()}
    bodies = np.flatnonzero(loops.passes_on(q, here, found.samples)).tolist()
    on_joints = tuple(map(loops.system.name_of, bodies))
    return Mobility(int(loops.moves.sum()), len(joints.loop), found.rank, named, on_joints)


def nearby_state(loops: LoopJacobian, q: Floats) -> Floats | None:
    """Coordinates near to some for which all loops are closed, where these can move there; None if none are found.

    Raises
    ------
    TooLargeError
        As `close_loops`.
    """
    draw, columns = np.random.default_rng(1), loops.at(q).columns
    for step in _STEPS:
        move = allowed_by(loops, q, columns * loops.moves * draw.uniform(-1, 1, loops.system.nu))
        largest = np.abs(move / columns).max(initial=0.0)
        if largest < _STUCK:
            return q
        found = close_loops(loops, loops.subchain.displaced(q, step / largest * move))
        if found.reached:
            return found.q
    return None
