"""A simulation from end to end: integrate, sample, write, watch, keep, summarise."""

from __future__ import annotations

import os
import time
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling import LoadSolver, solver_for
from mpimbs.coupling.pcg import ConstraintLoads
from mpimbs.dynamics import Dynamics
from mpimbs.errors import InputError, InterruptionError, SimulationError
from mpimbs.model import System, system_text
from mpimbs.parallel.agreement import communicator, on_root, same_system, together, warn_unguarded
from mpimbs.simulation.checkpoint import read_vectors, write_checkpoint
from mpimbs.simulation.constraint_record import ConstraintRecord
from mpimbs.simulation.integrator import Accuracy, Integrator, StepMemory
from mpimbs.simulation.keeper import Checkpoints, Keeper, clear
from mpimbs.simulation.kept_motion import motion_in_file, motion_in_memory
from mpimbs.simulation.output import OutputError, OutputFile, check_output
from mpimbs.simulation.output_layout import versions
from mpimbs.simulation.progress import Progress
from mpimbs.simulation.recorder import Recorder, Store
from mpimbs.simulation.result import Result
from mpimbs.simulation.sample_writer import SampleWriter
from mpimbs.simulation.samples import Samples
from mpimbs.simulation.settings import Settings, sample_times
from mpimbs.simulation.signals import Signals

Floats = npt.NDArray[np.float64]


class Kept(NamedTuple):
    """A checkpoint that was read and checked: its file, and its header on every rank."""

    file: Path
    header: dict[str, Any]


