"""The command line on all ranks of this job: one message on rank 0 for bad input, and what good input gives."""

import importlib
import json
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from matplotlib import image
from mpi4py import MPI

import mpimbs.cli
import mpimbs.model
import mpimbs.run.state
from commands import Ended, run_command
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.kernels.lanes import native_width
from mpimbs.model import System, read_system, write_system
from mpimbs.run.progress import LISTENER
from mpimbs.run.state import read_state
from oracles.dense import dense_accelerations, joint_wrenches, kinematics, mass_matrix
from oracles.dense import inverse_dynamics as dense_inverse
from oracles.loops import allowed_speeds, position_violation
from tolerances import assert_close

# Four bodies, so that there is one for each of four ranks; every value that a case replaces stands here once.
MODEL = """
name = "four"
gravity = [0.5, -9.81, 0.0]

[[body]]
name = "one"
mass = 1.5
inertia = [1, 2, 2.5, 0.1, 0, 0]
joint = { type = "free", u = [0.1, 0.2, 0.3, 1, 2, 3] }

[[body]]
name = "two"
parent = "one"
mass = 2.5
center_of_mass = [0, -1, 0]
inertia = [1.5, 1.25, 1, 0, 0, 0]
[body.joint]
type = "revolute"
axis = [0, 1, 1]
position = [0, -2, 0]
rotation = [0.6, 0.8, 0, 0]
damping = 0.125
stiffness = 3.5

[[body]]
name = "three"
parent = "two"
mass = 0.5
inertia = [1, 1, 1, 0, 0, 0]
joint = { type = "spherical", position = [0, -2, 0], q = [0.8, 0, 0.6, 0] }
[[body.wrench]]
force = [1, 2, 3]
frame = "world"

[[body]]
name = "four"
parent = "three"
mass = 0.25
inertia = [1, 1, 1, 0, 0, 0]
joint = { type = "universal", position = [0, -2, 0] }
wrench = { moment = [0, 1, 0], force = [0, 0, 2], point = [0, 1, 0] }
"""
LOOP = """
[[loop]]
name = "closure"
type = "spherical"
bodies = ["world", "four"]
positions = [[0, 0, 0], [0, 1, 0]]
"""
STANDING = """
gravity = [0, 0, -9.81]
body = [{ name = "arm", mass = 1, inertia = [1, 1, 1, 0, 0, 0], joint = { type = "revolute" } }]
[[repeat]]
count = 7
name = "link"
mass = 1
inertia = [1, 1, 1, 0, 0, 0]
joint = { type = "revolute", position = [1, 0, 0] }
"""
TREE = MODEL.replace('parent = "three"', 'parent = "two"')
SCRAMBLED = TREE.replace('parent = "two"', 'parent = "one"', 1)  # its bodies are not listed depth first
NU, NQ = 12, 14


@pytest.fixture
def folder(comm: MPI.Comm, tmp_path: Path) -> Path:
    """A folder that all ranks know, with the model in it."""
    path = comm.bcast(tmp_path)
    if comm.rank == 0:
        (path / "model.toml").write_text(MODEL)
    comm.Barrier()
    return path


@pytest.fixture
def call(comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Ended]]:
    """Runs a command on all ranks; `@` is the folder."""
    monkeypatch.setattr(LISTENER, "said", True)  # whether anything is left to compile depends on the tests before

    def run(command: str) -> Ended:
        found = run_command(command, folder, comm)
        comm.Barrier()
        return found

    yield run
    comm.Barrier()  # before rank 0 removes the folder


def put(comm: MPI.Comm, path: Path, content: str | bytes | None) -> None:
    """Write a file (None: make a folder) on rank 0; all ranks call."""
    if comm.rank == 0:
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    comm.Barrier()


def refuses(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, command: str, *words: str) -> None:
    """A command ends with code 2 and one message that has the words, and leaves nothing behind."""
    before = {file: file.read_bytes() if file.is_file() else b"" for file in folder.iterdir()}
    comm.Barrier()
    found = call(command)
    after = {file: file.read_bytes() if file.is_file() else b"" for file in folder.iterdir()}
    lines = found.err.splitlines()
    good = (
        len(lines) == 1
        and lines[0].startswith("mpimbs: ")
        and all(w.replace("@", str(folder)) in lines[0] for w in words)
    )
    parallel_assert(found.code == 2, f"{command}: exit code {found.code}\n{found.err}", comm)
    parallel_assert(good if comm.rank == 0 else not lines, f"{command}: the message is\n{found.err}\nnot {words}", comm)
    parallel_assert(found.out == "", f"{command}: prints {found.out}", comm)
    parallel_assert(before == after, f"{command}: files were {sorted(before)}, are {sorted(after)}", comm)


AT_TWO = "[[body]] 2 'two'"
BAD_MODELS: dict[str, tuple[str, str, tuple[str, ...]]] = {  # text, what takes its place, words of the message
    "mass": ("mass = 2.5", "mass = 0", (AT_TWO, "mass must be positive, got 0; give the mass in kg")),
    "negative mass": ("mass = 2.5", "mass = -1", (AT_TWO, "mass must be positive, got -1")),
    "inertia": ("[1.5, 1.25, 1, 0, 0, 0]", "[1, 1, 1, 2, 0, 0]", (AT_TWO, "semidefinite", "give xx yy zz")),
    "triangle": ("[1.5, 1.25, 1, 0, 0, 0]", "[1, 1, 3, 0, 0, 0]", (AT_TWO, "inertia is of no rigid body", "check the")),
    "axis": ("[0, 1, 1]", "[0, 0, 0]", (AT_TWO, "joint: axis must not be zero", "give a direction")),
    "quaternion": ("[0.6, 0.8, 0, 0]", "[0.6, 0.8, 0.1, 0]", (AT_TWO, "rotation must be a unit quaternion", "write [")),
    "nan": ("mass = 2.5", "mass = nan", (AT_TWO, "mass must be a finite number, got nan")),
    "infinity": ("[0, -2, 0]\nrotation", "[0, -inf, 0]\nrotation", (AT_TWO, "position must be a finite", "got -inf")),
    "key": ("damping", "dampnig", (AT_TWO, "unknown key 'dampnig'; did you mean 'damping' or ")),
    "top key": ("gravity", "gravty", ("@/model.toml:3: ", "unknown key 'gravty'; did you mean 'gravity'?")),
    "angle": ("damping = 0.125", "q = 1e300", (AT_TWO, "joint: q must be at most 1e+09 rad, got 1e+300")),
    "negative damping": ("damping = 0.125", "damping = -1", (AT_TWO, "damping must not be negative", "give 0")),
    "parent": ('parent = "one"', 'parent = "oone"', (AT_TWO, "parent 'oone' is neither", "did you mean 'one'?")),
    "circle": ('parent = "one"', 'parent = "three"', (AT_TWO, "lies on itself, by way of 'three'; put one")),
    "name": ('name = "three"\nparent = "two"', 'name = "two"\nparent = "one"',
             ("[[body]] 3 'two': the name is taken by a body above", "give each body its own")),
    "twice": ('name = "three"\nparent = "two"', 'name = "two"\nparent = "world"',
              ("[[body]] 3 'two' is connected twice: to 'one' and to 'world'", "[[loop]]")),
    "no inertia": ("mass = 0.25\ninertia = [1, 1, 1, 0, 0, 0]", "mass = 0\ninertia = [0, 0, 0, 0, 0, 0]",
                   ("@/model.toml: system 'four'", "joint of body 'four'", "no inertia", "give it mass")),
    "truncated": ("inertia = [1.5, 1.25, 1, 0, 0, 0]", "inertia = [1.5, 1.25",
                  ("@/model.toml: is not valid TOML", "line")),
    "half a file": (MODEL[MODEL.index("[body.joint]") + 9 :], "", ("@/model.toml: is not valid TOML", "complete")),
    "empty": (MODEL, "", ("@/model.toml: system 'system': has no bodies; add at least one")),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_MODELS)
