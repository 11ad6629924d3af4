"""Settings are declared once: all of them are options of the command line, in files, and taken by name from Python."""

import dataclasses
import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from mpi4py import MPI

import mpimbs.cli
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.base.settings import Field, Settings, single
from mpimbs.cli.commands import cli, run
from mpimbs.cli.evaluation import acceleration
from mpimbs.cli.options import FORMER, coupling_of
from mpimbs.cli.study import bench_command
from mpimbs.cli.words import KEYS
from mpimbs.coupling import LoadSolver
from mpimbs.coupling.settings import EvaluationSettings, Lagrangian
from mpimbs.dynamics import Dynamics
from mpimbs.files.checkpoint import read_header
from mpimbs.run.run import simulate
from mpimbs.stepping.settings import Checkpoints, SimulationSettings

# A value of every setting that isn't its default, by the path of the setting; those of the steps exclude each other.
GIVEN: dict[str, Any] = {
    "coupling": "pcg", "lanes": 1, "tip_ratio": 1.5, "cuts": 3, "overlap": True, "solver.preconditioner": "jacobi",
    "solver.estimate": "zero", "solver.rtol": 1e-10, "solver.most": 777, "t_end": 0.02, "integrator": "bs3",
    "every": 0.01, "sample": "q,u:link2", "poses": True, "loads": True, "extremes": True, "no_witness": True,
    "force": True, "tension": "on",
}  # fmt: skip
STEPS: list[dict[str, Any]] = [{"rtol": 1e-6, "atol": 1e-7}, {"dt": 0.005}, {"tol": 1e-5}]
OF_LOOPS: dict[str, Any] = {"projection": "velocities", "stabilisation": 0.5}  # refused elsewhere
OF_ASSEMBLIES: dict[str, Any] = {"schedule": "serial", "leaves": "bodies"}  # alike
OF_AUGMENTED: dict[str, Any] = {
    "lagrangian.penalty": 1e5,
    "lagrangian.iterations": 9,
    "lagrangian.tolerance": 1e-9,
    "lagrangian.accepted": 1e-3,
}
ELSEWHERE = OF_LOOPS, OF_ASSEMBLIES, OF_AUGMENTED
KEPT: dict[str, Any] = {
    "checkpoints.seconds": 100.0,
    "checkpoints.steps": 1,
    "checkpoints.path": "k.h5",
    "checkpoints.keep": 1,
}
ALL: list[Field] = list(single(SimulationSettings.fields()))


def at(data: dict[str, Any], path: str) -> Any:
    """What stands at a path such as `solver.rtol`."""
    for name in path.split("."):
        data = data[name]
    return data


@pytest.mark.parametrize("steps", STEPS, ids=["adaptive", "fixed", "one tolerance"])
def test_every_setting_is_an_option_and_in_the_files(comm: MPI.Comm, tmp_path: Path, steps: dict[str, Any]) -> None:
    """What is asked for on the command line is what the checkpoint and the output file hold."""
    assert {field.path for field in ALL} == set(GIVEN).union(*STEPS, *ELSEWHERE), "a setting has no value in this test"
    assert {field.path for field in Checkpoints.fields()} == set(KEPT)
    folder, given = comm.bcast(tmp_path), GIVEN | steps
    asked = given | KEPT | {"checkpoints.path": str(folder / "k.h5")}
    words, coupled = ["run", "chain:8", "-o", str(folder / "out.h5")], [str(asked["coupling"])]
    for field in (*ALL, *Checkpoints.fields()):
        if any(field.path in others for others in ELSEWHERE):
            continue
        value = asked.get(field.path, field.default)
        assert value != field.default or field.path in {"dt", "tol", "rtol", "atol"} - set(steps)
        if field in KEYS.values():
            if field.path in asked:
                coupled.append(field.name if value is True else f"{field.name}={value}")
        elif field.path in asked and field.path != "coupling":
            words += [f"--{field.option.replace('_', '-')}", *([] if value is True else [str(value)])]
    with pytest.raises(SystemExit) as stop:
        mpimbs.cli.main([*words, "--coupling", ",".join(coupled)], comm)
    parallel_assert(stop.value.code == 0, f"code {stop.value.code}", comm)
    comm.Barrier()
    if comm.rank > 0:
        return
    if "tol" in given:  # both tolerances, which is what files have
        given = given | {"rtol": given["tol"], "atol": given["tol"], "tol": None}
    header = read_header(folder / "k.h5")
    with h5py.File(folder / "out.h5") as file:
        output = json.loads(file.attrs["settings"])
    assert header["settings"]["lagrangian"] is output["lagrangian"] is None
    for field in ALL:
        if field.path in OF_AUGMENTED:
            continue
        expected = given.get(field.path, field.default)
        assert at(header["settings"], field.path) == expected, field.path
        found = at(output, field.path)
        assert (len(found) - 2 if field.path == "cuts" else found) == expected, field.path  # of cuts it has the places
    assert SimulationSettings.of(header["settings"]).data() == header["settings"]
    kept = header["checkpoints"]
    assert kept == {"seconds": 100.0, "steps": 1, "path": None, "keep": 1}  # the place may be another after a move


