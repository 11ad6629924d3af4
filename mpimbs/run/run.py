"""A simulation from its begin to its end in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.settings import takes
from mpimbs.files.motion import Sampled
from mpimbs.model import ModelLike
from mpimbs.parallel.agreement import communicator
from mpimbs.run.progress import compilation_told
from mpimbs.run.result import Result
from mpimbs.run.simulation import Simulation
from mpimbs.stepping.settings import Checkpoints, SimulationSettings


class _ToItsEnd(Simulation):
    """A simulation that has an end."""

    ends = True


@takes(SimulationSettings)
def simulate(
    system: ModelLike,
    t_end: float | None = None,
    comm: MPI.Comm | None = None,
    *,
    output: str | Path | None = None,
    progress: bool = False,
    checkpoints: Checkpoints | None = None,
    signals: bool = False,
    state: tuple[npt.ArrayLike | None, ...] | str | Path | Sampled | None = None,
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
        All ranks of the job by default.
    output : path, optional
        HDF5 file to write; without it the samples are in the result.
    progress : bool
        Show progress on rank 0.
    checkpoints : Checkpoints, optional
        When to write checkpoints, from which `restart` goes on with the output.
    signals : bool
        Write a checkpoint at SIGUSR1, and one before the end at SIGTERM, SIGINT and SIGUSR2, whichever rank gets it;
        from the main thread. Handlers are those of before at the end.
    state : (q, u), path, or what `load` gives, optional
        Coordinates and speeds of the whole system to begin with, the same on every rank, in the model's order; or a
        file that has them; or a run, or its output, of which the last sample is meant; those of the model by default.
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
    asked = given if t_end is None else {"t_end": t_end, **given}
    with compilation_told(progress and world.rank == 0):
        simulation = _ToItsEnd(
            system,
            world,
            output=output,
            checkpoints=checkpoints,
            signals=signals,
            state=state,
            settings=settings,
            **asked,
        )
        return simulation.finish(progress)
