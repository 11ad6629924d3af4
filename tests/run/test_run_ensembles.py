"""Ensembles: each copy as its own simulation, copies that fail, restarts with the same bits, outputs, refusals."""

import functools
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs
from mpi_helpers import parallel_assert
from mpimbs import Batch, Body, EnsembleResult, InputError, InterruptionError, Joint, System, simulate, system_from
from mpimbs.cli import main
from mpimbs.dynamics.residual import EXACT
from mpimbs.dynamics.side_by_side import SideBySide
from mpimbs.files.sample_writer import SampleWriter
from mpimbs.kernels.lanes import native_width
from mpimbs.run.ensembles import in_lanes
from mpimbs.run.restart import restart
from mpimbs.stepping.copies_stepper import CopiesStepper
from mpimbs.stepping.settings import Checkpoints
from run.interruptions import differing, disturbed
from tolerances import assert_close

COPIES = native_width() + 2
FIXED: dict[str, Any] = {"integrator": "rk4", "dt": 0.01, "every": 0.05}
ADAPTIVE: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6, "every": 0.02}


def ropes() -> System:
    """Four links on balls."""
    system = System("four links")
    joint = Joint(type="spherical", position=(0, -1, 0), q=(0.96, 0.28, 0, 0), damping=0.2)
    link = Body(name="link", mass=1, center_of_mass=(0, -0.5, 0), inertia=(0.1, 0.05, 0.1, 0, 0, 0), joint=joint)
    system.repeat(4, link, parent="world")
    return system


def parameters(copies: int = COPIES) -> dict[str, Any]:
    """Of these links: masses, springs, dampers, initial state, gravity."""
    k = np.arange(copies)
    return {
        "name": [f"rope {number}" for number in k],
        "link2.mass": 1.0 + 0.1 * k,
        "link.stiffness[1]": 2.0 * k,
        "link1.damping[0]": 0.1 * k,
        "u:link3[2]": 0.5 * k,
        "gravity[1]": np.where(k < 4, -9.81, -1.62),
    }


def pushed(k: int, fails: bool = False) -> System:
    """A rope with forces of its own, which may fail after a while."""

    def drag(t: float, q: Any, u: Any) -> Any:
        if fails and t > 0.05:
            raise ValueError("torn")
        return -0.1 * k * u

    system = ropes()
    system.add_joint_force("link2", drag)
    system.add_wrench("link4", force=lambda t: (k * np.sin(9 * t), 0, 0))
    system.add_spring(name="s", bodies=("world", "link4"), positions=((1, 0, 0), (0, 0, 0)), stiffness=5 * k, rest=1)
    return system


def alone(comm: MPI.Comm, batch: Batch, systems: list[System], **settings: Any) -> list[tuple[int, Any]]:
    """Results of this rank's copies, each simulated by itself."""
    return [(k, simulate(systems[k], 0.1, **settings, comm=MPI.COMM_SELF)) for k in range(batch.first, batch.last)]


def spoil(monkeypatch: pytest.MonkeyPatch, after: float) -> None:
    """Let accelerations of the copies with the heaviest second link be wrong from a time (s) on."""
    right: Any = SideBySide.evaluate

    def evaluate(self: SideBySide, t: float, q: Any, u: Any, udot: Any, rates: Any, tau: Any = None) -> None:
        right(self, t, q, u, udot, rates, tau)
        heavy = [system.body(1).mass > 1.55 for system in self.systems]
        if t >= after:
            udot.reshape(self.count, -1)[heavy, -1] += 0.01

    monkeypatch.setattr(SideBySide, "evaluate", evaluate)


NAMES = ("q", "u", "energy", "loads", "power", "tension", "moment")


def whole(comm: MPI.Comm, result: EnsembleResult) -> dict[str, Any]:
    """The motion on all ranks."""
    found = {name: getattr(result, name) for name in NAMES} if comm.rank == 0 else None
    found = found and {name: values for name, values in found.items() if values is not None}
    return comm.bcast(found)


