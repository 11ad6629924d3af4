"""Ctrl-C and sys.exit: wherever they come from, all ranks end as they say, and files are left whole and free."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import plain_environment
from mpimbs import (
    Batch,
    Checkpoints,
    Dynamics,
    InputError,
    Joint,
    Simulation,
    SimulationError,
    System,
    load,
    simulate,
    system_from,
)
from mpimbs.base.errors import undisturbed
from mpimbs.base.lock import lock_of
from mpimbs.files.output import OutputFile
from mpimbs.run.keeper import Signals
from mpimbs.run.structure_change import RunSegment
from mpimbs.stepping.copies_stepper import CopiesStepper
from mpimbs.stepping.integrator import Integrator
from run.interruptions import disturbed

FROM = 0.05  # s
PLACES = ("torque", "all torques", "body force", "spring", "motion", "event")


@pytest.fixture
def path(comm: MPI.Comm, tmp_path: Path) -> Path:
    return comm.bcast(tmp_path) / "out.h5"


def halting(place: str, raises: type[BaseException]) -> System:
    """A chain, of whose functions one ends the program: on the rank alone that calls it, but for an event's."""

    def value(t: float) -> float:
        if t > FROM:
            raise raises(3) if raises is SystemExit else raises
        return 0.0

    system = System("chain")
    for k in range(6):
        moved = {"motion": lambda t: (t**2 + value(t), 2 * t, 2.0)} if place == "motion" and k == 4 else {"q": 0.3}
        joint = Joint(type="revolute", axis=(0, 0, 1), position=(0, -0.5 * (k > 0), 0), **moved)
        system.add(name=f"link{k}", mass=1, inertia=(1, 1, 1, 0, 0, 0), center_of_mass=(0, -0.2, 0), joint=joint)
    if place == "torque":
        system.set_torque("link5", value)
    elif place == "all torques":
        system.add_joint_force(None, lambda t, q, u: value(t) + 0.0 * u)
    elif place == "body force":
        system.add_body_force("link5", lambda t, motion: ((value(t), 0, 0), (0, 0, 0)))
    elif place == "spring":
        ends = {"bodies": ("world", "link5"), "positions": ((0, 0, 0), (0, 0, 0))}
        first: list[float] = []

        def pull(length: float, rate: float) -> float:
            first.append(length)
            return value(2.0 * FROM * (abs(length - first[0]) > 1e-2))

        system.add_spring(name="s", force=pull, **ends)
    elif place == "event":
        system.add_event(cut="link5", when=lambda t, motion: value(t) - 1.0, bodies=("link5",))
    return system


