"""A simulation, as users ask for one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy.typing as npt
from mpi4py import MPI

from mpimbs.arguments import check_kinds
from mpimbs.errors import InputError
from mpimbs.model import System
from mpimbs.parallel.agreement import communicator, same_system, warn_unguarded
from mpimbs.settings import takes
from mpimbs.simulation.compile_notice import compilation_told
from mpimbs.simulation.result import Result
from mpimbs.simulation.run_course import Run
from mpimbs.simulation.settings import Checkpoints, SimulationSettings
from mpimbs.simulation.signals import Signals
from mpimbs.simulation.state import State, checked_state


@takes(SimulationSettings)
def simulate(
    system: System | str | Path,
    t_end: float | None = None,
    comm: MPI.Comm | None = None,
    *,
    output: str | Path | None = None,
    progress: bool = False,
    checkpoints: Checkpoints | None = None,
    signals: bool = False,
    state: tuple[npt.ArrayLike | None, ...] | None = None,
    settings: SimulationSettings | None = None,
    **given: Any,
) -> Result:
    """Simulate a system; all ranks call together.

    Parameters
    ----------
    system : System, str or Path
        The same on every rank; or what names it, as for `system_from`.
    t_end : float
        Simulated time (s); may stand in `settings` instead.
    comm : MPI.Comm, optional
        This process alone by default.
    output : path, optional
        HDF5 file to write; without it the samples are in the result.
    progress : bool
        Show progress on rank 0.
    checkpoints : Checkpoints, optional
        When to write checkpoints, from which `restart` goes on with the output.
    signals : bool
        Write a checkpoint at SIGUSR1, and one before the end at SIGTERM, SIGINT and SIGUSR2, whichever rank gets it;
        from the main thread. Handlers are those of before at the end.
    state : (q, u), optional
        Coordinates and speeds of the whole system to begin with, the same on every rank, in the model's order; those
        of the model by default.
    settings : SimulationSettings, optional
        All of them at once.
    **given
        Any of `SimulationSettings` by name, such as `rtol=1e-6`; they come on top of `settings`. A solver without a
        tolerance gets a hundredth of `rtol`.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        On all ranks, before anything is computed; also where they were given different systems, forces or settings.
    SimulationError
        On all ranks: the run had to stop; the output so far is safe.
    InterruptionError
        On all ranks: a signal has ended the run, and its checkpoint is written.
    """
    world = communicator(comm)
    others = {"output": output, "checkpoints": checkpoints, "signals": signals}

    def asked(whole: System) -> tuple[tuple[SimulationSettings, State | None], dict[str, str | bytes]]:
        check_kinds(simulate, others)
        found = SimulationSettings.asked(given if t_end is None else {"t_end": t_end, **given}, settings).suited(whole)
        if checkpoints is not None:
            checkpoints.checked()
        begin = _checked(whole, state)
        told = "none" if begin is None else hashlib.sha256(begin.q.tobytes() + begin.u.tobytes()).hexdigest()
        return (found, begin), {**found.described(), **{n: str(v) for n, v in others.items()}, "state": told}

    whole, (found, begin) = same_system(world, system, asked)
    warn_unguarded(world)
    path = None if output is None else Path(output)
    with Signals(signals) as taken, compilation_told(progress and world.rank == 0):
        return Run(whole, found, world, path, checkpoints, taken, state=begin).finish(progress)


def _checked(system: System, state: tuple[npt.ArrayLike | None, ...] | None) -> State | None:
    """A state that a caller gives, checked."""
    if state is None:
        return None
    q, u, *others = state
    if any(other is not None for other in others):  # of a `State`
        raise InputError("state: a simulation begins with q and u; forces are those of the system")
    return checked_state("state", system, {"q": q, "u": u})