@pytest.mark.parametrize("settings", [FIXED, ADAPTIVE], ids=["fixed", "adaptive"])
@pytest.mark.parametrize("kind", ["parameters", "forces"])
def test_copies_are_as_alone(comm: MPI.Comm, kind: str, settings: dict[str, Any]) -> None:
    """With fixed steps to rounding; with adaptive ones, which others shorten, as well as the tolerance has it."""
    if kind == "forces":
        systems = [pushed(k) for k in range(COPIES)]
        batch = Batch(systems, comm=comm)
    else:
        batch = Batch.of_parameters(ropes(), parameters(), comm)
        systems = list(batch.members.systems)
    result = batch.simulate(0.1, **settings, sample="q,u,load,power")
    found = whole(comm, result)
    assert result.status == "complete" and result.copies == COPIES and not result.failed and len(found) == len(NAMES)
    parallel_assert(result.time == 0.1, "the end", comm)
    tolerance = "runs on ranks" if settings is FIXED else "adaptive steps"
    for k, own in alone(comm, batch, systems, **settings, sample="q,u,load,power"):
        for name, values in found.items():
            assert_close(f"{name} of copy {k}", values[:, k], getattr(own, name), tolerance, comm=MPI.COMM_SELF)
    if settings is FIXED and kind == "parameters" and comm.rank == 0:
        assert_close("a copy", result["rope 3"].q, found["q"][:, 3], "exact", comm=MPI.COMM_SELF)
        assert list(result.parameters) == [name for name in parameters() if name != "name"]


@pytest.mark.parametrize("after", [0.0, 0.07], ids=["at the begin", "later"])
def test_a_copy_that_is_wrong_ends_alone(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, after: float) -> None:
    """By name, at the first sample checked; unless nobody wants to know."""
    batch = Batch.of_parameters(ropes(), parameters(8), comm)
    right = batch.simulate(0.1, **FIXED)
    assert right.witness["checks"] == 2 * 8 and right.witness["copies"] == 8 and not right.failed
    assert 0 < right.witness["motion"][0] < EXACT.motion and right.witness["motion"][1].startswith("rope ")
    assert ", in 16 samples of 8 copies checked" in right.summary()
    spoil(monkeypatch, after)
    wrong = batch.simulate(0.1, **FIXED)
    assert list(wrong.failed) == ["rope 6", "rope 7"] and wrong.status == "complete"
    for when, why in wrong.failed.values():
        assert when == (0.0 if after == 0 else 0.1) and "please report the model. `no_witness=True`" in why
        assert why.startswith("the accelerations found leave ") and " at body 'link4'" in why
    regardless = batch.simulate(0.1, **FIXED, no_witness=True)
    assert not regardless.failed and not regardless.witness and "hold to" not in regardless.summary()
    found, clean = whole(comm, wrong), whole(comm, right)
    assert np.array_equal(found["q"][:, :6], clean["q"][:, :6])