@pytest.mark.parametrize("raises", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("integrator", ["dopri5", "rosenbrock"])
@pytest.mark.cases(8)
def test_what_halts_a_function_halts_all(
    comm: MPI.Comm, path: Path, place: str, raises: type[BaseException], integrator: str
) -> None:
    """The same on all ranks, with the exit code; the output says so, and can be replaced at once."""
    if place == "motion" and integrator == "rosenbrock":
        integrator = "petsc:2a"
    for _ in range(2):
        with pytest.raises(raises) as end:
            simulate(halting(place, raises), 5.0, comm, output=path, integrator=integrator, every=0.01, force=True)
        told = end.value.code if isinstance(end.value, SystemExit) else str(end.value)
        assert comm.allgather(told) == [told] * comm.size
        assert told == 3 if raises is SystemExit else "was interrupted at t = " in str(told)
        comm.Barrier()
        result = load(path)
        assert result.status.startswith("interrupted at t = ") and 0.0 < result.time < 5.0
        assert len(result.there.t) > 1 and not lock_of(path).exists()
        comm.Barrier()


@pytest.mark.parametrize("name", ["chain:6", "parallelogram"], ids=["in lanes", "in turn"])
@pytest.mark.parametrize("raises", [KeyboardInterrupt, SystemExit])
def test_what_halts_a_copy_halts_all(comm: MPI.Comm, path: Path, name: str, raises: type[BaseException]) -> None:
    """Also behind what its rank has told: the first one is slow, and the last has said that it goes on."""
    raised = list[float]()

    def torque(t: float) -> float:
        if t > FROM and comm.rank == comm.size - 1 and not raised:
            raised.append(t)
            raise raises(3)
        time.sleep(0.002 if comm.rank == 0 and abs(t - FROM) < 0.02 else 0.0)
        return 0.0

    system = system_from(name)
    system.set_torque(system.contents.name_of(1), torque)
    with pytest.raises(raises):
        Batch(system, 2 * comm.size, comm).simulate(5.0, output=path, every=0.02, dt=0.001)
    comm.Barrier()
    result = load(path)
    assert result.status.startswith("interrupted at t = ") and not lock_of(path).exists()
    assert np.isfinite(result.there.q).all(), "none was left behind for it"


def test_an_evaluation_is_halted_on_all_ranks(comm: MPI.Comm) -> None:
    system = halting("torque", KeyboardInterrupt)
    dynamics = Dynamics(system, comm)
    q, u = dynamics.subchain.q, dynamics.subchain.u
    with pytest.raises(KeyboardInterrupt, match=r"the torque function of body 'link5' was interrupted at t = 1 s"):
        dynamics.accelerations(q, u, t=1.0)
    assert np.isfinite(dynamics.accelerations(q, u)).all()


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.ranks(1)
@pytest.mark.parametrize("kind", ["run", "batch"])
def test_a_ctrl_c_leaves_the_output_whole(
    comm: MPI.Comm, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Between steps, while samples are written, while kernels are compiled: it says where it stopped, and of what."""

    def started() -> None:
        if kind == "run":
            simulate("chain:3", 1.0, comm, output=path, every=0.01, force=True)
        else:
            Batch("chain:3", 2, comm).simulate(1.0, output=path, every=0.01, force=True)

    stepper: Any = Integrator if kind == "run" else CopiesStepper
    told = rf"^the simulation has stopped at t = 0\.\d+ s; {path} has its samples$"
    with disturbed(comm, monkeypatch, 6, ctrl_c, stepper), pytest.raises(KeyboardInterrupt, match=told):
        started()
    extend: Any = OutputFile.extend
    monkeypatch.setattr(OutputFile, "extend", lambda *given: (extend(*given), ctrl_c())[0])
    with pytest.raises(KeyboardInterrupt):
        started()
    monkeypatch.setattr(OutputFile, "extend", extend)
    with h5py.File(path) as file:
        assert {len(item) for item in file.values() if isinstance(item, h5py.Dataset)} == {len(file["time"])}
        assert file.attrs["status"].startswith("interrupted at t = ")
    of = RunSegment if kind == "run" else CopiesStepper
    method = "compile" if kind == "run" else "__init__"
    monkeypatch.setattr(of, method, lambda *_: ctrl_c())
    with pytest.raises(KeyboardInterrupt):
        started()
    monkeypatch.undo()
    started()
    assert load(path).status == "complete" and not lock_of(path).exists()


@pytest.mark.ranks(1)
def test_a_ctrl_c_of_the_keyboard(comm: MPI.Comm) -> None:
    """A signal at any moment of a run without output."""
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt, match=r"stopped at t = [\d.e+]+ s; its samples are lost"):
        simulate("chain:3", 1e9, comm, every=1e9)
    timer.join()


def test_undisturbed() -> None:
    passed = []
    with pytest.raises(KeyboardInterrupt), undisturbed():
        ctrl_c()
        passed.append(1)
    assert passed and signal.getsignal(signal.SIGINT) == signal.default_int_handler
    thread = threading.Thread(target=lambda: passed.append(undisturbed().__enter__()))
    thread.start()
    thread.join()
    assert len(passed) == 2


@pytest.mark.ranks(1)
def test_another_simulation_of_this_process(comm: MPI.Comm, path: Path) -> None:
    """It is no process to be waited for, or ended."""
    with Simulation("chain:3", comm, output=path, t_end=1.0), pytest.raises(InputError) as refused:
        simulate("chain:3", 1.0, comm, output=path, force=True)
    assert "by another simulation of this process: close that" in str(refused.value)
    assert load(path).status.startswith("stopped: closed")


def test_folders_change_meanwhile(comm: MPI.Comm, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are relative hold from where they were given."""
    monkeypatch.chdir(path.parent)
    kept = Checkpoints(path="own.checkpoint.h5")
    with Simulation("chain:4", comm, output=path.name, t_end=0.1, checkpoints=kept) as simulation:
        monkeypatch.chdir("/")
        simulation.advance(0.05)
        assert simulation.save() == path.parent / "own.checkpoint.h5"
    assert path.exists() and simulation.result.status.startswith("stopped: closed")
    assert load(path).time == 0.05


@pytest.mark.ranks(1)
def test_a_terminal_that_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGHUP ends as others do, unless the process was started to outlive it; PETSc has no handlers."""
    with Signals(True) as taken:
        signal.raise_signal(signal.SIGHUP)
        assert taken.received == "SIGHUP"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` leaves it
    try:
        with Signals(True) as taken:
            signal.raise_signal(signal.SIGHUP)
            assert not taken.asked()
    finally:
        signal.signal(signal.SIGHUP, before)
    from mpimbs.parallel.petsc import PETSc

    assert PETSc.Options().hasName("no_signal_handler")


def _time_of(t_end: float) -> Any:
    return simulate("chain:2", t_end)


class TestInProcesses:
    """Results that other processes have made, with no word of what they leave behind."""

    pytestmark = pytest.mark.ranks(1)

    @pytest.mark.parametrize("method", ["spawn", "forkserver"])
    @pytest.mark.long
    def test_a_pool(self, method: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        plain = plain_environment()
        for name in os.environ.keys() - plain.keys():  # by which workers would take themselves for ranks of this job
            monkeypatch.delenv(name)
        with multiprocessing.get_context(method).Pool(2) as pool:
            results = pool.map(_time_of, [0.1, 0.2])
        assert [result.time for result in results] == [0.1, 0.2] and "leaked" not in capfd.readouterr().err


def test_modules_are_halted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C while a module of forces is imported is none of its errors."""
    (tmp_path / "of_forces_that_wait.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    from mpimbs.forces.modules import add_forces

    with pytest.raises(KeyboardInterrupt):
        add_forces(system_from("chain:2").contents, "of_forces_that_wait:add")
    sys.modules.pop("of_forces_that_wait", None)


def test_other_errors_stay_what_they_were(comm: MPI.Comm) -> None:
    act: Callable[[float], float] = lambda t: 1.0 / (t < FROM)  # noqa: E731
    system = system_from("chain:3")
    system.set_torque("link2", act)
    with pytest.raises(SimulationError, match="ZeroDivisionError"):
        simulate(system, 1.0, comm)
