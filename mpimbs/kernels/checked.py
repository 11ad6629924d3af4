"""The checked build: with `MPIMBS_CHECKED=1` in the environment, kernels are compiled with bounds on all that they read
and write, and fresh rooms hold NaN. For tests: several times slower; without the variable nothing of it is compiled.

Every span, load, store and item of an array is held against the array's size, an index below zero too, which otherwise
counts from the end. The first that lies outside raises `OutOfBoundsError`, which names the access, the array's size and
the kernels from the innermost to the one that Python called.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils
from numba.core.callconv import CPUCallConv
from numba.extending import overload

CHECKED = os.environ.get("MPIMBS_CHECKED", "0") not in ("", "0")
_NONE = -1  # the size that a kernel gives through which an error passes

_I64, _TEXT = ir.IntType(64), ir.IntType(8).as_pointer()
_recorded: list[tuple[str, int, int, int]] = []


class OutOfBoundsError(IndexError):
    """A kernel reads or writes outside an array; raised by the checked build alone."""

    def __init__(self) -> None:
        (name, first, count, size), *callers = _recorded or [("?", 0, 0, 0)]
        path = " < ".join(map(_plain, (name, *(caller[0] for caller in callers))))
        super().__init__(f"{count} numbers from {first} on, of an array of {size}: {path}")


def _plain(mangled: str) -> str:
    """Name of a function, with its module, of numba's name of its code."""
    parts, rest = [], mangled.removeprefix("_ZN")
    while found := re.match(r"\d+", rest):
        end = found.end() + int(found.group())
        parts.append(rest[found.end() : end])
        rest = rest[end:]
    return ".".join(re.sub(r"\.*_3c\w+?_3e\.*", "", part) for part in parts).strip(".") or mangled


@ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
def _record(name: bytes, first: int, count: int, size: int) -> None:
    if size != _NONE:
        _recorded.clear()
    _recorded.append((name.decode(), first, count, size))


def _recorded_by(builder: Any, first: Any, count: Any, size: Any) -> None:
    """Have the function that is being built tell where it is."""
    name = builder.function.name.encode()
    text = cgutils.global_constant(builder, "name", cgutils.make_bytearray(name + b"\0"))
    kind = ir.FunctionType(ir.VoidType(), [_TEXT, _I64, _I64, _I64])
    function = cgutils.get_or_insert_function(builder.module, kind, "mpimbs_record")
    builder.call(function, [builder.bitcast(text, _TEXT), first, count, size])


def bound(context: Any, builder: Any, first: Any, count: Any, size: Any) -> None:
    """Have a lowering raise unless items `first` to `first` + `count` are within an array of a size; else no code."""
    if not CHECKED:
        return
    first, count, size = (_I64(value) if isinstance(value, int) else value for value in (first, count, size))
    below = builder.icmp_signed("<", first, _I64(0))
    none = builder.icmp_signed("<", count, _I64(0))
    beyond = builder.icmp_signed(">", builder.add(first, count), size)
    with cgutils.if_unlikely(builder, builder.or_(builder.or_(below, none), beyond)):
        _recorded_by(builder, first, count, size)
        context.call_conv.return_user_exc(builder, OutOfBoundsError)


def propagate(context: Any, builder: Any, code: Any, error: Any) -> None:
    """Have a lowering raise what a function raised that it has called by its address; else no code."""
    if CHECKED:
        status = context.call_conv._get_return_status(builder, code, builder.load(error))
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)


def _install() -> None:
    """Have numba's own items of arrays bounded in the same way, its callers named, and rooms of numpy hold NaN."""
    from numba.np import arrayobj  # which takes long: those who load what is kept do without

    known = {"mpimbs_record": _record}
    # LLVM counts rounds of loops that bounds may end in 128 bits, and divides them by functions of the C compiler's.
    known |= {name: getattr(ctypes.CDLL("libgcc_s.so.1"), name) for name in ("__udivti3", "__umodti3")}
    for name, function in known.items():
        binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    wrapped, propagate, empty, empty_like = (
        arrayobj.fix_integer_index,
        CPUCallConv.return_status_propagate,
        np.empty,
        np.empty_like,
    )

    def bounded(context: Any, builder: Any, index: Any, size: Any, axis: Any = None) -> None:
        bound(context, builder, index, 1, size)

    def unwrapped(context: Any, builder: Any, kind: Any, index: Any, size: Any) -> Any:
        if context.enable_boundscheck:
            return context.cast(builder, index, kind, arrayobj.types.intp)
        return wrapped(context, builder, kind, index, size)

    def told(context: Any, builder: Any, status: Any) -> None:
        _recorded_by(builder, _I64(0), _I64(0), _I64(_NONE))
        propagate(context, builder, status)

    def unknown(*given: Any, **named: Any) -> Any:
        return _with_nan(empty(*given, **named))

    def unknown_like(like: Any, *given: Any, **named: Any) -> Any:
        return _with_nan(empty_like(like, *given, **named))

    # For functions of the user's that numba compiles.
    overload(unknown)(lambda shape, dtype=float: lambda shape, dtype=float: empty(shape, dtype))
    overload(unknown_like)(lambda like, dtype=None: lambda like, dtype=None: empty_like(like, dtype))

    for owner, what, instead in (
        (arrayobj, "fix_integer_index", unwrapped),
        (cgutils, "do_boundscheck", bounded),
        (CPUCallConv, "return_status_propagate", told),
        (np, "empty", unknown),
        (np, "empty_like", unknown_like),
    ):
        setattr(owner, what, instead)


def _with_nan(array: Any) -> Any:
    if array.dtype.kind == "f":
        array.fill(np.nan)
    return array


if CHECKED:
    _install()
