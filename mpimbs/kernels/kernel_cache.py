"""Where compiled kernels are kept: a folder for every state of numba, Python and processor, a file for each kernel.

numba's own cache looks at the file that holds a kernel, and at its text. A change in another file that the kernel calls
would leave stale code, and one of a comment would compile it again: here a hash over the code of all that it reaches
(`reach`) is part of the file's name.
"""

from __future__ import annotations

import ast
import contextlib
import functools
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

from mpimbs.kernels.checked import CHECKED
from mpimbs.kernels.reach import SOURCES, Stamps, code_of, hash_of, imports_of

_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
UNUSED_DAYS = 30  # after which a folder, or a file in one, is removed
_FOLDER = re.compile(r"[0-9a-f]{16}")


_full: set[Path] = set()  # places that take no more


@functools.cache
def cache_folders() -> tuple[Path, ...]:
    """Folders of the compiled code: that which is written, and those that can only be read, as one made for all.

    `MPIMBS_CACHE_DIR` is the first place, then the user's, then a temporary one. Where none can be written, it is one
    for this process alone, which compiles anew.
    """
    readable: list[Path] = []
    for base in _places():
        folder = base / hash_of(*_state())
        with contextlib.suppress(OSError):
            if _prepared(base, folder):
                return folder, *readable
            if folder.is_dir() and _is_ours(base):
                readable.append(folder)
    return Path(tempfile.mkdtemp(prefix="mpimbs-")), *readable


def cache_folder() -> Path:
    """Folder into which compiled code is written."""
    return cache_folders()[0]


def keep_elsewhere(error: OSError) -> bool:
    """Have compiled code written to the next place, for this one took no more, and say so; False if there is none."""
    base = cache_folder().parent
    if base not in _places() or base in _full:
        return False
    _full.add(base)
    cache_folders.cache_clear()
    instead = cache_folder().parent
    where = f"kept in {instead}" if instead in _places() else "not kept"
    sys.stderr.write(
        f"mpimbs: {base} can't be written ({error.strerror}): what is compiled is {where}; make room there, or name "
        "another folder by MPIMBS_CACHE_DIR\n"
    )
    return True


def _prepared(base: Path, folder: Path) -> bool:
    """Make a folder in a place, if that can be written."""
    if base in _full:
        return False
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (os.access(base, os.W_OK) and _is_ours(base)):
            return False
        if not folder.exists():
            remove_unused(base)
        folder.mkdir(exist_ok=True)
        os.utime(folder)
    except OSError:
        return False
    return True


def _places() -> list[Path]:
    root = os.environ.get("MPIMBS_CACHE_DIR")
    places = [Path(root).absolute()] if root else []
    with contextlib.suppress(RuntimeError):  # no home
        places.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpimbs" / "kernels")
    return [*places, _temporary()]


def _temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"mpimbs-{os.getuid()}"


def _is_ours(base: Path) -> bool:
    """Whether nobody else can put code into the temporary folder's part; other places are the user's own choice."""
    if base != _temporary():
        return True
    found = os.lstat(base)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def remove_unused_files(folder: Path) -> None:
    """Remove the code of kernels, and of what they call, that no process has loaded for `UNUSED_DAYS`."""
    oldest = time.time() - 86400 * UNUSED_DAYS
    with contextlib.suppress(OSError):
        for kept in (*folder.glob("*.nbi"), *folder.glob("*.part")):
            if kept.stat().st_mtime < oldest:
                for file in (kept, *folder.glob(f"{kept.stem}.*.nbc")):
                    file.unlink(missing_ok=True)


def remove_unused(base: Path) -> None:
    """Remove folders of earlier states that no process has used for `UNUSED_DAYS`."""
    oldest = time.time() - 86400 * UNUSED_DAYS
    for entry in os.scandir(base):
        if _FOLDER.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_mtime < oldest:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)


def _state() -> tuple[str, ...]:
    """All that compiled code depends on beside its source."""
    return numba.__version__, llvmlite.__version__, str(sys.implementation.cache_tag), str(CHECKED), *processor()


def processor() -> tuple[str, str]:
    """Name and features ("+avx2,-avx512f") of the processor that numba compiles for.

    It is the one at hand, or that of NUMBA_CPU_NAME and NUMBA_CPU_FEATURES.
    """
    name, features = numba.config.CPU_NAME, numba.config.CPU_FEATURES
    return (
        binding.get_host_cpu_name() if name is None else name,
        binding.get_host_cpu_features().flatten() if features is None else features,
    )


@functools.cache
def stamps() -> Stamps:
    """Stamps of the package's kernels, kept beside the folders for this place of the package."""
    return Stamps(cache_folder().parent / f"stamps-{hash_of(str(SOURCES))}.json")


def stamp_of(file: Path) -> str:
    """Hash over the code of a file outside of the package, and of all that it imports which is not installed."""
    found: dict[str, str] = {}
    of_package: list[tuple[str, str]] = []
    waiting = [file]
    while waiting:
        path = waiting.pop().resolve()
        if str(path) in found or not path.is_file() or path.is_relative_to(SOURCES):
            continue
        if path != file and any(path.is_relative_to(folder) for folder in _INSTALLED):
            continue
        found[str(path)], within, outside_it = _read(path, path.stat().st_mtime_ns)
        of_package += within
        for name in outside_it:
            place = getattr(sys.modules.get(name), "__file__", None)
            waiting += [Path(place)] if place and place.endswith(".py") else []
    return hash_of(*(item for pair in sorted(found.items()) for item in pair), stamps().of_names(of_package))


@functools.cache
def _read(path: Path, _: int) -> tuple[str, list[tuple[str, str]], list[str]]:
    """The code of a file as it was written at some time, and what it imports of the package, and beside it."""
    tree = ast.parse(path.read_bytes())
    imported = list(imports_of(tree).values()), list(_imported(tree))
    return code_of(tree), *imported


def _imported(tree: ast.AST) -> Iterator[str]:
    """Names of modules that a source imports, and of what may be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def stamp(function: Callable[..., Any]) -> str:
    """Hash over all that the compiled code of a function is made of.

    Raises
    ------
    RuntimeError
        Of the package, neither at the top of a module nor made around what is: its changes would be missed.
    """
    return stamp_of(Path(function.__code__.co_filename)) if outside(function) else stamps().of(function)


def outside(function: Callable[..., Any]) -> bool:
    """Whether a function is none of the package, nor of a text that it has made (`widths`)."""
    return _lies_outside(function.__code__.co_filename)


@functools.cache
def _lies_outside(filename: str) -> bool:
    """Whether a file that code names is none of the package; texts that it has made have no place."""
    file = Path(filename)
    return file.is_absolute() and not file.resolve().is_relative_to(SOURCES)
