"""A simulation in one's hand: advanced by steps or to times, looked at and driven between them."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arguments import check_kinds, doubles
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError, SimulationError, not_copied
from mpimbs.base.places import absolute_path, check_new, replacing
from mpimbs.base.settings import takes
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.quantities import CALLED, PER_BODY
from mpimbs.files.checkpoint import Kept
from mpimbs.files.motion import Sampled
from mpimbs.model import ModelLike
from mpimbs.model.contents import Contents
from mpimbs.model.text.table import suggest
from mpimbs.parallel.agreement import alike, communicator, on_root, same_system, together, warn_unguarded
from mpimbs.run.course import Wanted
from mpimbs.run.keeper import Signals
from mpimbs.run.result import Result
from mpimbs.run.run_course import Run
from mpimbs.run.state import MOVING, State, checked_state, last_state, read_state, state_given
from mpimbs.stepping.march import TOGETHER
from mpimbs.stepping.settings import NEVER, Checkpoints, SimulationSettings


class Simulation:
    """A simulation that goes on as far as it is told; all ranks make it together and call its methods together.

    What it gives is that of the whole system, in the model's order, on every rank; what it is given has to be the same
    on every rank. A context manager: at the end of the block its output is complete.

    Parameters
    ----------
    system, comm, output, checkpoints, signals, state, settings, **given
        See `simulate`. Without `t_end` there is no end, and samples come only where `every` says so.

    Raises
    ------
    InputError, SimulationError, InterruptionError
        As `simulate`; after the last two the simulation is closed.

    Examples
    --------
    >>> with Simulation("chain:3", every=0.01) as simulation:
    ...     result = simulation.run(until=2.0)
    >>> with Simulation("chain:3", dt=1e-4) as simulation:
    ...     for k in range(1, 1001):
    ...         q, u, *_ = simulation.state
    ...         simulation.set_torque("link1", -20.0 * q[0] - 2.0 * u[0])
    ...         simulation.advance(k * 1e-3)
    """

    ends = False  # whether it needs a `t_end`

    @takes(SimulationSettings)
    def __init__(
        self,
        system: ModelLike,
        comm: MPI.Comm | None = None,
        *,
        output: str | Path | None = None,
        checkpoints: Checkpoints | None = None,
        signals: bool = False,
        state: tuple[npt.ArrayLike | None, ...] | str | Path | Sampled | None = None,
        settings: SimulationSettings | None = None,
        **given: Any,
    ) -> None:
        world = communicator(comm)
        others = {"output": output, "checkpoints": checkpoints, "signals": signals}

        def asked(whole: Contents) -> tuple[tuple[SimulationSettings, State | None], dict[str, str | bytes]]:
            check_kinds(Simulation.__init__, others)
            found = SimulationSettings.asked(given, settings).suited(whole)
            if self.ends and found.t_end is None:
                raise InputError("`t_end` is missing: simulated time")
            if output is not None and found.t_end is None and found.every is None:
                raise InputError("an output without an end has no samples: give the time between them with `every`")
            if checkpoints is not None:
                checkpoints.checked()
            begin = _checked(whole, state)
            told = "none" if begin is None else hashlib.sha256(begin.q.tobytes() + begin.u.tobytes()).hexdigest()
            return (found, begin), {**found.described(), **{n: str(v) for n, v in others.items()}, "state": told}

        whole, (found, begin) = same_system(world, system, asked)
        warn_unguarded(world)
        path = None if output is None else together(world, lambda: absolute_path(output))
        self._start(world, whole, Wanted(found, path, checkpoints, Signals(signals)), begin)

    @classmethod
    def going_on(
        cls, kept: Kept, system: Contents, comm: MPI.Comm, checkpoints: Checkpoints, signals: bool = False
    ) -> Self:
        """Go on from a checkpoint of a system, into its output; see `restart`."""
        simulation = cls.__new__(cls)
        settings = SimulationSettings.of(kept.header["settings"])
        simulation._start(comm, system, Wanted(settings, kept.output, checkpoints, Signals(signals), kept), None)
        return simulation

    def _start(self, comm: MPI.Comm, system: Contents, wanted: Wanted, state: State | None) -> None:
        self._comm, self._settings = comm, wanted.settings
        self._end_time = NEVER if self._settings.t_end is None else self._settings.t_end  # s
        self._known: tuple[Dynamics | None, dict[str, slice]] = (None, {})  # where speeds of joints stand
        with contextlib.ExitStack() as after_error:
            after_error.enter_context(wanted.signals)
            self._run = Run(system, comm, wanted, state)
            self._open = after_error.pop_all()
        self._try(self._run.go_on, self._run.begin)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._break(error)

    def __reduce__(self) -> NoReturn:
        not_copied("Simulation", "give its `result`, or its `state`")

    def __repr__(self) -> str:
        outcome = self._run.outcome
        how = f"t = {self.time:g} s" if outcome is None else outcome.status
        return f"Simulation({self.system.name}: {how})"

    @property
    def system(self) -> Contents:
        """The system as it holds together now."""
        return self._run.dynamics.system

    @property
    def time(self) -> float:
        """Time reached (s)."""
        outcome = self._run.outcome
        return self._run.time if outcome is None else outcome.time

    @property
    def state(self) -> State:
        """Coordinates q [nq] and speeds u [nu] now; rad, m, quaternions w x y z, rad/s, m/s."""
        run = self._going()
        q, u = run.stepper.parts
        if run.whole:
            return State(q, u)
        dynamics = run.dynamics
        return State(dynamics.gather_q.everywhere(q), dynamics.gather_u.everywhere(u))

    @property
    def torque(self) -> Floats:
        """The forces that `set_torque` has set [nu]; N m, N."""
        held = self._run.held
        return np.zeros(self.system.nu) if held is None else held.copy()

    def set_torque(self, joint: str | npt.ArrayLike, torque: npt.ArrayLike | None = None) -> None:
        """Let forces act on joints, on top of the model's, from now on until they are changed.

        Through a change of structure they are kept, but for those of joints that are cut.

        Parameters
        ----------
        joint : str or array [nu]
            Name of the body whose inboard joint is driven; or the forces of all joints, in the model's order.
        torque : float or array, optional
            For each speed of that joint: N m, or N along a translation.

        Raises
        ------
        InputError
            There is no such body, its joint can't move, or the numbers are too many, too few or not finite.
        """
        run = self._going()
        if isinstance(joint, str):
            where = self._numbers(run, joint)
            if isinstance(torque, float) and where.stop - where.start == 1 and math.isfinite(torque):
                run.hold(where, torque)  # the common case: an array of one number costs more than the rest
                return
            own = doubles(f"the torque of joint {joint!r}", np.array(torque, ndmin=1), where.stop - where.start)
        else:
            where, own = slice(0, None), doubles("the torque", joint, run.dynamics.system.nu)
        run.hold(where, own)

    def _numbers(self, run: Run, joint: str) -> slice:
        """Where the speeds of a joint stand among all."""
        dynamics, known = self._known
        if dynamics is not run.dynamics:
            known = {}
            self._known = run.dynamics, known
        if joint not in known:
            k = self.system.index_of(joint)
            lo, hi = self.system.offsets_of((k, k + 1))[1].tolist()
            if lo == hi:
                raise InputError(f"the joint of body {joint!r} is fixed: no torque can drive it")
            known[joint] = slice(lo, hi)
        return known[joint]

    def poses(self, *bodies: str) -> Floats:
        """Give position (m) and quaternion w x y z of bodies in the world [n, 7]: of those named, or of all."""
        return self.quantity("poses", *bodies)

    def loads(self, *bodies: str) -> Floats:
        """Give the loads on bodies through their inboard joints [n, 6]: of those named, or of all.

        As of `Dynamics.joint_loads`: moment (N m), then force (N), in body frame components; one more evaluation.
        """
        return self.quantity("loads", *bodies)

    def quantity(self, name: str, *bodies: str) -> Floats:
        """Give what a sample of now would have of a quantity, by any of its names, such as `power` or `energy`.

        Of those of bodies rows of the ones named, or of all; whether samples have it or not. All ranks call.

        Raises
        ------
        InputError
            There is no such quantity or body, or the system has none of it.
        """
        run, found = self._going(), CALLED.get(name)
        if found is None or (bodies and found.of != PER_BODY):
            what = "is not of bodies" if found else f"unknown{suggest(name, CALLED)}"
            raise InputError(f"quantity {name!r}: {what}")
        whole = run.quantity(found)
        return whole[[self.system.index_of(body) for body in bodies]] if bodies else whole

    def advance(self, t: float) -> None:
        """Simulate to a time (s); the last step before it is shortened so that it is hit.

        Raises
        ------
        InputError
            It lies before the time reached, or behind `t_end`; or ranks were given different times.
        SimulationError, InterruptionError
            As `simulate`; the simulation is closed then.
        """
        run = self._going()
        alike(self._comm, lambda: {"t": float(t)})
        if not run.stepper.time * (1.0 - TOGETHER) <= t <= self._end_time:
            raise InputError(f"t = {t} s can't be reached from t = {self.time:g} s{self._until}; give a time between")
        self._try(run.go_on, run.advance, t)

    def run(self, until: float | None = None) -> Result:
        """Simulate to a time (s), `t_end` by default; give what is known then. It may go on. Raises as `advance`."""
        self.advance(self._end_time if until is None else until)
        return self.result

    def step(self) -> float:
        """Take one step of the integrator, not beyond the next event or the end; gives the time reached (s).

        An integrator of PETSc's goes not beyond the next sample either.

        Raises as `advance`.
        """
        run = self._going()
        if run.ended:
            raise InputError(f"t_end = {self._end_time:g} s is reached: there is no further step")
        self._try(run.go_on, run.step)
        return run.stepper.time

    def finish(self, progress: bool = False) -> Result:
        """Simulate to `t_end`, close, and give the result; `progress` shows it on rank 0. Raises as `advance`."""
        run = self._going()
        if self._end_time == NEVER:
            raise InputError("there is no end to simulate to: make the simulation with t_end, or use `advance`")
        self._try(run.go_on, run.to_end, progress)
        return self.close()

    def _try(self, action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except BaseException as error:
            self._break(error)
            raise

    def _break(self, error: BaseException) -> None:
        """End what an error has stopped, which may be a Ctrl-C: with its output, if all ranks know of it."""
        with self._open:
            self._run.broken(error, ", or take steps with `Simulation`")

    def save(self, path: str | Path | None = None) -> Path:
        """Write the state now: q and u to an .npz file, for `--state`; or without a path a checkpoint, for `restart`.

        Returns
        -------
        Path
            What was written.

        Raises
        ------
        InputError
            On all ranks: the file exists (without `force`) or can't be written; or there are no checkpoints.
        SimulationError
            On all ranks: the checkpoint can't be written.
        """
        run = self._going()
        if path is None:
            if run.files.place is None:
                raise InputError(
                    "a checkpoint continues an output: make the simulation with `output` and `checkpoints`; or give "
                    "the name of an .npz file for the state alone"
                )
            reason = run.save()
            if reason is not None:
                raise SimulationError(f"the checkpoint {run.files.place} could not be written ({reason})")
            return run.files.place
        place, (q, u, *_) = Path(path), self.state

        def write() -> None:
            if place.suffix != ".npz":
                raise InputError(f"{place}: a state is an .npz file; give a name that ends with .npz")
            check_new(place, self._settings.force, "path")
            with replacing(place) as fresh, fresh.open("wb") as file:
                np.savez(file, q=q, u=u)

        on_root(self._comm, write)
        return place

    @property
    def result(self) -> Result:
        """The result so far, or in the end; all ranks look together. Its motion is that of the samples."""
        return self._run.outcome or self._run.result("running")

    def close(self) -> Result:
        """End the simulation, complete its output, and give the result; once closed, only that."""
        outcome = self._run.outcome
        if outcome is None:
            run = self._run
            early = self._settings.t_end is not None and not run.ended
            outcome = self._end(f"stopped: closed at t = {self.time:g} s{self._until}" if early else "complete")
        return outcome

    def _end(self, status: str) -> Result:
        with self._open:
            return self._run.end(status=status)

    def _going(self) -> Run:
        if self._run.outcome is not None:
            raise InputError("the simulation is closed: look at its `result`, or make another one")
        return self._run

    @property
    def _until(self) -> str:
        return "" if self._settings.t_end is None else f" of t_end = {self._settings.t_end:g} s"


def _checked(system: Contents, state: tuple[npt.ArrayLike | None, ...] | str | Path | Sampled | None) -> State | None:
    """A state that a caller gives, checked."""
    if state is None:
        return None
    if isinstance(state, Sampled):
        return last_state(state, system)
    if isinstance(state, str | PathLike):
        return read_state(Path(state), system, MOVING)
    q, u = state_given(state)
    return checked_state("state", system, {"q": q, "u": u})
