"""Machine code of LLVM's modules, made in a thread of its own while Python reads the next function.

Of the time that compiling takes, a third is LLVM's. It needs neither Python's lock nor, for modules of a context and a
target machine of their own, llvmlite's: the two calls that take long let go of both.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from llvmlite import binding
from llvmlite.binding import ffi
from numba.core.codegen import JITCPUCodegen

_INTERVAL = 1e-4  # s after which Python's lock is handed over: the many short calls of LLVM between would wait for it


@functools.cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "compiling")


@functools.cache
def _generator() -> Any:
    """Numba's passes and options for this processor, for nobody else's use."""
    return JITCPUCodegen("kernels")


def emitted(symbol: str, parts: list[bytes]) -> Future[bytes]:
    """Object code of a function, which the first module holds under a name, with what it calls in the others."""
    return _thread().submit(_emit, _generator(), symbol, parts)


def _emit(generator: Any, symbol: str, parts: list[bytes]) -> bytes:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_INTERVAL)
    try:
        with binding.context.create_context() as context, binding.parse_bitcode(parts[0], context) as module:
            for part in parts[1:]:
                module.link_in(binding.parse_bitcode(part, context))
            for values in (module.functions, module.global_variables):
                for value in values:
                    if not value.is_declaration and value.name != symbol:
                        value.linkage = "internal"
            manager, builder = generator._module_pass_manager()
            _unlocked("LLVMPY_RunNewModulePassManager")(manager, module, builder)
            module.verify()
            return _object_code(generator._tm, module)
    finally:
        sys.setswitchinterval(before)


def _object_code(machine: Any, module: Any) -> bytes:
    """`machine.emit_object(module)`."""
    with ffi.OutputString() as message:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, message)
        if not buffer:
            raise RuntimeError(str(message))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _unlocked(name: str) -> Any:
    """A function of LLVM's without llvmlite's lock."""
    return getattr(ffi.lib, name)._cfn
