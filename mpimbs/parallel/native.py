"""MPI calls from compiled code: point to point by function pointer, a third of the cost of a call through Python.

mpi4py stays the public face: it brings the library, the communicators and their handles.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
from llvmlite import binding
from mpi4py import MPI
from numba import types

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import Floats, Integers

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
_WTIME = _declare("MPI_Wtime", types.float64)


class Channel(NamedTuple):
    """What a compiled MPI call needs of a communicator."""

    handles: Integers  # [2]: communicator, datatype of a double
    status: Integers  # room for an MPI_Status
    seconds: Floats  # [1]: time spent in messages


_NEXT_TAG = MPI.Comm.Create_keyval()
_LAST_TAG = 32767  # that every MPI has


def own_tags(comm: MPI.Comm, count: int) -> int:
    """Give the first of `count` message tags that no other plan on a communicator has.

    All ranks make their plans in the same order, without a message: so the tags of a plan are the same on all.
    """
    first = comm.Get_attr(_NEXT_TAG) or 0
    if first + count > _LAST_TAG:
        first = 0  # of plans long closed
    comm.Set_attr(_NEXT_TAG, first + count)
    return first


def channel(comm: MPI.Comm) -> Channel:
    """Make a communicator usable from compiled code. An error in a message ends the job: there is no way on from it.

    Parameters
    ----------
    comm : MPI.Comm
        A communicator of the caller's own (its error handler is set), that outlives the channel.
    """
    comm.Set_errhandler(MPI.ERRORS_ARE_FATAL)
    handles = [_C_HANDLE.from_address(MPI._addressof(item)).value for item in (comm, MPI.DOUBLE)]
    return Channel(np.array(handles, np.int64), np.zeros(16, np.int64), np.zeros(1))


@kernel(inline=True)
def clock():
    """Wall time (s)."""
    return _WTIME()


@kernel
def start(request):
    """Start a persistent request, given by the address of its handle."""
    _START(request)


@kernel
def wait(channel, request):
    """Wait for a started request, given by the address of its handle."""
    began = _WTIME()
    _WAIT(request, channel.status.ctypes.data)
    channel.seconds[0] += _WTIME() - began


@kernel
def send_only(channel, send, target, tag):
    """Send an array of doubles to `target`."""
    began = _WTIME()
    comm, double = channel.handles[0], channel.handles[1]
    _SEND(send.ctypes.data, np.int32(send.size), double, np.int32(target), np.int32(tag), comm)
    channel.seconds[0] += _WTIME() - began
