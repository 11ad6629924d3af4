"""Model files as they are written: a system as the text that `files` reads back, to the last bit.

Model files hold data only: loads that are functions of time or state belong to Python.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mpimbs.base.arguments import as_path
from mpimbs.base.errors import InputError
from mpimbs.base.places import check_new, replacing
from mpimbs.model.contents import Contents
from mpimbs.model.event import Event
from mpimbs.model.names import WORLD
from mpimbs.model.order.segments import Branches, Copies, Segment
from mpimbs.model.over_time import BY_NUMBERS, Lagged
from mpimbs.model.spring import Spring
from mpimbs.model.system import System, contents_of
from mpimbs.model.text.table import CheckedTable

# What functions in tables are functions of, but for those of time alone.
_FUNCTIONS: dict[type, str] = {Spring: "a function of length and speed", Event: "a function of time and motions"}


def write_system(system: System | Contents, path: str | Path, force: bool = False) -> None:
    """Write a system as a TOML file that `read_system` reads back to the same bodies, to the last bit.

    Parameters
    ----------
    system : System or Contents
    path : path
    force : bool
        Replace an existing file.

    Raises
    ------
    InputError
        A load is a function of time or state; or the file exists (without `force`) or can't be written.
    """
    place, text = as_path("the file", path), system_text(system)
    check_new(place, force, "path")
    with replacing(place, "path") as part:
        part.write_text(text, encoding="utf-8")


def holds_functions(system: Contents) -> bool:
    """Say whether loads or events of a system are functions, which a model file does not hold."""
    try:
        system_text(system)
    except InputError:
        return True
    return False


def system_text(system: System | Contents, functions: bool = False) -> str:
    """Return a system as the text of a model file.

    Repeated bodies stay [[repeat]] tables if nothing but repeats follows them and none has loads of its own;
    otherwise every body is written out.

    Parameters
    ----------
    functions : bool
        Name loads that are functions in comments, for the record, rather than refuse them.

    Raises
    ------
    InputError
        A load is a function of time or state (without `functions`).
    """
    system = contents_of(system)
    lines = [f"name = {_value(system.name)}", f"gravity = {_value(system.gravity)}"]
    lines += [f"# {line}" for line in system.left_out]
    lines += [f"# joint {joint.name}: q from {joint.q} on, u from {joint.u} on" for joint in system.coordinates]
    for force in system.loads.functions:
        if not functions:
            raise InputError(
                f"{force.kind} {force.name!r}: is a function, and a model file holds data only; leave it out"
            )
        lines.append(f"# {force.kind} {force.name} on {force.whom(system.name_of)}")
    segments, tables = list(system.segments), _Tables(functions)
    order = [segment.numbered for segment in segments]
    branched = any(isinstance(segment, Branches) for segment in segments)
    if order == sorted(order) and not branched and not system.loads.wrenches and not system.loads.torques:
        for segment in segments:
            first, *others = segment.bodies
            in_sequence = not isinstance(segment, Copies) or segment.in_sequence
            parent = system.parent_name(segment.first) if in_sequence else None
            bodies = [first if first.parent == parent else first.model_copy(update={"parent": parent}), *others]
            if not segment.numbered:
                lines += ["", "[[body]]", *tables.lines("body", bodies[0])]
                continue
            lines += ["", "[[repeat]]", f"count = {segment.count}", *_where_copies_lie(system, segment)]
            if others:
                for body in bodies:
                    lines += ["", "[[repeat.body]]", *tables.lines("repeat.body", body)]
            else:
                lines += tables.lines("repeat", bodies[0])
    else:
        for body in system.bodies():
            lines += ["", "[[body]]", *tables.lines("body", body)]
    for loop in system.loops.all:
        kind = type(loop).__name__.lower()
        lines += ["", f"[[{kind}]]", *tables.lines(kind, loop)]
    for spring in system.springs.values():
        lines += ["", "[[spring]]", *tables.lines("spring", spring)]
    for tendon in system.loads.tendons.values():
        lines += ["", "[[tendon]]", *tables.lines("tendon", tendon)]
    for event in system.events:
        given = event.named() if functions else event
        lines += ["", "[[event]]", *tables.lines("event", given)]
    return "\n".join(lines) + "\n"


def _where_copies_lie(system: Contents, segment: Segment) -> list[str]:
    """Return the lines of a [[repeat]] that say on which bodies its copies lie, and how far from where joints say."""
    lines = []
    if isinstance(segment, Copies) and not segment.in_sequence:
        same = bool(np.all(segment.roots_on == segment.roots_on[0]))
        names = [system.name_of(k) if k >= 0 else WORLD for k in segment.roots_on[: 1 if same else None].tolist()]
        lines.append(f"parents = {_value(names[0] if same else names)}")
    first, last = np.searchsorted(system.shifted, (segment.first, segment.last + 1)).tolist()
    if first < last:
        lines.append(f"shifts = {system.shifts[first:last].tolist()}")
    return lines


class _Tables:
    """Tables as text.

    Parameters
    ----------
    functions : bool
        Name functions in comments rather than refuse them.
    """

    def __init__(self, functions: bool) -> None:
        self._functions = functions
        self._within: dict[tuple[str, int], tuple[CheckedTable, list[str]]] = {}  # tables in tables, which many share

    def lines(self, header: str, table: CheckedTable) -> list[str]:
        """Return the lines of a table without its header: keys that are not at their default, then subtables."""
        defaults = table.defaults
        keys: list[str] = []
        subtables: list[str] = []
        for key, value in table:
            if isinstance(value, CheckedTable):
                subtables += ["", f"[{header}.{key}]", *self._lines_within(f"{header}.{key}", value)]
            elif key in defaults and value == defaults[key]:
                continue
            elif isinstance(value, tuple) and value and isinstance(value[0], CheckedTable):
                for item in value:
                    subtables += ["", f"[[{header}.{key}]]", *self.lines(f"{header}.{key}", item)]
            elif callable(value) and not isinstance(value, BY_NUMBERS):
                function = _FUNCTIONS.get(type(table), "a function of time")
                if not self._functions:
                    raise InputError(
                        f"[[{header}]]: {key} is {function}, and a model file holds data only; leave it out"
                    )
                keys.append(f"# {key} is {function}")
            else:
                keys.append(f"{key} = {_value(value)}")
        return keys + subtables

    def _lines_within(self, header: str, table: CheckedTable) -> list[str]:
        place = header, id(table)
        if place not in self._within:
            self._within[place] = table, self.lines(header, table)
        return self._within[place][1]


def _value(value: Any) -> str:
    """Return a text, a truth value, a number or a tuple as TOML; a tuple of one number as the number."""
    if type(value) is float:  # by far the most
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Lagged):
        return f"{{ rows = {_value(value.rows)}, lag = {_value(value.lag)}, begin = {_value(value.begin)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, tuple):
        single = len(value) == 1 and not isinstance(value[0], tuple)
        return _value(value[0]) if single else f"[{', '.join(map(_value, value))}]"
    return repr(value)
