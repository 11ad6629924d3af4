"""The tables of a spring between points of two bodies, or of a body and the world, and of a tendon over joints."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, PlainValidator, model_validator

from mpimbs.model.body import BodyPair, Name, PointPair
from mpimbs.model.event import NameList
from mpimbs.model.joint import check_stop
from mpimbs.model.over_time import as_time_function
from mpimbs.model.text import table
from mpimbs.model.text.table import CheckedTable, NotNegative, Number, TimeFunction, Unit

SpringFunction = Callable[[float, float], Any]
"""A function of a length (m) and of its rate (m/s) that returns a force (N), positive in tension."""


def _force(value: Any) -> SpringFunction | None:
    if value is None or callable(value):
        return value
    raise ValueError(
        f"must be a function of length and speed, got {value!r}; a model file holds data only: "
        "add such a spring by add_spring, in Python or by --forces"
    )


def _length(value: Any) -> float | None:
    if value is None:
        return None
    length = table.number(value)
    if length < 0:
        raise ValueError(f"must not be negative, got {length:g}; give the length without force, in m")
    return length


class Spring(CheckedTable):
    """A spring and damper that act along the line between two points: of two bodies, or of a body and the world.

    With the length l between the points the tension, which draws them together, is stiffness (l - rest) + damping
    dl/dt, or `force(l, dl/dt)`. Where the points coincide the line has no direction, and no force acts.

    Attributes
    ----------
    name : str
        Unique among the springs.
    bodies : tuple of 2 str
        Names of two bodies; either may be "world".
    positions : tuple of 2 tuples of 3 floats
        The point of each body, m, in its frame.
    stiffness, damping : float
        N/m and N s/m, not negative.
    rest : float
        Length at which the spring has no force, m; needed where there is a stiffness.
    tension_only : bool
        A rope: force only while l > rest, and never a push, nor of the damper.
    force : function, optional
        In place of stiffness, damping, rest and tension_only: of length (m) and speed (m/s), gives the tension (N). Of
        these alone: where the bodies are on two ranks, both call it. May be compiled by `numba.njit`.

    Raises
    ------
    InputError
        A value is not allowed; the message names the spring, the key and the remedy.
    """

    __init__ = CheckedTable.__init__

    name: Name = Field(description="a unique name of the spring")
    bodies: BodyPair = Field(description="the names of the two bodies")
    positions: PointPair = Field(description="the point in the frame of each of the two bodies, in m")
    stiffness: Annotated[NotNegative, Unit("N/m")] = 0.0
    damping: Annotated[NotNegative, Unit("N s/m")] = 0.0
    rest: Annotated[float | None, PlainValidator(_length), Unit("m")] = None
    tension_only: bool = Field(default=False, strict=True)
    force: Annotated[SpringFunction | None, PlainValidator(_force)] = None

    @property
    def dissipates(self) -> bool:
        """Whether it has a power that is not in its potential energy."""
        return bool(self.damping or self.force)

    @property
    def has_force_at_zero(self) -> bool:
        """Whether it has a force where its points coincide, and so no direction."""
        return bool(self.force or (self.stiffness and self.rest and not self.tension_only))

    @model_validator(mode="after")
    def _check_what_acts(self) -> Spring:
        if self.bodies[0] == self.bodies[1]:
            raise ValueError(f"bodies must be two different ones, got {self.bodies[0]!r} twice")
        if self.force is not None:
            given = [key for key in ("stiffness", "damping", "tension_only") if getattr(self, key)]
            given += [] if self.rest is None else ["rest"]
            if given:
                raise ValueError(f"force stands in place of {' and '.join(given)}; give either")
        elif self.rest is None and (self.stiffness or self.tension_only):
            raise ValueError("rest is missing; give the length at which the spring has no force, in m")
        return self


def _ratios(value: Any) -> tuple[float, ...]:
    return tuple(map(table.number, value if isinstance(value, list | tuple) else [value]))


def _tendon_force(value: Any) -> float | TimeFunction:
    found = as_time_function(value, 1, "the force")
    return table.number(value) if found is None else found


def _end(value: Any) -> float:
    """A number, or an infinite one."""
    return value if isinstance(value, float) and math.isinf(value) else table.number(value)


class Tendon(CheckedTable):
    """A tendon over joints: a servo along its length, the sum of their coordinates, each times a ratio.

    With the length x = sum of ratio q, its force is force - stiffness (x - rest) - damping dx/dt, no less than `least`
    and no more than `most`; stops end its way as those of a joint; along each joint acts ratio times what all do
    (MuJoCo's fixed tendon, "Actuation model"). It is work, none of it energy that the system has. All numbers are in
    SI, whatever `[units]` says.

    Attributes
    ----------
    name : str
        Unique among the tendons.
    joints : tuple of str
        Names of bodies, by which their inboard joints are meant: revolute, prismatic or helical ones.
    ratios : tuple of float
        Of each joint: how far the tendon moves when that moves by 1 rad or m.
    stiffness, damping : float
        Force for each unit of the length, and of its rate; not negative.
    rest : float
        The length at which `stiffness` has no force.
    force : float, function of time, or rows
        As `torque` of a joint of one coordinate.
    least, most : float
        The range of that force; infinite by default.
    lower, upper, stop_stiffness, stop_damping : float
        As of a joint of one coordinate: where its way ends, infinite by default, and stops there.

    Raises
    ------
    InputError
        A value is not allowed; the message names the tendon, the key and the remedy.
    """

    __init__ = CheckedTable.__init__

    name: Name = Field(description="a unique name of the tendon")
    joints: NameList = Field(description="the names of the bodies whose joints it runs over")
    ratios: Annotated[tuple[float, ...], PlainValidator(_ratios), Unit("1")] = Field(
        description="how far it moves when each of them moves by 1"
    )
    stiffness: Annotated[NotNegative, Unit("1")] = 0.0
    damping: Annotated[NotNegative, Unit("1")] = 0.0
    rest: Annotated[Number, Unit("1")] = 0.0
    force: Annotated[float | TimeFunction, PlainValidator(_tendon_force), Unit("1")] = 0.0
    least: Annotated[float, PlainValidator(_end), Unit("1")] = -math.inf
    most: Annotated[float, PlainValidator(_end), Unit("1")] = math.inf

    lower: Annotated[float, PlainValidator(_end), Unit("1")] = -math.inf
    upper: Annotated[float, PlainValidator(_end), Unit("1")] = math.inf
    stop_stiffness: Annotated[NotNegative, Unit("1")] = 0.0
    stop_damping: Annotated[NotNegative, Unit("1")] = 0.0

    @model_validator(mode="after")
    def _check_whole(self) -> Tendon:
        if not self.joints or len(self.ratios) != len(self.joints):
            raise ValueError(f"needs a ratio for each of its joints, got {len(self.ratios)} of {len(self.joints)}")
        if not self.least <= self.most or self.least == math.inf or self.most == -math.inf:
            raise ValueError(f"least must not be above most, got {self.least:g} and {self.most:g}")
        check_stop(self.lower, self.upper, self.stop_stiffness, self.stop_damping)
        return self
