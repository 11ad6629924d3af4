"""PETSc, where it is installed; the rest of the package works without."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.errors import InputError

try:
    import petsc4py

    # On every process for itself: else all of COMM_WORLD would have to come here, also ranks that have nothing to do.
    # Signals stay Python's: PETSc would end the process at SIGHUP, and report others.
    petsc4py.init(["mpimbs", "-no_signal_handler"], comm=MPI.COMM_SELF)
    from petsc4py import PETSc
except ImportError as error:
    raise InputError(
        f"integrators of PETSc's and coupling 'pcg' need petsc4py ({error}): PETSC_DIR=... pip install "
        "--no-build-isolation 'petsc4py==3.18.*' (the version of your PETSc), or conda install -c conda-forge "
        "petsc4py; see docs/pages/start.md"
    ) from error

PREFIX = "mpimbs_"  # of PETSc's options
OWN_OPTIONS: set[str] = set()  # that the package leaves among the user's, for PETSc to read later

__all__ = ["OWN_OPTIONS", "PREFIX", "Arrays", "PETSc"]


class Arrays:
    """Numbers of vectors as arrays, each made once; say `stateIncrease` of a vector that was written.

    An array keeps the memory of its vector until `forget`, so that no other vector comes to stand there.

    Parameters
    ----------
    first, second : int
        Where the first and the second part of a vector end.
    """

    def __init__(self, first: int, second: int) -> None:
        self._first, self._second = first, second
        self._found: dict[int, tuple[Any, ...]] = {}
        self._read: dict[int, tuple[Any, memoryview, PETSc.Vec]] = {}

    def __call__(self, vector: PETSc.Vec) -> Any:
        """Give all of this rank's numbers, those of the first part, those of the second; and the vector."""
        found = self._found.get(vector.handle)
        if found is None:
            whole = vector.getArray()
            found = whole, whole[: self._first], whole[self._first : self._second], vector
            self._found[vector.handle] = found
        return found

    def read(self, vector: PETSc.Vec) -> Any:
        """Give all of this rank's numbers of a vector that is read; compiled code takes no array that says so."""
        return self._readable(vector)[0]

    def stage(self, room: memoryview, x: PETSc.Vec, f: PETSc.Vec) -> Any:
        """Copy the numbers of `x` into a room, of few in half of the time that arrays take; give those of `f`."""
        room[:] = (self._read.get(x.handle) or self._readable(x))[1]
        return self._found.get(f.handle) or self(f)

    def _readable(self, vector: PETSc.Vec) -> tuple[Any, memoryview, PETSc.Vec]:
        found = self._read.get(vector.handle)
        if found is None:
            locked = vector.getArray(readonly=True)
            values = np.ctypeslib.as_array((ctypes.c_double * locked.size).from_address(locked.ctypes.data))
            found = self._read[vector.handle] = values, locked.data, vector
        return found

    def written(self) -> Iterator[Any]:
        """Go through the numbers of all vectors."""
        return (whole for whole, *_ in self._found.values())

    def forget(self) -> None:
        """Let go of all vectors."""
        self._found.clear()
        self._read.clear()
