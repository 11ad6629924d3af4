"""What all tables of a model have in common: one-line errors, checks of numbers, vectors, rotations.

A table is a frozen pydantic model that refuses unknown keys and raises `InputError` for any bad value. The
checks are plain functions from the value given (a number, list, tuple or array) to floats; each raises
ValueError with a predicate ("needs 3 numbers, got 2"), to which the table adds the key that it is about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from math import isfinite
from numbers import Real
from typing import Annotated, Any, ClassVar, TypeVar, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError
from pydantic_core import ErrorDetails

from mpimbs.base.errors import InputError, Keys, about

Item = TypeVar("Item")
Units = str | tuple[str, ...] | tuple[tuple[str, ...], ...]
"""A unit of all numbers of a key, or one for each of them in a list, or in the rows of a matrix."""
TimeFunction = Callable[[float], Any]
Numbers = tuple[float, ...]
"""A function of time t (s) that returns a number or a sequence of numbers."""

_UNIT_TOLERANCE = 1e-6  # how far a quaternion's norm may be from 1 before it counts as a mistake
_NUMBERS = (float, int)
ROUND_OFF = 1e-15  # what is this close to unit length is left as it is, so that it survives a file bit by bit


@dataclass(frozen=True)
class Unit:
    """The unit of the numbers of a key, and their count: `Unit("m", 3)` of a vector, `Unit("kg")` of a number.

    A text is of the symbols m rad kg s N, each with a power or without: "kg m^2", "N m s/rad", "1" for none.
    """

    text: str
    count: int | None = None


class CheckedTable(BaseModel):
    """A frozen table of a model: unknown keys, NaN and infinity are an InputError of one line.

    Tables that users make repeat `__init__`, so that a type checker accepts all that the checks convert.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, defer_build=True)

    decisive: ClassVar[str] = ""
    """The key, if any, by which it differs what is needed and what is the default of others."""

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            # An unknown key goes first: as a misspelt one it also explains the key that is missing.
            first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
            keys = (*first["loc"], *getattr(first.get("ctx", {}).get("error"), "keys", ()))
            raise about(keys, f"{self.title(fields)}: {_sentence(first, type(self))}") from None

    @classmethod
    def title(cls, fields: Mapping[str, Any]) -> str:
        """Give the title by which messages call a table with these fields."""
        kind, name = cls.model_config.get("title") or cls.__name__.lower(), fields.get("name")
        return f"{kind} {name!r}" if isinstance(name, str) else kind

    @classmethod
    def units_of(cls, fields: Mapping[str, Any]) -> dict[str, Units]:
        """Return what the numbers of each key are in, of a table with these fields; keys of none are left out."""
        return _units_of(cls)

    @classmethod
    def tables_within(cls) -> dict[str, type[CheckedTable]]:
        """Return what the keys that hold tables or lists of them hold."""
        return _tables_of(cls)

    @property
    def needed(self) -> frozenset[str]:
        """The keys without which this table would be refused."""
        return _required(type(self))

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The defaults of the keys that are not needed."""
        kind = type(self), getattr(self, self.decisive) if self.decisive else None
        if kind not in _DEFAULTS:
            needed = self.needed
            made = type(self)(**{key: value for key, value in self if key in needed})
            _DEFAULTS[kind] = {key: value for key, value in made if key not in needed}
        return _DEFAULTS[kind]


_DEFAULTS: dict[tuple[type[CheckedTable], Any], dict[str, Any]] = {}


@cache
def _required(table: type[CheckedTable]) -> frozenset[str]:
    return frozenset(key for key, field in table.model_fields.items() if field.is_required())


@cache
def _units_of(table: type[CheckedTable]) -> dict[str, Units]:
    """The units of the keys of a table that are the same whatever is in it."""
    found = ((key, note) for key, field in table.model_fields.items() for note in field.metadata)
    return {key: note.text for key, note in found if isinstance(note, Unit)}


@cache
def _tables_of(table: type[CheckedTable]) -> dict[str, type[CheckedTable]]:
    """The kinds of tables in the keys of a table."""
    inner = ((key, (field.annotation, *get_args(field.annotation))) for key, field in table.model_fields.items())
    found = ((key, kind) for key, kinds in inner for kind in kinds if isinstance(kind, type))
    return {key: kind for key, kind in found if issubclass(kind, CheckedTable)}


def _sentence(error: ErrorDetails, table: type[CheckedTable]) -> str:
    """Say one pydantic error in words: the key, what is wrong with it, the remedy."""
    where = keys_in_words(error["loc"])
    cause = error.get("ctx", {}).get("error")
    if error["type"] == "extra_forbidden":
        return f"unknown key {where!r}{suggest(where, table.model_fields)}"
    if error["type"] == "missing":
        return f"{where} is missing; give {table.model_fields[where].description or 'it'}"
    if isinstance(cause, InputError):  # a table inside this one: a sentence that begins with its own title
        return f"{where}: " + str(cause).removeprefix(f"{error['loc'][0]}: ")
    if cause is not None:
        return f"{where} {cause}".lstrip()
    return f"{where} {error['msg'].removeprefix('Input ')}, got {error['input']!r}"


def keys_in_words(keys: Keys) -> str:
    """Say keys in words, items of lists by their numbers from 1 on."""
    return " ".join(str(key + 1) if isinstance(key, int) else key for key in keys)


def suggest(word: str, known: Iterable[str], shown: Sequence[str] | None = None) -> str:
    """Return the end of a message on an unknown word: close matches among the known ones, or all of them.

    `shown` says all of them in other words.
    """
    names = list(known)
    close = get_close_matches(word, names)
    if close:
        return f"; did you mean {' or '.join(repr(name) for name in close)}?"
    names = names if shown is None else list(shown)
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"; choose one of {listed}" if names else ""


def number(value: Any) -> float:
    """Return the value as a finite float; a bool, a string, NaN or infinity is a ValueError."""
    try:
        if type(value) in _NUMBERS and isfinite(value):  # quicker than asking whether it is any real number
            return float(value)
        if isinstance(value, Real) and not isinstance(value, bool) and isfinite(value):
            return float(value)
    except OverflowError:  # an integer beyond the largest double
        pass
    raise ValueError(f"must be a finite number, got {value!r}")


def not_negative(value: Any) -> float:
    """Return the value as `number` does; below zero it is a ValueError, too."""
    found = number(value)
    if found < 0:
        raise ValueError(f"must not be negative, got {found:g}; give 0 for none")
    return found


def numbers(value: Any, count: int, what: str) -> tuple[float, ...]:
    """Return exactly `count` finite numbers of a list, tuple or array; a message calls them `what`."""
    items = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(items, list | tuple):
        raise ValueError(f"needs a list of {count} numbers ({what}), got {items!r}")
    if len(items) != count:
        raise ValueError(f"needs {count} numbers ({what}), got {len(items)}: {list(items)}")
    return tuple(map(number, items))


def vector(value: Any) -> tuple[float, ...]:
    """Return three finite numbers x, y, z."""
    return numbers(value, 3, "x y z")


def direction(value: Any) -> tuple[float, ...]:
    """Return a vector of unit length; the zero vector is a ValueError."""
    values = vector(value)
    length = math.hypot(*values)
    if length == 0:
        raise ValueError(f"must not be zero, got {list(values)}; give a direction such as [0, 0, 1]")
    return _scaled(values, length)


def unit_quaternion(value: Any) -> tuple[float, ...]:
    """Return a quaternion w, x, y, z of norm 1; a norm further than 1e-6 from 1 is a ValueError."""
    values = numbers(value, 4, "quaternion w x y z")
    norm = math.hypot(*values)
    if abs(norm - 1) > _UNIT_TOLERANCE:
        unit = [float(f"{x:.9g}") for x in _scaled(values, norm)] if norm else [1.0, 0.0, 0.0, 0.0]
        raise ValueError(f"must be a unit quaternion w x y z, got {list(values)} of norm {norm:.7g}; write {unit}")
    return _scaled(values, norm)


def _scaled(values: tuple[float, ...], norm: float) -> tuple[float, ...]:
    return values if abs(norm - 1) <= ROUND_OFF else tuple(x / norm for x in values)


def pair(check: Callable[[Any], Item]) -> Callable[[Any], tuple[Item, Item]]:
    """Make the check of a list of two values, one for each body of a loop, each of which passes `check`."""

    def checked(value: Any) -> tuple[Item, Item]:
        items = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(items, list | tuple) or len(items) != 2:
            raise ValueError(f"needs a list of two values, one for each body, got {items!r}")
        return check(items[0]), check(items[1])

    return checked


Number = Annotated[float, PlainValidator(number)]
NotNegative = Annotated[float, PlainValidator(not_negative)]
Vector = Annotated[tuple[float, ...], PlainValidator(vector)]
Quaternion = Annotated[tuple[float, ...], PlainValidator(unit_quaternion)]
