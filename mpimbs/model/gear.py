"""The table of a gear: two joints whose coordinates follow one another."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from mpimbs.model.body import Loop, Name
from mpimbs.model.table import CheckedTable, Number, Unit


class Gear(CheckedTable):
    """A fixed ratio between the coordinates of two joints of the tree: q of `joint` is ratio times q of `of` + offset.

    It closes a loop, as teeth, a belt or a linkage that isn't modelled would: the two joints share what drives them,
    and it stands among the loops wherever these are told of. Its load is the force F on `joint` along its axis (N m or
    N), and - ratio F on `of`: as the load of a loop a moment or force on the second body, that of `joint`.

    Attributes
    ----------
    name : str
        Unique among loops and gears.
    joint, of : str
        Names of two bodies, by which their inboard joints are meant: revolute, prismatic or helical ones.
    ratio : float
        How far the first moves when the other moves by 1: rad or m for each rad or m, not zero, negative where they
        turn against one another.
    offset : float
        Coordinate of the first where that of the other is zero, rad or m, whatever `[units]` says.
    active : bool
        Whether it holds from the begin on, or only once an `Event` connects it.

    Raises
    ------
    InputError
        A value is not allowed; the message names the gear, the key and the remedy.
    """

    __init__ = CheckedTable.__init__

    name: Name = Field(description="a unique name of the gear")
    joint: Name = Field(description="the name of the body whose joint follows")
    of: Name = Field(description="the name of the body whose joint it follows")
    ratio: Annotated[Number, Unit("1")] = Field(description="how far the first moves when the other moves by 1")
    offset: Annotated[Number, Unit("1")] = 0.0
    active: bool = Field(default=True, strict=True)

    @property
    def type(self) -> str:
        """What it is among the types of loops."""
        return "gear"

    @property
    def bodies(self) -> tuple[str, str]:
        """The bodies of `of` and `joint`."""
        return self.of, self.joint

    @field_validator("ratio", mode="after")
    @classmethod
    def _check_ratio(cls, value: float) -> float:
        if not value:
            raise ValueError("must not be zero; make the joint a fixed one instead")
        return value

    @model_validator(mode="after")
    def _check_joints(self) -> Gear:
        if self.joint == self.of:
            raise ValueError(f"joint and of must be two different ones, got {self.of!r} twice")
        return self


Constraint = Loop | Gear
"""What closes a loop."""