def test_copies_are_checked_in_rotation(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many some at the first and the last sample, others between them for so many evaluations."""
    monkeypatch.setattr(in_lanes, "WHOLE", 2)
    monkeypatch.setattr(in_lanes, "EVALUATIONS", 20 * 8)  # 4 evaluations a step, 5 steps a sample, of 8 copies a rank
    result = Batch.of_parameters(ropes(), parameters(8 * comm.size), comm).simulate(0.2, **FIXED)
    assert result.witness["checks"] == result.witness["copies"] == (2 + 3 + 2) * comm.size


@pytest.mark.parametrize("integrator", ["dopri5", "bs3", "dop853"])
def test_one_copy_takes_the_steps_of_its_own_simulation(integrator: str) -> None:
    """Samples shorten none of them, and are those of the same polynomials."""
    asked = {"tol": 1e-6, "every": 0.001, "integrator": integrator}
    for spec in (ropes(), "chain:5", "spatial_chain:4"):
        own, result = (run(0.3, **asked) for run in (functools.partial(simulate, spec), Batch(spec).simulate))
        checks = own.evaluations - own.witness["checks"]
        assert (result.steps, result.rejected) == (own.steps, own.rejected) and result.steps < 200
        assert result.evaluations == checks
        rounding = 1e-4 if integrator == "dop853" else 1e-9  # in error estimates, which steps of high order live on
        assert result.step_sizes["mean"] == pytest.approx(own.step_sizes["mean"], rel=rounding)
        assert_close("samples", result.q[:, 0], own.q, "adaptive steps", comm=MPI.COMM_SELF)
        assert_close("speeds", result.u[:, 0], own.u, "adaptive steps", comm=MPI.COMM_SELF)


def test_copies_that_fail(comm: MPI.Comm) -> None:
    """One by its function, one from the begin on, as no step suits it; the others are as without them."""
    good = COPIES - 2
    systems = [pushed(k, fails=k == 3) for k in range(COPIES)]
    systems[-1] = pushed(1)
    systems[-1].add_joint_force("link1", lambda t, q, u: -1e40 * (q[1:] + 1e-3))
    result = Batch(systems, comm=comm).simulate(0.1, **ADAPTIVE)
    assert result.status == "complete" and list(result.failed) == ["3", str(COPIES - 1)]
    assert 0.03 < result.failed["3"][0] <= 0.05 and "ValueError('torn')" in result.failed["3"][1]
    assert result.failed[str(COPIES - 1)][0] == 0.0 and "body 'link" in result.failed[str(COPIES - 1)][1]
    assert "copy 3 failed at t = 0.0" in result.summary()
    found = whole(comm, result)
    gone = np.isnan(found["q"]).all(axis=2)
    assert gone[:, 3].tolist() == [False] * 3 + [True] * 3 and gone[:, -1].tolist() == [False] + [True] * 5
    assert not gone[:, [k for k in range(good) if k != 3]].any()
    clean = whole(comm, Batch([pushed(k) for k in range(COPIES)], comm=comm).simulate(0.1, **ADAPTIVE))
    others = [k for k in range(COPIES - 1) if k != 3]
    assert_close("the others", found["q"][:, others], clean["q"][:, others], "adaptive steps", comm=comm)


def test_fixed_steps_that_are_too_long(comm: MPI.Comm) -> None:
    table = {"link.stiffness[0]": np.where(np.arange(COPIES) == 2, 1e7, 1.0)}
    batch = Batch.of_parameters(ropes(), table, comm)
    result = batch.simulate(3.0, dt=0.02, integrator="rk4", every=0.5)
    assert list(result.failed) == ["2"] and result.time == 3.0


@pytest.fixture
def folder(comm: MPI.Comm, tmp_path: Path) -> Path:
    """A folder that all ranks know."""
    return comm.bcast(tmp_path)


def test_an_output_that_is_removed_as_it_ends(comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has done all that it was asked for; who looks at the motion is told."""
    output, original = folder / "gone.h5", SampleWriter.close

    def close(self: SampleWriter, *args: Any) -> None:
        original(self, *args)
        if comm.rank == 0:
            output.unlink()

    monkeypatch.setattr(SampleWriter, "close", close)
    result = Batch("chain:3", COPIES, comm).simulate(0.1, output=output, **FIXED)
    assert result.status == "complete"
    if comm.rank == 0:
        assert len(result.names) == COPIES
        with pytest.raises(InputError, match="there is no such file"):
            result.q  # noqa: B018


WITHIN = {"tol": 1e-6, "integrator": "dop853"}  # many samples in a step
RESTARTED: dict[str, dict[str, Any]] = {
    "adaptive": ADAPTIVE | {"poses": True, "every": 0.01},
    "fixed": FIXED | {"dt": 0.005, "every": 0.01},
    "within steps": WITHIN | {"every": 0.001},
    "within fixed steps": FIXED | {"dt": 0.01, "every": 0.0031},
    "no last stage": FIXED | {"dt": 0.01, "integrator": "bs3", "every": 0.004},
}


@pytest.mark.parametrize("case", RESTARTED)
def test_a_restart_gives_the_same_bits(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """After a signal: the checkpoint is that of the sample before."""
    asked = RESTARTED[case]
    batch = Batch.of_parameters(ropes(), parameters(), comm)
    batch.simulate(0.1, output=folder / "whole.h5", checkpoints=Checkpoints(steps=5), **asked)
    stop = disturbed(comm, monkeypatch, 5, lambda: signal.raise_signal(signal.SIGTERM), CopiesStepper)
    with stop, pytest.raises(InterruptionError, match=r"SIGTERM at t = .*go on with"):
        batch.simulate(0.1, output=folder / "out.h5", signals=True, **asked)
    result = restart(folder / "out.checkpoint.h5", comm)
    assert isinstance(result, EnsembleResult) and len(result.restarts) == 1
    if comm.rank == 0:
        assert not differing(folder / "whole.h5", folder / "out.h5")
    again = restart(folder / "out.checkpoint.h5", comm)
    assert again.status == "complete" and again.time == 0.1


@pytest.mark.parametrize("case", ["adaptive", "within steps"])
def test_a_restart_on_another_number_of_ranks(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Whose copies have come from ranks that were at several times."""
    asked, table = RESTARTED[case], {"link.stiffness[0]": np.geomspace(1.0, 1e3, COPIES)}
    batch = Batch.of_parameters(ropes(), table, comm)
    expected = whole(comm, batch.simulate(0.1, **asked))
    stop = disturbed(comm, monkeypatch, 5, lambda: signal.raise_signal(signal.SIGTERM), CopiesStepper)
    with stop, pytest.raises(InterruptionError):
        batch.simulate(0.1, output=folder / "out.h5", signals=True, **asked)
    if comm.rank == 0:
        result = restart(folder / "out.checkpoint.h5", MPI.COMM_SELF)
        assert result.status == "complete" and not result.failed
        for name in ("q", "u"):
            found = getattr(mpimbs.load(folder / "out.h5"), name)
            assert_close(name, found, expected[name], "adaptive steps", comm=MPI.COMM_SELF)


def test_a_signal_while_others_have_told_nothing(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is heard in the next round: the first rank is slow, and the last, which gets it, has told that it goes on."""

    def slow(t: float, q: Any, u: Any) -> Any:
        time.sleep(0.002 if comm.rank == 0 and t < 0.02 else 0.0)
        return 0.0 * u

    systems = [ropes() for _ in range(COPIES)]
    for system in systems:
        system.add_joint_force("link1", slow)
    batch, asked = Batch(systems, comm=comm), FIXED | {"dt": 0.001}
    with disturbed(comm, monkeypatch, 5, lambda: signal.raise_signal(signal.SIGUSR1), CopiesStepper):
        batch.simulate(0.1, output=folder / "out.h5", signals=True, **asked)
    told = capfd.readouterr().err.count("out.checkpoint.h5\n")
    parallel_assert(told == (comm.rank == 0), f"{told} checkpoints are told of", comm)


def test_restart_with_functions(comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systems = [pushed(k) for k in range(COPIES)]
    stop = disturbed(comm, monkeypatch, 7, lambda: signal.raise_signal(signal.SIGTERM), CopiesStepper)
    with stop, pytest.raises(InterruptionError):
        Batch(systems, comm=comm).simulate(0.1, output=folder / "out.h5", signals=True, **FIXED, force=True)
    with pytest.raises(InputError, match="has forces that are functions"):
        restart(folder / "out.checkpoint.h5", comm)
    with pytest.raises(InputError, match="is of other systems"):
        restart(folder / "out.checkpoint.h5", comm, system=systems[::-1])
    result = restart(folder / "out.checkpoint.h5", comm, system=systems)
    expected = whole(comm, Batch(systems, comm=comm).simulate(0.1, **FIXED))
    if comm.rank == 0:
        assert np.array_equal(mpimbs.load(folder / "out.h5").q, expected["q"])
    assert result.status == "complete"


def test_states_and_samples(comm: MPI.Comm) -> None:
    batch = Batch("chain:3", COPIES, comm)
    q = np.linspace(0, 1, 3 * COPIES).reshape(COPIES, 3)
    result = batch.simulate(0.1, state=(q, np.zeros(3)), sample="q:link2,u,pose:link3", **FIXED)
    if comm.rank == 0:
        assert result.q is not None and result.poses is not None and result.u is not None
        assert result.q.shape == (3, COPIES, 1) and result.poses.shape == (3, COPIES, 1, 7)
        assert np.array_equal(result.q[0, :, 0], q[:, 1]) and np.array_equal(result.u[0], np.zeros((COPIES, 3)))
        assert result[2].body("link2").q.shape == (3, 1)
        assert repr(result[2]) == f"Motion({result.motion.system.name} in memory, copy 2: 3 samples of 0 to 0.1 s)"
    with pytest.raises(InputError, match=r"state: 'q' has shape \(2, 3\).*a row of 3 numbers for each"):
        batch.simulate(0.1, state=(q[:2], np.zeros(3)))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no end": ({"t_end": None}, "`t_end` is missing"),
    "integrator": ({"integrator": "ra34"}, "integrator 'ra34'"),
    "coupling": ({"coupling": "dca"}, "`coupling` is not for ensembles"),
    "misspelt": ({"rtoll": 1.0}, "rtoll"),
    "checkpoints": ({"checkpoints": Checkpoints(steps=3)}, "a checkpoint continues an output file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(comm: MPI.Comm, case: str) -> None:
    settings, words = REFUSED[case]
    with pytest.raises(InputError, match=words):
        Batch("chain:3", COPIES, comm).simulate(**({"t_end": 0.1} | settings))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A table and forces from files; what is written is read, drawn and exported."""
    if MPI.COMM_WORLD.size > 1:
        pytest.skip("one process")
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("name,link1.mass,force:wind\nlight,1,0\nheavy,2,3\n", encoding="utf-8")
    Path("gusts.py").write_text(
        "def blow(system):\n    wind = system.contents.given['wind']\n"
        "    system.add_joint_force('link2', lambda t, q, u: wind * t)\n",
        encoding="utf-8",
    )

    def mpimbs_of(*words: str) -> int:
        with pytest.raises(SystemExit) as end:
            main(list(words), MPI.COMM_SELF)
        return int(str(end.value.code))

    run = ("run", "chain:3", "--parameters", "table.csv", "--t-end", "0.1", "-o", "out.h5")
    assert mpimbs_of(*run, "--forces", "gusts:blow", "--every", "0.05") == 0
    result = mpimbs.load("out.h5")
    assert isinstance(result, EnsembleResult) and result.names == ("light", "heavy") and result.q is not None
    own = system_from("chain:3")
    own.add_joint_force("link2", lambda t, q, u: 0.0)
    assert_close("the light one", result["light"].q, simulate(own, 0.1, every=0.05).q, "adaptive steps")
    assert mpimbs_of("plot", "out.h5", "q:link1", "energy") == 0 and Path("out_q_energy.png").exists()
    assert mpimbs_of("plot", "out.h5") == 2
    assert mpimbs_of("export", "out.h5", "-o", "out.csv") == 0
    head, first, *_ = Path("out.csv").read_text(encoding="utf-8").splitlines()
    assert head == "copy,time,quantity,kind,name,unit,value" and first.startswith("light,0.0,q,")
    assert mpimbs_of("export", "out.h5", "-o", "out.npz") == 0
    with np.load("out.npz") as arrays:
        assert arrays["q"].shape == (3, 2, 3) and arrays["parameter link1.mass"].tolist() == [1.0, 2.0]
    assert mpimbs_of("export", "out.h5", "--copy", "heavy", "q", "-o", "heavy.csv") == 0
    assert mpimbs_of("export", "out.h5", "-o", "out.vtkhdf") == 2
    assert "choose it by --copy" in capsys.readouterr().err
    assert mpimbs_of(*run, "--force", "--pictures") == 2
    assert "--pictures is for" in capsys.readouterr().err
    assert mpimbs_of(*run) == 2
