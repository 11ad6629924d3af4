"""Force functions: the user's functions of time and state that act on joints and bodies. What they are, and on whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpimbs.errors import InputError
from mpimbs.model import table
from mpimbs.model.joints import JointType
from mpimbs.model.segments import Integers

if TYPE_CHECKING:
    from mpimbs.model.system import System

Floats = NDArray[np.float64]
Selection = str | Iterable[str] | None
"""Names of bodies; None stands for all."""

CENTER_OF_MASS = "center_of_mass"


class BodyMotion(NamedTuple):
    """Where a body is and how it moves, as a body force is told; all components in the world frame, SI units.

    The point is the one on which the force acts. A vectorized function gets all bodies at once, with n rows in each
    field; any other one body, without that axis.
    """

    body: Integers  # [n]: number of the body in the system, as `System.index_of` gives it
    rotation: Floats  # [n, 3, 3]: body components into world components
    position: Floats  # [n, 3]: of the point (m)
    angular_velocity: Floats  # [n, 3]: rad/s
    velocity: Floats  # [n, 3]: of the point (m/s)


@dataclass(frozen=True, eq=False)
class ForceFunction:
    """A user's function of time and state, and the bodies on which, or on whose inboard joints, it acts.

    Attributes
    ----------
    function : callable
    bodies : range or array
        Numbers of the bodies in the system, rising.
    vectorized : bool
        Whether one call serves all bodies of a rank.
    """

    function: Callable[..., Any]
    bodies: range | Integers
    vectorized: bool = False
    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """The function as module:name."""
        return name_of_function(self.function)

    def whom(self, system: System) -> str:
        """Say on which bodies of a system it acts."""
        return bodies_named(self.bodies, system.name_of)

    def on(self, lo: int, hi: int) -> Integers:
        """Give those of the bodies lo to hi - 1 on which it acts: int64, counted from lo."""
        if isinstance(self.bodies, range):
            return np.arange(max(lo, self.bodies.start), max(lo, min(hi, self.bodies.stop))) - lo
        begin, end = np.searchsorted(self.bodies, (lo, hi))
        return self.bodies[begin:end] - lo


class JointForce(ForceFunction):
    """A function of time and a joint's coordinates and speeds that gives its generalized force."""

    kind = "joint force"


@dataclass(frozen=True, eq=False)
class BodyForce(ForceFunction):
    """A function of time and a body's motion that gives a moment and a force on it.

    Attributes
    ----------
    point : tuple of 3 floats, or CENTER_OF_MASS
        Where the force acts: in the body frame (m).
    """

    point: tuple[float, ...] | str = (0.0, 0.0, 0.0)
    kind = "body force"


def name_of_function(function: Callable[..., Any]) -> str:
    """Give a function, or what can be called as one, as module:name."""
    inner = getattr(function, "func", function)  # of a functools.partial
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}:{named.__qualname__}"


def bodies_named(bodies: range | Integers, name_of: Callable[[int], str]) -> str:
    """Name a body, or how many and the first and the last of several."""
    first, last = name_of(int(bodies[0])), name_of(int(bodies[-1]))
    return f"body '{first}'" if len(bodies) == 1 else f"{len(bodies)} bodies '{first}' to '{last}'"


def joint_force(system: System, names: Selection, function: Callable[..., Any], vectorized: bool) -> JointForce:
    """Make a joint force of a system; see `System.add_joint_force`."""
    force = JointForce(*_acting(system, JointForce.kind, names, function), vectorized)
    kinds = _joint_types(system, force.bodies)
    for kind, k in kinds.items():
        if not kind.nu and names is not None:
            raise InputError(
                f"body {system.name_of(k)!r}: {force.kind} {force.name!r} has nothing to act on in a fixed joint; "
                "leave it out"
            )
    movable = [kind.name for kind in kinds if kind.nu]
    if vectorized and len(movable) > 1:
        raise InputError(
            f"{force.kind} {force.name!r}: vectorized, it needs joints of one type, got {', '.join(movable)}; "
            "add it for each type apart"
        )
    return force


def body_force(
    system: System, names: Selection, function: Callable[..., Any], vectorized: bool, point: Any
) -> BodyForce:
    """Make a body force of a system; see `System.add_body_force`."""
    return BodyForce(*_acting(system, BodyForce.kind, names, function), vectorized, _point(point))


def _acting(
    system: System, kind: str, names: Selection, function: Callable[..., Any]
) -> tuple[Callable[..., Any], range | Integers]:
    """Check a function and the names of the bodies on which it acts; give it with their numbers, rising."""
    if not callable(function):
        raise InputError(f"{kind}: needs a function, got {function!r}")
    if names is None:
        if not system.n_bodies:
            raise InputError(f"{kind}: there are no bodies yet; add it after them")
        return function, range(system.n_bodies)
    given = [names] if isinstance(names, str) else list(names)
    if not given:
        raise InputError(f"{kind}: names no body; give names, or None for all")
    bodies = np.array([system.index_of(name) for name in given], np.int64)
    different, count = np.unique(bodies, return_counts=True)
    if len(different) < len(bodies):
        raise InputError(f"{kind}: names body {system.name_of(int(different[np.argmax(count)]))!r} twice; name it once")
    return function, different


def _joint_types(system: System, bodies: range | Integers) -> dict[JointType, int]:
    """Types of the inboard joints of bodies, and a body of each."""
    if isinstance(bodies, range):
        examples = [k for segment in system.segments for k in segment.examples]
    else:
        examples = bodies.tolist()
    return {system.segments.template(k).joint.kind: k for k in examples}


def _point(value: Any) -> tuple[float, ...] | str:
    if isinstance(value, str) and value == CENTER_OF_MASS:
        return value
    try:
        return table.vector(value)
    except ValueError as error:
        raise InputError(f"{BodyForce.kind}: point {error}; or give '{CENTER_OF_MASS}'") from None
