"""How a kernel is compiled, cached and, for tests, run uncompiled. No mathematics.

A kernel is a plain Python function of numbers of one type T, tuples of T and arrays. `kernel` compiles it with numba;
`interpreted` gives back its uncompiled twin, which takes any Python number (an mpmath number, a counting number).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher
from numba.core.types.misc import unliteral
from numba.extending import overload

from mpimbs.kernels.checked import CHECKED
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
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # of each dispatcher of it
    options = _OPTIONS | {"forceinline": inline, "inline": "always" if merge else "never"}
    called = numba.njit(pipeline_class=WholeCompiler, **options)(function)
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
    return called


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
