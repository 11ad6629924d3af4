"""What a compiled kernel is made of: the statements of the package that its own source reaches, through names.

A kernel is compiled from the function itself, the functions that it calls, the constants, types and overloads that
these use, and so on. All of them are statements at the top of some module, and each names what it uses; here they are
found in the sources, without running anything, and hashed. A change of plain Python, or of a kernel that another entry
calls, leaves the code of this one valid. Names are taken for what they may be: where in doubt, a statement is reached.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from numba.core.dispatcher import Dispatcher

SOURCES = Path(__file__).resolve().parents[1]
BEGAN = time.time()  # when this process read its sources, about
_NOT_FOLLOWED = {
    "mpimbs.kernels.kernel_cache",
    "mpimbs.kernels.machine_code",
    "mpimbs.kernels.reach",
}  # where code is kept, not what it is
# A function with other decorators may tell numba of itself, so that nobody has to name it.
_NO_REGISTRATION = {"kernel", "intrinsic", "cache", "dataclass", "contextmanager", "lru_cache"}

Name = tuple[str, str]  # of a module, and in it; an empty one stands for all of the module
# Types of arguments, and how anything is compiled: no kernel names these.
_ALWAYS: tuple[Name, ...] = tuple(
    (f"mpimbs.kernels.{name}", "") for name in ("calling", "checked", "compiler", "lanes", "linking", "memory")
)


def hash_of(*parts: str | bytes) -> str:
    """Hash of texts, of 16 digits."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.encode() if isinstance(part, str) else part)
        found.update(b"\0")
    return found.hexdigest()[:16]


_BY = hash_of(Path(__file__).read_bytes())


class _Statement(NamedTuple):
    """One at the top of a module."""

    code: str  # a hash
    names: frozenset[str]  # that it uses, plain or "one.other"


class _Module(NamedTuple):
    """The names at the top of a module."""

    statements: list[_Statement]
    defined: dict[str, list[int]]  # by which statements
    always: list[int]  # those that act without being named
    imported: dict[str, Name]


def code_of(tree: ast.AST) -> str:
    """Give a hash of what of a source is compiled, whose docstrings are cut out here; comments and layout are none."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                body[:1] = [ast.Pass()]
    return hash_of(ast.dump(tree))


def _used(tree: ast.AST) -> Iterator[str]:
    """Names that a statement uses, but for those in annotations, which numba does not read; those of the fields of
    classes are read, for a table is laid out by them (`memory.schema`)."""
    if isinstance(tree, ast.Name):
        yield tree.id
    elif isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name):
        yield f"{tree.value.id}.{tree.attr}"
    else:
        for field, value in ast.iter_fields(tree):
            if field not in ("annotation", "returns"):
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, ast.AST):
                        yield from _used(part)
        if isinstance(tree, ast.ClassDef):
            for part in tree.body:
                if isinstance(part, ast.AnnAssign):
                    yield from _used(part.annotation)


def _last_name(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _targets(statement: ast.stmt) -> list[str] | None:
    """Names that a statement defines; None if it does something else, or that too."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        registers = {_last_name(decorator) for decorator in statement.decorator_list} - _NO_REGISTRATION
        return None if registers else [statement.name]
    places = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    if isinstance(statement, ast.Assign | ast.AnnAssign) and all(isinstance(p, ast.Name | ast.Tuple) for p in places):
        return [name.id for place in places for name in ast.walk(place) if isinstance(name, ast.Name)]  # type: ignore[arg-type]
    return None


