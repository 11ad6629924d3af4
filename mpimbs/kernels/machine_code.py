"""Machine code of kernels, each compiled once: for all who call it, in this process and in later ones.

What other kernels call has a file of `cache_folder` for each kind of arguments: its code, what it returns, and the
names of those that it calls in turn. The name is a hash over all that the code is made of, so that a file is never
wrong, only missing. What Python calls has the files of numba's own cache, under such names, and says what it calls.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import binding
from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python
from numba.core.types.containers import BaseTuple

from mpimbs.base.disk import check_room
from mpimbs.kernels.kernel_cache import cache_folder, cache_folders, keep_elsewhere, remove_unused_files, stamp
from mpimbs.kernels.reach import hash_of
from mpimbs.kernels.turns import COMPILING

if TYPE_CHECKING:
    from concurrent.futures import Future

ROOM = 2**22  # bytes, that a process may want for what it compiles


class Code(NamedTuple):
    """The parts of a compiled function that are kept."""

    returned: Any  # type
    needed: tuple[str, ...]  # symbols of the functions that it calls
    machine_code: bytes


_LOADED: dict[str, Code] = {}
# What is being compiled, with what it returns and calls: each before those that call it.
_AWAITED: dict[str, tuple[Future[bytes], Any, tuple[str, ...]]] = {}


def symbol_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str | None:
    """Name of a function's code for some types of arguments; None where their names don't tell them apart."""
    kinds = [_kind(argument) for argument in arguments]
    if None in kinds:
        return None
    parts = "mpimbs", function.__name__, "h" + hash_of(stamp(function), function.__module__, *map(str, kinds))
    return "_ZN" + "".join(f"{len(part)}{part}" for part in parts) + "E"  # as C++ would name it, and numba expects


def _kind(argument: Any) -> str | None:
    if isinstance(argument, types.Dispatcher):
        called: Dispatcher = argument.dispatcher
        return f"{called.py_func.__module__}.{called.py_func.__qualname__}-{stamp(called.py_func)}"
    if isinstance(argument, BaseTuple):
        kinds = [_kind(part) for part in argument]
        return (
            None
            if None in kinds
            else f"{type(argument).__name__} {getattr(argument, 'fields', '')}({', '.join(map(str, kinds))})"
        )
    text = str(argument)
    return None if "0x" in text or isinstance(argument, types.Function) else text


def load_code(symbol: str) -> Code | None:
    """Have a function's code, and all that it calls, ready to be linked; None if it is not kept, in part or whole."""
    if symbol in _AWAITED:
        take_code()
    if symbol in _LOADED:
        return _LOADED[symbol]
    for folder in cache_folders():
        file = folder / f"{symbol}.part"
        try:
            code: Code = Code(*pickle.loads(file.read_bytes()))
        except Exception:  # none, or of another state: what is not understood is compiled anew
            continue
        if any(load_code(needed) is None for needed in code.needed):
            continue
        with contextlib.suppress(OSError):
            os.utime(file)  # it is in use
        return make_ready(symbol, code)
    return None


def compile_meanwhile(symbol: str, parts: list[bytes], returned: Any, needed: tuple[str, ...]) -> None:
    """Have a function's code made of LLVM's modules, and kept, in a thread of its own."""
    from mpimbs.kernels.emission import emitted  # with threads, which those who only load code don't need

    take_code(wait=False)
    _AWAITED[symbol] = emitted(symbol, parts), returned, needed


def take_code(*, wait: bool = True) -> None:
    """Give the linker the code that has been made, and keep it; before anything is linked to it, wait for all."""
    while _AWAITED:
        symbol, (made, returned, needed) = next(iter(_AWAITED.items()))
        if not (wait or made.done()):
            break
        keep_code(symbol, make_ready(symbol, Code(returned, needed, made.result())))
        del _AWAITED[symbol]


def make_ready(symbol: str, code: Code) -> Code:
    """Give a function's code to the linker; what it needs is there."""
    engine = cpu_target.target_context.codegen()._engine._ee
    engine.add_object_file(binding.ObjectFileRef.from_data(code.machine_code))
    engine.finalize_object()
    binding.add_symbol(symbol, engine.get_function_address(symbol))
    _LOADED[symbol] = code
    return code


