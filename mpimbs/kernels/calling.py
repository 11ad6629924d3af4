"""Compiled functions that other compiled ones call by their addresses: each is compiled, linked and optimized once."""

from __future__ import annotations

from typing import Any

from numba import typeof, types
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic


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
    """Call what gives a bool and takes the items of a tuple as its arguments; gives False where that raises."""
    kinds = tuple(arguments)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = context.call_conv.get_function_type(types.boolean, kinds)
        result, error = (cgutils.alloca_once(builder, one.pointee) for one in kind.args[:2])
        builder.store(cgutils.get_null_value(result.type.pointee), result)
        given = cgutils.unpack_tuple(builder, args[1], len(kinds))
        flat = context.get_arg_packer(kinds).as_arguments(builder, given)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [result, error, *flat])
        return context.get_returned_value(builder, types.boolean, builder.load(result))

    return types.boolean(types.int64, arguments), lower
