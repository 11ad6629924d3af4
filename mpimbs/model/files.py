"""Model files: a system as TOML, read with every message naming the file and the table, and written.

Model files hold data only: loads that are functions of time or state belong to Python.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field, PlainValidator, ValidationInfo, field_validator

from mpimbs.errors import InputError
from mpimbs.filesystem.places import note_input
from mpimbs.model.body import Body, Loop
from mpimbs.model.contents import Heading
from mpimbs.model.event import Event
from mpimbs.model.names import DIGITS, WORLD
from mpimbs.model.rod import Rod
from mpimbs.model.segments import Branches, Copies, Segment
from mpimbs.model.spring import Spring
from mpimbs.model.system import System
from mpimbs.model.table import CheckedTable, Vector, suggest


def _tables(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("must be a list of tables; write its name in double brackets, [[ ]]")
    return value


# What functions in tables are functions of, but for those of time alone.
_FUNCTIONS: dict[type, str] = {
    Spring: "a function of length and speed",
    Event: "a function of time and motions",
}
TableT = TypeVar("TableT", bound=CheckedTable)
Count = Annotated[int, Field(strict=True, ge=1, description="how often to repeat")]
Tables = Annotated[list[dict[str, Any]], PlainValidator(_tables)]


class Model(Heading):
    """The top level of a model file."""

    body: Tables = Field(default=[])
    repeat: Tables = Field(default=[])
    rod: Tables = Field(default=[])
    loop: Tables = Field(default=[])
    spring: Tables = Field(default=[])
    event: Tables = Field(default=[])


class Row(CheckedTable):
    """Copies in a straight line: how many, and how far it is from one to the next (m)."""

    count: Count
    step: Vector = Field(description="how far it is from one copy to the next, in m")


class Repeat(CheckedTable):
    """The bodies of a [[repeat]], how often they come, on which bodies, and how far from where their joint says.

    With a `grid` of several rows every copy of the first row is itself a row, as the second says.
    """

    count: Count
    body: Tables
    parents: Any = None
    shifts: Any = None
    grid: tuple[Row, ...] = ()

    @field_validator("grid", mode="after")
    @classmethod
    def _check_grid(cls, rows: tuple[Row, ...], info: ValidationInfo) -> tuple[Row, ...]:
        if rows and "count" in info.data and (size := math.prod(row.count for row in rows)) != info.data["count"]:
            raise ValueError(f"has {size} places for {info.data['count']} copies; give as many")
        if rows and info.data.get("shifts"):
            raise ValueError("and shifts both say where the copies lie; give one of the two")
        return rows

    def places(self) -> Any:
        """Return how far the first body of each copy lies from where its joint says: the shifts, or [count, 3] (m)."""
        if not self.grid:
            return self.shifts
        places = np.zeros((1, 3))
        for row in self.grid:
            along = np.arange(row.count)[:, None] * np.array(row.step)
            places = (places[:, None] + along).reshape(-1, 3)
        return places


def read_system(path: str | Path) -> System:
    """Read a system from a TOML file and validate it.

    Raises
    ------
    InputError
        The file can't be read, is no TOML, or describes no valid system; the message names the file, the
        table with its number, and the remedy.
    """
    with at(f"{path}: "):
        contents = read_toml(Path(path))
    return _system_of(contents, path)


def system_from_text(text: str, where: str | Path) -> System:
    """Read a system from the text of a model file, as `system_text` gives it; errors name `where` it stood."""
    with at(f"{where}: "):
        contents = _parsed(text)
    return _system_of(contents, where)


def _system_of(contents: dict[str, Any], path: str | Path) -> System:
    with at(f"{path}: "):
        model = Model(**contents)
    places = [f"{path}: [[body]] {number}" for number in range(1, len(model.body) + 1)]
    bodies = [_read(Body, fields, where) for fields, where in zip(model.body, places, strict=True)]
    repeats = [_read_repeat(fields, f"{path}: [[repeat]] {k}") for k, fields in enumerate(model.repeat, 1)]
    rods = [_read(Rod, fields, f"{path}: [[rod]] {k}") for k, fields in enumerate(model.rod, 1)]
    loops = [_read(Loop, fields, f"{path}: [[loop]] {k}") for k, fields in enumerate(model.loop, 1)]
    springs = [_read(Spring, fields, f"{path}: [[spring]] {k}") for k, fields in enumerate(model.spring, 1)]
    events = [_read(Event, fields, f"{path}: [[event]] {k}") for k, fields in enumerate(model.event, 1)]

    system = System(model.name, model.gravity)
    repeated = {body.name for _, templates in repeats for body in templates}
    first_place = {body.name: k for k, body in reversed(list(enumerate(bodies)))}
    parents = {body.name: body.parent or "" for body in bodies}
    for k, body in enumerate(bodies):
        with at(places[k]):
            _check_parent(body, first_place.get(body.parent or "", -1), k, repeated, parents)
            system.add(body)
    for k, (repeat, templates) in enumerate(repeats, 1):
        with at(f"{path}: [[repeat]] {k}"):
            system.repeat(repeat.count, *templates, parents=repeat.parents, shifts=repeat.places())
    for k, rod in enumerate(rods, 1):
        with at(f"{path}: [[rod]] {k}"):
            system.add_rod(rod)
    for k, loop in enumerate(loops, 1):
        with at(f"{path}: [[loop]] {k}"):
            system.add_loop(loop)
    for k, spring in enumerate(springs, 1):
        with at(f"{path}: [[spring]] {k}"):
            system.add_spring(spring)
    for k, event in enumerate(events, 1):
        with at(f"{path}: [[event]] {k}"):
            system.add_event(event)
    with at(f"{path}: "):
        system.validate()
    return system


def _read(kind: type[TableT], fields: dict[str, Any], where: str) -> TableT:
    with at(where):
        return kind(**fields)


def _read_repeat(fields: dict[str, Any], where: str) -> tuple[Repeat, list[Body]]:
    """Read a [[repeat]] that holds the keys of its one body, or a list of bodies."""
    if "body" in fields:
        repeat = _read(Repeat, fields, where)
        inner = [f"{where} [[repeat.body]] {k}" for k in range(1, len(repeat.body) + 1)]
    else:
        own = {key: value for key, value in fields.items() if key in Repeat.model_fields}
        body = {key: value for key, value in fields.items() if key not in own}
        repeat = _read(Repeat, own | {"body": [body]}, where)
        inner = [where]
    return repeat, [_read(Body, body, place) for body, place in zip(repeat.body, inner, strict=True)]


def _check_parent(body: Body, place: int, own_place: int, repeated: set[str], parents: dict[str, str]) -> None:
    """Refuse a parent that is in the file, but comes too late in it: at `place`, -1 if it is no [[body]]."""
    parent = body.parent or ""
    if place > own_place:
        circle = _circle(body.name, parents)
        if circle:
            raise InputError(
                f"body {body.name!r}: lies on itself, by way of {' on '.join(map(repr, circle))}; put one of them on "
                "'world' or on a body outside, and close a loop with a [[loop]]"
            )
        raise InputError(f"body {body.name!r}: parent {parent!r} comes below; move [[body]] {place + 1} up")
    if place < 0 and parent.rstrip(DIGITS) in repeated:
        raise InputError(
            f"body {body.name!r}: parent {parent!r} is of a [[repeat]], which comes after every [[body]]; "
            "make this body a [[repeat]] with count = 1"
        )


def _circle(name: str, parents: dict[str, str]) -> list[str]:
    """The parents from a body on until it comes again; none where it doesn't."""
    passed = dict.fromkeys([name])
    parent = parents.get(name, "")
    while parent and parent not in passed:
        passed[parent] = None
        parent = parents.get(parent, "")
    return list(passed)[1:] if parent == name else []


