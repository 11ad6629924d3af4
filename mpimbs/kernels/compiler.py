"""How a kernel is compiled, cached and, for tests, run uncompiled. No mathematics.

A kernel is a plain Python function of numbers of one type T, tuples of T and arrays. `kernel` compiles it with numba;
`interpreted` gives back its uncompiled twin, which takes any Python number (an mpmath number, a counting number).
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher
from numba.core.registry import CPUDispatcher
from numba.core.types.misc import unliteral
from numba.extending import overload

from mpimbs.kernels.checked import CHECKED
from mpimbs.kernels.kernel_cache import outside, stamp
from mpimbs.kernels.linking import ApartCompiler, PartCache, PartCompiler, WholeCompiler
from mpimbs.kernels.machine_code import KernelCache

# Contraction to fused multiply-add, no signed zeros, division by multiplication with the reciprocal: each keeps
# NaN and infinity, so that a broken state is still seen.
FASTMATH = {"contract", "nsz", "arcp"}

_OPTIONS = {
    "fastmath": FASTMATH,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "_nrt": False,
    "boundscheck": CHECKED,
}


def kernel(function: Callable[..., Any] | None = None, *, inline: bool = False, merge: bool = False) -> Any:
    """Compile a kernel with numba, cached on disk.

    Parameters
    ----------
    function : callable
        The kernel.
    inline : bool
        Have LLVM inline it wherever it is called: for the small pieces of algebra. Others it calls, so that they are
        compiled once, and give the same bits wherever they are called.
    merge : bool
        Make it a part of its callers before they are compiled: for those that only call large ones.
    """
    if function is None:
        return functools.partial(kernel, inline=inline, merge=merge)
    if outside(function):
        stamp(function)  # of what its file is now
    return _Kernel(function, inline, merge)


class _Kernel(CPUDispatcher):
    """A kernel of which nothing was asked yet: then it becomes numba's dispatcher, the same object.

    Most are parts of others, whose code is kept: making what numba wants of 700 takes a seventh of a short command.
    """

    def __init__(self, function: Callable[..., Any], inline: bool, merge: bool) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self.options = function, (inline, merge)

    def __getattribute__(self, name: str) -> Any:
        if name not in _OF_FUNCTION:
            _make(self)
        return object.__getattribute__(self, name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        _make(self)
        return self(*given, **named)


_OF_FUNCTION = {*functools.WRAPPER_ASSIGNMENTS, "__class__", "__dict__", "__wrapped__", "py_func"}


_MAKING = threading.RLock()  # another thread that asks meanwhile waits


def _make(waiting: Any) -> None:
    """Make the dispatcher of a kernel, in its place."""
    with _MAKING:
        if options := waiting.__dict__.pop("options", None):
            _begin(waiting, waiting.py_func, *options)
            waiting.__class__ = CPUDispatcher


def _begin(called: Any, function: Any, inline: bool, merge: bool) -> None:
    function.__signature__ = inspect.signature(function)  # of each dispatcher of it
    options = _OPTIONS | {"forceinline": inline, "inline": "always" if merge else "never"}
    CPUDispatcher.__init__(called, function, {}, options | {"nopython": True}, WholeCompiler)
    called._cache = KernelCache(function)
    compiler = PartCompiler if inline or merge else ApartCompiler

    @functools.cache
    def part() -> Any:
        """Make the dispatcher that other kernels call, when one is compiled that does."""
        made = numba.njit(pipeline_class=compiler, no_cpython_wrapper=True, **options)(function)
        if compiler is ApartCompiler:
            made._cache = PartCache(function)
        return made

    def template(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """One compilation for all constants: LLVM puts them in where it inlines."""
        plain = {name: unliteral(kind) for name, kind in named.items()}
        return part().get_call_template(tuple(unliteral(kind) for kind in arguments), plain)

    called.get_call_template, called.get_overload = template, lambda signature: part().get_overload(signature)


def kernel_overload(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`numba.extending.overload` for what only kernels call."""
    return overload(function, jit_options=_OPTIONS | {"pipeline_class": PartCompiler}, **options)


def interpreted(compiled: Dispatcher) -> Callable[..., Any]:
    """Give the uncompiled twin of a kernel, and of all that it calls, for numbers that numba does not know.

    Parameters
    ----------
    compiled : numba dispatcher
        A function made by `kernel`.

    Returns
    -------
    callable
        Same arguments; arrays may be of dtype object.
    """
    return _interpreted(compiled, {})


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
    return twin