def test_a_bad_model(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, case: str) -> None:
    old, new, words = BAD_MODELS[case]
    assert MODEL.count(old) == 1
    put(comm, folder / "model.toml", MODEL.replace(old, new))
    refuses(comm, call, folder, "check @/model.toml", *words)
    refuses(comm, call, folder, "run @/model.toml --t-end 1 -o @/out.h5", *words)


BAD_FILES: dict[str, tuple[str | bytes | None, tuple[str, ...]]] = {
    "folder": (None, ("@/bad.toml: is a folder; name the file in it",)),
    "latin-1": ("name = 'Gr\u00f6\u00dfe'".encode("latin-1"), ("@/bad.toml: is not UTF-8 text (byte 10); save",)),
    "binary": (b"\x89HDF\r\n\x1a\n\x00\xff", ("@/bad.toml: is not UTF-8 text (byte 0)",)),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_an_unreadable_model(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, case: str) -> None:
    content, words = BAD_FILES[case]
    put(comm, folder / "bad.toml", content)
    for command in ("check @/bad.toml", "bench @/bad.toml", "acceleration @/bad.toml -o @/out.npz"):
        refuses(comm, call, folder, command, *words)


RUN = "run @/model.toml -o @/out.h5 --t-end 1"
BAD_COMMANDS: dict[str, tuple[str, ...]] = {  # command, words of the message
    f"{RUN} --coupling pcg,cuts=4": ("4 cuts in a chain of 4 bodies: give --coupling cuts from 0 to 3",),
    f"{RUN} --coupling cuts=-1": ("-1 cuts", "give --coupling cuts from 0 to 3"),
    f"{RUN} --coupling estimate=zero,most=9": ("has no solver to set: leave out --coupling estimate, --coupling most",),
    f"{RUN} --coupling pcg,penalty=3": ("'pcg' has no multipliers to find: leave out --coupling penalty, or choose",),
    f"{RUN} --dt 1e-300 --every 0.1": ("--dt 1e-300 is too short a step for 1 s",),
    f"{RUN} --coupling pcg,preconditioner=ilu": ("unknown preconditioner 'ilu'; choose one of: jacobi",),
    f"{RUN} --coupling pcg,rtol=2": ("the constraint loads must be between 0 and 1, got --coupling rtol=2",),
    "check @/modle.toml": ("@/modle.toml: there is no such file; did you mean 'model.toml'?",),
    "check chian:4": ("'chian:4'", "did you mean 'chain'",),
    f"check {'x' * 300}": ("is neither a file nor a generator",),
    "check chain:0": ("'chain:0'", "write chain:N",),
    "check tree:9:9:9": ("write tree:DEPTH:BRANCHING",),
    "walk chain:4": ("No such command 'walk'", "see mpimbs --help"),
    "check": ("Missing argument 'MODEL'; see mpimbs check --help",),
    "check chain:4 --ranks 5": ("5 ranks for 4 bodies", "start at most 4",),
    "check figure --ranks 16": ("16 ranks for 15 bodies", "start at most 15",),
    "check figure --ranks 0": ("--ranks", "see mpimbs check --help",),
    "check chain:4 --colour": ("No such option", "--colour", "see mpimbs check --help"),
    "run chain:4 -o @/out.h5": ("Missing option '--t-end'",),
    "run chain:4 --t-end 1": ("Missing option '-o'",),
    "run chain:4 -o @/out.h5 --t-end soon": ("'--t-end': 'soon' is not a valid float",),
    f"{RUN} --coupling dcea": ("unknown coupling 'dcea'; choose one of: dcae, pcg, dca, dca-terminal, assembly, aug",),
    f"{RUN} --integrator rk45": ("unknown integrator 'rk45'; choose one of: rk4",),
    f"{RUN} --integrator euler": ("'euler' has no error estimate: give a fixed step with --dt, or choose one of bs3",),
    f"{RUN} --integrator petsc:glee-35": ("integrator 'petsc:glee-35' is no more: bs3 is the nearest",),
    "run @/model.toml -o @/out.h5 --t-end 0": ("end of the simulation must be a positive time", "got --t-end 0"),
    "run @/model.toml -o @/out.h5 --t-end -1": ("positive time", "got --t-end -1"),
    "run @/model.toml -o @/out.h5 --t-end nan": ("positive time", "got --t-end nan"),
    "run @/model.toml -o @/out.h5 --t-end inf": ("positive time", "got --t-end inf"),
    f"{RUN} --every 0": ("time between samples must be a positive time", "got --every 0"),
    f"{RUN} --every -0.1": ("time between samples must be a positive time", "got --every -0.1"),
    f"{RUN} --every nan": ("time between samples",),
    f"{RUN} --every 1e-300": ("time between samples",),
    f"{RUN} --dt 0": ("fixed step must be a positive time", "got --dt 0"),
    f"{RUN} --dt -1e-3": ("fixed step must be a positive time", "--dt -0.001"),
    f"{RUN} --dt nan": ("fixed step must be a positive time", "--dt nan"),
    f"{RUN} --dt 1e-320": ("--dt",),
    f"{RUN} --integrator petsc:bdf --dt 0.01 --every 0.025": (
        "(0.025 s) must be a multiple of the fixed step (0.01 s); change --every or --dt",
    ),
    f"{RUN} --dt 0.01 --rtol 1e-6": ("--rtol is for adaptive steps, --dt fixes them",),
    f"{RUN} --dt 0.01 --atol 1e-8": ("--atol is for adaptive steps, --dt fixes them",),
    f"{RUN} --integrator petsc:bdf --dt 0.01 --every 0.001": ("must be a multiple of the fixed step",),
    f"{RUN} --rtol 0": ("relative tolerance must be between 0 and 1, got --rtol 0",),
    f"{RUN} --rtol 1": ("relative tolerance must be between 0 and 1, got --rtol 1",),
    f"{RUN} --rtol nan": ("relative tolerance must be between 0 and 1, got --rtol nan",),
    f"{RUN} --atol -1e-8": ("absolute tolerance must be positive and finite, got --atol -1e-08",),
    f"{RUN} --coupling tip_ratio=0": ("tip ratio must be a positive number, got 0",),
    "run @/model.toml --t-end 1 -o @/none/out.h5": ("@/none/out.h5: there is no folder @/none; make it first",),
    "run @/model.toml --t-end 1 -o @/model.toml/out.h5": ("@/model.toml/out.h5: there is no folder @/model.toml",),
    "run @/model.toml --t-end 1 -o @": ("@: is a folder; give the name of a file with -o",),
    "run @/model.toml --t-end 1 -o .": (f"{Path.cwd()}: is a folder; give the name of a file with -o",),
    "run @/model.toml --t-end 1 -o . --pictures": (".: is a folder; give the name of a file with -o",),
    f"{RUN} --checkpoint .": (f"{Path.cwd()}: give checkpoints a name of their own, such as out.checkpoint.h5",),
    f"run @/model.toml --t-end 1 -o @/{'x' * 300}.h5": ("cannot be written", "name too long", "another place with -o"),
    "run @/model.toml --t-end 1 -o @/x.png": ("-o @/x.png: what is written is no .png file", "ends with .h5"),
    "run @/model.toml --t-end 1 -o @/x.npz": ("no .npz file",),
    "acceleration @/model.toml -o @/x.h5": ("-o @/x.h5: what is written is no .h5 file", "ends with .npz"),
    "inverse @/model.toml -o @/x.CSV --state @/model.toml": ("no .CSV file",),
    "inverse @/model.toml -o @/x": ("Missing option '--state'; see mpimbs inverse --help",),
    "run @/model.toml --t-end 1 -o @/model.toml": ("@/model.toml: is an input (model.toml), and would be lost",),
    "run @/model.toml --t-end 1 -o @/model.toml --force": ("is an input (model.toml)", "another name with -o"),
    "run @/model.toml --t-end 1 -o @/model --pictures": ("@/model_motion.png: is a folder",),
    f"{RUN} --checkpoint @/model.toml --force": ("is an input (model.toml)", "another name with --checkpoint"),
    f"{RUN} --checkpoint /proc/none.h5": ("/proc/none.h5: cannot be written", "another place with --checkpoint"),
    "run chain:4 --t-end 1 -o /dev/null --force": ("/dev/null: is a device", "from Python, mpimbs.simulate(system,"),
    "acceleration chain:4 -o /dev/null --force": ("/dev/null: is a device", "Dynamics.accelerations writes none"),
    "predict chain:4 -o /dev/null --force": ("/dev/null: is no folder", "leave -o out to write none"),
    "predict chain:4 -o @/model.toml": ("@/model.toml: is no folder; choose another place with -o",),
    "study chain:4 -o @/model.toml --force": ("@/model.toml: is no folder; choose another place with -o",),
    "acceleration @/model.toml -o @/none/out.npz": ("there is no folder @/none; make it first",),
    "acceleration @/model.toml -o @/model.toml --force": ("is an input (model.toml)", "another name with -o"),
    "acceleration @/model.toml -o @": ("@: is a folder",),
    "acceleration @/model.toml -o @/out.npz --coupling none": ("unknown coupling 'none'",),
    "acceleration @/model.toml -o @/out.npz --state @/none.npz": ("@/none.npz: there is no such file; give an .npz",),
    "acceleration @/model.toml -o @/out.npz --state @": ("@: is not a readable .npz file",),
    "acceleration @/model.toml -o @/out.npz --state @/model.toml": ("is not a readable .npz file", "numpy.savez"),
    "acceleration @/model.toml -o @/out.npz --coupling lanes=3": ("3 lanes: give one of 1, 2, 4, 8",),
    "run @/model.toml -o @/out.h5 --t-end 1 --coupling lanes=0": ("0 lanes: give one of 1, 2, 4, 8",),
    "bench @/model.toml --coupling lanes=-8": ("-8 lanes: give one of 1, 2, 4, 8",),
    "bench @/model.toml --coupling lanes=many": ("lanes must be a whole number, got 'many'",),
    "bench @/model.toml --coupling none": ("unknown coupling 'none'",),
    "bench @/model.toml --seconds nan": ("seconds",),
    "bench chain:4 --batch 0": ("a batch of 0 copies", "every rank needs one at least"),
    "bench chain:4 --batch -2": ("a batch of -2 copies", "every rank needs one at least"),
    "bench chain:4 --batch 4 --coupling lanes=3": ("3 lanes: give one of 1, 2, 4, 8",),
    "bench chain:4 --batch few": ("'--batch'", "'few'"),
    "run chain:1000000000000 --t-end 1 -o @/out.h5": ("its 1000000000000 bodies take about ", "left"),
    "acceleration rope:1000000000000 -o @/out.npz": ("its 1000000000000 bodies take about ",),
    "bench chain:1000000000000 --batch 4": ("its 1000000000000 bodies take about ",),
    "bench chain:1000000000000 --coupling dca": ("its 1000000000000 bodies take about ",),
    "check chain:1000000000000 --accuracy": ("its 1000000000000 bodies take about ",),
    "predict chain:1000000000000": ("its 1000000000000 bodies take about ",),
    "study chain:1000000000000 -o @/study": ("its 1000000000000 bodies take about ",),
}  # fmt: skip


@pytest.mark.parametrize("command", BAD_COMMANDS)
def test_a_bad_command(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, command: str) -> None:
    if "--pictures" in command:
        put(comm, folder / "model_motion.png", None)
    refuses(comm, call, folder, command, *BAD_COMMANDS[command])


@pytest.mark.cases(1)
@pytest.mark.parametrize("left", ["out.h5", "out.h5.part", "out.npz", "out.npz.part"])
def test_an_output_that_exists(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, left: str) -> None:
    put(comm, folder / left, "precious")
    command = RUN if ".h5" in left else "acceleration @/model.toml -o @/out.npz"
    unfinished = ", left by a run that did not end" if left.endswith(".part") else ""
    refuses(comm, call, folder, command, f"@/{left}: exists{unfinished}; move it, choose another name with -o")
    assert call(f"{command} --force").code == 0
    assert {file.name for file in folder.iterdir()} == {"model.toml", left.removesuffix(".part")}
    assert b"precious" not in (folder / left.removesuffix(".part")).read_bytes()


def test_inputs_of_other_kinds_are_no_outputs(
    comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, forces: None
) -> None:
    if comm.rank == 0:
        savez(folder / "state.npz", **state_of())
        (folder / "linked.npz").hardlink_to(folder / "state.npz")
    comm.Barrier()
    command = "acceleration @/model.toml --force --state @/state.npz --forces forces:constant -o @/"
    refuses(comm, call, folder, f"{command}state.npz", "is an input (state.npz), and would be lost")
    refuses(comm, call, folder, f"{command}linked.npz", "linked.npz: is an input (state.npz), and would be lost")
    refuses(comm, call, folder, f"{command}forces.py", "forces.py: is the Python module forces, and would be lost")


def test_pictures_and_predictions_are_replaced_when_asked(
    comm: MPI.Comm, call: Callable[[str], Ended], folder: Path
) -> None:
    predict = "predict chain:4 --seconds 0.01 --ranks 1 -o @/p"
    assert call(predict).code == 0
    refuses(comm, call, folder, predict, "@/p/prediction.json: exists; move it", "replace it with --force")
    assert call(f"{predict} --force").code == 0
    find = f"predict figure48 --ranks {comm.size} --find-schedule -o @/s"
    assert call(find).code == 0
    refuses(comm, call, folder, find, "@/s/schedule.toml: exists; move it", "replace it with --force")
    refuses(comm, call, folder, "predict chain:4 --find-schedule", "give one number by --ranks")
    put(comm, folder / "out_energy.png", "precious")
    run = "run chain:4 --t-end 0.01 --pictures -o @/out.h5"
    refuses(comm, call, folder, run, "@/out_energy.png: exists; move it", "replace it with --force")
    assert call(f"{run} --force").code == 0
    assert image.imread(folder / "out_energy.png").size


def savez(path: Path, **arrays: Any) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


def state_of(**changes: Any) -> dict[str, Any]:
    """A state of the model, with some arrays replaced (None: left out)."""
    q = np.concatenate([[0.6, 0, 0.8, 0, 1, 2, 3], [0.4], [0, 0.28, 0, 0.96], [0.1, -0.2]])
    state = {"q": q, "u": np.linspace(-1, 1, NU), "tau": np.linspace(5, -2, NU)} | changes
    return {name: value for name, value in state.items() if value is not None}


def with_entry(index: int, value: float, name: str = "q") -> dict[str, Any]:
    array = state_of()[name].copy()
    array[index] = value
    return state_of(**{name: array})


BAD_STATES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "size": (state_of(u=np.zeros(NU - 1)), ("'u' has shape (11,)", f"'four' needs {NU} numbers")),
    "shape": (state_of(q=np.zeros((NQ, 1))), ("'q' has shape (14, 1)", f"needs {NQ} numbers")),
    "type": (state_of(u=np.array(["a"] * NU)), ("'u' has shape (12,) and type <U1",)),
    "complex": (state_of(u=np.zeros(NU, complex)), ("type complex128",)),
    "no u": (state_of(u=None), ("array 'u' is missing",)),
    "unknown": (state_of(udot=np.zeros(NU)), ("unknown array 'udot'; a state here holds q, u and optionally tau",)),
    "other bodies": (state_of(bodies=["one", "two"]), ("'bodies' names 2 bodies, system 'four' has 4; ",)),
    "other order": (
        state_of(bodies=["one", "three", "two", "four"]),
        ("'bodies' has 'three' in place 1, where system 'four' has 'two': q and u would go to other joints; bring",),
    ),
    "angle": (with_entry(7, -1e300), ("'q' is -1e+300 at index 7; give at most 1e+09 rad",)),
    "place": (with_entry(5, 1e300), ("'q' is 1e+300 at index 5; give at most 1e+15 m",)),
    "nan": (with_entry(3, np.nan, "u"), ("'u' is not finite at index 3",)),
    "infinity": (with_entry(2, -np.inf, "tau"), ("'tau' is not finite at index 2",)),
    "quaternion": (with_entry(9, 0.3), ("the quaternion of body 'three' has length 1.00",)),
    "zero quaternion": (state_of(q=np.zeros(NQ)), ("the quaternion of body 'one' has length 0;",)),
}


