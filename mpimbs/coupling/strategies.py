"""The strategies of couplings: how each divides a system, what ranks make of their parts, and what joins them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.base.settings import Settings
from mpimbs.coupling import COUPLINGS, LOOPED, WITH_GEARS
from mpimbs.coupling.base import Coupling, Iterative  # noqa: F401
from mpimbs.coupling.dca import DivideAndConquer, EfficientDivideAndConquer
from mpimbs.coupling.intervals import ScheduledAssembly
from mpimbs.coupling.settings import Lagrangian, LoadSolver
from mpimbs.model.contents import Contents
from mpimbs.model.summary import refuse_gears, refuse_loops
from mpimbs.partition.division import (
    Division,
    as_tree,
    divide,
    divide_absolute,
    divide_bodies,
    divide_terminal,
    divide_tree,
)
from mpimbs.partition.ownership import (
    own_absolute_bodies,
    own_bodies,
    own_bodies_and_terminal,
    own_cut_intervals,
    own_intervals,
    own_joined_intervals,
    own_subchains,
)
from mpimbs.partition.schedule import balanced
from mpimbs.partition.schedule_search import divide_scheduled
from mpimbs.parts.bodies.absolute import AbsoluteBodies
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.part import Part
from mpimbs.parts.subchains import Subchains


class Strategy(NamedTuple):
    """The strategy of a coupling: how the system is divided, what a rank makes of its part, what joins the parts."""

    divide: Callable[..., Division]  # as `partition.division.divide`
    # the part of a rank, by its number, of the system in the order of the division
    own: Callable[[Contents, Division, int], Part]
    # the `Coupling`, from a communicator, what `own` gave, which knows what handle equations these have, and the
    # division
    join: Callable[[MPI.Comm, Part, Division], Coupling]
    evaluation: str  # the kernels that evaluate (`pipeline.EVALUATE`)


def _dcae(solver: LoadSolver | None) -> Strategy:
    return Strategy(divide, own_subchains, lambda comm, part, _: EfficientDivideAndConquer(comm, len(part)), "dcae")


def _dca(solver: LoadSolver | None) -> Strategy:
    return Strategy(divide_bodies, own_bodies, lambda comm, *_: DivideAndConquer(comm), "dca")


def _dca_terminal(solver: LoadSolver | None) -> Strategy:
    return Strategy(divide_terminal, own_bodies_and_terminal, lambda comm, *_: DivideAndConquer(comm), "dca-terminal")


def _pcg(solver: LoadSolver | None) -> Strategy:
    from mpimbs.coupling.pcg.coupling import ConstraintLoads  # needs petsc4py

    chosen = (solver or LoadSolver()).checked()

    def join(comm: MPI.Comm, part: Part, _: Division) -> ConstraintLoads:
        assert isinstance(part, Subchains)
        return ConstraintLoads(comm, part, chosen, EfficientDivideAndConquer(comm, len(part)))

    return Strategy(functools.partial(divide, free_roots=True), own_subchains, join, "pcg")


def _intervals(comm: MPI.Comm, part: Part, division: Division) -> ScheduledAssembly:
    """Join intervals in the order of a schedule; of none, or one for other ranks, in that of a butterfly."""
    assert isinstance(part, Intervals)
    schedule = division.schedule
    if schedule is None or schedule.size != comm.size:
        schedule = balanced(comm.allgather(len(part)))
    return ScheduledAssembly(comm, schedule, part.room, part.values)


def _dcae_of_trees(solver: LoadSolver | None) -> Strategy:
    return Strategy(divide_tree, own_intervals, _intervals, "intervals")


def _pcg_of_trees(solver: LoadSolver | None) -> Strategy:
    from mpimbs.coupling.pcg.coupling import ConstraintLoads

    chosen = (solver or LoadSolver()).checked()

    def join(comm: MPI.Comm, part: Part, division: Division) -> ConstraintLoads:
        assert isinstance(part, Intervals)
        return ConstraintLoads(comm, part, chosen, None if part.has_loops else _intervals(comm, part, division))

    return Strategy(functools.partial(divide_tree, free_roots=True), own_cut_intervals, join, "cut intervals")


def _assembly(solver: LoadSolver | None) -> Strategy:
    return Strategy(divide_scheduled, own_joined_intervals, _intervals, "intervals")


def _augmented(solver: LoadSolver | None, lagrangian: Lagrangian | None = None) -> Strategy:
    from mpimbs.coupling.augmented.coupling import AugmentedLagrangian

    chosen = (lagrangian or Lagrangian()).checked()

    def join(comm: MPI.Comm, part: Part, _: Division) -> AugmentedLagrangian:
        assert isinstance(part, AbsoluteBodies)
        return AugmentedLagrangian(comm, part, chosen)

    return Strategy(divide_absolute, own_absolute_bodies, join, "augmented")


# What serves trees, by the name of the coupling.
TREES: dict[str, Callable[[LoadSolver | None], Strategy]] = {
    "dcae": _dcae_of_trees,
    "pcg": _pcg_of_trees,
    "assembly": _assembly,
    "augmented": _augmented,
}

STRATEGIES: dict[str, Callable[[LoadSolver | None], Strategy]] = {
    "dcae": _dcae,
    "pcg": _pcg,
    "dca": _dca,
    "dca-terminal": _dca_terminal,
    "assembly": _assembly,
    "augmented": _augmented,
}


def coupling_named(name: str, solver: LoadSolver | None = None) -> Strategy:
    """Find a coupling by name.

    Raises
    ------
    InputError
        If there is none of that name, it has no solver to set, or the solver makes no sense.
    """
    if name not in COUPLINGS:
        raise InputError(f"unknown coupling '{name}'; choose one of: {', '.join(COUPLINGS)}")
    if solver is not None and name != "pcg":
        raise InputError(f"coupling '{name}' has no solver to set: {_left_out(solver, 'pcg')}")
    return STRATEGIES[name](solver)


def _left_out(settings: Settings, name: str) -> str:
    """Say what to do with the settings of a coupling that is not chosen, by their names."""
    given = [field.path for field in settings.fields() if getattr(settings, field.name) != field.default]
    return f"leave out {', '.join(f'`{path}`' for path in given or [settings.called])}, or choose `coupling={name!r}`"


def coupling_for(
    system: Contents,
    name: str,
    solver: LoadSolver | None = None,
    lagrangian: Lagrangian | None = None,
    **scheduled: str | None,
) -> Strategy:
    """Find what a coupling needs for a system.

    Parameters
    ----------
    system, name, solver
        As of `coupling_named`.
    lagrangian : Lagrangian, optional
        Of the coupling `augmented`.
    **scheduled
        `schedule` and `leaves` of the coupling `assembly`, as of `partition.schedule_search.divide_scheduled`; None is
        its default.

    Raises
    ------
    InputError
        As of `coupling_named`; or the coupling does not solve the system, or has no schedule or multipliers.
    """
    strategy = coupling_named(name, solver)
    given: dict[str, Any] = {key: value for key, value in scheduled.items() if value is not None}
    if name in LOOPED and name not in WITH_GEARS:
        refuse_gears(
            system, f"coupling '{name}' has none; choose {' or '.join(f'`coupling={k!r}`' for k in WITH_GEARS)}"
        )
    if lagrangian is not None and name != "augmented":
        raise InputError(f"coupling '{name}' has no multipliers to find: {_left_out(lagrangian, 'augmented')}")
    if name == "assembly":
        return strategy._replace(divide=functools.partial(divide_scheduled, **given))
    if given:
        raise InputError(f"`{next(iter(given))}` is for the coupling assembly: leave it out, or choose that")
    if name == "augmented":
        return _augmented(solver, lagrangian)
    if name not in LOOPED:
        refuse_loops(
            system, f"coupling '{name}' closes none; choose {' or '.join(f'`coupling={k!r}`' for k in LOOPED)}"
        )
    if name == "pcg" and solver is not None and solver.preconditioner == "dcae":
        refuse_loops(
            system,
            "the preconditioner 'dcae' is for systems without; choose `solver.preconditioner='lagged'`, or "
            "`coupling='dcae'`",
        )
    return TREES[name](solver) if as_tree(system) and name in TREES else strategy


def unavailable(name: str) -> str:
    """Say why this installation can't have a coupling; nothing where it can."""
    try:
        coupling_named(name)
    except InputError as error:
        return str(error)
    return ""


def solver_for(name: str, solver: LoadSolver | None, rtol: float | None) -> LoadSolver | None:
    """Give the solver of a coupling in a simulation with a relative tolerance; None where it has none, nor was given.

    See `LoadSolver.tied_to`.
    """
    return (solver or LoadSolver()).tied_to(rtol) if name == "pcg" else solver
