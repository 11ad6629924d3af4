"""What compiled functions call by its address: others, each compiled, linked and optimized once; and Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import typeof, types
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

from mpimbs.kernels.checked import propagate


def address_of(entry: Dispatcher, *arguments: Any) -> int:
    """Give the address of what Python calls with arguments of these types, compiled or loaded if it isn't yet.

    It stays where it is as long as the entry does.
    """
    kinds = tuple(typeof(argument) for argument in arguments)
    entry.compile(kinds)
    found = entry.overloads[kinds]
    return int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))


@intrinsic
def call_at(typing_context: Any, address: Any, arguments: Any) -> Any:
    """Call what gives a bool and takes the items of a tuple as its arguments; gives False where that raises, which goes
    on in the checked build."""
    kinds = tuple(arguments)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = context.call_conv.get_function_type(types.boolean, kinds)
        result, error = (cgutils.alloca_once(builder, one.pointee) for one in kind.args[:2])
        builder.store(cgutils.get_null_value(result.type.pointee), result)
        given = cgutils.unpack_tuple(builder, args[1], len(kinds))
        flat = context.get_arg_packer(kinds).as_arguments(builder, given)
        code = builder.call(builder.inttoptr(args[0], kind.as_pointer()), [result, error, *flat])
        propagate(context, builder, code, error)
        return context.get_returned_value(builder, types.boolean, builder.load(result))

    return types.boolean(types.int64, arguments), lower


_CALLED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_double)


class CallBack:
    """A function of Python's that compiled code calls by its address.

    Parameters
    ----------
    function : callable
        Takes a number.
    """

    def __init__(self, function: Callable[[float], object]) -> None:
        self.error: BaseException | None = None  # what it raised last, until that is taken
        self._function, self._called = function, _CALLED(self._call)
        # for `call_back`; it stays where it is as long as this does
        self.address = int(ctypes.cast(self._called, ctypes.c_void_p).value or 0)

    def _call(self, number: float) -> int:
        try:
            self._function(number)
        except BaseException as error:  # which can't pass through compiled code
            self.error = error
            return 0
        return 1


@intrinsic
def call_back(typing_context: Any, address: Any, number: Any) -> Any:
    """Call a `CallBack`; gives False where that raises."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.DoubleType()])
        found = builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])
        return builder.icmp_signed("!=", found, ir.Constant(found.type, 0))

    return types.boolean(types.int64, types.float64), lower
