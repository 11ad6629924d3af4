"""Checkpoints and restarts: the same bits on the same ranks, the same motion on others, bad files by name."""

import errno
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

import mpimbs.base.sizes
from mpimbs.base.errors import InputError, InterruptionError, SimulationError
from mpimbs.base.sizes import PACKAGE
from mpimbs.cli import main
from mpimbs.cli.options import with_forces
from mpimbs.coupling import LoadSolver
from mpimbs.model import System, read_system, system_from, system_text
from mpimbs.model.contents import Contents
from mpimbs.run.keeper import CHECKPOINT, ENDS, STOP, Signals
from mpimbs.run.restart import read_checkpoint, restart
from mpimbs.run.run import simulate
from mpimbs.run.simulation import Simulation
from mpimbs.stepping import stability
from mpimbs.stepping.schemes import GONE_OF_PETSC, PETSC
from mpimbs.stepping.settings import Checkpoints
from oracles.trees import relisted, scrambled
from run.event_systems import varied
from run.interruptions import contents, differing, signalled
from run.motions import tumbler
from tolerances import assert_close

T_END = 0.15
TIGHT = LoadSolver(rtol=1e-12)
ADAPTIVE: dict[str, Any] = {"every": 0.015, "rtol": 1e-10, "atol": 1e-10}  # with some twelve steps
LOOSE: dict[str, Any] = ADAPTIVE | {"rtol": 1e-8, "atol": 1e-8}
PCG: dict[str, Any] = {"coupling": "pcg", "cuts": 3}


@pytest.fixture
def folder(comm: MPI.Comm, tmp_path: Path) -> Path:
    """A folder that all ranks know."""
    return comm.bcast(tmp_path)


CHAIN, ROPE, TREE = "spatial_chain:9", "rope:7", "tree:3:2"


def system_of(spec: str) -> System:
    """A system by its name; or the tree, its bodies not listed depth first."""
    if spec != "scrambled":
        return system_from(spec)
    tree = system_from(TREE)
    return relisted(tree, scrambled(tree.contents.parents()))


FIXED: dict[str, Any] = {"dt": 0.01, "every": 0.02}
WORK = "q,u,power,joint_work"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "adaptive, first stage kept": (ROPE, ADAPTIVE),
    "adaptive, poses, loads": (
        CHAIN,
        ADAPTIVE
        | {
            "integrator": "dop853",
            "rtol": 1e-12,
            "atol": 1e-12,
            "poses": True,
            "loads": True,
            "extremes": True,
            "sample": WORK,
        },
    ),
    "a tree": (TREE, ADAPTIVE | {"rtol": 1e-8, "atol": 1e-8, "poses": True, "loads": True}),
    "a tree that is renumbered": (
        "scrambled",
        ADAPTIVE | {"poses": True, "loads": True, "extremes": True, "sample": WORK},
    ),
    "implicit, adaptive": (
        "rope:9",
        ADAPTIVE | {"sample": WORK, "integrator": "rosenbrock", "rtol": 1e-3, "atol": 1e-3},
    ),
    "implicit, fixed": ("rope:9", FIXED | {"integrator": "rosenbrock2"}),
    "stages by Newton, fixed": ("rope:9", FIXED | {"integrator": "petsc:arkimex3"}),
    "fixed": (CHAIN, FIXED | {"integrator": "petsc:4", "extremes": True}),
    "from a given state": (CHAIN, FIXED | {"state": (np.linspace(-1, 1, 9), np.linspace(2, -2, 9))}),
    "augmented": (CHAIN, LOOSE | {"coupling": "augmented"}),
    "lagged, adaptive": (CHAIN, LOOSE | PCG),
    "second order, fixed": (CHAIN, FIXED | PCG | {"solver": LoadSolver("block-jacobi", "second"), "integrator": "bs3"}),
}
WRITTEN_BY_ALL = (
    "adaptive, poses, loads",
    "lagged, adaptive",
    "a tree",
    "a tree that is renumbered",
)  # each rank its own part of output and checkpoints
# Where PETSc keeps what can't be read, it begins anew at every checkpoint, in the run that goes on too.
FORGETFUL: dict[str, tuple[str, dict[str, Any]]] = {
    "fischer": (CHAIN, LOOSE | PCG | {"solver": LoadSolver(estimate="fischer")})
}
# These begin anew after a restart.
ANEW: dict[str, tuple[str, dict[str, Any]]] = {
    "bdf": (CHAIN, FIXED | {"integrator": "petsc:bdf"}),
    "bdf, adaptive": ("rope:9", ADAPTIVE | {"integrator": "petsc:bdf", "rtol": 1e-3, "atol": 1e-3}),
}


