"""What Python calls of kernels that are given a `zero`: an entry for a double, and one for every number of lanes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numba.core.dispatcher import Dispatcher

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import WIDTHS, implement, zero_lanes


def by_width(function: Dispatcher, widths: tuple[int, ...] = (1, *WIDTHS), **constants: int) -> dict[int, Dispatcher]:
    """Give the entries of a kernel whose first argument is a `zero`, by their numbers of lanes: without that argument.

    Each is a plain function with the kernel's own arguments, since numba takes longer to unpack a tuple of them, and it
    is found in the cache by its name. None is compiled before it is called. `constants` stand for arguments that the
    entries are not given.
    """
    names = list(inspect.signature(function.py_func).parameters)[1:]
    given = ", ".join(name for name in names if name not in constants)
    handed_on = ", ".join(str(constants.get(name, name)) for name in names)
    stem = "_".join([function.py_func.__name__.strip("_"), *(f"{name}{value}" for name, value in constants.items())])
    entries = {}
    for width in widths:
        zero = "0.0" if width == 1 else f"zero_lanes({width})"
        scope: dict[str, Any] = {"function": function, "zero_lanes": zero_lanes}
        text = f"def {stem}_{width}({given}):\n    return function({zero}, {handed_on})\n"
        exec(compile(text, function.py_func.__code__.co_filename, "exec"), scope)  # whose changes make it another
        entry = scope[f"{stem}_{width}"]
        entry.__module__ = function.py_func.__module__
        entries[width] = kernel(entry)
    return entries


def with_constants(function: Dispatcher, name: str, **constants: Any) -> Dispatcher:
    """Give a kernel under another name, with constants in place of some of its arguments: kernels, too.

    One that Python calls could not be kept on disk if it handed these on itself.
    """
    names = list(inspect.signature(function.py_func).parameters)
    given = ", ".join(each for each in names if each not in constants)
    scope: dict[str, Any] = {"__name__": function.py_func.__module__, "function": function, **constants}
    exec(f"def {name}({given}):\n    return function({', '.join(names)})\n", scope)
    made: Dispatcher = kernel(scope[name])
    return made


def lanes_only(function: Dispatcher) -> Callable[..., None]:
    """Give what kernels call in place of one that is given a `zero`: in doubles nothing is done, or compiled."""
    names = list(inspect.signature(function.py_func).parameters)
    scope: dict[str, Any] = {"__name__": function.py_func.__module__, "function": function}
    return _called(function, names, "pass", f"function({', '.join(names)})", scope)


def by_number(in_doubles: Dispatcher, in_lanes: Dispatcher) -> Callable[..., None]:
    """Give what kernels call in place of one of two, by the type of the first argument, a `zero`.

    That for doubles is given those of the other's arguments that it has by name.
    """
    names = list(inspect.signature(in_lanes.py_func).parameters)
    fewer = ", ".join(name for name in names if name in inspect.signature(in_doubles.py_func).parameters)
    scope: dict[str, Any] = {"__name__": in_lanes.py_func.__module__, "of_doubles": in_doubles, "of_lanes": in_lanes}
    return _called(in_doubles, names, f"return of_doubles({fewer})", f"return of_lanes({', '.join(names)})", scope)


def _called(like: Dispatcher, names: list[str], doubles: str, lanes: str, scope: dict[str, Any]) -> Callable[..., None]:
    """What is called by the name of a kernel, of two bodies in a scope."""
    bodies = {"called": "pass", "doubles": doubles, "lanes": lanes}
    exec("".join(f"def {name}({', '.join(names)}):\n    {body}\n" for name, body in bodies.items()), scope)
    called: Callable[..., None] = scope["called"]
    called.__name__, called.__doc__ = like.py_func.__name__, like.py_func.__doc__
    implement(called, scope["doubles"], scope["lanes"])
    return called
