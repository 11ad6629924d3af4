"""The table of a tendon over joints: what acts along a sum of their coordinates."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, PlainValidator, model_validator

from mpimbs.model.body import Name
from mpimbs.model.event import NameList
from mpimbs.model.joint import check_stop
from mpimbs.model.over_time import as_time_function
from mpimbs.model.text import table
from mpimbs.model.text.table import CheckedTable, NotNegative, Number, TimeFunction, Unit


def _ratios(value: Any) -> tuple[float, ...]:
    return tuple(map(table.number, value if isinstance(value, list | tuple) else [value]))


def _force(value: Any) -> float | TimeFunction:
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
    force: Annotated[float | TimeFunction, PlainValidator(_force), Unit("1")] = 0.0
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