def test_a_restart_of_a_complete_run_gives_its_motion(comm: MPI.Comm, folder: Path) -> None:
    output = folder / "out.h5"
    run = simulate("chain:6", T_END, comm, output=output, checkpoints=Checkpoints(steps=6), **ADAPTIVE)
    again = restart(output, comm)  # its checkpoint stands beside it
    assert replace(again, seconds={}) == replace(run, seconds={})
    if comm.rank == 0:
        assert np.array_equal(again.q, run.q) and np.array_equal(again.body("link2").q, run.body("link2").q)


def test_a_run_that_can_not_begin_leaves_all_that_there_was(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: a run that was to be continued can be."""
    output = folder / "out.h5"
    with signalled(comm, monkeypatch, 8, signal.SIGUSR2), pytest.raises(InterruptionError):
        simulate("chain:6", T_END, comm, output=output, checkpoints=Checkpoints(), signals=True, **ADAPTIVE)
    comm.Barrier()
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    comm.Barrier()

    def full(path: Path, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("mpimbs.files.output.check_room", full)
        with pytest.raises(InputError, match="No space left"):
            simulate("chain:6", 1.0, comm, output=output, checkpoints=Checkpoints(), force=True)
    comm.Barrier()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    comm.Barrier()
    assert restart(output, comm).status == "complete"  # of which there is no more than a part
    comm.Barrier()
    if comm.rank == 0:
        (folder / "out.checkpoint.h5").unlink()
    comm.Barrier()
    with pytest.raises(InputError, match=r"out\.h5: is the output of a run that is complete: nothing is left to do"):
        restart(output, comm)


def interrupt(
    comm: MPI.Comm,
    monkeypatch: pytest.MonkeyPatch,
    output: Path,
    steps: int,
    system: System,
    settings: dict[str, Any],
    checkpoints: Checkpoints | None = None,
) -> Path:
    """End a run by a signal after so many steps, and give its checkpoint."""
    checkpoints = checkpoints or Checkpoints()
    with signalled(comm, monkeypatch, steps, signal.SIGUSR2), pytest.raises(InterruptionError, match="SIGUSR2 at t = "):
        simulate(system, T_END, comm, output=output, checkpoints=checkpoints, signals=True, **settings)
    comm.Barrier()
    assert not output.exists()
    return output.with_name(f"{output.stem}.checkpoint.h5")


@pytest.mark.cases(2)
@pytest.mark.parametrize("case", CASES | FORGETFUL)
def test_a_restart_gives_the_bits_of_a_run_that_was_not_stopped(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A run without any checkpoint, but for those of `FORGETFUL`."""
    least = 1 if case in WRITTEN_BY_ALL else PACKAGE.checkpoint_bytes
    sizes = replace(PACKAGE, slice_numbers=3, checkpoint_bytes=least, sample_bytes=min(least, PACKAGE.sample_bytes))
    monkeypatch.setattr(mpimbs.base.sizes, "_used", sizes)
    monkeypatch.setattr(stability, "FIRST", 20)
    monkeypatch.setattr(stability, "FEWEST", 10)
    spec, settings = (CASES | FORGETFUL)[case]
    system, output, every = system_of(spec), folder / "out.h5", 6
    other = Checkpoints(steps=every) if case in FORGETFUL else None
    whole = simulate(system, T_END, comm, output=folder / "whole.h5", checkpoints=other, **settings)
    checkpoint = interrupt(comm, monkeypatch, output, every, system, settings, Checkpoints(steps=every))
    result = restart(checkpoint, comm)
    comm.Barrier()
    assert not differing(folder / "whole.h5", output)
    assert (result.steps, result.evaluations, result.rejected) == (whole.steps, whole.evaluations, whole.rejected)
    assert result.restarts[0]["ranks"] == comm.size and 0 < result.restarts[0]["time"] < T_END


@pytest.mark.cases(1)
@pytest.mark.parametrize("case", ["stages by Newton, fixed", "implicit, adaptive", *ANEW])
def test_a_run_is_the_same_whenever_checkpoints_are_written(comm: MPI.Comm, folder: Path, case: str) -> None:
    spec, settings = (CASES | ANEW)[case]
    for steps in (1000, 1, 5):
        kept = Checkpoints(steps=steps)
        simulate(spec, T_END, comm, output=folder / f"{steps}.h5", checkpoints=kept, **settings)
    comm.Barrier()
    assert not differing(folder / "1000.h5", folder / "1.h5")
    assert not differing(folder / "1000.h5", folder / "5.h5")


def test_an_integrator_that_begins_anew_says_so(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, settings = ANEW["bdf"]
    whole = simulate(spec, T_END, comm, **settings)
    checkpoint = interrupt(comm, monkeypatch, folder / "out.h5", 6, system_of(spec), settings)
    capsys.readouterr()
    result = restart(checkpoint, comm)
    told = f"mpimbs: note: PETSc keeps more of the steps of {settings['integrator']} than can be read: it begins anew"
    told += " at t = 0.06 s\n"
    assert capsys.readouterr().err == (told if comm.rank == 0 else "")
    if comm.rank == 0:
        assert_close("q", result.q, whole.q, "begun anew")


def test_an_integrator_that_is_no_more_is_named(comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a checkpoint by a version that had it. It once gave a traceback."""
    settings = FIXED | {"integrator": "petsc:euler"}
    checkpoint = interrupt(comm, monkeypatch, folder / "out.h5", 6, system_of(CHAIN), settings)
    monkeypatch.delitem(PETSC, "euler")
    monkeypatch.setitem(GONE_OF_PETSC, "euler", "rk4")
    words = "out.checkpoint.h5: integrator 'petsc:euler' is no more: rk4 is the nearest; use the version that wrote it"
    with pytest.raises(InputError, match=words):
        restart(checkpoint, comm)


@pytest.mark.cases(1)
@pytest.mark.ranks(3, 4)
@pytest.mark.parametrize(
    "coupling",
    ["dcae", "pcg", "dcae of a tree", "dcae of a scrambled tree", "pcg of a scrambled tree", "dcae by Newton"],
)
@pytest.mark.parametrize("settings", [ADAPTIVE, FIXED], ids=["adaptive", "fixed"])
def test_a_restart_on_other_ranks_gives_the_same_motion(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], coupling: str
) -> None:
    """From all ranks to the first one, from that to all, and from all to the first two."""
    system = system_of({"dcae of a tree": TREE, "dcae of a scrambled tree": "scrambled"}.get(coupling, CHAIN))
    system.add_wrench(system.contents.name_of(3), force=(0.0, 3.0, 0.5))
    ends: dict[str, Any] = {
        "bodies": (system.contents.name_of(1), system.contents.name_of(7)),
        "positions": ((0, 0.1, 0), (0.2, 0, 0)),
    }
    system.add_spring(name="tie", stiffness=3.0, damping=0.5, rest=0.4, **ends)
    settings = settings | (PCG | {"solver": TIGHT} if "pcg" in coupling else {})
    settings |= {"integrator": "petsc:arkimex3"} if "Newton" in coupling else {}
    tolerance = "runs" if "Newton" in coupling else "runs on ranks" if coupling == "dcae" else "solved on ranks"
    simulate(system, T_END, comm, output=folder / "whole.h5", **settings)
    first, pair = (comm.Split(0 if comm.rank < count else MPI.UNDEFINED) for count in (1, 2))
    moves = (("fewer.h5", comm, first), ("more.h5", first, comm), ("pair.h5", comm, pair))
    for name, before, after in moves[: 3 if comm.size > 2 else 2]:
        checkpoint = folder / name.replace(".h5", ".checkpoint.h5")
        if before != MPI.COMM_NULL:
            interrupt(before, monkeypatch, folder / name, 6, system, settings)
        comm.Barrier()
        if after != MPI.COMM_NULL:
            restart(checkpoint, after)
        comm.Barrier()
        ours, whole = contents(folder / name), contents(folder / "whole.h5")
        assert np.array_equal(ours["time"], whole["time"])
        assert np.all(whole["work"][1:] != 0)
        for what in ("q", "u", "energy", "work"):
            assert_close(what, ours[what], whole[what], tolerance)
    for part in (first, pair):
        if part != MPI.COMM_NULL:
            part.Free()


def test_functions_of_time_go_on_with_the_system_only(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, output = tumbler(), folder / "out.h5"
    simulate(system, T_END, comm, output=folder / "whole.h5", **ADAPTIVE)
    checkpoint = interrupt(comm, monkeypatch, output, 8, system, ADAPTIVE)
    with pytest.raises(InputError, match=r"functions, which a file does not hold.*mpimbs.restart\(.*system"):
        restart(checkpoint, comm)
    with pytest.raises(InputError, match="is of another system than"):
        restart(checkpoint, comm, system=system_from("chain:4"))
    restart(checkpoint, comm, system=tumbler())
    comm.Barrier()
    assert not differing(folder / "whole.h5", output)


def test_a_checkpoint_behind_an_event_that_its_output_has_not(comm: MPI.Comm, folder: Path) -> None:
    """As after a restart from an older one, that was stopped before the event."""
    system, output = varied(), folder / "out.h5"
    with Simulation(system, comm, output=output, checkpoints=Checkpoints(), t_end=0.5, every=0.25) as simulation:
        for t in (0.05, 0.15):
            simulation.advance(t)
            place = simulation.save()
    kept = read_checkpoint(folder / "out.checkpoint.1.h5", comm)
    Simulation.going_on(kept, system.contents, comm, Checkpoints(path=kept.place)).close()
    with pytest.raises(InputError, match=r"has 1 structure\(s\), the checkpoint comes after 2; .*older checkpoint"):
        restart(place, comm)


def test_forces_of_a_module_are_named_again(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--forces` of a restart; without it, or with others, a run with force functions is not continued."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    if comm.rank == 0:
        for name, strength in (("push_it", 2), ("pull_it", -2)):
            text = f"def {name}(t, q, u):\n    return {strength} - u\n\n\ndef add(system):\n"
            text += "    system.add_wrench(system.contents.name_of(0), force=(1, 2, 3))\n"  # data: the file holds it
            Path(f"{name}.py").write_text(f"{text}    system.add_joint_force(None, {name})\n")
    comm.Barrier()
    output = folder / "out.h5"

    def pushed() -> Contents:
        return with_forces(system_from(CHAIN).contents, ("push_it:add",))

    simulate(pushed(), T_END, comm, output=folder / "whole.h5", **ADAPTIVE)
    checkpoint = interrupt(comm, monkeypatch, output, 8, pushed(), ADAPTIVE)
    for forces, code in ([], 2), (["--forces", "pull_it:add"], 2), (["--forces", "push_it:add"], 0):
        with pytest.raises(SystemExit) as stop:
            main(["restart", str(checkpoint), *forces], comm)
        comm.Barrier()
        assert stop.value.code == code, forces
        said = capsys.readouterr().err
        assert forces or comm.rank or said.endswith(f"go on with: mpimbs restart {checkpoint} --forces push_it:add\n")
    for name in ("push_it", "pull_it"):
        sys.modules.pop(name, None)
    assert not differing(folder / "whole.h5", output)


def test_a_run_that_failed_goes_on_with_the_function_corrected(comm: MPI.Comm, folder: Path) -> None:
    system, output = system_from(CHAIN), folder / "out.h5"

    def fails(t: float) -> float:
        if t > 0.1:
            raise KeyError("no such row")
        return 5.0 * t

    system.set_torque(system.contents.name_of(8), fails)
    with pytest.raises(SimulationError, match="no such row"):
        simulate(system, T_END, comm, output=output, checkpoints=Checkpoints(steps=3), **ADAPTIVE)
    comm.Barrier()
    for name in ("whole.h5", "out.h5"):
        system = system_from(CHAIN)
        system.set_torque(system.contents.name_of(8), lambda t: 5.0 * t)
        if name == "whole.h5":
            simulate(system, T_END, comm, output=folder / name, **ADAPTIVE)
        else:
            restart(folder / "out.checkpoint.h5", comm, system=system)
    comm.Barrier()
    assert not differing(folder / "whole.h5", output)


def test_a_checkpoint_that_cannot_be_written(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run goes on, and those before stay; a run that is to end has none, and says so."""

    def no_room(path: Path, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    system, kept = system_from(CHAIN), Checkpoints(steps=3)
    monkeypatch.setattr("mpimbs.files.checkpoint.check_room", no_room)
    simulate(system, T_END, comm, output=folder / "out.h5", checkpoints=kept, **ADAPTIVE)
    said = capsys.readouterr().err
    reason = "out.checkpoint.h5 could not be written (No space left on device)"
    assert (f"{reason}; the run goes on" in said) == (comm.rank == 0)
    comm.Barrier()
    assert {file.name for file in folder.iterdir()} == {"out.h5"}
    with signalled(comm, monkeypatch, 5, signal.SIGTERM), pytest.raises(SimulationError) as end:
        simulate(system, T_END, comm, output=folder / "out.h5", force=True, signals=True, **ADAPTIVE)
    assert type(end.value) is SimulationError and "SIGTERM at t = " in str(end.value) and reason in str(end.value)


def test_a_second_signal_is_left_to_the_operating_system() -> None:
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        with Signals(True) as taken:
            signal.raise_signal(signal.SIGUSR1)
            assert (taken.asked(), taken.asked()) == (CHECKPOINT, 0)
            signal.raise_signal(signal.SIGUSR2)
            assert (taken.asked(), taken.asked(), taken.received) == (STOP, STOP, "SIGUSR2")
            assert all(signal.getsignal(number) == signal.SIG_DFL for number in ENDS)
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
        with Signals(False):
            assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize(
    ("checkpoints", "output", "message"),
    [
        (Checkpoints(path="none/kept.h5"), "out.h5", r"none/kept\.h5: there is no folder /.*/none;"),
        (Checkpoints(), None, "give `output`"),
    ],
)
def test_settings_that_make_no_sense(
    comm: MPI.Comm, folder: Path, checkpoints: Checkpoints, output: str | None, message: str
) -> None:
    place = None if output is None else folder / output
    with pytest.raises(InputError, match=message):
        simulate(system_from(CHAIN), T_END, comm, output=place, checkpoints=checkpoints)
    assert not list(folder.iterdir())


def test_checkpoints_of_another_run_are_kept_without_force(comm: MPI.Comm, folder: Path) -> None:
    """With it checkpoints are removed, and nothing else that has such a name."""
    left, output = folder / "out.checkpoint.1.h5", folder / "out.h5"
    settings: dict[str, Any] = {"output": output, "checkpoints": Checkpoints(steps=1, keep=1), "dt": 0.005}
    simulate(system_from(CHAIN), 0.01, comm, **settings)
    comm.Barrier()
    if comm.rank == 0:
        (folder / "out.checkpoint.h5").rename(left)
        output.unlink()
    comm.Barrier()
    before = left.read_bytes()
    hint = re.escape(f"go on with that by `mpimbs.restart('{left}', comm)`, ")
    with pytest.raises(InputError, match=rf"out\.checkpoint\.1\.h5: exists.*{hint}.*`force=True`"):
        simulate(system_from(CHAIN), 0.01, comm, **settings)
    assert left.read_bytes() == before and list(folder.iterdir()) == [left]
    comm.Barrier()
    simulate(system_from(CHAIN), 0.01, comm, force=True, **settings)
    comm.Barrier()
    assert {file.name for file in folder.iterdir()} == {"out.h5", "out.checkpoint.h5"}
    comm.Barrier()
    if comm.rank == 0:
        left.write_bytes(b"precious")
    comm.Barrier()
    with pytest.raises(InputError, match=r"out\.checkpoint\.1\.h5: is no checkpoint .*choose another name with"):
        simulate(system_from(CHAIN), 0.01, comm, force=True, **settings)
    assert left.read_bytes() == b"precious"
    comm.Barrier()


BAD_PLACES = {  # of checkpoints, beside out.h5; the system is read from model.toml
    "model.toml": "is an input (model.toml), and would be lost; choose another name with `checkpoints.path`",
    "out.h5": "give checkpoints a name of their own",
    "../{folder}/out.h5.part": "give checkpoints a name of their own",
    "/proc/none.h5": "cannot be written (No such file or directory); choose another place with `checkpoints.path`",
    "older.h5": "older.1.h5: is a named pipe",
}


@pytest.mark.parametrize("place", BAD_PLACES)
def test_places_where_no_checkpoint_can_go(tmp_path: Path, place: str) -> None:
    """Found before the run, with `force` too."""
    (tmp_path / "model.toml").write_text(system_text(system_from(CHAIN)))
    os.mkfifo(tmp_path / "older.1.h5")
    names, text = sorted(tmp_path.iterdir()), (tmp_path / "model.toml").read_bytes()
    kept = Checkpoints(path=tmp_path / place.format(folder=tmp_path.name))
    with pytest.raises(InputError, match=re.escape(BAD_PLACES[place])):
        system = read_system(tmp_path / "model.toml")
        simulate(system, 0.01, output=tmp_path / "out.h5", force=True, checkpoints=kept)
    assert sorted(tmp_path.iterdir()) == names and (tmp_path / "model.toml").read_bytes() == text


def test_a_signal_for_a_checkpoint_lets_the_run_go_on(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, output, before = system_from(CHAIN), folder / "out.h5", signal.getsignal(signal.SIGUSR1)
    with signalled(comm, monkeypatch, 6, signal.SIGUSR1):
        simulate(system, T_END, comm, output=output, checkpoints=Checkpoints(keep=1), signals=True, **ADAPTIVE)
    comm.Barrier()
    assert signal.getsignal(signal.SIGUSR1) is before
    assert {file.name for file in folder.iterdir()} == {"out.h5", "out.checkpoint.h5"}


def test_a_run_that_is_complete_has_nothing_left_to_do(
    comm: MPI.Comm, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a run that was killed between its end and its exit: the file says what there was."""
    output, checkpoint = folder / "out.h5", folder / "out.checkpoint.h5"
    done = simulate(system_from(CHAIN), T_END, comm, output=output, checkpoints=Checkpoints(steps=3), **ADAPTIVE)
    comm.Barrier()
    before = output.read_bytes()
    again = restart(checkpoint, comm)
    assert again.status == "complete"
    assert {**again.statistics(), "seconds": {}} == {**done.statistics(), "seconds": {}}
    capsys.readouterr()
    for options in ([], ["--pictures"]):
        with pytest.raises(SystemExit) as stop:
            main(["restart", str(checkpoint), *options], comm)
        comm.Barrier()
        said = capsys.readouterr()
        assert (stop.value.code, said.err) == (0, "")
        assert comm.rank or said.out.startswith(f"{output}: is complete: nothing is left to do\n")
    assert output.read_bytes() == before
    drawn = {f"out_{name}.png" for name in ("coordinates", "energy", "overview")}  # it has no poses
    assert {file.name for file in folder.glob("*.png")} == drawn


def test_bad_files_are_refused_by_name_and_reason(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, output = system_from(CHAIN), folder / "out.h5"
    last = interrupt(comm, monkeypatch, output, 8, system, ADAPTIVE, Checkpoints(steps=3, keep=3))
    older = [last.with_name(f"out.checkpoint.{age}.h5") for age in (1, 2)]
    assert all(file.exists() for file in older) and not last.with_name("out.checkpoint.3.h5").exists()
    good, part = last.read_bytes(), (folder / "out.h5.part").read_bytes()
    with h5py.File(last) as file:
        place = file["u"].id.get_offset()
    comm.Barrier()

    def refused(data: bytes | None, reason: str, offered: Path | None = older[0], where: Path = last) -> None:
        """With this in the place of a file, a restart says this, and offers an older checkpoint."""
        if comm.rank == 0:
            where.unlink()
            if data is not None:
                where.write_bytes(data)
        comm.Barrier()
        with pytest.raises(InputError) as error:
            restart(last, comm)
        message = str(error.value)
        assert message.startswith(f"{where}: ") and reason in message
        call = f"mpimbs.restart('{offered}', comm)"
        assert (call in message) if offered else "mpimbs.restart" not in message, message
        comm.Barrier()

    if comm.rank == 0:
        (folder / "before.h5").write_bytes(good)
        with h5py.File(folder / "before.h5", "r+") as file:
            file.attrs["format"] = "mpimbs checkpoint 4"
    comm.Barrier()
    refused((folder / "before.h5").read_bytes(), "has the format 'mpimbs checkpoint 4', and this version reads")
    flipped = bytes(byte ^ (1 if k == place + 3 else 0) for k, byte in enumerate(good))
    refused(flipped, "is damaged: its contents don't have their checksum")
    refused(good[: len(good) // 2], "is truncated or damaged")
    refused(b"", "is no checkpoint (not HDF5): it is empty")
    refused(b"something else", "is no checkpoint (not HDF5)")
    refused(part, "is the output of a run")
    refused(None, "there is no such file")
    if comm.rank == 0:
        older[0].write_bytes(flipped)
    if comm.rank == 0:
        last.write_bytes(b"")  # for `refused` to remove
    refused(flipped, "is damaged", older[1])
    if comm.rank == 0:
        last.write_bytes(good)
    unfinished = folder / "out.h5.part"
    simulate(system, 0.05, comm, output=folder / "other.h5", **ADAPTIVE)
    comm.Barrier()
    refused((folder / "other.h5").read_bytes(), "is the output of another run", None, unfinished)
    refused(part[:-100000], "can't be continued", None, unfinished)
    refused(None, "there is no such file: the samples before the checkpoint are missing", None, unfinished)
