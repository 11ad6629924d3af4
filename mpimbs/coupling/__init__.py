"""How subchains are joined: one file per strategy, one small interface. No joints, no files."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from mpimbs.coupling.base import Coupling
from mpimbs.coupling.dcae import EfficientDivideAndConquer
from mpimbs.errors import InputError

COUPLINGS: dict[str, Callable[[MPI.Comm], Coupling]] = {"dcae": EfficientDivideAndConquer}


def coupling_named(name: str) -> Callable[[MPI.Comm], Coupling]:
    """Find a coupling by name.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    try:
        return COUPLINGS[name]
    except KeyError:
        raise InputError(f"unknown coupling '{name}'; choose one of: {', '.join(COUPLINGS)}") from None


__all__ = ["COUPLINGS", "Coupling", "coupling_named"]