OPTIONED: dict[str, tuple[click.Command, type[Settings]]] = {
    "run": (run, SimulationSettings),
    "checkpoints": (run, Checkpoints),
}


@pytest.mark.parametrize("case", OPTIONED)
def test_options_are_as_declared(case: str) -> None:
    command, kind = OPTIONED[case]
    options = {option.name: option for option in command.params if isinstance(option, click.Option)}
    for field in single(kind.fields()):
        if field in KEYS.values() or field.path == "coupling":
            continue
        option = options[field.option]
        assert (option.help or "").startswith(field.setting.text), field.path
        assert option.is_flag == (field.kind is bool), field.path
        # A `Simulation` may have no end, a command has one.
        assert option.required == (field.default is dataclasses.MISSING or field.path == "t_end"), field.path
        if field.default not in (None, False, dataclasses.MISSING):
            assert f"[default: {field.default}]" in (option.help or ""), field.path


@pytest.mark.parametrize("command", [run, acceleration, bench_command], ids=["run", "acceleration", "bench"])
def test_keys_of_the_coupling_are_as_declared(command: click.Command) -> None:
    """Help has each, its default with it; the options that they were say what does instead."""
    shown = " ".join(CliRunner().invoke(cli, [command.name or "", "--help"]).output.split())
    begin = shown.index("Keys of --coupling")
    options = {word for option in command.params for word in option.opts}
    for name, field in KEYS.items():
        text = " ".join(field.setting.text.split())
        assert f"{name} {text}." in shown[begin:].replace("- ", "-"), name
        assert f"--{FORMER.get(name, name.replace('_', '-'))}" in options, name
        if field.default not in (None, False):
            assert f"{text}. [default: {field.default}]" in shown[begin:].replace("- ", "-"), name


COUPLED: dict[str, dict[str, Any]] = {
    "pcg": {"coupling": "pcg"},
    "cuts=3": {"cuts": 3},
    "overlap": {"overlap": True},
    "auto,lanes=2, tip-ratio=1.5": {"coupling": "auto", "lanes": 2, "tip_ratio": 1.5},
    "pcg,cuts=15,preconditioner=jacobi,rtol=1e-9,most=7": {
        "coupling": "pcg", "cuts": 15, "solver": LoadSolver("jacobi", rtol=1e-9, most=7),
    },
    "augmented,penalty=1e7,accepted=1e-3": {
        "coupling": "augmented", "lagrangian": Lagrangian(penalty=1e7, accepted=1e-3),
    },
    "assembly,schedule=a=b.toml": {"coupling": "assembly", "schedule": "a=b.toml"},
}  # fmt: skip
SENSELESS: dict[str, str] = {
    "pcg,cust=3": "there is no key 'cust'; is cuts meant?",
    "pcg,colour=red": "there is no key 'colour'; choose among lanes, tip_ratio, cuts",
    "dcae,pcg": "'pcg' is no KEY=VALUE; give the name of a coupling first",
    "cuts=3,pcg": "'pcg' is no KEY=VALUE",
    "pcg,cuts=3,cuts=4": "cuts is given twice",
    "cuts=3.5": "cuts must be a whole number, got '3.5'",
    "pcg,rtol=small": "rtol must be a number, got 'small'",
    "overlap=no": "overlap takes no value",
    "pcg,": "'' is no KEY=VALUE",
    "": "the name of a coupling is missing",
}


