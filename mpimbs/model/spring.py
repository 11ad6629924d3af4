"""The table of a spring between two points of two bodies, or of a body and the world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, PlainValidator, model_validator

from mpimbs.model.body import BodyPair, Name, PointPair
from mpimbs.model.text import table
from mpimbs.model.text.table import CheckedTable, NotNegative, Unit

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