@pytest.mark.parametrize("case", BAD_STATES)
def test_a_bad_state(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, case: str) -> None:
    arrays, words = BAD_STATES[case]
    if comm.rank == 0:
        savez(folder / "state.npz", **arrays)
    comm.Barrier()
    command = "acceleration @/model.toml --state @/state.npz -o @/out.npz"
    refuses(comm, call, folder, command, "mpimbs: @/state.npz: ", *words)


OTHER_STATES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a run is not driven": ("run", state_of(), "unknown array 'tau'; a state here holds q and u"),
    "a run needs u": ("run", state_of(tau=None, u=None), "array 'u' is missing; a state here holds q and u"),
    "inverse needs udot": ("inverse", state_of(tau=None), "array 'udot' is missing; a state here holds q, u and udot"),
    "inverse finds tau": ("inverse", state_of(udot=np.zeros(NU)), "unknown array 'tau'; a state here holds q, u and"),
    "inverse, shape": ("inverse", state_of(tau=None, udot=np.zeros(3)), "'udot' has shape (3,)"),
}


@pytest.mark.parametrize("case", OTHER_STATES)
def test_a_state_for_another_command(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, case: str) -> None:
    command, arrays, words = OTHER_STATES[case]
    if comm.rank == 0:
        savez(folder / "state.npz", **arrays)
    comm.Barrier()
    options = "--t-end 1 -o @/out.h5" if command == "run" else "-o @/out.npz"
    refuses(comm, call, folder, f"{command} @/model.toml --state @/state.npz {options}", "@/state.npz: ", words)


