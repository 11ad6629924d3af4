"""The table of a gear: two joints whose coordinates follow one another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from mpimbs.base.errors import InputError
from mpimbs.model.body import Loop, Name
from mpimbs.model.text.table import CheckedTable, Number, Unit

_SAME = 1e-9  # of ratios and offsets, which are multiplied and added through others


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
        """The type of loop that a gear is."""
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


def refuse_contradictions(gears: Iterable[Gear]) -> None:
    """Raise InputError for a gear that asks of two joints another ratio or offset than the others between them do."""
    follows: dict[str, tuple[str, float, float]] = {}  # of a joint: q = ratio times that of another joint + offset

    def found(joint: str) -> tuple[str, float, float]:
        """The joint that it follows in the end, through whatever others."""
        name, ratio, offset = joint, 1.0, 0.0
        while name in follows:
            name, own_ratio, own_offset = follows[name]
            ratio, offset = ratio * own_ratio, ratio * own_offset + offset
        if name != joint:
            follows[joint] = name, ratio, offset
        return name, ratio, offset

    given = list(gears)
    farthest = max((abs(gear.offset) for gear in given), default=0.0)
    for gear in given:
        (first, a, b), (other, c, d) = found(gear.joint), found(gear.of)
        c, d = gear.ratio * c, gear.ratio * d + gear.offset  # a x + b = c y + d
        if first != other:
            follows[first] = other, c / a, (d - b) / a
            continue
        here = f"gear {gear.name!r} and the other gears between the joints of {gear.joint!r} and {gear.of!r} contradict"
        if abs(a - c) > _SAME * max(abs(a), abs(c)):
            ratio = gear.ratio * a / c
            raise InputError(
                f"{here} one another: its ratio is {gear.ratio:g}, theirs {ratio:g}, and nothing could move; "
                "correct it, or leave one out"
            )
        if abs(b - d) > _SAME * max(farthest, abs(b), abs(d)):
            raise InputError(
                f"{here} one another: its offset is {gear.offset:g}, theirs {gear.offset + b - d:g} (rad or m); "
                "correct it, or leave one out"
            )


Constraint = Loop | Gear
"""What closes a loop."""
