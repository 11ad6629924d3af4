"""The table of an event: a moment at which the structure of a system changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import PlainValidator

from mpimbs.base.errors import InputError
from mpimbs.model.force_functions import name_of_function
from mpimbs.model.text import table
from mpimbs.model.text.table import CheckedTable, Unit

WhenFunction = Callable[[float, Any], Any]
"""A function of time (s) and a `BodyMotion` of the event's bodies, that returns a number."""


def _names(value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else ()
    if not all(isinstance(name, str) and name for name in names) or (not names and value not in ([], ())):
        raise ValueError(f"must be a list of names, got {value!r}")
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        raise ValueError(f"names {twice!r} twice; name it once")
    return names


def _time(value: Any) -> float | None:
    if value is None:
        return None
    time = table.number(value)
    if time <= 0.0:
        raise ValueError(f"must be later than 0, got {time:g}; what holds from the begin on belongs to the bodies")
    return time


def _when(value: Any) -> str | WhenFunction | None:
    if value is None or callable(value) or (isinstance(value, str) and all(value.partition(":"))):
        return value
    raise ValueError(f"must be module:function, such as hand:gap for the function gap of hand.py, got {value!r}")


NameList = Annotated[tuple[str, ...], PlainValidator(_names)]


class Event(CheckedTable):
    """A change of structure: at a time, or where a function passes zero, joints are cut and loops connected.

    A body whose inboard joint is cut, and all that hangs on it, moves on freely but for loops. Nothing acts along the
    joint any more. Where loops begin to hold, speeds jump by the change of least kinetic energy that they ask for: an
    inelastic impact, which keeps momentum where nothing else holds the system.

    Attributes
    ----------
    time : float
        When it happens (s); or
    when : function or str
        What says so: `when(t, motion)` of the time (s) and a `BodyMotion` of `bodies`, a row for each, of the origins
        of their frames, gives a number, and the event happens whenever this passes zero, either way, and there is
        something to change. As text module:function.
    bodies : tuple of str
        Whose motions `when` is told.
    cut : tuple of str
        Names of bodies, whose inboard joints are cut, or of loops.
    connect : tuple of str
        Names of loops.
    gap : {"refuse", "close", "keep"}
        What is done where ends of loops to connect are apart: an error; bodies are moved until they close; or they are
        held as they lie: from here on the joint's zero position is how its ends are at the moment.

    Raises
    ------
    InputError
        A value is not allowed; the message names the key and the remedy.
    """

    __init__ = CheckedTable.__init__

    time: Annotated[float | None, PlainValidator(_time), Unit("s")] = None
    when: Annotated[str | WhenFunction | None, PlainValidator(_when)] = None
    bodies: NameList = ()
    cut: NameList = ()
    connect: NameList = ()
    gap: Literal["refuse", "close", "keep"] = "refuse"

    @property
    def told(self) -> str:
        """The event in words: what it does, and when."""
        parts = (f"{verb} {', '.join(map(repr, names))}" for verb, names in self._changes() if names)
        lie = " as they lie" if self.gap == "keep" else ""
        moment = f"when {self.named().when} passes zero" if self.time is None else f"at t = {self.time:g} s"
        return f"{' and '.join(parts)}{lie} {moment}"

    def named(self) -> Event:
        """Give the same event with its function, if it has one, as the text module:name."""
        return self.model_copy(update={"when": name_of_function(self.when)}) if callable(self.when) else self

    def _changes(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return ("cut", self.cut), ("connect", self.connect)

    def check(self) -> None:
        """Refuse an event that says too little or too much."""
        if (self.time is None) == (self.when is None):
            given = "both time and when" if self.time is not None else "neither time nor when"
            raise InputError(f"event: has {given}; give one of them")
        if not self.cut and not self.connect:
            raise InputError("event: changes nothing; name what it should `cut` or `connect`")
        if self.bodies and self.when is None:
            raise InputError("event: has bodies, whose motions only `when` is told; leave them out")
        both = next((name for name in self.cut if name in self.connect), None)
        if both is not None:
            raise InputError(f"event: cuts and connects {both!r}; do one of the two")
        if self.gap != "refuse" and not self.connect:
            raise InputError(f'event: has gap = "{self.gap}", and connects nothing; leave it out')
