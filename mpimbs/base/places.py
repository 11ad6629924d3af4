"""Where files may be written: not onto what was read, onto nothing but regular files, onto those only when asked.

Every file that a command or a function of the package writes passes through here.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mpimbs.base.errors import InputError
from mpimbs.base.lock import refuse_owner

_KINDS = {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
_inputs: set[Path] = set()


def note_input(path: str | Path) -> None:
    """Remember a file that was read, so that nothing is written onto it; modules of Python need no word."""
    with contextlib.suppress(OSError):  # of a working directory that is gone
        _inputs.add(Path(path).absolute())


def current_folder() -> Path:
    """Give the current folder.

    Raises
    ------
    InputError
        It has been removed.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise InputError("the current folder has been removed: change to another one") from None


def absolute_path(path: str | Path) -> Path:
    """Give a path as it is from any folder: the current one may be changed while a file is open.

    Raises
    ------
    InputError
        The current folder has been removed.
    """
    return current_folder() / path


def part_of(path: Path) -> Path:
    """Where a file is until it is complete."""
    return path.with_name(path.name + ".part")


def check_place(path: Path, setting: str = "output", instead: str = "") -> None:
    """Refuse to write onto what is no regular file, or was read.

    Parameters
    ----------
    path : Path
        Of the file, which need not exist.
    setting : str
        What the place was named by.
    instead : str
        What there is in place of /dev/null.

    Raises
    ------
    InputError
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        mode = _mode(path)
        if stat.S_ISDIR(mode):
            raise InputError(f"{path}: is a folder; give the name of a file with `{setting}`")
        if stat.S_ISLNK(mode):
            raise InputError(f"{path}: is a link to {os.readlink(path)}; give the name of the file with `{setting}`")
        if not stat.S_ISREG(mode):
            kind = _KINDS.get(stat.S_IFMT(mode), "no file")
            raise InputError(f"{path}: is {kind}; give the name of a file with `{setting}`{instead}")
        if (what := _input_at(path)) is not None:
            raise InputError(f"{path}: is {what}, and would be lost; choose another name with `{setting}`")


def _mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place with `output`") from None


def _input_at(path: Path) -> str | None:
    """The input that was read from a file, by whatever name."""
    own = os.stat(path)
    for file in _inputs:
        with contextlib.suppress(OSError):
            if os.path.samestat(own, os.stat(file)):
                return f"an input ({file.name})"
    ending = path.suffix
    sources = ((name, str(getattr(module, "__file__", None))) for name, module in list(sys.modules.items()))
    for name, source in filter(lambda each: each[1].endswith(ending), sources):  # few of hundreds
        with contextlib.suppress(OSError, ValueError):
            if os.path.samestat(own, os.stat(source)):
                return f"the Python module {name}"
    return None


def check_new(path: Path, force: bool, setting: str = "output", instead: str = "") -> None:
    """Refuse a place where a new file can't go.

    Parameters
    ----------
    force : bool
        An existing file may be replaced, or what is unfinished of it.
    path, setting, instead
        See `check_place`.

    Raises
    ------
    InputError
        As `check_place`, also of the file's unfinished part; another process writes there; the file or its part exists
        (without `force`), or can't be written.
    """
    check_place(path, setting, instead)  # a folder may have no name
    check_place(part_of(path), setting)
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; make it first")
    refuse_owner(path, setting)
    for file in (path, part_of(path)):
        if os.path.exists(file) and not force:
            left = "" if file == path else ", left by a run that did not end"
            raise InputError(
                f"{file}: exists{left}; move it, choose another name with `{setting}`, or replace it with `force=True`"
            )
    check_writable(path, setting)


def check_writable(path: Path, setting: str = "output") -> None:
    """Raise an `InputError` if no file can be made beside this one."""
    part = part_of(path)
    fresh = not os.path.exists(part)
    try:
        with open(part, "ab"):
            pass
        if fresh:
            part.unlink()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); choose another place with `{setting}`"
        ) from None


def check_folder(folder: Path, names: Iterable[str], force: bool, setting: str = "output", instead: str = "") -> None:
    """Make a folder, and refuse it if files of these names can't go there; see `check_new`."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError(f"{folder}: is no folder; choose another place with `{setting}`{instead}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: can't be made ({error.strerror}); choose another place with `{setting}`") from None
    for name in names:
        check_new(folder / name, force, setting)


@contextlib.contextmanager
def replacing(path: Path, setting: str = "output") -> Iterator[Path]:
    """Write a file whole or not at all: gives the name of another, which takes its place at the end.

    Raises
    ------
    InputError
        As `check_place`; or the operating system refuses.
    """
    part = part_of(path)
    for file in (path, part):
        check_place(file, setting)
    refuse_owner(path, setting)
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); choose another place with `{setting}`"
        ) from None
    finally:
        part.unlink(missing_ok=True)