def test_a_run_begins_with_a_state(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    """As if it were the model's; a restart goes on from there."""
    if comm.rank == 0:
        state = state_of(tau=None)
        savez(folder / "state.npz", **state)
        system = read_system(folder / "model.toml")
        other, (q_at, u_at) = System(system.name, system.gravity), system.contents.offsets()
        for k, body in enumerate(system.contents.bodies()):
            q, u = state["q"][q_at[k] : q_at[k + 1]].tolist(), state["u"][u_at[k] : u_at[k + 1]].tolist()
            other.add(body.model_copy(update={"joint": body.joint.model_copy(update={"q": tuple(q), "u": tuple(u)})}))
        write_system(other, folder / "other.toml")
    comm.Barrier()
    options = "--t-end 0.1 --every 0.02 --dt 0.01 --integrator rk4"
    found = call(f"run @/model.toml --state @/state.npz {options} -o @/one.h5")
    assert (found.code, found.err) == (0, "")
    assert call(f"run @/other.toml {options} -o @/two.h5").code == 0
    with h5py.File(folder / "one.h5") as one, h5py.File(folder / "two.h5") as two:
        assert_close("begin", one["q"][0], state_of()["q"], "rounding")
        for name in ("q", "u", "energy"):
            assert_close(name, one[name][:], two[name][:], "rounding", scale=np.abs(two[name][:]).max())


def test_the_time_of_an_evaluation(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, forces: None) -> None:
    system = read_system(folder / "model.toml")
    columns, tau = system.contents.columns(), np.zeros(NU)
    tau[6] = 0.75
    for options, forward in (("--time 0.25 --loads", tau), ("--loads", 0 * tau)):
        found = call(f"acceleration @/model.toml -o @/out.npz --force --forces forces:grows {options}")
        assert (found.code, found.err) == (0, "")
        with np.load(folder / "out.npz") as file:
            assert_close("udot", file["udot"], dense_accelerations(system, columns.q, columns.u, forward), "dense")
            reference = joint_wrenches(system, columns.q, columns.u, forward, frame="body")
            assert_close("loads", file["loads"], reference, "dense")
    refuses(comm, call, folder, "acceleration @/model.toml -o @/x.npz --time inf", "--time must be a finite number")


@pytest.mark.cases(1)
@pytest.mark.parametrize("model", [MODEL, TREE, SCRAMBLED], ids=["chain", "tree", "scrambled"])
def test_inverse(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, forces: None, model: str) -> None:
    """The forces that give accelerations: those that gave them, and those of the oracle."""
    put(comm, folder / "model.toml", model)
    system, state = read_system(folder / "model.toml"), state_of()
    wanted = np.cos(np.arange(NU))
    if comm.rank == 0:
        savez(folder / "state.npz", **state)
        savez(folder / "wanted.npz", **(state_of(tau=None) | {"udot": wanted}))
    comm.Barrier()
    options = "--forces forces:grows --time 0.25"
    assert call(f"acceleration @/model.toml --state @/state.npz -o @/udot.npz {options}").code == 0
    if comm.rank == 0:
        savez(folder / "there.npz", **(state_of(tau=None) | dict(np.load(folder / "udot.npz"))))
    comm.Barrier()
    found = call(f"inverse @/model.toml --state @/there.npz -o @/tau.npz {options}")
    assert (found.code, found.err, found.out) == (0, "", "" if comm.rank else f"wrote {folder}/tau.npz\n")
    with np.load(folder / "tau.npz") as file:
        assert file.files == ["tau"]
        assert_close("tau", file["tau"], state["tau"], "round trip", scale=100.0)
    assert call("inverse @/model.toml --state @/wanted.npz -o @/tau.npz --force").code == 0
    with np.load(folder / "tau.npz") as file:
        reference = dense_inverse(system, state["q"], state["u"], wanted)
        assert_close("tau", file["tau"], reference, "dense", scale=np.abs(reference).max())


@pytest.mark.cases(1)
@pytest.mark.parametrize("model", [MODEL, TREE, SCRAMBLED], ids=["chain", "tree", "scrambled"])
def test_inertia(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, model: str) -> None:
    put(comm, folder / "model.toml", model)
    system, state = read_system(folder / "model.toml"), state_of()
    if comm.rank == 0:
        savez(folder / "state.npz", **state)
    comm.Barrier()
    found = call("inertia @/model.toml --state @/state.npz --inverse -o @/m.npz")
    assert (found.code, found.err, found.out) == (0, "", "" if comm.rank else f"wrote {folder}/m.npz\n")
    with np.load(folder / "m.npz") as file:
        reference = mass_matrix(system, state["q"])
        assert_close("M", file["M"], reference, "dense")
        assert_close("M^-1 M", file["M_inverse"] @ reference, np.eye(NU), "responses")
    found = call("bench @/model.toml --inertia --json --seconds 0")
    assert found.code == 0
    if comm.rank == 0:
        figures = json.loads(found.out)
        assert figures["us_min"] > 0 and figures["others"]["multiply"]["us_min"] > 0
    assert call("bench @/model.toml --inertia --seconds 0").code == 0
    refuses(comm, call, folder, "bench @/model.toml --inertia --batch 2", "--inertia times the inertia matrix alone")
    refuses(comm, call, folder, "inertia @/model.toml --state @/nowhere.npz -o @/x.npz", "there is no such file")


def test_modes(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    rod = (
        'name = "beam"\ncount = 8\nlength = 0.5\nEI = 2300.0\nmass_per_length = 2.7\nclamped = true\njoint = "revolute"'
    )
    put(comm, folder / "rod.toml", f"gravity = [0, 0, 0]\n[[rod]]\n{rod}\n")
    found = call("modes @/rod.toml -k 2 -o @/m.npz --picture @/m.png")
    assert (found.code, found.err) == (0, "")
    lines = found.out.splitlines()
    if comm.rank == 0:
        assert [line.partition(", residual")[0] for line in lines[:2]] == [
            "mode 1: 64.8635618 Hz",
            "mode 2: 399.452652 Hz",
        ]
        assert lines[2].startswith("residual: |K x - w^2 M x| of w^2")
        assert lines[3:] == [f"wrote {folder}/m.npz", f"drew {folder}/m.png"]
    with np.load(folder / "m.npz") as file:
        assert (file["shapes"].shape, file["q"].shape) == ((2, 8), (8,))
        assert file["residuals"].max() < 1e-11
        assert_close("frequencies", 4 * np.pi**2 * file["frequencies"] ** 2, file["squares"], "rounding")
    refuses(comm, call, folder, "modes @/rod.toml -o @/m.npz", "m.npz: exists", "--force")


def test_lanes_without_effect(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    for command in ("bench chain:4 --seconds 0", "bench chain:4 --batch 4 --seconds 0", "acceleration chain:4 -o @/x"):
        found = call(f"{command} --coupling lanes=8")
        assert found.code == 0
        assert ("note: lanes=8 has no effect: a rank" in found.err) == (comm.rank == 0)
    assert call(f"bench chain:200 --coupling lanes={native_width()} --seconds 0").err == ""


def test_a_state_that_is_no_npz(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    if comm.rank == 0:
        np.save(folder / "single.npy", np.zeros(NQ))
        savez(folder / "objects.npz", q=np.array([None]), u=np.zeros(NU))
        savez(folder / "whole.npz", **state_of())
        whole = (folder / "whole.npz").read_bytes()
        (folder / "half.npz").write_bytes(whole[:300])
        flags = whole.index(b"PK\x01\x02") + 8  # of the first array, in the table of contents
        (folder / "patched.npz").write_bytes(whole[:flags] + bytes([whole[flags] | 0x20]) + whole[flags + 1 :])
        (folder / "empty.npz").write_bytes(b"")
        (folder / "text.npz").write_text("q = 1")
    comm.Barrier()
    unreadable = "is not a readable .npz file"
    other, damaged = f"{unreadable} (it holds other things than arrays", f"{unreadable} (it is damaged or incomplete)"
    reasons = {"single.npy": "holds a single array", "objects.npz": other, "half.npz": damaged, "empty.npz": damaged}
    reasons["patched.npz"] = damaged  # of a kind that Python's library has not implemented
    for name, reason in (reasons | {"text.npz": other}).items():
        command = f"acceleration @/model.toml --state @/{name} -o @/out.npz"
        refuses(comm, call, folder, command, f"mpimbs: @/{name}: {reason}")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "value", "words"), [("u", 1e200, "'u' is 1e+200 at index 6, beyond 1e+15"), ("tau", 1e308, "not finite")]
)
def test_a_state_beyond_the_range_of_numbers(
    comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, name: str, value: float, words: str
) -> None:
    """Its accelerations are not finite: nothing that may pass for a result."""
    if comm.rank == 0:
        savez(folder / "state.npz", **with_entry(6, value, name))
    comm.Barrier()
    found = call("acceleration @/model.toml --state @/state.npz -o @/out.npz")
    assert found.code in (1, 2) and found.out == ""
    assert (words in found.err and len(found.err.splitlines()) == 1) if comm.rank == 0 else found.err == ""
    assert {file.name for file in folder.iterdir()} == {"model.toml", "state.npz"}


def test_more_ranks_than_bodies(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    if comm.size == 1:
        pytest.skip("one rank always has a body")
    few = comm.size - 1
    for command in ("run chain:{} --t-end 1 -o @/out.h5", "bench chain:{}", "acceleration chain:{} -o @/out.npz"):
        words = f"{comm.size} ranks for {few} bodies", f"start at most {few} ranks"
        refuses(comm, call, folder, command.format(few), *words)


def test_a_loop_on_any_ranks(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    put(comm, folder / "model.toml", MODEL + LOOP)
    found = call("check @/model.toml")
    assert found.code == 0 and found.err == ""
    assert comm.rank > 0 or (
        "chain with loops of 4 bodies, 12 degrees of freedom with its loops opened\n" in found.out
        and "note: closed loops: --coupling dcae, pcg, assembly and augmented close them" in found.out
    )
    found = call("check @/model.toml --ranks 2")
    assert comm.rank > 0 or "loops: how many lead to bodies of other ranks; 0 of 1 in all\n" in found.out
    found = call("check @/model.toml --accuracy")
    assert comm.rank > 0 or ("equations of motion hold to" in found.out and "('closure')" in found.out), found
    refuses(comm, call, folder, "bench @/model.toml --batch 12", "('four') closes a loop")
    words = "coupling 'pcg' is not predicted; choose one of: dcae, assembly", "mpimbs bench"
    refuses(comm, call, folder, "predict @/model.toml --ranks 2 --coupling pcg", *words)
    found = call("predict @/model.toml --ranks 2 --coupling dcae")
    assert found.code == 0 and (comm.rank > 0 or "dcae" in found.out)
    for coupling in ("dca", "dca-terminal"):
        command = f"acceleration @/model.toml -o @/out.npz --coupling {coupling}"
        refuses(comm, call, folder, command, "system 'four' closes a loop ('closure')", "choose --coupling dcae")
    for coupling in ("dcae", "auto"):
        assert call(f"run @/model.toml --t-end 0.01 -o @/{coupling}.h5 --coupling {coupling}").code == 0
    found = call("bench @/model.toml --json --seconds 0.01")
    assert comm.rank > 0 or json.loads(found.out)["loops"] == 1
    refuses(comm, call, folder, "acceleration @/model.toml -o @/out.npz", "loop 'closure' is open by 3.1 m", "--close")
    assert call("acceleration @/model.toml -o @/out.npz --loads --close").code == 0
    assert call("assemble @/model.toml -o @/closed.npz").code == 0
    if comm.rank == 0:
        with np.load(folder / "closed.npz") as state:
            np.savez(folder / "at_rest.npz", q=state["q"], u=np.zeros(NU), udot=np.zeros(NU))
            np.savez(folder / "open.npz", q=state["q"], u=np.ones(NU))
    comm.Barrier()
    found = call("inverse @/model.toml --state @/at_rest.npz -o @/forces.npz")
    assert found.code == 0 and (comm.rank > 0 or "forces: of all joints, of least norm" in found.out), found
    if comm.rank == 0:
        with np.load(folder / "forces.npz") as file:
            assert file["loop_loads"].shape == (1, 6) and file["tau"].shape == (NU,)
    refuses(comm, call, folder, "acceleration @/model.toml --state @/open.npz -o @/x.npz", "the ends of loop 'closure'")
    found = call("acceleration @/model.toml --state @/open.npz -o @/x.npz --close")
    assert found.code == 0 and (comm.rank > 0 or "loops: closed, which changed most" in found.out), found


def test_a_tree_on_any_ranks(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    put(comm, folder / "model.toml", TREE)
    found = call("check @/model.toml")
    assert found.code == 0 and (comm.rank > 0 or "four: tree of 4 bodies, 12 degrees of freedom" in found.out)
    for coupling in ("dcae", "pcg"):
        assert call(f"run @/model.toml --t-end 0.01 -o @/{coupling}.h5 --coupling {coupling}").code == 0
    command = "run @/model.toml --t-end 0.01 -o @/other.h5 --coupling dca"
    refuses(comm, call, folder, command, "'four' is a tree", "choose --coupling dcae or --coupling pcg")


def test_an_error_that_one_rank_alone_sees(
    comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any) -> None:
        raise InputError("disk.toml: can't be read: Stale file handle")

    if comm.rank == 0:
        savez(folder / "state.npz", **state_of())
    comm.Barrier()
    for place, name in ((mpimbs.run.state, "read_state"), (mpimbs.model, "contents_from")):
        with monkeypatch.context() as patch:
            if comm.rank == comm.size - 1:
                patch.setattr(place, name, fails)
            command = "acceleration @/model.toml --state @/state.npz -o @/out.npz"
            refuses(comm, call, folder, command, "disk.toml: can't be read: Stale file handle")


@pytest.mark.parametrize(
    "command",
    ["--help", "-h", "", "run --help", "acceleration -h", "bench --help", "check --help", "predict -h", "inverse -h"],
)
def test_help(comm: MPI.Comm, call: Callable[[str], Ended], command: str) -> None:
    found = call(command)
    assert found.code == 0
    text = found.out + found.err
    assert ("Usage: mpimbs" in text and "MODEL" in text) if comm.rank == 0 else text == ""


def test_check(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    found = call("check @/model.toml")
    assert (found.code, found.err) == (0, "")
    lines = found.out.splitlines()
    assert lines == ([] if comm.rank else [
        "four: chain of 4 bodies, 12 degrees of freedom",
        "joints: 1 revolute, 1 universal, 1 spherical, 1 free; longest branch: 4 bodies; mass: 4.75 kg",
        "gravity: 0.5 -9.81 0 m/s^2",
    ])  # fmt: skip
    put(comm, folder / "model.toml", MODEL.replace("mass = 0.25", "mass = 2.5e-10"))
    assert ("note: masses from 2.5e-10 to 2.5 kg" in call("check @/model.toml").out) == (comm.rank == 0)


def test_check_says_what_loops_leave(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    found = call("check four_bar:2")
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines()[3:6] == ([] if comm.rank else [
        "loops: 2 revolute; 10 constraints, 6 of them redundant; 1 degree of freedom is left",
        "loop loads that are not unique: 'pin_0', 'pin_1' (moment across the axis, force along the axis)",
        "nor are the loads through the joints of 'crank_0', 'coupler_0', 'crank_1' and 2 more",
    ])  # fmt: skip
    put(comm, folder / "model.toml", MODEL + LOOP)
    found = call("check @/model.toml")
    assert comm.rank or "loops at the start: open by up to 3.1 m and rad ('closure'), opening by up to " in found.out
    found = call("check @/model.toml --json")
    assert (found.code, found.err) == (0, "")
    if comm.rank == 0:
        facts = json.loads(found.out)
        assert (facts["degrees_of_freedom"], facts["closure"]["start"]["mobility"]) == (12, 9)
        assert facts["closure"]["position_violation"]["loop"] == "closure"
    refuses(comm, call, folder, "check @/model.toml --json --ranks 2", "--json: gives what the model is; leave")


def test_loops_are_closed(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    put(comm, folder / "model.toml", MODEL + LOOP)
    found = call("assemble @/model.toml -o @/closed.npz")
    assert (found.code, found.err) == (0, "")
    assert comm.rank or "loops: closed, which changed most the coordinate of body '" in found.out
    system = read_system(folder / "model.toml")
    with np.load(folder / "closed.npz") as file:
        q, u = file["q"], file["u"]
    assert position_violation(system, q).max() < 1e-12
    assert_close("allowed speeds", allowed_speeds(system, q, u), u, "long")
    refuses(comm, call, folder, "assemble @/model.toml -o @/closed.npz", "closed.npz: exists", "--force")
    found = call("assemble @/model.toml -o @/again.npz --state @/closed.npz")
    assert (found.code, found.err) == (0, "") and (comm.rank or "loops: they were closed" in found.out)
    two = LOOP.replace('"closure"', '"other"').replace("[0, 0, 0]", "[0, 0, 1]")
    put(comm, folder / "model.toml", MODEL + LOOP + two)
    refuses(comm, call, folder, "assemble @/model.toml -o @/x.npz", "can't be closed: it stays open by 0.5 m")


def test_check_draws_who_would_own_what(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    found = call("check figure --ranks 4 --pictures @/drawn")
    assert (found.code, found.err) == (0, "")
    parallel_assert(
        comm.rank > 0 or found.out.endswith(f"drew {folder / 'drawn' / 'partition.png'}\n"), found.out, comm
    )
    assert (folder / "drawn" / "partition.png").stat().st_size > 1000
    for options, message in (
        (
            "--ranks 4 --pictures @/drawn",
            "partition.png: exists; move it, choose another name with --pictures, or replace it with --force",
        ),
        ("--pictures @/other", "--pictures: what is drawn is which rank owns what; say of how many with --ranks"),
    ):
        refused = call(f"check figure {options}")
        assert refused.code == 2 and (comm.rank > 0 or message in refused.err), refused.err
    assert call("check figure --ranks 4 --pictures @/drawn --force").code == 0


@pytest.mark.skipif(MPI.COMM_WORLD.size > 2, reason="one rank measures nothing, two do")
def test_the_coupling_is_chosen(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    """Rank 0 says which coupling was the fastest of all that were measured, and it solves the model."""
    found = call("acceleration @/model.toml --coupling auto -o @/auto.npz")
    parallel_assert(found.code == 0, found.err, comm)
    if comm.rank == 0:
        assert found.err.startswith("--coupling auto: ") and found.err.count("\n") == 1, found.err
        if comm.size == 1:
            assert "--coupling auto: dcae: one subchain" in found.err
        else:
            times = {name: float(us) for name, us in re.findall(r"(\S+) ([\d.e+]+)(?=[;)])", found.err.split("(")[1])}
            best, us = re.match(r"--coupling auto: (\S+): ([\d.e+]+) us", found.err).groups()  # type: ignore[union-attr]
            assert {best, *times} == {"dcae", "pcg", "dca", "dca-terminal"} and float(us) <= min(times.values())
        with np.load(folder / "auto.npz") as file:
            system = read_system(folder / "model.toml")
            q, u = system.contents.initial_state(0, system.n_bodies)
            assert_close("udot", file["udot"], dense_accelerations(system, q, u), "dense")


def test_a_model_without_degrees_of_freedom(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    """There is nothing to simulate; all else works."""
    put(comm, folder / "model.toml", STANDING.replace("revolute", "fixed"))
    words = "no joint can move, so there is nothing to simulate", "mpimbs acceleration --loads"
    for options in ("", "--coupling pcg", "--dt 0.1"):
        refuses(comm, call, folder, f"{RUN} {options}", *words)
    for coupling in ("dcae", "pcg", "dca", "auto"):
        found = call(f"acceleration @/model.toml -o @/{coupling}.npz --coupling {coupling} --loads")
        parallel_assert(found.code == 0, found.err, comm)
        with np.load(folder / f"{coupling}.npz") as file:
            assert file["udot"].shape == (0,)
            assert_close("weights", file["loads"][:, 5], 9.81 * np.arange(8, 0, -1), "dense")
    put(comm, folder / "many.toml", STANDING.replace("revolute", "fixed").replace("count = 7", "count = 199"))
    wide = f"bench @/many.toml --seconds 0.01 --coupling lanes={native_width()}"
    for command in ("check @/model.toml", "check @/model.toml --accuracy", wide,
                    "bench @/many.toml --seconds 0.01 --batch 8", "predict @/model.toml --ranks 1,2 --seconds 0.01",
                    "study @/model.toml --studies strong --couplings dcae --seconds 0.01 -o @/study"):  # fmt: skip
        found = call(command)
        parallel_assert(found.code == 0, f"{command}: {found.err}", comm)
    found = call("check chain:1000000000000")
    assert found.code == 0
    assert comm.rank or ("memory: about " in found.out and "note: too large to evaluate here" in found.out)


def test_check_says_what_was_left_to_defaults(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    put(comm, folder / "model.toml", MODEL.replace("gravity = [0.5, -9.81, 0.0]", "").replace("axis = [0, 1, 1]", ""))
    lines = call("check @/model.toml").out.splitlines()
    assert comm.rank or lines[2:4] == [
        "gravity: 0 -9.81 0 m/s^2", "axis left out, so z of the joint frame: 'two'",
    ]  # fmt: skip
    put(comm, folder / "model.toml", STANDING)
    lines = call("check @/model.toml").out.splitlines()
    never = "these joints never move, whatever the others do: 'arm', 'link1' to 'link7'; if that isn't meant, look at "
    assert comm.rank or lines[2:] == [
        "gravity: 0 0 -9.81 m/s^2", "axis left out, so z of the joint frame: 'arm', 'link1' to 'link7'",
        f"note: {never}gravity, axis, q and u",
    ]  # fmt: skip


@pytest.mark.cases(4)
@pytest.mark.parametrize("options", ["", "--coupling tip_ratio=1", "--coupling dcae"])
@pytest.mark.parametrize("given", ["nothing", "q and u", "tau too", "rounded quaternions"])
def test_acceleration(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, given: str, options: str) -> None:
    system = read_system(folder / "model.toml")
    initial = {"q": system.contents.columns().q, "u": system.contents.columns().u}
    state = {"nothing": initial, "q and u": state_of(tau=None)}.get(given, state_of())
    told = dict(state)
    if given == "rounded quaternions":
        told["q"] = state["q"] * np.where(np.arange(NQ) < 4, 1 + 5e-7, 1.0)
    if comm.rank == 0:
        savez(folder / "state.npz", **told)
    comm.Barrier()
    state_option = "" if given == "nothing" else "--state @/state.npz"
    found = call(f"acceleration @/model.toml {state_option} {options} -o @/udot")
    assert (found.code, found.err) == (0, "")
    if comm.rank == 0:
        told, wrote = found.out.splitlines()
        assert float(re.match(r"equations of motion hold to (\S+) ", told)[1]) < 1e-14
        assert wrote == f"wrote {folder}/udot"
    with np.load(folder / "udot") as file:
        assert file.files == ["udot"]
        assert_close("udot", file["udot"], dense_accelerations(system, **state), "dense")
    assert not (folder / "udot.part").exists()
    if given == "rounded quaternions":
        assert_close("quaternions read", read_state(folder / "state.npz", system.contents).q, state["q"], "rounding")


def test_what_is_no_more_says_so(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    refuses(comm, call, folder, "bench chain:12 --peers", "there is no --peers: `python drivers/versus_peers.py")
    refuses(
        comm, call, folder, "study chain:12 --inertia -o s", "there is no --inertia: `mpimbs bench MODEL --inertia`"
    )
    refuses(comm, call, folder, "tune --seconds 0.1 -o sizes.toml", "MPIMBS_SIZES=most_lane=64")
    refuses(
        comm, call, folder, "ensemble chain:3", "ensemble is no more: `mpimbs run MODEL --parameters TABLE` does it"
    )
    refuses(
        comm, call, folder, "schedule figure", "schedule is no more: `mpimbs predict MODEL --ranks P --find-schedule"
    )
    refuses(comm, call, folder, "schema", "schema is no more: `mpimbs new --schema -o FILE.json` writes it")


def test_run(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    found = call("run @/model.toml -o @/out.h5 --t-end 0.05 --every 0.01 --poses --rtol 1e-9")
    assert (found.code, found.err) == (0, "")
    assert comm.rank == 0 or found.out == ""
    if comm.rank == 0:
        first, *_, last = found.out.splitlines()
        assert first.startswith("complete: t = 0.05 s, ") and last == f"wrote {folder}/out.h5"
    assert {file.name for file in folder.iterdir()} == {"model.toml", "out.h5"}
    with h5py.File(folder / "out.h5") as run:
        assert np.allclose(run["time"][:], 0.01 * np.arange(6)) and run["poses"].shape == (6, 4, 7)
        settings = json.loads(run.attrs["settings"])
        assert settings["rtol"] == 1e-9 and settings["every"] == 0.01 and settings["ranks"] == comm.size
    refuses(comm, call, folder, "run @/model.toml -o @/out.h5 --t-end 0.05", "@/out.h5: exists", "--force")
    found = call("run chain:5 -o @/out.h5 --t-end 0.02 --every 0.01 --dt 0.005 --integrator rk4 --force")
    assert found.code == 0
    with h5py.File(folder / "out.h5") as run:
        assert run["q"].shape == (3, 5) and "poses" not in run and "loads" not in run


@pytest.mark.filterwarnings("error")
def test_a_run_that_stops(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    put(comm, folder / "model.toml", MODEL.replace("stiffness = 3.5", "stiffness = 1e12"))
    found = call("run @/model.toml -o @/out.h5 --t-end 100 --every 1 --dt 0.1 --integrator petsc:euler")
    assert found.code == 1 and found.out == ""
    lines = found.err.splitlines()
    if comm.rank > 0:
        assert lines == []
    else:
        assert len(lines) == 1 and lines[0].startswith("mpimbs: the accelerations are no longer finite at t = ")
        assert re.search("body '(two|three|four)' moves fastest", lines[0]) and "likely cause" in lines[0]
    assert {file.name for file in folder.iterdir()} == {"model.toml", "out.h5"}
    with h5py.File(folder / "out.h5") as run:
        assert run.attrs["status"].startswith("stopped: the accelerations are") and len(run["time"]) >= 1
        assert np.isfinite(run["q"][:]).all()


FORCES = """
import numpy as np

def drag(t, motion):
    if t > 0.015 and motion.body == 2:
        raise ValueError("too deep")
    return 0.0, -2.0 * motion.velocity

def motor(t, q, u):
    return 3.0 - u

def add(system):
    system.add_body_force(None, drag, point="center_of_mass")
    system.add_joint_force("two", motor)

def grows(system):
    system.set_torque("two", lambda t: 3.0 * t)

def nothing(system):
    pass

def constant(system):
    system.add_wrench("four", force=(1, 2, 3), frame="world")

def gives(system):
    return drag

def misspells(system):
    system.add_joint_force("too", motor)

depth = 3
"""
BAD_FORCES: dict[str, tuple[str, ...]] = {
    "forces": ("--forces forces: give module:function",),
    "nowhere:add": ("there is no module 'nowhere' in @ or among those installed",),
    "forces.py:add": ("there is no module 'forces.py'", "leave .py out: forces:add"),
    "forces:ad": ("module 'forces' has no function 'ad'; did you mean 'add'?",),
    "forces:depth": ("module 'forces' has no function 'depth'",),
    "forces:drag": ("failed: TypeError(", "it is called with the System"),
    "forces:gives": ("--forces forces:gives: returned <function drag", "takes the System"),
    "forces:nothing": ("--forces forces:nothing: has added nothing to the System", "or leave it out"),
    "forces:misspells": ("--forces forces:misspells: unknown body 'too'; did you mean 'two'?",),
    "broken:add": ("the module can't be imported: ZeroDivisionError('division by zero') (@/broken.py, line 2)",),
    "needs:add": ("No module named 'nowhere_else' (@/needs.py, line 1); install what it imports",),
}


@pytest.fixture
def forces(comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder is the current one, and has modules of forces."""
    put(comm, folder / "forces.py", FORCES)
    put(comm, folder / "broken.py", "x = 1\ny = x / 0\n")
    put(comm, folder / "needs.py", "import nowhere_else\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    yield
    for name in ("forces", "broken", "needs"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("given", BAD_FORCES)
def test_bad_forces(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, forces: None, given: str) -> None:
    refuses(comm, call, folder, f"run @/model.toml --t-end 1 -o @/out.h5 --forces {given}", *BAD_FORCES[given])


def test_forces(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, forces: None) -> None:
    """Functions of a module, several of them, act; they are named in the output, and where they fail."""
    system = read_system(folder / "model.toml")
    columns = system.contents.columns()
    motion = kinematics(system, columns.q, columns.u)
    for k in range(system.n_bodies):
        drag = {"force": -2.0 * motion.com_velocity[k], "point": columns.center_of_mass[k]}
        system.add_wrench(system.contents.name_of(k), frame="world", **drag)
    system.add_wrench("four", force=(1, 2, 3), frame="world")
    tau = np.zeros(NU)
    tau[6] = 3.0 - columns.u[6]
    options = "--forces forces:add --forces forces:constant"
    found = call(f"acceleration @/model.toml -o @/out.npz {options}")
    assert (found.code, found.err) == (0, "")
    with np.load(folder / "out.npz") as file:
        assert_close("udot", file["udot"], dense_accelerations(system, columns.q, columns.u, tau), "dense")
    found = call(f"bench @/model.toml --json --seconds 0 {options}")
    assert found.code == 0 and (comm.rank or json.loads(found.out)["n"] == 4)
    found = call(f"run @/model.toml -o @/out.h5 --t-end 0.02 --every 0.01 {options}")
    message = "mpimbs: the body force 'forces:drag' on body 'three' failed at t = 0.0"
    assert found.code == 1 and found.err.startswith(message if comm.rank == 0 else "")
    assert comm.rank or ("ValueError('too deep') (" in found.err and "forces.py, line 6)" in found.err)
    with h5py.File(folder / "out.h5") as run:
        assert run.attrs["status"].startswith("stopped: the body force") and len(run["time"]) == 2
        text = run["model"].attrs["toml"]
    assert "# body force forces:drag on 4 bodies 'one' to 'four'\n" in text
    assert "# joint force forces:motor on body 'two'\n" in text


def test_no_pickle_is_read(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    """A state file that would run code, were it read as a pickle: refused, and the code is not run."""

    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (folder / "was run",))

    if comm.rank == 0:
        savez(folder / "objects.npz", q=np.array([Payload()], dtype=object), u=np.zeros(NU))
        (folder / "pickle.npz").write_bytes(pickle.dumps(Payload()))
        np.save(folder / "array.npy", np.array([Payload()], dtype=object), allow_pickle=True)
    comm.Barrier()
    for name in ("objects.npz", "pickle.npz", "array.npy"):
        command = f"acceleration @/model.toml --state @/{name} -o @/out.npz"
        refuses(comm, call, folder, command, f"mpimbs: @/{name}: is not a readable .npz file")
    for name in ("pickle.npz", "forces.py"):  # a model is TOML and nothing else
        put(comm, folder / "forces.py", "from pathlib import Path\nPath('was run').touch()\n")
        refuses(comm, call, folder, f"check @/{name}", f"mpimbs: @/{name}: is not ")
    assert not (folder / "was run").exists()


def test_settle(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    found = call("settle rope:4 -o @/state.npz")
    if comm.rank == 0:
        assert found.code == 0 and "stability: stable" in found.out, found
        with np.load(folder / "state.npz") as state:
            assert state["q"].shape == (16,) and not state["u"].any()
            assert state["bodies"].astype(str).tolist() == [f"link{k}" for k in range(1, 5)]
    refuses(comm, call, folder, "settle rope:4 -o @/state.npz", "state.npz: exists", "--force")
    found = call("acceleration rope:4 --state @/state.npz -o @/out.npz")
    assert comm.rank or found.code == 0, found


def test_pictures_whatever_the_environment_says(
    comm: MPI.Comm, call: Callable[[str], Ended], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend of a notebook is none of ours; pictures that can't be drawn end no run."""
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    found = call("run @/model.toml -o @/out.h5 --t-end 0.02 --pictures")
    assert found.code == 0 and os.environ["MPLBACKEND"] == "agg" and ("drew " in found.out) == (comm.rank == 0)

    def broken(*_: object) -> None:
        raise ValueError("no font\nat all")

    monkeypatch.setattr(importlib.import_module("mpimbs.plots.pictures"), "draw_run", broken)
    found = call("run @/model.toml -o @/out.h5 --t-end 0.02 --pictures --force")
    assert found.code == 0 and ("wrote " in found.out) == (comm.rank == 0)
    assert comm.rank or found.err.endswith(
        "mpimbs: note: no pictures are drawn (no font); mpimbs plot draws them from the output\n"
    )
    monkeypatch.setitem(sys.modules, "mpimbs.plots.pictures", None)  # as where matplotlib can't be imported
    found = call("run @/model.toml -o @/out.h5 --t-end 0.02 --pictures --force")
    assert found.code == 0 and (comm.rank or "no pictures are drawn (import of" in found.err)


@pytest.mark.skipif(MPI.COMM_WORLD.size == 1, reason="one rank agrees with itself")
def test_ranks_of_different_commands(comm: MPI.Comm, call: Callable[[str], Ended]) -> None:
    """One message, and no rank waits for others that do something else."""
    found = call("check chain:8" if comm.rank else "acceleration chain:8 -o @/a.npz")
    told = "mpimbs: the ranks disagree on the command: mpimbs acceleration on rank 0, mpimbs check on "
    assert found.code == 2 and (comm.rank or found.err.startswith(told))


def test_compile(comm: MPI.Comm, call: Callable[[str], Ended], folder: Path) -> None:
    for words in ("run chain:8", "run @/model.toml --integrator rosenbrock"):
        found = call(f"{words} --t-end 1 -o @/none.h5 --compile")
        assert found.code == 0 and (comm.rank or found.out.startswith("compiled, or loaded: ")), found
        assert not (folder / "none.h5").exists()
    refuses(
        comm, call, folder, "run chain:8 --parameters t.csv --t-end 1 -o x.h5 --compile", "--compile is for a run of"
    )
    refuses(comm, call, folder, "compile chain:8", "compile is no more: `mpimbs --compile` does it for what most")
