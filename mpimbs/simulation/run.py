"""A simulation from end to end: integrate, sample, write, watch, keep, summarise."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.arguments import check_kinds
from mpimbs.compiling import compile_evaluations
from mpimbs.coupling import LoadSolver, solver_for
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.dynamics import Dynamics
from mpimbs.errors import InputError, InterruptionError, SimulationError
from mpimbs.model import System
from mpimbs.parallel.agreement import communicator, same_system, together, warn_unguarded
from mpimbs.resources import ranks_on_node
from mpimbs.settings import takes
from mpimbs.simulation.checkpoint import Kept
from mpimbs.simulation.compile_notice import compilation_told
from mpimbs.simulation.constraint_record import ConstraintRecord
from mpimbs.simulation.integrator import Integrator
from mpimbs.simulation.keeper import Keeper
from mpimbs.simulation.kept_motion import motion_in_file, motion_in_memory
from mpimbs.simulation.output import OutputError, OutputFile
from mpimbs.simulation.petsc_schemes import check_options
from mpimbs.simulation.progress import Progress
from mpimbs.simulation.projection import Projection
from mpimbs.simulation.recorder import Recorder, Store
from mpimbs.simulation.result import Result
from mpimbs.simulation.run_files import RunFiles
from mpimbs.simulation.run_memory import RunMemory
from mpimbs.simulation.samples import Samples
from mpimbs.simulation.settings import POSITIONS, Checkpoints, SimulationSettings
from mpimbs.simulation.signals import Signals
from mpimbs.simulation.state import State, check_speeds, check_system, checked_state
from mpimbs.simulation.step_memory import StepMemory
from mpimbs.sizes import tuned

Floats = npt.NDArray[np.float64]


class Run:
    """One simulation, from its beginning or from a checkpoint; all ranks make it together and call.

    Parameters
    ----------
    system : System
    settings : SimulationSettings
        Checked.
    comm : MPI.Comm
    path : Path or None
        Of the output.
    checkpoints : Checkpoints or None
    signals : Signals
    kept : Kept, optional
        Go on from this.
    state : State, optional
        Begin with this.
    """

    def __init__(
        self,
        system: System,
        settings: SimulationSettings,
        comm: MPI.Comm,
        path: Path | None,
        checkpoints: Checkpoints | None,
        signals: Signals,
        kept: Kept | None = None,
        state: State | None = None,
    ) -> None:
        began = time.perf_counter()
        self._comm, self._system, self._kept, self._state = comm, system, kept, state
        here = ranks_on_node(comm)
        together(comm, lambda: check_system(system, comm.size, here))
        self._times = settings.sample_times()
        solver = solver_for(settings.coupling, settings.solver, None if settings.dt else settings.rtol)
        chosen = settings.part(EvaluationSettings) | {"solver": solver}
        self._dynamics = dynamics = Dynamics(system, comm, **chosen)
        iterative = dynamics.coupling.iterative
        numbered = dynamics.subchain.system
        self._constraints = None if iterative is None else ConstraintRecord(dynamics.comm, iterative, numbered)
        if self._constraints is not None:  # their number is that of the output's columns: the same after a restart
            cuts, ratio = len(dynamics.division.bounds) - 2, dynamics.division.tip_ratio
            settings = dataclasses.replace(settings, cuts=cuts, lanes=dynamics.lanes, tip_ratio=ratio)
        self._settings = settings
        self._check_integrator()
        self._seconds = {"set-up": 0.0, "compile": 0.0}
        self._projection: Projection | None = None
        if dynamics.loops is not None:
            self._compile()
            self._projection = Projection(dynamics, settings.projection or POSITIONS, settings.stabilisation)
        self._first = self._initial() if kept is None else None
        self._files = RunFiles(comm, path, checkpoints, signals.enabled, kept, settings.force)
        self._memory = RunMemory(dynamics, settings, self._files)
        with contextlib.ExitStack() as after_error:
            after_error.callback(self._files.release)
            kinds = settings.poses, settings.loads, settings.extremes
            keep = partial(self._open, solver)
            self._recorder = Recorder(dynamics, *kinds, self._constraints, self._projection, keep)
            self._compile()
            after_error.pop_all()
        self.result = Result()
        self._compiled = time.perf_counter()
        self._seconds["set-up"] = self._compiled - began - self._seconds["compile"]
        files = self._files
        self._keeper = Keeper(
            comm, files.checkpoints, files.place, signals, self._write_checkpoint, self._memory.going_on
        )
        self._stepper: Integrator | None = None

    def _compile(self) -> None:
        began = time.perf_counter()
        compile_evaluations(self._dynamics, self._settings.loads, sampled=True)
        self._seconds["compile"] += time.perf_counter() - began

    def _check_integrator(self) -> None:
        """Refuse what PETSc's options and the speeds make impossible; say where options replace the integrator."""
        comm, settings, solves = self._comm, self._settings, self._constraints is not None
        replaced = together(comm, lambda: check_options(settings.integrator, settings.accuracy, solves))
        together(comm, lambda: check_speeds(self._dynamics.subchain))
        if replaced and comm.rank == 0:
            told = f"mpimbs: note: PETSC_OPTIONS replace the integrator {settings.integrator} by {replaced}"
            print(told, file=sys.stderr, flush=True)

    def _open(self, solver: LoadSolver | None, widths: dict[str, int]) -> Store:
        """Begin the output, or go on with it."""
        settings, division = self._settings, self._dynamics.division
        separated = None if self._constraints is None else self._constraints.separated_loads()
        told = settings.data() | {
            "every": float(self._times[1] - self._times[0]), "ranks": self._comm.size, "lanes": self._dynamics.lanes,
            "tip_ratio": division.tip_ratio, "cuts": division.bounds.tolist(), "owners": division.owners.tolist(),
            "solver": None if solver is None else solver.data(),
        }  # fmt: skip
        kinds = settings.poses, settings.loads, settings.extremes
        return self._files.open(
            lambda path: OutputFile(path, self._system, told, *kinds, settings.force, separated), widths
        )

    def finish(self, progress: bool = False) -> Result:
        """Simulate to the end; errors are those of `simulate`."""
        result, settings = self.result, self._settings
        error: SimulationError | None = None
        try:
            stepper = self._begin()
            self._keeper.begin(stepper.steps)
            shown = Progress(settings.t_end, progress and self._comm.rank == 0, t_begin=stepper.time)
            with shown:
                for target in self._times[self._recorder.count :]:
                    self._step_to(target, stepper, shown)
            self._recorder.finish()
        except SimulationError as stopped:
            error = stopped
            result.status = f"stopped: {stopped}"
        self._summarise()
        try:
            if not isinstance(error, OutputError):  # which has ended it
                result.extremes = self._recorder.keep_extremes()
                unfinished = isinstance(error, InterruptionError)
                self._recorder.store.close(result.status, result.statistics(), unfinished)
        except OutputError as broken:
            error = error or broken
        self._dynamics.close()
        self._files.release()
        if isinstance(error, OutputError):
            error = OutputError(f"{error}{self._keeper.hint()}")
        if error is not None:
            raise error
        return result

    def _begin(self) -> Integrator:
        """Make the integrator, at the first sample or where the checkpoint has it."""
        dynamics = self._dynamics
        if self._kept is None:
            assert self._first is not None
            self._stepper = self._integrator(*self._first)
            self._recorder.watch(self._stepper)
            self._recorder.record(0.0, self._stepper)
            return self._stepper
        header, vectors = self._kept.header, self._memory.recall()
        q, u = vectors.pop("q"), vectors.pop("u")
        memory = StepMemory(**header["steps"], vectors=vectors)
        self._recorder.recall(header["recorder"], vectors)
        self._stepper = self._integrator(q, u, memory)
        dynamics.evaluations = header["evaluations"]
        return self._stepper

    def _initial(self) -> tuple[Floats, Floats]:
        """This rank's part of the state to begin with, its loops closed."""
        dynamics, state = self._dynamics, self._state
        if state is None:
            q, u = dynamics.subchain.q, dynamics.subchain.u
        else:
            q, u = state.q[dynamics.gather_q.part].copy(), state.u[dynamics.gather_u.part].copy()
        return (q, u) if self._projection is None else self._projection.begin(q, u)

    def _integrator(self, q: Floats, u: Floats, memory: StepMemory | None = None) -> Integrator:
        asked, probed = self._keeper.asked, self._constraints is None  # whose solutions go on from each other
        name = self._settings.integrator
        return Integrator(
            self._dynamics,
            q,
            u,
            name,
            self._settings.accuracy,
            memory=memory,
            asked=asked,
            probed=probed,
            projection=self._projection,
        )

    def _step_to(self, target: float, stepper: Integrator, shown: Progress) -> None:
        """Take the steps to a sample, and the sample, with the checkpoints between them."""
        reached = False
        while not reached:
            reached = stepper.step_towards(target)
            self._recorder.watch(stepper)
            shown.show(stepper)
            if reached:
                self._recorder.record(target, stepper)
            if self._recorder.count < len(self._times):
                self._keeper.after_step(stepper.requests, stepper.time, stepper.steps)

    def _write_checkpoint(self) -> str | None:
        """Write a checkpoint of the state after the last step; gives the reason why not."""
        assert self._stepper is not None
        return self._memory.write(self._stepper, self._recorder, self._spent())

    def _spent(self) -> dict[str, float]:
        """Wall time by phase of this rank so far, and of the parts of the run before (s)."""
        phases = self._dynamics.seconds()
        if self._projection is not None:
            phases = {name: value - self._projection.seconds.get(name, 0.0) for name, value in phases.items()}
            phases["projection"] = self._projection.seconds.get("projection", 0.0)
        rest = time.perf_counter() - self._compiled - sum(phases.values())
        rest -= self._recorder.seconds + self._keeper.seconds
        own = {**self._seconds, **phases, "integration": rest, "output": self._recorder.seconds}
        if self._keeper.seconds:
            own["checkpoints"] = self._keeper.seconds
        before = {} if self._kept is None else self._kept.header["seconds"]
        return {name: own.get(name, 0.0) + before.get(name, 0.0) for name in {**own, **before}}

    def _summarise(self) -> None:
        """Bring what is known of the run into the result, and end PETSc's part."""
        result, dynamics, stepper = self.result, self._dynamics, self._stepper
        result.evaluations = dynamics.evaluations
        balance = self._recorder.balance
        result.energy_error, result.energy_change = balance.change, balance.relative
        store = self._recorder.store
        result.samples = store.samples if isinstance(store, Samples) else []
        if self._projection is not None:
            result.loops = self._projection.told()
        if self._recorder.extremes is not None:
            result.peaks = self._recorder.extremes.told()
        result.restarts = self._memory.restarts()
        result.sizes = tuned().told()
        if self._constraints is not None:
            result.solutions = {**dynamics.coupling.statistics(), **self._constraints.largest()}
        if self._comm.rank == 0:
            path = self._files.output
            result.motion = (
                motion_in_memory(result.samples, self._system) if path is None else motion_in_file(path.absolute())
            )
        if stepper is not None:
            result.time, result.steps, result.rejected = stepper.time, stepper.steps, stepper.rejected
            result.step_sizes = stepper.step_statistics()
            stepper.close()
        result.seconds = self._spent()


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
