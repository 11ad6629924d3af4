"""The joint types, as one table: which unit axes a joint frees and how its coordinates move.

Everything that depends on the type of a joint is read from `JOINT_TYPES`: no other module branches on a
type's name. A joint is one or more steps from the parent's frame to the body's, and each step frees some of
the six unit axes of its own frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from mpimbs.base.errors import InputError
from mpimbs.model.text.table import suggest

_FARTHEST = {"rad": 1e9, "m": 1e15, "1": 1e15}
_TURN_UNITS: dict[int, tuple[str, ...]] = {0: (), 1: ("rad",), 4: ("1",) * 4}


@dataclass(frozen=True)
class JointStep:
    """One step of a joint: a frame, the unit axes that are free in it, and the coordinates that rotate it."""

    turn: int  # number of coordinates that rotate: 0 none, 1 an angle about z (rad), 4 a quaternion w x y z
    # free unit axes of the step frame: 0 to 2 rotations about x, y, z; 3 to 5 translations along x, y, z
    axes: tuple[int, ...]
    # how the step frame lies in the joint frame: its z is turned to the joint's axis ("axis") or to that axis of the
    # joint frame ("x", "y", "z")
    align: str


@dataclass(frozen=True)
class JointType:
    """A type of joint: its name, its steps, and which keys it takes.

    Coordinates q stand step by step, in each step the rotating ones before the displacements (m); speeds u
    likewise, one for each free axis, in the order of `JointStep.axes`. A quaternion always comes first.
    """

    name: str
    steps: tuple[JointStep, ...]
    takes_axis: bool = False
    takes_pitch: bool = False

    @cached_property
    def q_units(self) -> tuple[str, ...]:
        """Units of the coordinates q: rad, m, or 1 for the four of a quaternion."""
        return sum((_TURN_UNITS[s.turn] + ("m",) * sum(a >= 3 for a in s.axes) for s in self.steps), ())

    @cached_property
    def q_limits(self) -> tuple[float, ...]:
        """Sizes that the coordinates may have at the most: of a larger angle no digit of its sine is left."""
        return tuple(_FARTHEST[unit] for unit in self.q_units)

    @cached_property
    def u_units(self) -> tuple[str, ...]:
        """Units of the generalized speeds u: rad/s or m/s."""
        return tuple("rad/s" if axis < 3 else "m/s" for step in self.steps for axis in step.axes)

    @cached_property
    def nq(self) -> int:
        """Number of coordinates q."""
        return len(self.q_units)

    @cached_property
    def nu(self) -> int:
        """Number of generalized speeds u: the degrees of freedom."""
        return len(self.u_units)

    @cached_property
    def quaternion(self) -> bool:
        """Whether q begins with a quaternion w x y z."""
        return any(step.turn == 4 for step in self.steps)

    @cached_property
    def zero(self) -> tuple[float, ...]:
        """The zero position: all coordinates 0, a quaternion at the identity."""
        return (1.0,) * self.quaternion + (0.0,) * (self.nq - self.quaternion)

    @cached_property
    def at_rest(self) -> tuple[float, ...]:
        """No speeds: a zero for each."""
        return (0.0,) * self.nu


JOINT_TYPES: tuple[JointType, ...] = (
    JointType("fixed", (JointStep(0, (), "z"),)),
    JointType("revolute", (JointStep(1, (2,), "axis"),), takes_axis=True),
    JointType("prismatic", (JointStep(0, (5,), "axis"),), takes_axis=True),
    JointType("helical", (JointStep(1, (2,), "axis"),), takes_axis=True, takes_pitch=True),
    JointType("cylindrical", (JointStep(1, (2, 5), "axis"),), takes_axis=True),
    JointType("universal", (JointStep(1, (2,), "x"), JointStep(1, (2,), "y"))),
    JointType("spherical", (JointStep(4, (0, 1, 2), "z"),)),
    JointType("planar", (JointStep(0, (3, 4), "z"), JointStep(1, (2,), "z"))),
    JointType("free", (JointStep(4, (0, 1, 2, 3, 4, 5), "z"),)),
)

JOINT_NAMES = tuple(joint.name for joint in JOINT_TYPES)
_BY_NAME = {joint.name: joint for joint in JOINT_TYPES}
_INDEX = {joint.name: index for index, joint in enumerate(JOINT_TYPES)}


def joint_type(name: str) -> JointType:
    """Return the joint type of that name.

    Raises
    ------
    InputError
        The name is none of the known types; the message lists them.
    """
    if name not in _BY_NAME:
        raise InputError(f"unknown joint type {name!r}{suggest(name, _BY_NAME)}")
    return _BY_NAME[name]


def joint_index(name: str) -> int:
    """Return the position in `JOINT_TYPES` of the joint type of that name (InputError as `joint_type`)."""
    return _INDEX[joint_type(name).name]
