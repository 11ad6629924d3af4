"""State as a tree of dataclasses: taken apart for a file into plain values and arrays by paths, and made again."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, TypeVar, Union

import numpy as np

from mpimbs.base.arrays import Floats

Tree = TypeVar("Tree")
SEPARATOR = "/"


def taken_apart(state: Any, path: str = "") -> tuple[Any, dict[str, Floats]]:
    """Give the plain values of a state, for JSON, and its arrays by paths, those of two dimensions row by row.

    Parameters
    ----------
    state : dataclass, NamedTuple, list, tuple, dict, array, or number, text, None
        Names of fields and keys make the paths.
    """
    if isinstance(state, np.ndarray):
        if state.ndim == 1:
            return None, {path: state}
        return len(state), {f"{path}{SEPARATOR}{row}": values for row, values in enumerate(state)}
    items = _items(state)
    if items is None:
        return state.item() if isinstance(state, np.generic) else state, {}
    arrays: dict[str, Floats] = {}
    plain: dict[str, Any] = {}
    for name, value in items.items():
        plain[name], own = taken_apart(value, f"{path}{SEPARATOR}{name}" if path else str(name))
        arrays |= own
    return plain if isinstance(state, dict) or _names_of(type(state)) else list(plain.values()), arrays


def _items(state: Any) -> dict[Any, Any] | None:
    """The parts of a state by name; None of what has none."""
    if names := _names_of(type(state)):
        return {name: getattr(state, name) for name in names}
    if isinstance(state, dict):
        return state
    return dict(enumerate(state)) if isinstance(state, list | tuple) else None


def _names_of(kind: Any) -> tuple[str, ...]:
    """Names of the fields of a dataclass or NamedTuple."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "_fields", ())


def made_again(kind: type[Tree], plain: Any, arrays: dict[str, Floats], path: str = "") -> Tree:
    """Give the state of a type that `taken_apart` gave in parts; fields that are not there have their defaults, if any.

    Raises
    ------
    KeyError, TypeError
        It is of another type.
    """
    return typing.cast(Tree, _made(kind, plain, arrays, path))


def _made(kind: Any, plain: Any, arrays: dict[str, Floats], path: str) -> Any:
    origin, given = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        kinds = [each for each in given if each is not type(None)]
        there = plain is not None or any(name == path or name.startswith(path + SEPARATOR) for name in arrays)
        return _made(kinds[0], plain, arrays, path) if there else None
    if origin is np.ndarray:
        if plain is None:
            return arrays[path]
        return np.array([arrays[f"{path}{SEPARATOR}{row}"] for row in range(plain)])

    def part(of: Any, name: Any) -> Any:
        return _made(of, plain[name], arrays, f"{path}{SEPARATOR}{name}" if path else str(name))

    if names := _names_of(kind):
        hints = typing.get_type_hints(kind)
        defaults = getattr(kind, "_field_defaults", vars(kind))
        return kind(**{name: part(hints[name], name) for name in names if name in plain or name not in defaults})
    if origin is dict:
        return {given[0](name): part(given[1], name) for name in plain}
    if origin is list:
        return [part(given[0], k) for k in range(len(plain))]
    if origin is tuple:
        several = len(given) == 2 and given[1] is Ellipsis
        return tuple(part(given[0 if several else k], k) for k in range(len(plain)))
    return float(plain) if kind is float else plain
