"""A simulation from end to end: integrate, sample, write, watch, keep, summarise."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling import LoadSolver, solver_for
from mpimbs.coupling.pcg import ConstraintLoads
from mpimbs.dynamics import Dynamics
from mpimbs.errors import InputError, InterruptionError, SimulationError
from mpimbs.filesystem.lock import Lock
from mpimbs.filesystem.places import check_new, check_writable
from mpimbs.model import System, system_text
from mpimbs.parallel.agreement import alike, communicator, on_root, same_system, together, warn_unguarded
from mpimbs.resources import ranks_on_node
from mpimbs.simulation.checkpoint import Kept, read_vectors, restart_call, write_checkpoint
from mpimbs.simulation.compile_notice import compilation_told
from mpimbs.simulation.constraint_record import ConstraintRecord
from mpimbs.simulation.integrator import Integrator, StepMemory
from mpimbs.simulation.keeper import Checkpoints, Keeper, clear
from mpimbs.simulation.kept_motion import motion_in_file, motion_in_memory
from mpimbs.simulation.output import NOWHERE, PATIENCE, OutputError, OutputFile
from mpimbs.simulation.output_layout import versions
from mpimbs.simulation.petsc_schemes import check_options
from mpimbs.simulation.progress import Progress
from mpimbs.simulation.recorder import Recorder, Store
from mpimbs.simulation.result import Result
from mpimbs.simulation.sample_writer import SampleWriter
from mpimbs.simulation.samples import Samples
from mpimbs.simulation.schemes import Accuracy
from mpimbs.simulation.settings import Settings, sample_times
from mpimbs.simulation.signals import Signals
from mpimbs.simulation.state import State, check_speeds, check_system, checked_state

Floats = npt.NDArray[np.float64]


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
    state : State, optional
        Begin with this.
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
        state: State | None = None,
    ) -> None:
        began = time.perf_counter()
        self._comm, self._system, self._path, self._kept, self._state = comm, system, path, kept, state
        self._checkpoints = checkpoints or Checkpoints()
        self._accuracy = accuracy = Accuracy(settings.rtol, settings.atol, settings.dt)
        here = ranks_on_node(comm)

        def check() -> Floats:
            check_system(system, comm.size, here)
            return sample_times(settings.t_end, settings.every, accuracy, settings.integrator)

        self._times = together(comm, check)
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
        solves = self._constraints is not None
        replaced = together(comm, lambda: check_options(settings.integrator, accuracy, solves))
        together(comm, lambda: check_speeds(system, dynamics.subchain))
        if replaced and comm.rank == 0:
            told = f"mpimbs: note: PETSC_OPTIONS replace the integrator {settings.integrator} by {replaced}"
            print(told, file=sys.stderr, flush=True)
        self._keeps = checkpoints is not None or (signals.enabled and path is not None)
        self._place = together(comm, lambda: self._checkpoints.place(path)) if self._keeps else None
        self._run: str | None = None  # what tells its output from others
        self._lock: Lock | None = None  # on rank 0, of the checkpoints
        keep = partial(self._open, solver)
        with contextlib.ExitStack() as after_error:
            after_error.callback(self._let_go)
            self._recorder = Recorder(
                dynamics, settings.poses, settings.loads, settings.extremes, self._constraints, keep
            )
            ready = time.perf_counter()
            dynamics.compile(settings.loads, sampled=True)
            compiled = time.perf_counter()
            after_error.pop_all()
        self.result = Result()
        self._seconds = {"set-up": ready - began, "compile": compiled - ready}
        self._compiled = compiled
        self._keeper = Keeper(comm, self._checkpoints, self._place, signals, self._write_checkpoint, self._going_on)
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
        def go_on() -> OutputFile:
            if self._place is not None:
                if self._kept is not None and self._place not in (self._kept.file, self._kept.place):
                    self._checkpoints.check_free(self._place, self._settings.force)
                check_writable(self._place, "checkpoints.path")
                self._lock = Lock(self._place, PATIENCE)
            return OutputFile.continued(path, header["run"], header["recorder"]["count"])

        return on_root(self._comm, go_on)

    def _begin_file(self, path: Path, solver: LoadSolver | None) -> OutputFile | None:
        settings, division = self._settings, self._dynamics.division
        separated = None if self._constraints is None else self._constraints.separated_loads()
        told = settings.data() | {
            "every": float(self._times[1] - self._times[0]), "ranks": self._comm.size, "lanes": self._dynamics.lanes,
            "tip_ratio": division.tip_ratio, "cuts": division.bounds.tolist(), "owners": division.owners.tolist(),
            "solver": None if solver is None else solver._asdict(),
        }  # fmt: skip

        def begin() -> OutputFile:
            check_new(path, settings.force, instead=NOWHERE)
            if self._place is not None:
                self._checkpoints.check_free(self._place, settings.force)
                self._lock = Lock(self._place)
                clear(self._place)
            kept = settings.poses, settings.loads, settings.extremes
            return OutputFile(path, self._system, told, *kept, settings.force, separated)

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
                result.extremes = self._recorder.keep_extremes()
                unfinished = isinstance(error, InterruptionError)
                self._recorder.store.close(result.status, result.statistics(), unfinished)
        except OutputError as broken:
            error = error or broken
        self._dynamics.close()
        self._let_go()
        if isinstance(error, OutputError):
            error = OutputError(f"{error}{self._keeper.hint()}")
        if error is not None:
            raise error
        return result

    def _let_go(self) -> None:
        """Let other runs write checkpoints where this one did."""
        if self._lock is not None:
            self._lock.release()

    def _begin(self) -> Integrator:
        """Make the integrator, at the first sample or where the checkpoint has it."""
        dynamics = self._dynamics
        if self._kept is None:
            self._stepper = self._integrator(*self._initial())
            self._recorder.watch(self._stepper)
            self._recorder.record(0.0, self._stepper)
            return self._stepper
        header, vectors = self._kept.header, self._recalled(self._kept)
        q, u = vectors.pop("q"), vectors.pop("u")
        memory = StepMemory(**header["steps"], vectors=vectors)
        self._recorder.recall(header["recorder"], vectors)
        self._stepper = self._integrator(q, u, memory)
        dynamics.evaluations = header["evaluations"]
        return self._stepper

    def _initial(self) -> tuple[Floats, Floats]:
        """This rank's part of the state to begin with."""
        dynamics, state = self._dynamics, self._state
        if state is None:
            return dynamics.subchain.q, dynamics.subchain.u
        return state.q[dynamics.gather_q.part].copy(), state.u[dynamics.gather_u.part].copy()

    def _integrator(self, q: Floats, u: Floats, memory: StepMemory | None = None) -> Integrator:
        asked, probed = self._keeper.asked, self._constraints is None  # whose solutions go on from each other
        name = self._settings.integrator
        return Integrator(self._dynamics, q, u, name, self._accuracy, memory=memory, asked=asked, probed=probed)

    def _recalled(self, kept: Kept) -> dict[str, Floats]:
        """This rank's part of a checkpoint's vectors; what the coupling has kept is given back to it."""
        dynamics, header = self._dynamics, kept.header
        rank = self._comm.rank
        same = self._partition() == header["partition"]
        counts, subchain = {}, dynamics.subchain
        numbers = {"q": subchain.nq, "u": subchain.nu, "body": subchain.n_bodies}
        for name, parts in header["parts"].items():
            if name.startswith("coupling_"):
                if same:
                    counts[name] = parts[rank]
            else:
                counts[name] = numbers[name.partition("_")[0]]
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
            self._recorder.watch(stepper)
            shown.show(stepper)
            if reached:
                self._recorder.record(target, stepper)
            if self._recorder.count < len(self._times):
                self._keeper.after_step(stepper.requests, stepper.time, stepper.steps)

    def _write_checkpoint(self) -> str | None:
        """Write a checkpoint of the state after the last step; gives the reason why not."""
        stepper, dynamics, place = self._stepper, self._dynamics, self._place
        assert stepper is not None and place is not None
        self._recorder.store.sync()  # its samples come first
        memory = stepper.memory()
        recorder, extremes = self._recorder.memory()
        vectors = {"q": stepper.q, "u": stepper.u, **memory.vectors, **extremes}
        steps = memory._asdict()
        del steps["vectors"]
        coupling = None
        if self._constraints is not None:
            coupling, arrays = dynamics.coupling.memory()  # type: ignore[attr-defined]
            vectors |= {f"coupling_{name}": values for name, values in arrays.items()}
        header = self._unchanging | {
            "time": memory.time, "steps": steps, "evaluations": dynamics.evaluations, "coupling": coupling,
            "recorder": recorder, "seconds": self._spent(),
        } if self._comm.rank == 0 else {}  # fmt: skip
        return write_checkpoint(place, self._checkpoints.keep, header, vectors, self._comm)

    def _going_on(self) -> str:
        """How this run is continued, for a message."""
        assert self._place is not None
        return restart_call(self._place, self._unchanging)

    @cached_property
    def _unchanging(self) -> dict[str, Any]:
        """What all checkpoints of this run say alike."""
        assert self._place is not None and self._path is not None
        base, modules = self._system.before_forces, self._system.force_modules
        return {
            "name": self._system.name, "run": self._run, "model": system_text(self._system, functions=True),
            "has_functions": self._has_functions(), "base": base, "forces": [] if base is None else list(modules),
            "settings": self._settings.data(), "versions": versions(),
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
        result.evaluations = dynamics.evaluations
        balance = self._recorder.balance
        result.energy_error, result.energy_change = balance.change, balance.relative
        store = self._recorder.store
        result.samples = store.samples if isinstance(store, Samples) else []
        if self._recorder.extremes is not None:
            result.peaks = self._recorder.extremes.told()
        result.restarts = self._restarts()
        if self._constraints is not None:
            result.solutions = {**dynamics.coupling.statistics(), **self._constraints.largest()}
        if self._comm.rank == 0:
            path = self._path
            result.motion = (
                motion_in_memory(result.samples, self._system) if path is None else motion_in_file(path.absolute())
            )
        if stepper is not None:
            result.time, result.steps, result.rejected = stepper.time, stepper.steps, stepper.rejected
            result.step_sizes = stepper.step_statistics()
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
    extremes: bool = False,
    progress: bool = False,
    tip_ratio: float | None = None,
    lanes: int | None = None,
    cuts: int | None = None,
    solver: LoadSolver | None = None,
    overlap: bool = False,
    checkpoints: Checkpoints | None = None,
    signals: bool = False,
    state: tuple[npt.ArrayLike, ...] | None = None,
) -> Result:
    """Simulate a system; all ranks call together.

    Parameters
    ----------
    system : System, str or Path
        The same on every rank; or what names it, as for `system_from`.
    t_end : float
        Simulated time (s).
    comm : MPI.Comm, optional
        This process alone by default.
    coupling, integrator : str
        Names in `mpimbs.coupling.COUPLINGS` and `mpimbs.simulation.schemes.INTEGRATORS`.
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
    extremes : bool
        Keep the smallest and largest of q, u and kinetic energy over all steps, with `loads` of force and moment of the
        joint loads too; an energy, and with `loads` an evaluation, more a step.
    progress : bool
        Show progress on rank 0.
    tip_ratio, lanes, cuts, solver, overlap : optional
        See `Dynamics`; a solver without a tolerance gets a hundredth of `rtol`.
    checkpoints : Checkpoints, optional
        When to write checkpoints, from which `restart` goes on with the output.
    signals : bool
        Write a checkpoint at SIGUSR1, and one before the end at SIGTERM, SIGINT and SIGUSR2, whichever rank gets it;
        from the main thread. Handlers are those of before at the end.
    state : (q, u), optional
        Coordinates and speeds of the whole system to begin with, the same on every rank, in the model's order; those
        of the model by default.

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
        t_end, coupling, integrator, rtol, atol, dt, every, force, poses, loads, tip_ratio, lanes, cuts, solver,
        overlap, extremes,
    )  # fmt: skip
    world = communicator(comm)
    given = settings._asdict() | {"output": output, "checkpoints": checkpoints, "signals": signals}
    whole = same_system(world, system, simulate, given)
    begin = together(world, lambda: _checked(whole, state))
    alike(
        world,
        lambda: {
            "state": "none" if begin is None else hashlib.sha256(begin.q.tobytes() + begin.u.tobytes()).hexdigest()
        },
    )
    warn_unguarded(world)
    path = None if output is None else Path(output)
    with Signals(signals) as taken, compilation_told(progress and world.rank == 0):
        return Run(whole, settings, world, path, checkpoints, taken, state=begin).finish(progress)


def _checked(system: System, state: tuple[npt.ArrayLike, ...] | None) -> State | None:
    """A state that a caller gives, checked."""
    if state is None:
        return None
    q, u, *others = state
    if any(other is not None for other in others):  # of a `State`
        raise InputError("state: a simulation begins with q and u; forces are those of the system")
    return checked_state("state", system, {"q": q, "u": u})
