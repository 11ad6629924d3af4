"""How subchains are joined: one file per strategy, one small interface. No files."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from mpimbs.coupling.base import Coupling
from mpimbs.coupling.dcae import EfficientDivideAndConquer
from mpimbs.coupling.solver import LoadSolver
from mpimbs.errors import InputError
from mpimbs.sweep.subchains import Subchains

MakeCoupling = Callable[[MPI.Comm, Subchains], Coupling]


def _dcae(solver: LoadSolver | None) -> MakeCoupling:
    if solver is not None:
        raise InputError("coupling 'dcae' has no solver to set: leave its options out, or choose --coupling pcg")
    return lambda comm, subchains: EfficientDivideAndConquer(comm, len(subchains))


def _pcg(solver: LoadSolver | None) -> MakeCoupling:
    from mpimbs.coupling.pcg import ConstraintLoads  # needs petsc4py

    chosen = (solver or LoadSolver()).checked()
    return lambda comm, subchains: ConstraintLoads(comm, subchains, chosen)


COUPLINGS: dict[str, Callable[[LoadSolver | None], MakeCoupling]] = {"dcae": _dcae, "pcg": _pcg}


def coupling_named(name: str, solver: LoadSolver | None = None) -> MakeCoupling:
    """Find a coupling by name; what it gives makes one from a communicator and this rank's subchains.

    Raises
    ------
    InputError
        If there is none of that name, it has no solver to set, or the solver makes no sense.
    """
    try:
        chosen = COUPLINGS[name]
    except KeyError:
        raise InputError(f"unknown coupling '{name}'; choose one of: {', '.join(COUPLINGS)}") from None
    return chosen(solver)


def solver_for(name: str, solver: LoadSolver | None, rtol: float | None) -> LoadSolver | None:
    """Give the solver of a coupling in a simulation with a relative tolerance; None where it has none, nor was given.

    See `LoadSolver.tied_to`.
    """
    return (solver or LoadSolver()).tied_to(rtol) if name == "pcg" else solver


__all__ = ["COUPLINGS", "Coupling", "LoadSolver", "coupling_named", "solver_for"]
