"""A simulation that goes on from a checkpoint, on any number of ranks."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from mpimbs.base.arguments import as_path
from mpimbs.base.errors import InputError
from mpimbs.base.places import absolute_path
from mpimbs.files.checkpoint import Kept, is_checkpoint, read_header, restart_call
from mpimbs.forces.modules import add_forces
from mpimbs.model import System, system_from_text, system_text
from mpimbs.model.contents import Contents
from mpimbs.model.system import contents_of
from mpimbs.parallel.agreement import communicator, on_root, together
from mpimbs.run.ensembles.course import ENSEMBLE
from mpimbs.run.ensembles.ensemble import go_on
from mpimbs.run.keeper import place_of
from mpimbs.run.progress import compilation_told
from mpimbs.run.result import EnsembleResult, Result, result_of
from mpimbs.run.simulation import Simulation
from mpimbs.stepping.integrators import begins_anew
from mpimbs.stepping.settings import Checkpoints, SimulationSettings


def read_checkpoint(file: str | Path, comm: MPI.Comm) -> Kept:
    """Read a checkpoint's header on rank 0, after a check of all of the file, and give it to all ranks.

    Of an output that is given the checkpoint is read that stands beside it, where there is one.

    Raises
    ------
    InputError
        On all ranks; see `checkpoint.read_header`.
    """
    place = together(comm, lambda: as_path("the checkpoint", file))

    def read() -> tuple[Path, dict[str, Any]]:
        beside = place_of(Checkpoints(), place)
        found = beside if beside.exists() and not is_checkpoint(place) else place
        return found, read_header(found)

    found, header = comm.bcast(on_root(comm, read))
    return Kept(together(comm, lambda: absolute_path(found)), header)


def restart(
    file: str | Path | Kept,
    comm: MPI.Comm | None = None,
    *,
    system: System | Contents | Sequence[System | Contents] | None = None,
    forces: Sequence[str] = (),
    checkpoints: Checkpoints | None = None,
    progress: bool = False,
    signals: bool = False,
) -> Result | EnsembleResult:
    """Go on with a simulation from a checkpoint, into the same output; all ranks call together.

    On the same number of ranks the trajectory is, bit by bit, that of a run that was never stopped; on another one to
    rounding (coupling `pcg`: to the tolerance of its solutions). An integrator of which PETSc keeps more than can be
    read begins anew, with a note. Samples behind the checkpoint are written anew.

    Parameters
    ----------
    file : path or Kept
        The output, whose checkpoint stands beside it, or the checkpoint itself. The one is expected where it was, seen
        from the other.
    comm : MPI.Comm, optional
        All ranks of the job by default; any number of ranks, of a coupling with cuts of its own one more than these at
        the most.
    system : Contents, optional
        The same as before, where forces are functions, which a file does not hold; else it is read from the checkpoint.
        Of an ensemble, those of all copies.
    forces : sequence of str
        Instead of that: the functions of modules (module:function) that have added them, as with `--forces`.
    checkpoints : Checkpoints, optional
        When to write further ones; as before by default, in the same place.
    progress, signals : bool
        See `simulate`.

    Returns
    -------
    Result or EnsembleResult
        Of the whole run: steps, evaluations and seconds of its parts together; of a run that is complete, that of
        `load`.

    Raises
    ------
    InputError
        On all ranks: the file is none, or damaged; its output is missing or another; the system is another; this
        version has not all of its settings; the run goes on.
    SimulationError, InterruptionError
        As `simulate`.
    """
    world = communicator(comm)
    kept = file if isinstance(file, Kept) else read_checkpoint(file, world)
    header = kept.header
    if (result := finished(kept, world)) is not None:
        return result
    integrator = together(world, lambda: _settings(kept)).integrator
    anew = together(world, lambda: begins_anew(integrator))
    if world.rank == 0 and anew:
        told = f"PETSc keeps more of the steps of {integrator} than can be read: it begins anew"
        print(f"mpimbs: note: {told} at t = {header['time']:g} s", file=sys.stderr, flush=True)
    wanted = together(world, lambda: (checkpoints or Checkpoints.of(header["checkpoints"])).checked())
    wanted = dataclasses.replace(wanted, path=wanted.path or kept.place)
    one = contents_of(system) if isinstance(system, System | Contents) else None
    several = None if system is None or one is not None else [contents_of(each) for each in system]  # type: ignore[union-attr]
    if header.get("kind") == ENSEMBLE:
        return go_on(kept, world, several if one is None else [one], forces, wanted, signals, progress)
    whole = together(world, lambda: _system(kept, several or one, forces))
    with compilation_told(progress and world.rank == 0):
        return Simulation.going_on(kept, whole, world, wanted, signals).finish(progress)


def finished(kept: Kept, comm: MPI.Comm) -> Result | EnsembleResult | None:
    """Give the result of a run that is complete, of which a checkpoint is left; all ranks call."""

    def read() -> Result | EnsembleResult | None:
        try:
            result = result_of(kept.output.absolute(), kept.header["run"])
        except (InputError, OSError, RuntimeError, KeyError):  # `OutputFile.continued` says what is wrong with it
            return None
        return result if result.status == "complete" else None

    result = on_root(comm, read)
    told: Result | EnsembleResult | None
    told = comm.bcast(result and dataclasses.replace(result, motion=None))  # which rank 0 alone has
    return told if result is None else result


def _settings(kept: Kept) -> SimulationSettings:
    """Give the settings of a checkpoint's run; InputError if this version has not all of them."""
    try:
        return SimulationSettings.of(kept.header["settings"]).checked()
    except InputError as error:
        raise InputError(f"{kept.file}: {error}; use the version that wrote it") from None


def most_ranks(kept: Kept) -> int | None:
    """How many ranks a checkpoint's run can make use of; None where it has no cuts of its own."""
    cuts = kept.header["settings"]["cuts"]
    return None if cuts is None else int(cuts) + 1


def _system(kept: Kept, system: Contents | Sequence[Contents] | None, forces: Sequence[str]) -> Contents:
    """The system that goes on: that of the checkpoint."""
    header = kept.header
    if system is None and not forces:
        if header["has_functions"]:
            raise InputError(
                f"{kept.file}: has forces or events that are functions, which a file does not hold; go on with: "
                f"{restart_call(kept.file, header)}"
            )
        return system_from_text(header["model"], kept.file).contents
    if system is None:
        system = system_from_text(header.get("base") or header["model"], kept.file).contents
        for given in forces:
            add_forces(system, given)
    if not isinstance(system, Contents):
        raise InputError(f"{kept.file}: is of one system; give it, and no list")
    if system_text(system, functions=True) != header["model"]:
        raise InputError(f"{kept.file}: is of another system than '{system.name}', which was given")
    return system
