"""Model files: a system as TOML, read with every message naming the file, the line and the table.

Model files hold data only: loads that are functions of time or state belong to Python.
"""

from __future__ import annotations

import gc
import marshal
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import ConfigDict, Field, PlainValidator, ValidationInfo, field_validator

from mpimbs.base.arguments import as_path
from mpimbs.base.errors import InputError, about
from mpimbs.model.body import Body, Loop
from mpimbs.model.contents import Heading
from mpimbs.model.event import Event
from mpimbs.model.gear import Gear
from mpimbs.model.order.sequence import Statement, add_in_sequence
from mpimbs.model.rod import Rod
from mpimbs.model.spring import Spring, Tendon
from mpimbs.model.summary import validate
from mpimbs.model.system import System
from mpimbs.model.text.table import CheckedTable, Unit, Vector, suggest
from mpimbs.model.text.toml import Place, Source, at
from mpimbs.model.text.values import BaseUnits, Parameters, Values


def _tables(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("must be a list of tables; write its name in double brackets, [[ ]]")
    return value


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("must be a table; write its name in brackets, [ ]")
    return value


def _files(value: Any) -> list[str]:
    files = [value] if isinstance(value, str) else value
    if not isinstance(files, list) or not all(isinstance(file, str) and file for file in files):
        raise ValueError(f"must be the name of a file or a list of them, got {value!r}")
    return files


TableT = TypeVar("TableT", bound=CheckedTable)
Count = Annotated[int, Field(strict=True, ge=1, description="how often to repeat"), Unit("1")]
Tables = Annotated[list[dict[str, Any]], PlainValidator(_tables)]


class Opening(CheckedTable):
    """The opening of a model file, which says how its text is meant."""

    model_config = ConfigDict(title="system")

    include: Annotated[list[str], PlainValidator(_files)] = Field(default=[])
    parameters: Annotated[dict[str, Any], PlainValidator(_table)] = Field(default={})
    units: BaseUnits = BaseUnits()


class Model(Opening, Heading):
    """The top level of a model file.

    Attributes
    ----------
    name : str
        What the system is called.
    gravity : tuple of 3 floats
        Acceleration of gravity in the world frame, m/s^2.
    include : str or list of str
        Other model files, relative to this one, whose tables come before those here.
    parameters : table
        Numbers by name, or expressions of others, for expressions here and in included files; what stands here goes
        before what stands there.
    units : table
        What the numbers of this file are in.
    """

    body: Tables = Field(default=[])
    repeat: Tables = Field(default=[])
    rod: Tables = Field(default=[])
    loop: Tables = Field(default=[])
    gear: Tables = Field(default=[])
    spring: Tables = Field(default=[])
    tendon: Tables = Field(default=[])
    event: Tables = Field(default=[])


class Row(CheckedTable):
    """Copies in a straight line: how many, and how far it is from one to the next (m)."""

    count: Count
    step: Annotated[Vector, Unit("m", 3)] = Field(description="how far it is from one copy to the next, in m")


class Repeat(CheckedTable):
    """The bodies of a [[repeat]], how often they come, on which bodies, and how far from where their joint says.

    With a `grid` of several rows every copy of the first row is itself a row, as the second says.

    Attributes
    ----------
    count : int
        How often they come.
    body : list of tables
        The bodies, in sequence or as a tree; a single one may have its keys beside `count`.
    parents : str or list of str
        On which bodies the copies lie; by default each on the last one.
    shifts : list of [x, y, z]
        How far each copy lies from where its joint says, m.
    grid : list of tables
        The same as rows, each with `count` and `step` (m).
    """

    count: Count
    body: Tables
    parents: Any = None
    shifts: Annotated[Any, Unit("m")] = None
    grid: tuple[Row, ...] = ()

    @field_validator("body", mode="after")
    @classmethod
    def _check_body(cls, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if not bodies:
            raise ValueError("needs at least one table; give the body to repeat")
        return bodies

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


TABLES: dict[str, type[CheckedTable]] = {
    "body": Body,
    "repeat": Repeat,
    "rod": Rod,
    "loop": Loop,
    "gear": Gear,
    "spring": Spring,
    "tendon": Tendon,
    "event": Event,
}
"""What the lists of tables of a model file hold."""


@dataclass(frozen=True)
class _Part:
    """One of the files of a model, and what turns its numbers to SI."""

    place: Place
    model: Model
    values: Values
    # Tables within tables, by what they say.
    _known: dict[tuple[type[CheckedTable], str, bytes], Any] = field(default_factory=dict)

    def tables(self, kind: str) -> Iterator[tuple[dict[str, Any], Place]]:
        """All tables of a kind, and where they are."""
        for k, fields in enumerate(getattr(self.model, kind)):
            yield fields, self.place.inner(kind, k, title=f"[[{kind}]] {k + 1}")

    def read(self, kind: type[TableT], fields: dict[str, Any], place: Place) -> TableT:
        """Read a table. Of tables within it that say the same, such as joints, one serves all."""
        with at(place):
            said = {}
            for key in kind.tables_within():
                if isinstance(fields.get(key), dict):
                    with suppress(ValueError):  # a date, which the check refuses
                        said[key] = kind, key, marshal.dumps(fields[key], 2)
            known = {key: self._known[text] for key, text in said.items() if text in self._known}
            found = kind(**self.values.of(kind, fields | known))
            self._known.update((text, getattr(found, key)) for key, text in said.items())
            return found

    def read_all(self, kind: type[TableT]) -> Iterator[tuple[TableT, Place]]:
        """All tables of a kind that are what they say, and where they are."""
        for fields, place in self.tables(kind.__name__.lower()):
            yield self.read(kind, fields, place), place

    def statements(self) -> Iterator[Statement]:
        """The statements that add bodies."""
        for body, place in self.read_all(Body):
            yield Statement(place, body)
        for fields, place in self.tables("repeat"):
            yield self._repeat(fields, place)
        for rod, place in self.read_all(Rod):
            yield Statement(place, rod)

    def _repeat(self, fields: dict[str, Any], place: Place) -> Statement:
        """Read a [[repeat]] that holds the keys of its one body, or a list of bodies."""
        if "body" in fields:
            repeat = self.read(Repeat, fields, place)
            inner = [place.inner("body", k, title=f"[[repeat.body]] {k + 1}") for k in range(len(repeat.body))]
        else:
            own = {key: value for key, value in fields.items() if key in Repeat.model_fields}
            body = {key: value for key, value in fields.items() if key not in own}
            repeat = self.read(Repeat, own | {"body": [body]}, place)
            inner = [place]
        bodies = tuple(self.read(Body, body, where) for body, where in zip(repeat.body, inner, strict=True))
        return Statement(place, bodies, repeat.count, repeat.parents, repeat.places())


def read_system(path: str | Path, parameters: Mapping[str, float] | None = None) -> System:
    """Read a system from a TOML file and validate it.

    Parameters
    ----------
    path : str or Path
        Of the file.
    parameters : mapping of str to float, optional
        In place of what the file says of these.

    Raises
    ------
    InputError
        The file can't be read, is no TOML, or describes no valid system, or has no such parameters; the message names
        the file, the line, the table with its number, and the remedy.
    """
    return _system_of(Source.of(as_path("the model's file", path)), parameters or {})


def parameters_of(path: str | Path) -> list[str]:
    """Give the names of the parameters of a TOML file and of what it includes; InputError as `read_system`."""
    return [name for _, opening, _ in _opened(Source.of(path), (), set()) for name in opening.parameters]


def system_from_text(text: str, where: str | Path) -> System:
    """Read a system from the text of a model file, as `system_text` gives it; errors name `where` it stood."""
    return _system_of(Source(str(where), text), {})


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keep Python from looking for garbage among what is read, which takes as long as reading it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@_without_collection()
def _system_of(source: Source, overrides: Mapping[str, float]) -> System:
    parts = _parts(source, overrides)
    said = (part.model.model_dump(include={"name", "gravity"}, exclude_unset=True) for part in parts)
    system = System(**dict(chain.from_iterable(heading.items() for heading in said)))
    add_in_sequence(system, [statement for part in parts for statement in part.statements()])
    adders: tuple[tuple[type[CheckedTable], Callable[[Any], Any]], ...] = (
        (Loop, system.add_loop),
        (Gear, system.add_gear),
        (Spring, system.add_spring),
        (Tendon, system.add_tendon),
        (Event, system.add_event),
    )
    for kind, add in adders:
        for part in parts:
            for table, place in part.read_all(kind):
                with at(place):
                    add(table)
    with at(Place(source)):
        validate(system.contents)
    return system


def _parts(source: Source, overrides: Mapping[str, float]) -> list[_Part]:
    """Read a text and all that it includes, those first; what overrides parameters goes before all."""
    opened = list(_opened(source, (), set()))
    given = {name: value for _, opening, _ in opened for name, value in opening.parameters.items()}
    for name in overrides:
        if name not in given:
            hint = suggest(name, given) or "; give it in [parameters]"
            raise InputError(f"{source.name}: has no parameter {name!r}{hint}")
    parameters = Parameters(given | dict(overrides))
    for place, opening, _ in opened:
        with at(place.inner("parameters")):
            for name in opening.parameters:
                parameters[name]
    parts = []
    for place, opening, contents in opened:
        values = Values(parameters, opening.units)
        with at(place):
            parts.append(_Part(place, Model(**values.of(Model, contents)), values))
    return parts


def _opened(
    source: Source, above: tuple[Path, ...], known: set[Path]
) -> Iterator[tuple[Place, Opening, dict[str, Any]]]:
    """Go through a text and all that it includes, those first and each once: where, how it begins, what it says."""
    path, place, contents = Path(source.name).resolve(), Place(source), source.contents()
    known.add(path)
    with at(place):
        opening = Opening(**{key: contents[key] for key in Opening.model_fields if key in contents})
    for name in opening.include:
        other = Path(source.name).parent / name
        with at(place):
            if other.resolve() in (*above, path):
                raise about(("include",), f"include: {name} is or includes this file; leave it out in one of them")
            try:
                found = Source.of(other)
            except InputError as error:
                raise about(("include",), f"include: {error}") from None
        if other.resolve() not in known:
            yield from _opened(found, (*above, path), known)
    yield place, opening, contents
