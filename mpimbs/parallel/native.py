"""MPI calls from compiled code: point to point by function pointer, a third of the cost of a call through Python.

mpi4py stays the public face: it brings the library, the communicators and their handles.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import time
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir
from mpi4py import MPI
from numba import types
from numba.extending import intrinsic

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.kernels.compiler import kernel

PROC_NULL = int(MPI.PROC_NULL)  # kernels know it only to save a call: to send to that of any library does nothing
# Open MPI's handles are pointers, MPICH's are ints. Kernels give both as 64 bits, of which a callee that takes an int
# reads the lower half, extended by its sign as the calling conventions want it: one compiled code serves all libraries,
# and one that another library's environment left in the cache is right.
_C_HANDLE = ctypes.c_int64 if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_int64) else ctypes.c_int32


def _library() -> ctypes.CDLL:
    """The MPI library that mpi4py has loaded."""
    candidates: list[str | None] = [None, MPI.__file__]
    with open("/proc/self/maps", encoding="utf-8") as maps:
        candidates += sorted({line.split()[-1] for line in maps if "/libmpi" in line})
    for name in candidates:
        library = ctypes.CDLL(name)
        if hasattr(library, "MPI_Sendrecv"):
            return library
    raise ImportError(
        "the MPI library that mpi4py uses was not found in this process; is mpi4py linked to it statically?"
    )


def _declare(name: str, result: types.Type, *arguments: types.Type) -> types.ExternalFunction:
    address = ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value
    binding.add_symbol(f"mpimbs_{name}", address)
    return types.ExternalFunction(f"mpimbs_{name}", result(*arguments))


_I, _P, _H = types.int32, types.intp, types.int64
_SEND = _declare("MPI_Send", _I, _P, _I, _H, _I, _I, _H)
_START = _declare("MPI_Start", _I, _P)
_WAIT = _declare("MPI_Wait", _I, _P, _P)
_ALLREDUCE = _declare("MPI_Allreduce", _I, _P, _P, _I, _H, _H, _H)
_WTIME = _declare("MPI_Wtime", types.float64)


class Channel(NamedTuple):
    """The handles of a communicator for compiled MPI calls."""

    handles: Integers  # [4]: communicator, datatype of a double, the largest and the sum as operations
    status: Integers  # room for an MPI_Status
    seconds: Floats  # [1]: time spent in messages
    cycle: Floats  # [1]: see `clock`


_TAGS = MPI.Comm.Create_keyval()
LAST_TAG = 32767  # that every MPI has


def own_tags(comm: MPI.Comm, count: int) -> int:
    """Give the first of `count` message tags that no other plan on a communicator has, until `free_tags` is told.

    All ranks make and close their plans in the same order, without a message: so the tags of a plan are the same on
    all. On a communicator of one rank, which sends nothing, all have the same.

    Raises
    ------
    InputError
        On all ranks: none are free.
    """
    if comm.size == 1:
        return 0
    used = _tags(comm)
    first = 0
    for begin in sorted(used):
        if begin - first >= count:
            break
        first = begin + used[begin]
    if first + count - 1 > LAST_TAG:
        raise InputError(
            f"all {LAST_TAG + 1} message tags of a communicator are in use, by {len(used)} plans: close what is no "
            "longer needed"
        )
    used[first] = count
    return first


def free_tags(comm: MPI.Comm, first: int) -> None:
    """Let others have the tags of a plan that is closed; all ranks call in the same order."""
    if comm.size > 1:
        _tags(comm).pop(first)


def _tags(comm: MPI.Comm) -> dict[int, int]:
    """The tags in use: how many, by the first of them."""
    found: Any = comm.Get_attr(_TAGS)
    if found is None:
        comm.Set_attr(_TAGS, found := {})
    used: dict[int, int] = found
    return used


def channel(comm: MPI.Comm) -> Channel:
    """Make a communicator usable from compiled code. An error in a message ends the job: there is no way on from it.

    Parameters
    ----------
    comm : MPI.Comm
        A communicator of the caller's own (its error handler is set), that outlives the channel; or of one rank, on
        which nothing is sent: it may be anybody's.
    """
    if comm.size > 1:
        comm.Set_errhandler(MPI.ERRORS_ARE_FATAL)
    handles = [_C_HANDLE.from_address(MPI._addressof(item)).value for item in (comm, MPI.DOUBLE, MPI.MAX, MPI.SUM)]
    return Channel(np.array(handles, np.int64), np.zeros(16, np.int64), np.zeros(1), np.full(1, cycle_seconds()))


@intrinsic
def _cycles(typing_context: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        count = builder.call(builder.module.declare_intrinsic("llvm.readcyclecounter", (), kind), [])
        return builder.uitofp(count, ir.DoubleType())

    return types.float64(), lower


@kernel(inline=True)
def clock(cycle):
    """Wall time (s), by the processor's cycles of so many seconds; 0: by MPI's clock, which takes twice as long."""
    return cycle * _cycles() if cycle != 0.0 else _WTIME()


@kernel
def _count():
    return _cycles()


_WATCHED = 1e-3  # s, in which cycles are counted, ...
_OFTEN = 3  # so often
_EVEN = {"constant_tsc", "nonstop_tsc"}  # what Linux says of a processor whose cycles are of the same length


@functools.cache
def cycle_seconds() -> float:
    """Length of a cycle that `clock` counts (s); 0 where they may be of several lengths, or aren't counted."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return 0.0
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # of the first core: there may be hundreds
            told = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return 0.0
    if not set(told.split()) >= _EVEN:
        return 0.0
    lengths = []
    for _ in range(_OFTEN):
        _count()
        began, first = time.perf_counter(), _count()
        while time.perf_counter() - began < _WATCHED:
            pass
        lengths.append((time.perf_counter() - began) / (_count() - first))
    return float(np.median(lengths))


@kernel
def start(request):
    """Start a persistent request, given by the address of its handle."""
    _START(request)


@kernel
def wait(channel, request):
    """Wait for a started request, given by the address of its handle."""
    began = clock(channel.cycle[0])
    _WAIT(request, channel.status.ctypes.data)
    channel.seconds[0] += clock(channel.cycle[0]) - began


@kernel(inline=True)
def _reduce(channel, mine, found, operation):
    began = clock(channel.cycle[0])
    comm, double = channel.handles[0], channel.handles[1]
    _ALLREDUCE(mine.ctypes.data, found.ctypes.data, np.int32(mine.size), double, channel.handles[operation], comm)
    channel.seconds[0] += clock(channel.cycle[0]) - began


@kernel
def all_largest(channel, mine, found):
    """Find the largest of every number among all ranks; none may be NaN."""
    _reduce(channel, mine, found, 2)


@kernel
def all_summed(channel, mine, found):
    """Find the sum of every number over all ranks: the same on each."""
    _reduce(channel, mine, found, 3)


@kernel
def send_only(channel, send, target, tag):
    """Send an array of doubles to `target`."""
    began = clock(channel.cycle[0])
    comm, double = channel.handles[0], channel.handles[1]
    _SEND(send.ctypes.data, np.int32(send.size), double, np.int32(target), np.int32(tag), comm)
    channel.seconds[0] += clock(channel.cycle[0]) - began