def keep_code(symbol: str, code: Code) -> None:
    """Write a function's code for others; where that can't be done, this process has it alone."""

    def write() -> None:
        file = cache_folder() / f"{symbol}.part"
        unfinished = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            unfinished.write_bytes(pickle.dumps(tuple(code)))
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)

    _written(write)


def _written(write: Callable[[], None]) -> None:
    """Write something to the cache's folder, or to the one that takes its place when its disk is full."""
    while True:
        try:
            write()
        except OSError as error:
            if keep_elsewhere(error):
                continue
        return


# --- what Python calls


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
        """Nothing more: the file's name has it."""
        return ""


class _Files(CompileResultCacheImpl):
    """A kernel's files."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._lineno = function.__code__.co_firstlineno  # for a warning of numba's
        self._locator = _Locator(function)
        name = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")
        self._filename_base = f"{name}-{stamp(function)}"

    def reduce(self, result: Any) -> Any:
        """Give what is kept of a kernel, and the symbols of what it calls."""
        return result.library.needed, super().reduce(result)

    def rebuild(self, target_context: Any, kept: Any) -> Any:
        """The kernel, linked to what it calls; None if that is not kept."""
        needed, result = kept
        return super().rebuild(target_context, result) if all(load_code(symbol) for symbol in needed) else None


class KernelCache(FunctionCache):
    """A kernel's cache on disk, in `cache_folder`; neither is looked for before the kernel is called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = repr(function)
        self._py_func = function
        self.enable()

    @functools.cached_property
    def _impl(self) -> _Files:
        return _Files(self._py_func)

    @property
    def _cache_path(self) -> str:
        return str(cache_folder())

    def _look_into(self, folder: Path) -> None:
        self._cache_file = IndexDataCacheFile(str(folder), self._impl.filename_base, "")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a kernel's machine code, if it is there.

        numba would first import and register all that it can compile, and compile what owns arrays: a third of a
        second. Kernels own none, and whatever is compiled later sees to that itself.
        """
        _know_helpers()
        found = self._found(sig, target_context)
        if found is None and not _has_room(cache_folder()):
            found = self._found(sig, target_context)  # in the next place, where an earlier process has kept it
        if found is None and COMPILING.begin(cache_folder(), f"{self._impl.filename_base} {sig}"):
            found = self._found(sig, target_context)  # which another process may have compiled meanwhile
            if found is not None:
                COMPILING.end()
        return found

    def _found(self, sig: Any, target_context: Any) -> Any:
        """Find what any folder has of the kernel."""
        for folder in cache_folders():
            self._look_into(folder)
            index = Path(self._cache_file._index_path)
            try:
                found = self._load_overload(sig, target_context)
            except Exception as error:  # cut, empty or garbage: whatever reading it may raise
                sys.stderr.write(f"mpimbs: {index} is damaged ({type(error).__name__}): removed, and compiled anew\n")
                with contextlib.suppress(OSError):  # of a folder that can only be read
                    index.unlink(missing_ok=True)
                continue
            if found is not None:
                with contextlib.suppress(OSError):  # it is in use: `remove_unused_files`
                    os.utime(index)
                return found
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel's machine code; the first of a process clears away what nobody has used for long."""
        _tidy_up()

        def write() -> None:
            self._look_into(cache_folder())
            FunctionCache.save_overload(self, sig, data)

        _written(write)
        COMPILING.end()


@functools.cache
def _has_room(folder: Path) -> bool:
    """Whether a folder takes what is about to be compiled; if not, it is kept elsewhere."""
    probe = folder / f"room.{os.getpid()}"
    try:
        check_room(probe, ROOM)
    except OSError as error:
        return not keep_elsewhere(error)
    finally:
        probe.unlink(missing_ok=True)
    return True


@functools.cache
def _tidy_up() -> None:
    remove_unused_files(cache_folder())


@functools.cache
def _know_helpers() -> None:
    """Have the linker find what wrappers of kernels may call to read arrays that Python has."""
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
