"""TOML files as all readers see them: their contents, the lines of their keys, and errors that name these."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import rtoml

from mpimbs.base.errors import InputError, Keys
from mpimbs.base.places import note_input
from mpimbs.model.names import DIGITS
from mpimbs.model.text.table import CheckedTable, suggest

TableT = TypeVar("TableT", bound=CheckedTable)

# What can hold a bracket or the end of a line that is none of TOML's own, and these themselves.
_TOKEN = re.compile(
    r"\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}|\"(?:\\.|[^\"\\])*\"|'[^']*'|#[^\n]*|[][{}\n]", re.DOTALL
)


@dataclass(frozen=True)
class Source:
    """A text of TOML, and what it is called."""

    name: str
    text: str = field(repr=False)

    @classmethod
    def of(cls, path: str | Path) -> Source:
        """Read a file; InputError if that can't be done."""
        with at(f"{path}: "):
            return cls(str(path), _read_text(Path(path)))

    def contents(self) -> dict[str, Any]:
        """Parse the text; InputError if it is no TOML."""
        with at(f"{self.name}: "):
            return _parsed(self.text)

    @cached_property
    def _lines(self) -> dict[Keys, int]:
        return lines_of(self.text)

    def line(self, keys: Keys) -> int | None:
        """The line of a key, or of the nearest table around it; None if there is none."""
        return next((self._lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self._lines), None)


@dataclass(frozen=True)
class Place:
    """A table of a text: its keys, and what it is called there."""

    source: Source
    keys: Keys = ()
    title: str = ""

    def inner(self, *keys: str | int, title: str = "") -> Place:
        """A table within it, with a title of its own or none."""
        return Place(self.source, self.keys + keys, f"{self.title} {title}".strip())

    def told(self, keys: Keys) -> str:
        """How a message on keys of the table begins."""
        line = self.source.line(self.keys + keys)
        return f"{self.source.name}:{'' if line is None else f'{line}:'} {self.title}"


class at:  # noqa: N801
    """Puts a place in front of an InputError of a block; a numbered table replaces the kind that the message names."""

    def __init__(self, where: str | Place) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, InputError):
            return
        message, begin = str(error), self._where if isinstance(self._where, str) else self._where.told(error.keys)
        for named in (
            ("body", "repeat", "rod", "loop", "gear", "spring", "tendon", "event")
            if begin.endswith(tuple(DIGITS))
            else ()
        ):
            message = message.removeprefix(named)
        raise InputError(begin + message) from None


def read_toml(path: str | Path, kind: type[TableT]) -> TableT:
    """Read a file that is one table, such as a cluster or a schedule.

    Raises
    ------
    InputError
        The file can't be read, is no TOML, or no such table; the message names file, line, key and remedy.
    """
    source = Source.of(path)
    contents = source.contents()
    with at(Place(source)):
        return kind(**contents)


def _read_text(path: Path) -> str:
    note_input(path)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        names = [file.name for file in path.parent.glob("*.toml") if file.name != "pyproject.toml"]
        raise InputError(f"there is no such file{suggest(path.name, names) or '; check its name'}") from None
    except IsADirectoryError:
        raise InputError("is a folder; name the file in it") from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text (byte {error.start}); save it as a UTF-8 text file") from None


def _parsed(text: str) -> dict[str, Any]:
    with suppress(rtoml.TomlParsingError):  # whose words are others: it is six times as fast, which long texts need
        contents: dict[str, Any] = rtoml.loads(text.replace("\r\n", "\n"))
        return contents
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: TOMLDecodeError, and integers of thousands of digits
        raise InputError(f"is not valid TOML: {error}; correct or complete the file there") from None


def lines_of(text: str) -> dict[Keys, int]:
    """Return the line, from 1 on, of each key and table of a valid text; an item of a list of tables has its number.

    Each statement, a header or a key with its value, is a text of TOML in itself.
    """
    lines: dict[Keys, int] = {}
    counts: dict[Keys, int] = {}  # of the tables in each list so far
    table: Keys = ()
    for line, statement in _statements(text):
        found: Any = _parsed(statement)
        header = statement.lstrip().startswith("[")
        keys = () if header else table
        while isinstance(found, dict) and len(found) == 1:
            ((key, found),) = found.items()
            keys += (key,)
            if header and isinstance(found, list):
                counts[keys] = counts.get(keys, 0) + 1
                found = None
            if header and keys in counts:
                keys += (counts[keys] - 1,)
            lines.setdefault(keys, line)
        table = keys if header else table
    return lines


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Cut a text at the ends of its statements: the line of each, and what it says."""
    begin, line, depth = 0, 1, 0
    for token in _TOKEN.finditer(f"{text}\n"):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if token[0] == "\n" and not depth:
            statement = text[begin : token.end()]
            yield line, statement
            begin, line = token.end(), line + statement.count("\n")