@pytest.mark.parametrize("text", COUPLED)
def test_coupling_in_one_value(text: str) -> None:
    assert coupling_of(text) == COUPLED[text]


@pytest.mark.parametrize("text", SENSELESS)
def test_coupling_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"^--coupling {re.escape(text)}: ") as caught:
        coupling_of(text)
    assert SENSELESS[text] in str(caught.value)


def test_settings_as_a_whole_and_by_name(comm: MPI.Comm) -> None:
    """What is given by name comes on top."""
    whole = SimulationSettings(t_end=0.5, rtol=1e-3, atol=1e-5, every=0.1)
    expected = simulate("chain:6", 0.2, comm, rtol=1e-3, atol=1e-9, every=0.1)
    found = simulate("chain:6", 0.2, comm, settings=whole, atol=1e-9)
    assert found.steps == expected.steps != simulate("chain:6", 0.2, comm, settings=whole).steps
    if comm.rank == 0:
        assert np.array_equal(found.q, expected.q)


REFUSED: dict[str, tuple[Callable[[MPI.Comm], object], str]] = {
    "misspelt": (lambda comm: simulate("chain:6", 1.0, comm, rtoll=1e-3), "no setting `rtoll`; is `rtol` meant?"),
    "of another": (lambda comm: Dynamics("chain:6", comm, every=0.1), "no setting `every`; choose among coupling, "),
    "missing": (lambda comm: simulate("chain:6", comm=comm), "`t_end` is missing: simulated time"),
    "kind": (lambda comm: simulate("chain:6", 1.0, comm, rtol="1e-3"), "`rtol` must be a number, got '1e-3'"),
    "kind within": (
        lambda comm: Dynamics("chain:6", comm, "pcg", solver=LoadSolver(most=1.5)),  # type: ignore[arg-type]
        "`solver.most` must be a whole number, got 1.5",
    ),
    "range within": (
        lambda comm: simulate("chain:6", 1.0, comm, coupling="pcg", solver=LoadSolver(rtol=2.0)),
        "between 0 and 1, got `solver.rtol=2`",
    ),
    "both steps": (lambda comm: simulate("chain:6", 1.0, comm, rtol=1e-3, dt=1e-3), "`rtol` is for adaptive steps"),
    "two tolerances": (
        lambda comm: simulate("chain:6", 1.0, comm, tol=1e-3, atol=1e-3),
        "`tol` is `rtol` and `atol`, and `atol` is given too: leave one of them out",
    ),
    "no tolerance": (lambda comm: simulate("chain:6", 1.0, comm, tol=0.0), "must be between 0 and 1, got `tol=0`"),
    "no whole": (
        lambda comm: simulate("chain:6", 1.0, comm, settings=Checkpoints()),  # type: ignore[arg-type]
        "settings must be SimulationSettings, got a Checkpoints",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_settings(comm: MPI.Comm, case: str) -> None:
    """By one error on all ranks, also where one of them alone was given it."""
    call, words = REFUSED[case]
    message = ""
    try:
        if comm.rank == comm.size - 1:
            call(comm)
        else:
            simulate("chain:6", 1.0, comm)
    except InputError as error:
        message = str(error)
    parallel_assert(words in message, message, comm)


def test_files_of_before() -> None:
    """A setting that a file is too old to have is the default; one that it is too new for is refused."""
    settings = SimulationSettings(t_end=1.0, solver=LoadSolver("direct", rtol=1e-9), coupling="pcg", cuts=2)
    data = json.loads(json.dumps(settings.data()))
    assert SimulationSettings.of(data) == settings
    del data["extremes"], data["solver"]["most"]
    assert SimulationSettings.of(data) == settings
    with pytest.raises(InputError, match="no setting `extreme`; is `extremes` meant"):
        SimulationSettings.of(data | {"extreme": True})


def test_evaluations_take_what_a_simulation_passes_on(comm: MPI.Comm) -> None:
    settings = SimulationSettings(t_end=1.0, lanes=1, cuts=comm.size + 1)
    with closing(Dynamics("chain:8", comm, **settings.part(EvaluationSettings))) as dynamics:
        assert len(dynamics.divided.division.bounds) - 2 == comm.size + 1