def _defined_within(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _file_of(module: str) -> Path | None:
    path = SOURCES.parent.joinpath(*module.split("."))
    found = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return found if found.is_file() else None


def _written_since(file: Path) -> bool:
    """Whether a source was written after this process began; a time that is still to come is another clock's."""
    return BEGAN < file.stat().st_mtime <= time.time()


def imports_of(tree: ast.AST) -> dict[str, Name]:
    """Find what a source imports of the package, at its top or within, by the names that it gives it."""
    found: dict[str, Name] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == SOURCES.name:
            for alias in node.names:
                within = f"{node.module}.{alias.name}"
                place = (within, "") if _file_of(within) else (str(node.module), alias.name)
                found[alias.asname or alias.name] = place
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == SOURCES.name:
                    found[alias.asname or alias.name] = (alias.name, "")
    return found


class _Sources:
    """The sources of the package, each read once, and what has been found in them."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}  # hashes by module
        self.changed = False  # some are no longer those that this process runs
        self._modules: dict[str, _Module | None] = {}

    def module(self, name: str) -> _Module | None:
        """Read the names of a module; None if it is none of the package, or is not followed."""
        if name not in self._modules:
            file = None if name in _NOT_FOLLOWED else _file_of(name)
            self._modules[name] = None
            if file is not None:
                source = file.read_bytes()
                self.changed |= _written_since(file)
                self.files[name] = hash_of(source)
                self._modules[name] = self._parsed(source)
        return self._modules[name]

    def _parsed(self, source: bytes) -> _Module:
        tree = ast.parse(source)
        found = _Module([], {}, [], imports_of(tree))
        for statement in tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                continue
            if isinstance(statement, ast.If) and _last_name(statement.test) == "TYPE_CHECKING":
                continue
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            names = frozenset(_used(statement))
            place = len(found.statements)
            found.statements.append(_Statement(code_of(ast.Module([statement], [])), names))
            targets = _targets(statement)
            if targets is None:
                found.always.append(place)
                targets = list(_defined_within(statement))
            for target in targets:
                found.defined.setdefault(target, []).append(place)
        return found

    def reached(self, roots: list[Name]) -> list[str]:
        """Hashes of all statements that some names reach, in an order of their own."""
        met: set[tuple[str, int]] = set()
        modules: set[str] = set()
        asked: set[Name] = set()
        waiting = list(roots)
        while waiting:
            item = waiting.pop()
            if item in asked:
                continue
            asked.add(item)
            name, part = item
            module = self.module(name)
            if module is None:
                continue
            places = list(range(len(module.statements))) if not part else module.defined.get(part, [])
            if part and not places and part in module.imported:  # handed on
                waiting.append(module.imported[part])
                continue
            if name not in modules:
                modules.add(name)
                places = [*places, *module.always]
            for place in places:
                if (name, place) not in met:
                    met.add((name, place))
                    waiting += [
                        found for used in module.statements[place].names for found in _places(used, name, module)
                    ]
        return sorted(f"{name} {_of(self.module(name), place)}" for name, place in met)


def _of(module: _Module | None, place: int) -> str:
    assert module is not None
    return module.statements[place].code


def _places(used: str, name: str, module: _Module) -> Iterator[Name]:
    """Where a name that a statement uses may be defined."""
    first, _, second = used.partition(".")
    if first in module.defined:
        yield name, first
    if first in module.imported:
        where, part = module.imported[first]
        yield (where, second) if second and not part else (where, part)


class Stamps:
    """Stamps of kernels, kept in a file for later processes as long as the sources, and this module, are the same."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._sources = _Sources()
        self._known: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, AttributeError):
            kept = json.loads(file.read_text(encoding="ascii")) if file else {"files": {}, "stamps": {}}
            places = {name: _file_of(name) for name in kept["files"]}
            if kept.get("by") == _BY and all(
                p is not None and not _written_since(p) and hash_of(p.read_bytes()) == kept["files"][name]
                for name, p in places.items()
            ):
                self._known, self._sources.files = dict(kept["stamps"]), dict(kept["files"])

    def of(self, function: Callable[..., Any]) -> str:
        """Stamp of a function of the package, or of one that is made of a text around such functions.

        Raises
        ------
        RuntimeError
            It stands in no module's top, nor around what does: its changes would be missed.
        """
        roots, texts = _roots(function)
        return hash_of(*texts, self._stamp(sorted(roots)))

    def of_names(self, names: list[Name]) -> str:
        """Stamp of what some names reach."""
        return self._stamp(sorted(set(names)))

    def _stamp(self, names: list[Name]) -> str:
        roots = [*_ALWAYS, *names]
        key = " ".join(":".join(root) for root in roots)
        if key not in self._known:
            found = hash_of(*self._sources.reached(roots))
            if self._sources.changed:  # what is compiled here is nobody else's
                found = hash_of(found, str(os.getpid()), str(BEGAN))
            self._known[key] = found
            self._keep()
        return self._known[key]

    def _keep(self) -> None:
        if self._file is not None and not self._sources.changed:
            with contextlib.suppress(OSError):
                unfinished = self._file.with_name(f"{self._file.name}.{os.getpid()}")
                text = json.dumps({"files": self._sources.files, "stamps": self._known, "by": _BY})
                unfinished.write_text(text, encoding="ascii")
                unfinished.replace(self._file)


def _roots(function: Callable[..., Any]) -> tuple[set[Name], list[str]]:
    """Names that a function stands for, and what else it is made of: texts."""
    if _stands(function):
        return {(function.__module__, function.__name__)}, []
    code = function.__code__
    found: set[Name] = set()
    texts = [code.co_code.hex(), repr(code.co_consts), repr(code.co_names), repr(code.co_varnames)]
    for name in code.co_names:
        if name not in function.__globals__:
            continue
        value: Any = function.__globals__[name]
        value = value.py_func if isinstance(value, Dispatcher) else value
        if isinstance(value, FunctionType):
            names, more = _roots(value)
            found |= names
            texts += [name, *more]
        elif isinstance(value, int | float | str | tuple):
            texts += [name, repr(value)]
        else:
            raise RuntimeError(
                f"{function.__module__}.{function.__qualname__}: what is compiled of it can't be told: {name}"
            )
    if not found:
        raise RuntimeError(f"{function.__module__}.{function.__qualname__}: a kernel stands at the top of its module")
    return found, texts


def _stands(function: Callable[..., Any]) -> bool:
    """Whether a function is a statement at the top of a module of the package, rather than made of a text."""
    parts = function.__module__.split(".")
    code = function.__code__
    return (
        parts[0] == SOURCES.name
        and function.__qualname__ == function.__name__
        and code.co_filename.endswith(os.sep.join(["", *parts]) + ".py")
        and code.co_firstlineno > 1
    )
