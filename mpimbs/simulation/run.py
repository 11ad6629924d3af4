"""A simulation from end to end: integrate, sample, write, watch, summarise."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from scipy.spatial.transform import Rotation

from mpimbs.coupling import LoadSolver, solver_for
from mpimbs.coupling.pcg import ConstraintLoads
from mpimbs.dynamics import Dynamics
from mpimbs.errors import InputError, SimulationError
from mpimbs.model import System
from mpimbs.parallel.agreement import on_root, together
from mpimbs.simulation.constraint_record import ConstraintRecord, SolutionSample
from mpimbs.simulation.integrator import Accuracy, Integrator
from mpimbs.simulation.output import OutputFile, Sample
from mpimbs.simulation.progress import Progress

Floats = npt.NDArray[np.float64]
SAMPLES = 200  # by default
MOST_SAMPLES = 1e8


@dataclass
class Result:
    """Outcome of a simulation: the same on every rank, but for the samples, which rank 0 has.

    Attributes
    ----------
    status : str
        "complete", or why the run stopped.
    time : float
        Simulated time reached (s).
    steps, rejected, evaluations : int
        Steps taken and rejected, evaluations of the state derivative.
    seconds : dict of str to float
        Wall time of this rank by phase (s).
    energy_change : float
        Largest change of the total energy from its first value, over the largest kinetic energy: the drift, where
        nothing drives or damps the system.
    solutions : dict of str to float
        Of the constraint-load equations, where the coupling has them: unknowns, solutions, total_iterations,
        most_iterations, factorizations, and of the samples the largest_residual and largest_condition.
    samples : list of Sample
        On rank 0, where no output file was asked for.
    """

    status: str = "complete"
    time: float = 0.0
    steps: int = 0
    rejected: int = 0
    evaluations: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    energy_change: float = 0.0
    solutions: dict[str, float] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    def statistics(self) -> dict[str, Any]:
        """What the output file keeps of the run."""
        names = ("time", "steps", "rejected", "evaluations", "seconds", "energy_change", "solutions")
        return {name: getattr(self, name) for name in names}

    def summary(self) -> str:
        """A few lines for a person."""
        phases = ", ".join(f"{name} {value:.3g}" for name, value in self.seconds.items())
        text = (
            f"{self.status}: t = {self.time:g} s, {self.steps} steps, {self.rejected} rejected, "
            f"{self.evaluations} evaluations\n"
            f"seconds: {phases}\n"
            f"energy: largest change {self.energy_change:.2e} of the largest kinetic energy"
        )
        if self.solutions:
            s = self.solutions
            text += (
                f"\nconstraint loads: {s['unknowns']} unknowns, {s['total_iterations'] / max(s['solutions'], 1):.2f} "
                f"iterations per evaluation (at most {s['most_iterations']}), {s['factorizations']} factorizations; "
                f"residual up to {s['largest_residual']:.1e}, condition up to {s['largest_condition']:.1e}"
            )
        return text


def simulate(
    system: System,
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
) -> Result:
    """Simulate a system from its initial state; all ranks call together.

    Parameters
    ----------
    system : System
        The same on every rank.
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

    Returns
    -------
    Result

    Raises
    ------
    InputError
        On all ranks, before anything is computed.
    SimulationError
        On all ranks: the run had to stop; the output so far is safe.
    """
    began = time.perf_counter()
    world = MPI.COMM_SELF if comm is None else comm
    accuracy = Accuracy(rtol, atol, dt)
    times = together(world, lambda: _checked_times(t_end, every, accuracy, integrator))
    solver = solver_for(coupling, solver, None if dt else rtol)
    dynamics = Dynamics(system, world, coupling, tip_ratio, lanes, cuts, solver, overlap)
    joined = dynamics.coupling
    constraints = (
        ConstraintRecord(dynamics, joined) if isinstance(joined, ConstraintLoads) and joined.unknowns else None
    )
    separated = None if constraints is None else constraints.separated_loads()
    path = None if output is None else Path(output)
    settings = {
        "t_end": t_end, "coupling": coupling, "integrator": integrator, "rtol": rtol, "atol": atol, "dt": dt,
        "every": float(times[1] - times[0]), "poses": poses, "loads": loads, "ranks": world.size,
        "lanes": dynamics.lanes, "tip_ratio": dynamics.division.tip_ratio, "cuts": dynamics.division.bounds.tolist(),
        "owners": dynamics.division.owners.tolist(), "solver": None if solver is None else solver._asdict(),
        "overlap": overlap,
    }  # fmt: skip
    file = on_root(world, lambda: OutputFile(path, system, settings, poses, loads, force, separated) if path else None)
    ready = time.perf_counter()
    dynamics.compile()
    compiled = time.perf_counter()
    result = Result()
    recorder = _Recorder(dynamics, poses, loads, constraints, file, result)
    stepper = None
    error: SimulationError | None = None
    try:
        stepper = Integrator(dynamics, dynamics.subchain.q, dynamics.subchain.u, integrator, accuracy)
        recorder.record(0.0, dynamics.subchain.q, dynamics.subchain.u, 0.0)
        with Progress(t_end, progress and world.rank == 0) as shown:
            for target in times[1:]:
                while not stepper.step_towards(target):
                    shown.show(stepper.time, stepper.steps)
                shown.show(stepper.time, stepper.steps)
                recorder.record(target, stepper.q, stepper.u, stepper.norm_error)
    except SimulationError as stopped:
        error = stopped
        result.status = f"stopped: {stopped}"
    result.evaluations = dynamics.evaluations
    if constraints is not None:
        result.solutions = {**dynamics.coupling.statistics(), **constraints.largest()}
    if stepper is not None:
        result.time, result.steps, result.rejected = stepper.time, stepper.steps, stepper.rejected
        stepper.close()
    phases = dynamics.seconds()
    rest = time.perf_counter() - compiled - sum(phases.values()) - recorder.seconds
    result.seconds = {
        "set-up": ready - began, "compile": compiled - ready, **phases, "integration": rest, "output": recorder.seconds,
    }  # fmt: skip
    if file is not None:
        file.finish(result.status, result.statistics())
    dynamics.close()
    if error is not None:
        raise error
    return result


def _checked_times(t_end: float, every: float | None, accuracy: Accuracy, integrator: str) -> Floats:
    """Sample times, first 0 and last `t_end`, after a check of all that has to do with time."""
    if not (np.isfinite(t_end) and t_end > 0.0):
        raise InputError(f"the end of the simulation must be a positive time in seconds, got {t_end:g}")
    accuracy.check(integrator)
    if every is None:
        every = t_end / SAMPLES
        if accuracy.dt is not None:
            if t_end / accuracy.dt > 1e15:
                raise InputError(f"--dt {accuracy.dt:g} is too short a step for {t_end:g} s; give a longer one")
            every = accuracy.dt * max(1, round(every / accuracy.dt))
    if not (np.isfinite(every) and every > 0.0):
        raise InputError(f"the time between samples must be a positive time in seconds, got {every:g}")
    if t_end / every > MOST_SAMPLES:
        raise InputError(
            f"the time between samples ({every:g} s) gives more than {MOST_SAMPLES:g} samples in {t_end:g} s; "
            "give a longer --every"
        )
    if accuracy.dt is not None:
        ratio = every / accuracy.dt
        if ratio < 0.5 or abs(ratio - round(ratio)) > 1e-6 * ratio:
            raise InputError(
                f"the time between samples ({every:g} s) must be a multiple of the fixed step ({accuracy.dt:g} s); "
                "change --every or --dt"
            )
    count = int(np.ceil(t_end / every * (1.0 - 1e-9)))
    return np.append(every * np.arange(count), t_end)


class _Recorder:
    """Takes samples of the running system, and keeps them or writes them."""

    def __init__(
        self,
        dynamics: Dynamics,
        poses: bool,
        loads: bool,
        constraints: ConstraintRecord | None,
        file: OutputFile | None,
        result: Result,
    ) -> None:
        self._dynamics = dynamics
        self._constraints = constraints
        self._file = file
        self._result = result
        self._gather_poses = dynamics.gather_bodies(7) if poses else None
        self._gather_loads = dynamics.gather_bodies(6) if loads else None
        self._first_energy: float | None = None
        self._kinetic = 0.0
        self._change = 0.0
        self.seconds = 0.0

    def record(self, t: float, q: Floats, u: Floats, norm_error: float) -> None:
        """Take the sample of time `t` (s); all ranks call with their parts of the state.

        Raises
        ------
        SimulationError
            On all ranks: joint or constraint loads are wanted, and a function of the model failed.
        """
        dynamics = self._dynamics
        evaluating = sum(dynamics.seconds().values())
        began = time.perf_counter()
        energy = dynamics.energy_and_momentum(q, u)[:2]
        total = float(energy.sum())
        if self._first_energy is None:
            self._first_energy = total
        self._kinetic = max(self._kinetic, float(energy[0]))
        self._change = max(self._change, abs(total - self._first_energy))
        self._result.energy_change = self._change / self._kinetic if self._kinetic > 0.0 else 0.0
        violation = dynamics.comm.allreduce(norm_error, MPI.MAX)
        whole_q, whole_u = dynamics.gather_q(q), dynamics.gather_u(u)
        poses = self._poses(q, u) if self._gather_poses is not None else None
        loads = self._loads(t, q, u) if self._gather_loads is not None else None
        solution = self._solution(t, q, u) if self._constraints is not None else None
        if whole_q is not None and whole_u is not None:
            sample = Sample(t, whole_q.copy(), whole_u.copy(), energy, violation, poses, loads, solution)
            if self._file is not None:
                self._file.write(sample)
            else:
                self._result.samples.append(sample)
        evaluating -= sum(dynamics.seconds().values())  # the phases of an evaluation have their own times
        self.seconds += time.perf_counter() - began + evaluating

    def _poses(self, q: Floats, u: Floats) -> Floats | None:
        assert self._gather_poses is not None
        rotations, positions = self._dynamics.poses(q, u)
        quaternions = Rotation.from_matrix(rotations).as_quat()[:, [3, 0, 1, 2]]
        whole = self._gather_poses(np.hstack([positions, quaternions]).ravel())
        return None if whole is None else whole.reshape(-1, 7).copy()

    def _solution(self, t: float, q: Floats, u: Floats) -> SolutionSample | None:
        assert self._constraints is not None
        if self._gather_loads is None:  # which evaluate the sample themselves
            together(self._dynamics.comm, lambda: self._dynamics.accelerations(q, u, t=t))
        return self._constraints.take()

    def _loads(self, t: float, q: Floats, u: Floats) -> Floats | None:
        assert self._gather_loads is not None
        loads = together(self._dynamics.comm, lambda: self._dynamics.joint_loads(q, u, t=t))
        whole = self._gather_loads(loads.ravel())
        return None if whole is None else whole.reshape(-1, 6).copy()
