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
from typing import Any, NamedTuple

from llvmlite import binding
from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python
from numba.core.types.containers import BaseTuple

from mpimbs.kernels.kernel_cache import cache_folder, outside, remove_unused_files, stamp
from mpimbs.kernels.reach import digest


class Code(NamedTuple):
    """What is kept of a function."""

    returned: Any  # type
    needed: tuple[str, ...]  # symbols of the functions that it calls
    machine_code: bytes


_LOADED: dict[str, Code] = {}


def symbol_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str | None:
    """Name of a function's code for some types of arguments; None where their names don't tell them apart."""
    kinds = [_kind(argument) for argument in arguments]
    if None in kinds:
        return None
    parts = "mpimbs", function.__name__, "h" + digest(stamp(function), function.__module__, *map(str, kinds))
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


def load(symbol: str) -> Code | None:
    """Have a function's code, and all that it calls, ready to be linked; None if it is not kept, in part or whole."""
    if symbol in _LOADED:
        return _LOADED[symbol]
    try:
        code: Code = Code(*pickle.loads(_file(symbol).read_bytes()))
    except Exception:  # none, or of another state: what is not understood is compiled anew
        return None
    if any(load(needed) is None for needed in code.needed):
        return None
    with contextlib.suppress(OSError):
        os.utime(_file(symbol))  # it is in use
    return make_ready(symbol, code)


def make_ready(symbol: str, code: Code) -> Code:
    """Give a function's code to the linker; what it needs is there."""
    engine = cpu_target.target_context.codegen()._engine._ee
    engine.add_object_file(binding.ObjectFileRef.from_data(code.machine_code))
    engine.finalize_object()
    binding.add_symbol(symbol, engine.get_function_address(symbol))
    _LOADED[symbol] = code
    return code


def keep(symbol: str, code: Code) -> None:
    """Write a function's code for others; where that can't be done, this process has it alone."""
    with contextlib.suppress(OSError):
        file = _file(symbol)
        unfinished = file.with_name(f"{file.name}.{os.getpid()}")
        unfinished.write_bytes(pickle.dumps(tuple(code)))
        unfinished.replace(file)


def _file(symbol: str) -> Path:
    return cache_folder() / f"{symbol}.part"


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
        """What is kept, and the symbols of what it calls."""
        return result.library.needed, super().reduce(result)

    def rebuild(self, target_context: Any, kept: Any) -> Any:
        """The kernel, linked to what it calls; None if that is not kept."""
        needed, result = kept
        return super().rebuild(target_context, result) if all(load(symbol) for symbol in needed) else None


class KernelCache(FunctionCache):
    """A kernel's cache on disk, in `cache_folder`; neither is looked for before the kernel is called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = repr(function)
        self._py_func = function
        if outside(function):
            stamp(function)  # of what its file is now
        self.enable()

    @functools.cached_property
    def _impl(self) -> _Files:
        return _Files(self._py_func)

    @property
    def _cache_path(self) -> str:
        return str(cache_folder())

    @functools.cached_property
    def _cache_file(self) -> IndexDataCacheFile:
        return IndexDataCacheFile(self._cache_path, self._impl.filename_base, "")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a kernel's machine code, if it is there.

        numba would first import and register all that it can compile, and compile what owns arrays: a third of a
        second. Kernels own none, and whatever is compiled later sees to that itself.
        """
        _know_helpers()
        with self._guard_against_spurious_io_errors():
            try:
                found = self._load_overload(sig, target_context)
            except Exception as error:  # cut, empty or garbage: whatever reading it may raise
                index = Path(self._cache_file._index_path)
                sys.stderr.write(f"mpimbs: {index} is damaged ({type(error).__name__}): removed, and compiled anew\n")
                index.unlink(missing_ok=True)
                return None
            if found is not None:
                with contextlib.suppress(OSError):  # it is in use: `remove_unused_files`
                    os.utime(self._cache_file._index_path)
            return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel's machine code; the first of a process clears away what nobody has used for long."""
        _tidy_up()
        super().save_overload(sig, data)


@functools.cache
def _tidy_up() -> None:
    remove_unused_files(cache_folder())


@functools.cache
def _know_helpers() -> None:
    """Have the linker find what wrappers of kernels may call to read arrays that Python has."""
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