class Run:
    """One simulation, from its beginning or from a checkpoint; all ranks make it together and call.

    Parameters
    ----------
    system : System
    settings : Settings
    comm : MPI.Comm
    path : Path or None
        Of the output.
    checkpoints : Checkpoints or None
    signals : Signals
    kept : Kept, optional
        Go on from this.
    """

    def __init__(
        self,
        system: System,
        settings: Settings,
        comm: MPI.Comm,
        path: Path | None,
        checkpoints: Checkpoints | None,
        signals: Signals,
        kept: Kept | None = None,
    ) -> None:
        began = time.perf_counter()
        self._comm, self._system, self._path, self._kept = comm, system, path, kept
        self._checkpoints = checkpoints or Checkpoints()
        self._accuracy = accuracy = Accuracy(settings.rtol, settings.atol, settings.dt)
        self._times = together(
            comm, lambda: sample_times(settings.t_end, settings.every, accuracy, settings.integrator)
        )
        solver = solver_for(settings.coupling, settings.solver, None if settings.dt else settings.rtol)
        self._dynamics = dynamics = Dynamics(
            system, comm, settings.coupling, settings.tip_ratio, settings.lanes, settings.cuts, solver, settings.overlap
        )
        joined = dynamics.coupling
        self._constraints = (
            ConstraintRecord(dynamics, joined) if isinstance(joined, ConstraintLoads) and joined.unknowns else None
        )
        if self._constraints is not None:  # their number is that of the output's columns: the same after a restart
            cuts = len(dynamics.division.bounds) - 2
            settings = settings._replace(cuts=cuts, lanes=dynamics.lanes, tip_ratio=dynamics.division.tip_ratio)
        self._settings = settings
        self._keeps = checkpoints is not None or (signals.enabled and path is not None)
        self._place = together(comm, lambda: self._checkpoints.place(path)) if self._keeps else None
        self._run: str | None = None  # what tells its output from others
        self._recorder = Recorder(
            dynamics, settings.poses, settings.loads, self._constraints, partial(self._open, solver)
        )
        ready = time.perf_counter()
        dynamics.compile()
        compiled = time.perf_counter()
        self.result = Result()
        self._seconds = {"set-up": ready - began, "compile": compiled - ready}
        self._compiled = compiled
        self._keeper = Keeper(comm, self._checkpoints, self._place, signals, self._write_checkpoint)
        self._stepper: Integrator | None = None

    def _open(self, solver: LoadSolver | None, widths: dict[str, int]) -> Store:
        """Begin the output, or go on with it."""
        comm, path = self._comm, self._path
        if path is None:
            return Samples(comm, widths)
        file = self._begin_file(path, solver) if self._kept is None else self._continue_file(path, self._kept.header)
        self._run = comm.bcast(None if file is None else file.run)
        return SampleWriter(comm, file, path, widths)

    def _continue_file(self, path: Path, header: dict[str, Any]) -> OutputFile | None:
        return on_root(self._comm, lambda: OutputFile.continued(path, header["run"], header["recorder"]["count"]))

    def _begin_file(self, path: Path, solver: LoadSolver | None) -> OutputFile | None:
        settings, division = self._settings, self._dynamics.division
        separated = None if self._constraints is None else self._constraints.separated_loads()
        told = settings.data() | {
            "every": float(self._times[1] - self._times[0]), "ranks": self._comm.size, "lanes": self._dynamics.lanes,
            "tip_ratio": division.tip_ratio, "cuts": division.bounds.tolist(), "owners": division.owners.tolist(),
            "solver": None if solver is None else solver._asdict(),
        }  # fmt: skip

        def begin() -> OutputFile:
            check_output(path, settings.force)
            if self._place is not None:
                clear(self._place, settings.force)
            return OutputFile(path, self._system, told, settings.poses, settings.loads, settings.force, separated)

        return on_root(self._comm, begin)

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
                unfinished = isinstance(error, InterruptionError)
                self._recorder.store.close(result.status, result.statistics(), unfinished)
        except OutputError as broken:
            error = error or broken
        self._dynamics.close()
        if isinstance(error, OutputError) and self._keeper.at_hand():
            error = OutputError(f"{error}; go on with: mpimbs restart {self._place}")
        if error is not None:
            raise error
        return result

    def _begin(self) -> Integrator:
        """Make the integrator, at the first sample or where the checkpoint has it."""
        dynamics, settings, asked = self._dynamics, self._settings, self._keeper.asked
        if self._kept is None:
            q, u = dynamics.subchain.q, dynamics.subchain.u
            self._stepper = Integrator(dynamics, q, u, settings.integrator, self._accuracy, asked=asked)
            self._recorder.record(0.0, q, u, 0.0)
            return self._stepper
        header, vectors = self._kept.header, self._recalled(self._kept)
        stage = np.concatenate([vectors["q_rate"], vectors["u_rate"]]) if "q_rate" in vectors else None
        memory = StepMemory(**header["steps"], first_stage=stage)
        self._stepper = Integrator(
            dynamics, vectors["q"], vectors["u"], settings.integrator, self._accuracy, memory=memory, asked=asked
        )
        self._recorder.recall(header["recorder"])
        dynamics.evaluations = header["evaluations"]
        return self._stepper

    def _recalled(self, kept: Kept) -> dict[str, Floats]:
        """This rank's part of a checkpoint's vectors; what the coupling has kept is given back to it."""
        dynamics, header = self._dynamics, kept.header
        rank = self._comm.rank
        same = self._partition() == header["partition"]
        counts = {}
        for name, parts in header["parts"].items():
            if name.startswith("coupling_"):
                if same:
                    counts[name] = parts[rank]
            else:
                counts[name] = dynamics.subchain.nq if name.startswith("q") else dynamics.subchain.nu
        vectors = read_vectors(kept.file, counts, self._comm)
        if self._constraints is not None:
            arrays = {k.removeprefix("coupling_"): v for k, v in vectors.items() if k.startswith("coupling_")}
            dynamics.coupling.recall(header["coupling"], arrays)  # type: ignore[attr-defined]
        return vectors

    def _partition(self) -> list[list[int]]:
        """Which bodies every rank has, and in which subchains: with the same, all of a checkpoint can be used."""
        return [self._dynamics.division.bounds.tolist(), self._dynamics.division.owners.tolist()]

    def _step_to(self, target: float, stepper: Integrator, shown: Progress) -> None:
        """Take the steps to a sample, and the sample, with the checkpoints between them."""
        reached = False
        while not reached:
            reached = stepper.step_towards(target)
            shown.show(stepper.time, stepper.steps)
            if reached:
                self._recorder.record(target, stepper.q, stepper.u, stepper.norm_error)
            if self._recorder.count < len(self._times):
                self._keeper.after_step(stepper.requests, stepper.time, stepper.steps)

    def _write_checkpoint(self) -> str | None:
        """Write a checkpoint of the state after the last step; gives the reason why not."""
        stepper, dynamics, place = self._stepper, self._dynamics, self._place
        assert stepper is not None and place is not None
        self._recorder.store.sync()  # its samples come first
        memory = stepper.memory()
        vectors = {"q": stepper.q, "u": stepper.u}
        if memory.first_stage is not None:
            nq = len(vectors["q"])
            vectors |= {"q_rate": memory.first_stage[:nq], "u_rate": memory.first_stage[nq:]}
        steps = memory._asdict()
        del steps["first_stage"]
        coupling = None
        if self._constraints is not None:
            coupling, arrays = dynamics.coupling.memory()  # type: ignore[attr-defined]
            vectors |= {f"coupling_{name}": values for name, values in arrays.items()}
        header = self._unchanging | {
            "time": memory.time, "steps": steps, "evaluations": dynamics.evaluations, "coupling": coupling,
            "recorder": self._recorder.memory(), "seconds": self._spent(),
        } if self._comm.rank == 0 else {}  # fmt: skip
        return write_checkpoint(place, self._checkpoints.keep, header, vectors, self._comm)

    @cached_property
    def _unchanging(self) -> dict[str, Any]:
        """What all checkpoints of this run say alike."""
        assert self._place is not None and self._path is not None
        return {
            "name": self._system.name, "run": self._run, "model": system_text(self._system, functions=True),
            "has_functions": self._has_functions(), "settings": self._settings.data(), "versions": versions(),
            "output": os.path.relpath(self._path, self._place.parent), "place": self._place.name,
            "checkpoints": self._checkpoints._asdict() | {"path": None}, "partition": self._partition(),
            "restarts": self._restarts(),
        }  # fmt: skip

    def _has_functions(self) -> bool:
        try:
            system_text(self._system)
        except InputError:
            return True
        return False

    def _restarts(self) -> list[dict[str, float]]:
        """Where this run has gone on from checkpoints, and on how many ranks."""
        if self._kept is None:
            return []
        header = self._kept.header
        return [*header["restarts"], {"time": header["time"], "ranks": self._comm.size}]

    def _spent(self) -> dict[str, float]:
        """Wall time by phase of this rank so far, and of the parts of the run before (s)."""
        phases = self._dynamics.seconds()
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
        result.evaluations, result.energy_change = dynamics.evaluations, self._recorder.energy_change
        store = self._recorder.store
        result.samples, result.restarts = store.samples if isinstance(store, Samples) else [], self._restarts()
        if self._constraints is not None:
            result.solutions = {**dynamics.coupling.statistics(), **self._constraints.largest()}
        if self._comm.rank == 0:
            path = self._path
            result.motion = (
                motion_in_memory(result.samples, self._system) if path is None else motion_in_file(path.absolute())
            )
        if stepper is not None:
            result.time, result.steps, result.rejected = stepper.time, stepper.steps, stepper.rejected
            stepper.close()
        result.seconds = self._spent()


