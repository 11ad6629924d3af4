"""Where compiled kernels are kept: one folder for every state of the kernels' code, numba, Python, and processor.

numba's own cache looks at the file that holds a kernel, and at its text. A change in another file that the kernel calls
would leave stale code, and one of a comment would compile all again: here a hash over the code of all files that may be
called names the folder.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import os
import re
import shutil
import stat
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite
import numba
from llvmlite import binding
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.runtime import _nrt_python

from mpimbs.kernels.checked import CHECKED

# All of the package that a kernel may call, and where one may be: `KernelCache` refuses others.
_WITH_KERNELS = (
    *("kernels/*.py", "spatial/*.py", "values/*.py", "sweep/**/*.py", "loops/*.py", "parts/**/*.py"),
    *("parallel/*.py", "coupling/**/*.py", "dynamics/pipeline.py", "simulation/march.py"),
    *("partition/assembly_costs.py", "partition/schedule_search.py", "study/timed_joins.py"),
)
_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
UNUSED_DAYS = 30  # after which a folder is removed
_FOLDER = re.compile(r"[0-9a-f]{16}")


@functools.cache
def _stamped() -> frozenset[Path]:
    """The files of the package whose code names the folder."""
    return frozenset(path for part in _WITH_KERNELS for path in _PACKAGE.glob(part))


@functools.cache
def cache_folder() -> Path:
    """Folder of the compiled code; `MPIMBS_CACHE_DIR` moves it.

    Where none of the places can be written, one for this process alone, which compiles anew.
    """
    for base in _places():
        with contextlib.suppress(OSError):
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (os.access(base, os.W_OK) and _is_ours(base)):
                continue
            folder = base / _name(base)
            if not folder.exists():
                remove_unused(base)
            folder.mkdir(exist_ok=True)
            os.utime(folder)
            return folder
    return Path(tempfile.mkdtemp(prefix="mpimbs-"))


def _places() -> list[Path]:
    root = os.environ.get("MPIMBS_CACHE_DIR")
    with contextlib.suppress(RuntimeError):  # no home
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return [Path(root) if root else Path(home) / "mpimbs" / "kernels", _temporary()]
    return [_temporary()]


def _temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"mpimbs-{os.getuid()}"


def _is_ours(base: Path) -> bool:
    """Whether nobody else can put code into the temporary folder's part; other places are the user's own choice."""
    if base != _temporary():
        return True
    found = os.lstat(base)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def remove_unused(base: Path) -> None:
    """Remove folders of earlier states that no process has used for `UNUSED_DAYS`."""
    oldest = time.time() - 86400 * UNUSED_DAYS
    for entry in os.scandir(base):
        if _FOLDER.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_mtime < oldest:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)


def _name(base: Path) -> str:
    """Hash over all that compiled code depends on. That over the code of the sources is kept for these sources."""
    sources = {str(path.relative_to(_PACKAGE)): path.read_bytes() for path in sorted(_stamped())}
    text = _hash(*(item for pair in sources.items() for item in pair))
    known = base / text
    code = ""
    with contextlib.suppress(OSError):
        code = known.read_text(encoding="ascii")
        os.utime(known)
    if not _FOLDER.fullmatch(code):
        code = _hash(*(item for name, source in sources.items() for item in (name, code_of(source))))
        with contextlib.suppress(OSError):
            unfinished = base / f"{text}.{os.getpid()}"
            unfinished.write_text(code, encoding="ascii")
            unfinished.replace(known)
    return _hash(
        code, numba.__version__, llvmlite.__version__, sys.implementation.cache_tag, str(CHECKED), *processor()
    )


def processor() -> tuple[str, str]:
    """Name and features ("+avx2,-avx512f") of the processor that numba compiles for.

    It is the one at hand, or that of NUMBA_CPU_NAME and NUMBA_CPU_FEATURES.
    """
    name, features = numba.config.CPU_NAME, numba.config.CPU_FEATURES
    return (
        binding.get_host_cpu_name() if name is None else name,
        binding.get_host_cpu_features().flatten() if features is None else features,
    )


def _hash(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def code_of(source: bytes) -> str:
    """Give what of a source is compiled: neither comments, layout, nor docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                body[:1] = [ast.Pass()]
    return ast.dump(tree)


def stamp_of(file: Path) -> str:
    """Hash over the code of a file outside of the package, and of all that it imports which is not installed."""
    found: dict[str, str] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop().resolve()
        if str(path) in found or not path.is_file() or path.is_relative_to(_PACKAGE):
            continue
        if path != file and any(path.is_relative_to(folder) for folder in _INSTALLED):
            continue
        source = path.read_bytes()
        found[str(path)] = code_of(source)
        for name in _imported(source):
            place = getattr(sys.modules.get(name), "__file__", None)
            waiting += [Path(place)] if place and place.endswith(".py") else []
    return _hash(*(item for pair in sorted(found.items()) for item in pair))


def _imported(source: bytes) -> Iterator[str]:
    """Names of modules that a source imports, and of what may be modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


class _Locator:
    """A kernel's place, as numba asks for it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename

    def get_cache_path(self) -> str:
        """Folder of the kernel's files."""
        return str(cache_folder())

    def ensure_cache_path(self) -> None:
        """Make the folder, should it have been removed meanwhile."""
        cache_folder().mkdir(parents=True, exist_ok=True)

    def get_source_stamp(self) -> str:
        """Of the package nothing: the folder is of one state of its sources. Of others, all that they are made of.

        Raises
        ------
        RuntimeError
            A kernel of the package is in a file that does not name the folder: its changes would be missed.
        """
        file = Path(self._py_file)
        if not file.is_absolute():  # made of a text of the package (`widths`); there may be no current folder
            return ""
        file = file.resolve()
        if file in _stamped():
            return ""
        if file.is_relative_to(_PACKAGE):
            raise RuntimeError(f"{file}: has a kernel, and is not among the files of `kernel_cache._WITH_KERNELS`")
        return stamp_of(file)


class _Files(CompileResultCacheImpl):
    """A kernel's files."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._lineno = function.__code__.co_firstlineno  # for a warning of numba's
        self._locator = _Locator(function)
        self._filename_base = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")


class KernelCache(FunctionCache):
    """A kernel's cache on disk, in `cache_folder`."""

    _impl_class = _Files

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a kernel's machine code, if it is there.

        numba would first import and register all that it can compile, and compile what owns arrays: a third of a
        second. Kernels own none, and whatever is compiled later sees to that itself.
        """
        _know_helpers()
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


@functools.cache
def _know_helpers() -> None:
    """Have the linker find what wrappers of kernels may call to read arrays that Python has."""
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
