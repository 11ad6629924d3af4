"""A simulation that goes on from a checkpoint, on any number of ranks."""

from __future__ import annotations

from pathlib import Path

from mpi4py import MPI

from mpimbs.errors import InputError
from mpimbs.model import System, system_from_text, system_text
from mpimbs.parallel.agreement import communicator, on_root, together
from mpimbs.simulation.checkpoint import read_header
from mpimbs.simulation.keeper import Checkpoints
from mpimbs.simulation.run import Kept, Result, Run, Settings
from mpimbs.simulation.signals import Signals


def read_checkpoint(file: str | Path, comm: MPI.Comm) -> Kept:
    """Read a checkpoint's header on rank 0, after a check of all of the file, and give it to all ranks.

    Raises
    ------
    InputError
        On all ranks; see `checkpoint.read_header`.
    """
    return Kept(Path(file), comm.bcast(on_root(comm, lambda: read_header(Path(file)))))


def restart(
    file: str | Path | Kept,
    comm: MPI.Comm | None = None,
    *,
    system: System | None = None,
    checkpoints: Checkpoints | None = None,
    progress: bool = False,
    signals: bool = False,
) -> Result:
    """Go on with a simulation from a checkpoint, into the same output; all ranks call together.

    On the same number of ranks the trajectory is, bit by bit, that of a run that was never stopped; on another one to
    rounding (coupling `pcg`: to the tolerance of its solutions). Samples behind the checkpoint are written anew.

    Parameters
    ----------
    file : path or Kept
        The checkpoint. Its output is expected where it was, seen from there.
    comm : MPI.Comm, optional
        This process alone by default; any number of ranks, of a coupling with cuts of its own one more than these at
        the most.
    system : System, optional
        The same as before, where forces are functions, which a file does not hold; else it is read from the checkpoint.
    checkpoints : Checkpoints, optional
        When to write further ones; as before by default, in the same place.
    progress, signals : bool
        See `simulate`.

    Returns
    -------
    Result
        Of the whole run: steps, evaluations and seconds of its parts together.

    Raises
    ------
    InputError
        On all ranks: the file is none, or damaged; its output is missing, complete or another; the system is another.
    SimulationError, InterruptionError
        As `simulate`.
    """
    world = communicator(comm)
    kept = file if isinstance(file, Kept) else read_checkpoint(file, world)
    header, folder = kept.header, kept.file.parent
    whole = together(world, lambda: _system(kept, system))
    wanted = checkpoints or Checkpoints(**header["checkpoints"])
    wanted = wanted._replace(path=wanted.path or folder / header["place"])
    with Signals(signals) as taken:
        run = Run(whole, Settings.of(header["settings"]), world, output_of(kept), wanted, taken, kept)
        return run.finish(progress)


def output_of(kept: Kept) -> Path:
    """The output that a checkpoint's run writes."""
    return kept.file.parent / kept.header["output"]


def most_ranks(kept: Kept) -> int | None:
    """How many ranks a checkpoint's run can make use of; None where it has no cuts of its own."""
    cuts = kept.header["settings"]["cuts"]
    return None if cuts is None else int(cuts) + 1


def _system(kept: Kept, system: System | None) -> System:
    """The system that goes on: that of the checkpoint."""
    text = kept.header["model"]
    if system is None:
        if kept.header["has_functions"]:
            raise InputError(
                f"{kept.file}: has forces that are functions, which a file does not hold; give --forces as before, or "
                "go on from Python, with mpimbs.restart(file, comm, system=...)"
            )
        return system_from_text(text, kept.file)
    if system_text(system, functions=True) != text:
        raise InputError(f"{kept.file}: is of another system than '{system.name}', which was given")
    return system