def simulate(
    system: System | str | Path,
    t_end: float,
    comm: MPI.Comm | None = None,
    *,
    coupling: str = "dcae",
    integrator: str = "5dp",
    rtol: float = 1e-8,
    atol: float = 1e-8,
    dt: float | None = None,
    every: float | None = None,
    output: str | Path | None = None,
    force: bool = False,
    poses: bool = False,
    loads: bool = False,
    progress: bool = False,
    tip_ratio: float | None = None,
    lanes: int | None = None,
    cuts: int | None = None,
    solver: LoadSolver | None = None,
    overlap: bool = False,
    checkpoints: Checkpoints | None = None,
    signals: bool = False,
) -> Result:
    """Simulate a system from its initial state; all ranks call together.

    Parameters
    ----------
    system : System, str or Path
        The same on every rank; or what names it, as for `system_from`.
    t_end : float
        Simulated time (s).
    comm : MPI.Comm, optional
        This process alone by default.
    coupling, integrator : str
        Names in `mpimbs.coupling.COUPLINGS` and `mpimbs.simulation.integrator.INTEGRATORS`.
    rtol, atol : float
        Tolerances of the adaptive step, relative and absolute (rad, m, rad/s, m/s).
    dt : float, optional
        A fixed step (s) in place of an adaptive one.
    every : float, optional
        Time between samples (s); a 200th of `t_end` by default. With a fixed step a multiple of it.
    output : path, optional
        HDF5 file to write; without it the samples are in the result.
    force : bool
        Replace an existing file.
    poses : bool
        Keep the poses of the bodies too.
    loads : bool
        Keep the joint loads too, as `Dynamics.joint_loads` gives them; one more evaluation for every sample.
    progress : bool
        Show progress on rank 0.
    tip_ratio, lanes, cuts, solver, overlap : optional
        See `Dynamics`; a solver without a tolerance gets a hundredth of `rtol`.
    checkpoints : Checkpoints, optional
        When to write checkpoints, from which `restart` goes on with the output.
    signals : bool
        Write a checkpoint at SIGUSR1, and one before the end at SIGTERM, SIGINT and SIGUSR2, whichever rank gets it;
        from the main thread. Handlers are those of before at the end.

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
    settings = Settings(
        t_end, coupling, integrator, rtol, atol, dt, every, force, poses, loads, tip_ratio, lanes, cuts, solver, overlap
    )
    world = communicator(comm)
    given = settings._asdict() | {"output": output, "checkpoints": checkpoints, "signals": signals}
    whole = same_system(world, system, simulate, given)
    warn_unguarded(world)
    path = None if output is None else Path(output)
    with Signals(signals) as taken:
        return Run(whole, settings, world, path, checkpoints, taken).finish(progress)
