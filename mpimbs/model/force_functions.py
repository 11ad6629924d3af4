"""Force functions: the user's functions of time and state that act on joints and bodies. What they are, and on whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from mpimbs.base.arrays import Floats, Integers

Selection = str | Iterable[str] | None
"""Names of bodies; None stands for all."""

CENTER_OF_MASS = "center_of_mass"


class BodyMotion(NamedTuple):
    """Where a body is and how it moves, as a body force is told; all components in the world frame, SI units.

    The point is the one on which the force acts. A vectorized function gets all bodies at once, with n rows in each
    field; any other one body, without that axis.
    """

    body: Integers  # [n]: number of the body in the system, as `Contents.index_of` gives it
    rotation: Floats  # [n, 3, 3]: body components into world components
    position: Floats  # [n, 3]: of the point (m)
    angular_velocity: Floats  # [n, 3]: rad/s
    velocity: Floats  # [n, 3]: of the point (m/s)


@dataclass(frozen=True, eq=False)
class ForceFunction:
    """A user's function of time and state, and the bodies on which, or on whose inboard joints, it acts."""

    function: Callable[..., Any]
    bodies: range | Integers  # numbers of the bodies in the system, rising
    vectorized: bool = False  # whether one call serves all bodies of a rank
    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """The function as module:name."""
        return name_of_function(self.function)

    def whom(self, name_of: Callable[[int], str]) -> str:
        """Say on which bodies of a system it acts, given their names by number."""
        return bodies_named(self.bodies, name_of)

    def on(self, lo: int, hi: int) -> Integers:
        """Give those of the bodies lo to hi - 1 on which it acts: int64, counted from lo."""
        if isinstance(self.bodies, range):
            return np.arange(max(lo, self.bodies.start), max(lo, min(hi, self.bodies.stop))) - lo
        begin, end = np.searchsorted(self.bodies, (lo, hi))
        return self.bodies[begin:end] - lo


ForceFunctionT = TypeVar("ForceFunctionT", bound=ForceFunction)


class JointForce(ForceFunction):
    """A function of time and a joint's coordinates and speeds that gives its generalized force."""

    kind = "joint force"


@dataclass(frozen=True, eq=False)
class BodyForce(ForceFunction):
    """A function of time and a body's motion that gives a moment and a force on it."""

    point: tuple[float, ...] | str = (0.0, 0.0, 0.0)  # where the force acts: in the body frame (m), or CENTER_OF_MASS
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
