"""Random ensembles: copies beside their own simulations, stopped and continued on any ranks; for the driver `fuzz.py`.

The copies of a course's system begin with shares of its speeds. One that each rank draws is simulated by itself; then
the ensemble is stopped by a signal after some steps, and goes on from its checkpoint, on the same ranks with the same
bits, on others as the one undisturbed.
"""

import contextlib
import functools
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from courses import Course
from fuzzing import Verdict, told_as
from mpimbs import Checkpoints, load, restart, simulate
from mpimbs.base.errors import InputError, InterruptionError, SimulationError
from mpimbs.run.ensembles.batch import Batch
from mpimbs.run.result import EnsembleResult
from mpimbs.stepping.copies_stepper import CopiesStepper
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.settings import OF_ENSEMBLES
from oracles.structured_systems import Weighted
from run.interruptions import differing, disturbed
from tolerances import TOLERANCE, error

SHORTENED = 1e3  # tolerances of adaptive steps by which copies may be off, whose steps others shorten
STEPS = 12  # before a signal, at the most


@contextmanager
def signalled(comm: MPI.Comm, steps: int) -> Iterator[None]:
    """Send a signal to the last rank before the last of so many steps, of copies side by side or in turn."""
    with contextlib.ExitStack() as stack:
        for stepper in (CopiesStepper, Integrator):
            action = functools.partial(signal.raise_signal, signal.SIGUSR2)
            stack.enter_context(disturbed(comm, pytest.MonkeyPatch(), steps, action, stepper))
        yield


def check_ensemble(course: Course, amplified: float, comm: MPI.Comm) -> tuple[Verdict, dict[str, int]]:
    """Simulate copies of a course's system, disturbed and not, and compare; rank 0 has the verdict. All ranks call."""
    course.commanded(0.0)
    case, source = course.case, Weighted(course.case.seed + 7 * 10**9)
    count, told, verdict = comm.size + source.index(6), told_as({"ensemble": case.seed}), Verdict()
    shares = np.array([1.0 if case.system.contents.has_motions else source.uniform(0.3, 1.0) for _ in range(count)])
    state = np.tile(case.q, (count, 1)), shares[:, None] * case.u
    settings = {name: value for name, value in course.settings.items() if name in OF_ENSEMBLES}
    if course.system.contents.events:
        settings["poses"] = True
    if source.chance(0.3):  # which lanes don't carry
        settings["sample"] = "q,u,power,joint_work"
    folder, lived = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)), Counter[str]()
    steps, ranks, k = 1 + source.index(STEPS), 1 + source.index(comm.size), (comm.rank + source.index(count)) % count
    try:
        batch = Batch(case.system, count, comm)
        whole = batch.simulate(output=folder / "whole.h5", state=state, **settings)
        if comm.bcast(bool(whole.failed)):
            verdict.unjudged.append(f"{told} copies fail: {next(iter(whole.failed.values()), '')}")
            return verdict, {}
        lived["copies"], lived["ensembles"] = count, 1
        wrong = [*alone(course, settings, state, k, motion_of(course, comm, whole), amplified)]
        wrong += stopped_and_continued(course, batch, settings, state, steps, ranks, folder, amplified, comm, lived)
        verdict.wrong = [f"{told} {text}" for part in comm.allgather(wrong) for text in part]
        verdict.judged += 1
    except SimulationError as error_:
        verdict.wrong.append(f"{told} ends: {error_}")
    finally:
        comm.Barrier()
        if comm.rank == 0:
            shutil.rmtree(folder)
    return verdict, dict(lived)


def motion_of(course: Course, comm: MPI.Comm, result: EnsembleResult) -> dict[str, Any]:
    """The motion on all ranks."""
    return comm.bcast(compared(course, result) if comm.rank == 0 else None)


def compared(course: Course, result: Any) -> dict[str, Any]:
    """What is compared of a motion: joints that events cut have no coordinates, bodies have poses."""
    names = ("poses", "energy") if course.system.contents.events else ("q", "u")
    return {name: np.asarray(getattr(result, name)) for name in names}


def off_by(ours: dict[str, Any], right: dict[str, Any]) -> float:
    """How far motions are apart, of the sizes of coordinates, speeds, places and energies."""
    least = {"q": 1.0, "poses": 1.0, "u": 1e-6, "energy": 1e-6}
    sizes = {name: max(least[name], float(abs(values).max(initial=0.0))) for name, values in right.items()}
    return max(error(ours[name], right[name], size) for name, size in sizes.items())


def alone(
    course: Course, settings: dict[str, Any], state: tuple[Any, Any], k: int, whole: dict[str, Any], amplified: float
) -> Iterator[str]:
    """What is off of a copy beside its own simulation."""
    own = simulate(course.system, comm=MPI.COMM_SELF, state=(state[0][k], state[1][k]), **settings)
    off = off_by({name: values[:, k] for name, values in whole.items()}, compared(course, own))
    share = TOLERANCE["sequences"][0] + SHORTENED * settings.get("rtol", 0.0)
    if not off <= share * amplified:
        yield f"copy {k} is off by {off:.2g} from its own simulation, and {share * amplified:.2g} is allowed"


def stopped_and_continued(
    course: Course, batch: Batch, settings: dict[str, Any], state: tuple[Any, Any], steps: int, ranks: int,
    folder: Path, amplified: float, comm: MPI.Comm, lived: Counter[str],
) -> list[str]:  # fmt: skip
    """What is off of an ensemble that is stopped after some steps and goes on, on rank 0."""
    out = folder / "out.h5"
    try:
        with signalled(comm, steps):
            batch.simulate(output=out, state=state, signals=True, checkpoints=Checkpoints(steps=4), **settings)
    except InterruptionError:
        lived["restarts"] += 1
        part, failed = comm.Split(0 if comm.rank < ranks else MPI.UNDEFINED), None
        if part != MPI.COMM_NULL:
            try:
                restart(folder / "out.checkpoint.h5", part, system=course.system)
            except (InputError, SimulationError) as stopped:
                failed = f"does not go on: {stopped}"
            part.Free()
        if failed := comm.bcast(failed):
            return [failed] if comm.rank == 0 else []
    comm.Barrier()
    if comm.rank:
        return []
    if ranks == comm.size:
        unlike = differing(folder / "whole.h5", out)
        return [f"on the same ranks other bits of {', '.join(unlike)}"] if unlike else []
    found, right = (load(path) for path in (out, folder / "whole.h5"))
    off = off_by(compared(course, found), compared(course, right))
    share = (TOLERANCE["sequences"][0] + SHORTENED * settings.get("rtol", 0.0)) * amplified
    return [] if off <= share else [f"on other ranks it is off by {off:.2g}, and {share:.2g} is allowed"]
