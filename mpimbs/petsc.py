"""PETSc, where it is installed; the rest of the package works without."""

from __future__ import annotations

from mpi4py import MPI

from mpimbs.errors import InputError

try:
    import petsc4py

    # On every process for itself: else all of COMM_WORLD would have to come here, also ranks that have nothing to do.
    petsc4py.init([], comm=MPI.COMM_SELF)
    from petsc4py import PETSc
except ImportError as error:
    raise InputError(
        f"time integration and coupling 'pcg' need petsc4py ({error}): PETSC_DIR=... pip install --no-build-isolation "
        "'petsc4py==3.18.*' (the version of your PETSc), or conda install -c conda-forge petsc4py; see "
        "docs/pages/start.md"
    ) from error

PREFIX = "mpimbs_"  # of PETSc's options
OWN_OPTIONS: set[str] = set()  # that the package leaves among the user's, for PETSc to read later

__all__ = ["OWN_OPTIONS", "PREFIX", "PETSc"]
