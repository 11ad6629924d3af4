"""Ensembles in one call: copies of a system from their begin, or from a checkpoint, to their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arguments import array_of
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.base.places import absolute_path
from mpimbs.dynamics.members import Members
from mpimbs.dynamics.quantities import QUANTITIES
from mpimbs.dynamics.resources import ranks_on_node
from mpimbs.dynamics.side_by_side import check_alike, facts_of
from mpimbs.files.checkpoint import Kept, restart_call
from mpimbs.files.reading import open_output
from mpimbs.forces.modules import add_forces
from mpimbs.forces.motions import check_covered
from mpimbs.model import system_from_text, system_text
from mpimbs.model.contents import Contents
from mpimbs.model.facts import digest
from mpimbs.model.variants import FORCE_COLUMN
from mpimbs.parallel.agreement import alike, together
from mpimbs.run.course import Wanted
from mpimbs.run.ensembles.course import EnsembleRun
from mpimbs.run.keeper import Signals
from mpimbs.run.progress import compilation_told
from mpimbs.run.result import EnsembleResult, result_of
from mpimbs.run.run_events import RunEvents
from mpimbs.run.state import LARGEST, check_system, checked_state
from mpimbs.stepping.integrators import check_petsc_options
from mpimbs.stepping.settings import NEVER, OF_ENSEMBLES, Checkpoints, SimulationSettings


def simulate_copies(
    find: Callable[[], Members],
    comm: MPI.Comm,
    *,
    output: str | Path | None = None,
    progress: bool = False,
    checkpoints: Checkpoints | None = None,
    signals: bool = False,
    settings: SimulationSettings | None = None,
    given: Mapping[str, Any],
) -> EnsembleResult:
    """Simulate copies; all ranks call together.

    Parameters
    ----------
    find : callable
        Gives the copies; what it raises is raised on all ranks.
    comm, output, progress, checkpoints, signals, settings, given
        See `simulate`.

    Raises
    ------
    InputError, SimulationError, InterruptionError
        As `simulate`. A copy that fails is no error.
    """
    here = ranks_on_node(comm)

    def prepared() -> tuple[Members, SimulationSettings]:
        members = find()
        found = _asked(given, settings, members.systems[0])
        if checkpoints is not None:
            checkpoints.checked()
        _check(members, found.t_end, comm.size, here)
        return members, found

    members, found = together(comm, prepared)
    others = {"output": str(output), "checkpoints": str(checkpoints), "names": digest(members.names)}
    state = None if members.state is None else digest(tuple(part.tobytes() for part in members.state))
    alike(comm, lambda: {**facts_of(members.systems), **found.described(), **others, "state": state})
    path = None if output is None else together(comm, lambda: absolute_path(output))
    return _run(members, comm, Wanted(found, path, checkpoints, Signals(signals)), progress)


def _run(members: Members, comm: MPI.Comm, wanted: Wanted, progress: bool) -> EnsembleResult:
    with compilation_told(progress and comm.rank == 0), wanted.signals:
        run = EnsembleRun(members, comm, wanted)
        try:
            run.begin()
            run.to_end(progress)
            return run.end()
        except BaseException as error:
            run.broken(error)
            raise


def go_on(
    kept: Kept,
    comm: MPI.Comm,
    systems: Sequence[Contents] | None,
    forces: Sequence[str],
    checkpoints: Checkpoints,
    signals: bool,
    progress: bool,
) -> EnsembleResult:
    """Go on with an ensemble from a checkpoint; see `restart`."""
    members = together(comm, lambda: _members_of(kept, systems, forces))
    settings = SimulationSettings.of(kept.header["settings"])
    return _run(members, comm, Wanted(settings, kept.output, checkpoints, Signals(signals), kept), progress)


def _asked(given: Mapping[str, Any], base: SimulationSettings | None, system: Contents) -> SimulationSettings:
    """The settings that a user asks for, of which ensembles take some."""
    found = SimulationSettings.asked(given, base).suited(system)
    for field in SimulationSettings.fields():
        if field.name not in OF_ENSEMBLES and getattr(found, field.name) != field.default:
            raise InputError(f"`{field.name}` is not for ensembles: leave it out, or simulate the copies by themselves")
    if found.t_end is None:
        raise InputError("`t_end` is missing: simulated time")
    if lost := [name for name in found.selection(system).bodies if not QUANTITIES[name].copied]:
        raise InputError(f"{' and '.join(lost)}: not kept of ensembles; leave it out of `sample`")
    check_petsc_options(found.integrator, found.accuracy, solves=False)
    return found


def _check(members: Members, t_end: float | None, ranks: int, here: int) -> None:
    """Refuse copies that can't be simulated as an ensemble."""
    check_alike(members.systems)
    if members.count < ranks:
        raise InputError(f"{members.count} copies on {ranks} ranks: every rank needs one at least; start fewer ranks")
    check_system(members.systems[0], ranks, here)
    for k, system in enumerate(members.systems):
        try:
            RunEvents(system, NEVER if t_end is None else t_end)
        except InputError as error:
            raise InputError(f"copy {members.names[k]}: {error}") from None
        check_covered(system, t_end or 0.0)
        u = system.initial_state(0, system.n_bodies)[1]
        if np.abs(u).max(initial=0.0) > LARGEST:
            raise InputError(f"copy {members.names[k]}: an initial speed is beyond {LARGEST:g}: give SI units")


def states_of(system: Contents, q: npt.ArrayLike, u: npt.ArrayLike, count: int) -> tuple[Floats, Floats]:
    """Give initial states of all copies [copies, nq], [copies, nu], checked; one row may stand for all."""
    whole = []
    for name, rows, size in (("q", array_of(q), system.nq), ("u", array_of(u), system.nu)):
        if rows.dtype.kind not in "fiu" or rows.shape not in ((size,), (1, size), (count, size)):
            raise InputError(
                f"state: '{name}' has shape {rows.shape} and type {rows.dtype}; give a row of {size} numbers for each "
                f"of the {count} copies, or one for all"
            )
        whole.append(np.broadcast_to(rows, (count, size)))
    states = [
        checked_state(f"state of copy {k}", system, {"q": a, "u": b})
        for k, (a, b) in enumerate(zip(*whole, strict=True))
    ]
    return np.array([s.q for s in states]), np.array([s.u for s in states])


def _members_of(kept: Kept, systems: Sequence[Contents] | None, forces: Sequence[str]) -> Members:
    """The copies that go on: those of the checkpoint's output."""
    with open_output(kept.output, kept.header["run"]) as file:
        found = result_of(kept.output, kept.header["run"])
        assert isinstance(found, EnsembleResult)
        copies = file["copies"]
        texts = copies["model"].asstr()[:].tolist()
        bases = copies["before_forces"].asstr()[:].tolist() if "before_forces" in copies else texts
    if systems is None:
        if kept.header["has_functions"] and not forces:
            raise InputError(
                f"{kept.file}: has forces that are functions, which a file does not hold; go on with: "
                f"{restart_call(kept.file, kept.header)}"
            )
        systems = [
            system_from_text(base or text, kept.output).contents for base, text in zip(bases, texts, strict=True)
        ]
        own = {n.removeprefix(FORCE_COLUMN): v for n, v in found.parameters.items() if n.startswith(FORCE_COLUMN)}
        for k, system in enumerate(systems):
            system.given = {name: float(values[k]) for name, values in own.items()}
            for given in forces:
                add_forces(system, given)
    if [system_text(system, functions=True) for system in systems] != texts:
        raise InputError(f"{kept.file}: is of other systems than those that were given")
    return Members(list(systems), found.names)
