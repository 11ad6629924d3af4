"""How a kernel is compiled, cached and, for tests, run uncompiled. No mathematics.

A kernel is a plain Python function of numbers of one type T, tuples of T and arrays. `kernel` compiles it with numba;
`interpreted` gives back its uncompiled twin, which takes any Python number (an mpmath number, a counting number).
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite
import numba
from llvmlite import binding
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.extending import overload

from mpimbs.spatial.linking import PartCompiler, WholeCompiler

# Contraction to fused multiply-add, no signed zeros, division by multiplication with the reciprocal: each keeps
# NaN and infinity, so that a broken state is still seen.
FASTMATH = {"contract", "nsz", "arcp"}

_OPTIONS = {"fastmath": FASTMATH, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}

# All that a kernel may call: where the first one of a further file is written, the file belongs here.
_WITH_KERNELS = (
    *("pipeline.py", "spatial/*.py", "sweep/*.py", "parallel/*.py", "coupling/*.py"),
    *("study/machine.py", "study/phases.py"),
)


@functools.cache
def cache_folder() -> Path:
    """Folder of the compiled code, one for every state of the kernels' sources, numba, and processor.

    numba's own cache looks only at the file that holds a kernel; a change in another file that the kernel calls would
    leave stale code, so the folder's name is a hash over all that may. `MPIMBS_CACHE_DIR` moves it.
    """
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parents[1]
    for source in sorted(path for part in _WITH_KERNELS for path in package.glob(part)):
        digest.update(str(source.relative_to(package)).encode())
        digest.update(source.read_bytes())
    host = (
        numba.__version__,
        llvmlite.__version__,
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
    )
    digest.update(repr(host).encode())
    name = digest.hexdigest()[:16]
    root = os.environ.get("MPIMBS_CACHE_DIR")
    base = (
        Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpimbs" / "kernels"
    )
    for folder in (base / name, Path(tempfile.gettempdir()) / f"mpimbs-{os.getuid()}" / name):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return folder


def kernel(function: Callable[..., Any] | None = None, *, inline: bool = False, merge: bool = False) -> Any:
    """Compile a kernel with numba, cached on disk in `cache_folder`.

    Parameters
    ----------
    function : callable
        The kernel.
    inline : bool
        Ask LLVM to inline it wherever it is called: for the small pieces of algebra.
    merge : bool
        Make it a part of its callers before they are compiled: for those that only call large ones. Each function that
        is compiled by itself has LLVM optimize all that it calls once more.
    """
    if function is None:
        return functools.partial(kernel, inline=inline, merge=merge)
    options = _OPTIONS | {"forceinline": inline, "inline": "always" if merge else "never"}
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())
    try:
        called = numba.njit(cache=True, pipeline_class=WholeCompiler, **options)(function)
    finally:
        numba.config.CACHE_DIR = before
    part = numba.njit(pipeline_class=PartCompiler, no_cpython_wrapper=True, **options)(function)

    def template(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """One compilation for all constants: LLVM puts them in where it inlines."""
        plain = {name: types.unliteral(kind) for name, kind in named.items()}
        return part.get_call_template(tuple(types.unliteral(kind) for kind in arguments), plain)

    called.get_call_template, called.get_overload = template, part.get_overload
    return called


def kernel_overload(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`numba.extending.overload` for what only kernels call."""
    return overload(function, jit_options=_OPTIONS | {"pipeline_class": PartCompiler}, **options)


@contextmanager
def many_objects() -> Iterator[None]:
    """Have Python look for garbage less often: compiling makes millions of objects that live on; 8 % less time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def interpreted(
    compiled: Dispatcher, instead: Mapping[Callable[..., Any], Callable[..., Any]] | None = None
) -> Callable[..., Any]:
    """Give the uncompiled twin of a kernel, and of all that it calls, for numbers that numba does not know.

    Parameters
    ----------
    compiled : numba dispatcher
        A function made by `kernel`.
    instead : mapping, optional
        Functions that kernels call but are none, such as those of `spatial.rows`, to those that the twins call instead.

    Returns
    -------
    callable
        Same arguments; arrays may be of dtype object.
    """
    return _interpreted(compiled, dict(instead or {}))


def _interpreted(compiled: Dispatcher, done: dict[Any, Callable[..., Any]]) -> Callable[..., Any]:
    if compiled in done:
        return done[compiled]
    source = compiled.py_func
    scope = dict(source.__globals__)
    twin = FunctionType(source.__code__, scope, source.__name__, source.__defaults__, source.__closure__)
    done[compiled] = twin
    for name in source.__code__.co_names:
        called = scope.get(name)
        if isinstance(called, Dispatcher):
            scope[name] = _interpreted(called, done)
        elif isinstance(called, FunctionType):
            scope[name] = done.get(called, called)
    return twin