@contextmanager
def at(where: str) -> Iterator[None]:
    """Put a place in front of an InputError; a numbered table replaces the kind that the message names."""
    try:
        yield
    except InputError as error:
        message = str(error)
        for kind in ("body", "repeat", "rod", "loop", "spring", "event") if where.endswith(tuple(DIGITS)) else ():
            message = message.removeprefix(kind)
        raise InputError(where + message) from None


def read_toml(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file; InputError without its name, which the caller adds."""
    note_input(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        names = [file.name for file in path.parent.glob("*.toml") if file.name != "pyproject.toml"]
        raise InputError(f"there is no such file{suggest(path.name, names) or '; check its name'}") from None
    except IsADirectoryError:
        raise InputError("is a folder; name the file in it") from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text (byte {error.start}); save it as a UTF-8 text file") from None
    return _parsed(text)


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # ValueError: TOMLDecodeError, and integers of thousands of digits
        raise InputError(f"is not valid TOML: {error}; correct or complete the file there") from None


def write_system(system: System, path: str | Path) -> None:
    """Write a system as a TOML file that `read_system` reads back to the same bodies, to the last bit.

    Raises
    ------
    InputError
        A load is a function of time or state, or the file can't be written.
    """
    text = system_text(system)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: can't be written: {error.strerror}") from None


def holds_functions(system: System) -> bool:
    """Say whether loads or events of a system are functions, which a model file does not hold."""
    try:
        system_text(system)
    except InputError:
        return True
    return False


def system_text(system: System, functions: bool = False) -> str:
    """Return a system as the text of a model file.

    Repeated bodies stay [[repeat]] tables if nothing but repeats follows them and none has loads of its own;
    otherwise every body is written out.

    Parameters
    ----------
    system : System
    functions : bool
        Name loads that are functions in comments, for the record, rather than refuse them.

    Raises
    ------
    InputError
        A load is a function of time or state (without `functions`).
    """
    lines = [f"name = {_value(system.name)}", f"gravity = {_value(system.gravity)}"]
    for force in system.force_functions:
        if not functions:
            raise InputError(
                f"{force.kind} {force.name!r}: is a function, and a model file holds data only; leave it out"
            )
        lines.append(f"# {force.kind} {force.name} on {force.whom(system.name_of)}")
    segments = list(system.segments)
    order = [segment.numbered for segment in segments]
    branched = any(isinstance(segment, Branches) for segment in segments)
    if order == sorted(order) and not branched and not system.wrenches and not system.torques:
        for segment in segments:
            first, *others = segment.bodies
            in_sequence = not isinstance(segment, Copies) or segment.in_sequence
            parent = system.body(segment.first).parent if in_sequence else None
            bodies = [first.model_copy(update={"parent": parent}), *others]
            if not segment.numbered:
                lines += ["", "[[body]]", *_table("body", bodies[0], functions)]
                continue
            lines += ["", "[[repeat]]", f"count = {segment.count}", *_where_copies_lie(system, segment)]
            if others:
                for body in bodies:
                    lines += ["", "[[repeat.body]]", *_table("repeat.body", body, functions)]
            else:
                lines += _table("repeat", bodies[0], functions)
    else:
        for body in system.bodies():
            lines += ["", "[[body]]", *_table("body", body, functions)]
    for loop in (*system.loops, *system.idle_loops):
        lines += ["", "[[loop]]", *_table("loop", loop, functions)]
    for spring in system.springs.values():
        lines += ["", "[[spring]]", *_table("spring", spring, functions)]
    for event in system.events:
        given = event.named() if functions else event
        lines += ["", "[[event]]", *_table("event", given, functions)]
    return "\n".join(lines) + "\n"


def _where_copies_lie(system: System, segment: Segment) -> list[str]:
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


def _table(header: str, table: CheckedTable, functions: bool) -> list[str]:
    """Return the lines of a table without its header: keys that are not at their default, then subtables."""
    default = type(table)(**{key: value for key, value in table if key in table.needed})
    function = _FUNCTIONS.get(type(table), "a function of time")
    keys: list[str] = []
    subtables: list[str] = []
    for key, value in table:
        if isinstance(value, CheckedTable):
            subtables += ["", f"[{header}.{key}]", *_table(f"{header}.{key}", value, functions)]
        elif isinstance(value, tuple) and value and isinstance(value[0], CheckedTable):
            for item in value:
                subtables += ["", f"[[{header}.{key}]]", *_table(f"{header}.{key}", item, functions)]
        elif callable(value) and functions:
            keys.append(f"# {key} is {function}")
        elif callable(value):
            raise InputError(f"[[{header}]]: {key} is {function}, and a model file holds data only; leave it out")
        elif key in table.needed or value != getattr(default, key):
            keys.append(f"{key} = {_value(value)}")
    return keys + subtables


def _value(value: Any) -> str:
    """Return a text, a truth value, a number or a tuple as TOML; a tuple of one number as the number."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, tuple):
        return _value(value[0]) if len(value) == 1 else f"[{', '.join(map(_value, value))}]"
    return repr(value)
