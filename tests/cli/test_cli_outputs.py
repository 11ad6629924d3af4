"""The commands for files, `mpimbs convert | new | schema | plot | export`: on all ranks, nothing overwritten."""

import json
from pathlib import Path

import pytest
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.cli.commands import cli
from mpimbs.model import System, system_from, system_from_text
from mpimbs.run.run import simulate

INERTIAL = """<inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>"""
ARM = f"""<robot name="arm"><link name="base">{INERTIAL}</link><link name="link">{INERTIAL}</link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="link"/><axis xyz="0 1 0"/></joint></robot>"""


@pytest.fixture
def folder(comm: MPI.Comm, tmp_path: Path) -> Path:
    return comm.bcast(tmp_path)


def call(comm: MPI.Comm, *arguments: object) -> None:
    cli.main([str(argument) for argument in arguments], standalone_mode=False, obj=comm)
    comm.Barrier()


def written(path: Path) -> System:
    """The system in a model file, which is no input afterwards."""
    return system_from_text(path.read_text(), path)


def test_convert(comm: MPI.Comm, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if comm.rank == 0:
        (folder / "arm.urdf").write_text(ARM.replace("<axis", "<safety_controller/><axis"))
    comm.Barrier()
    call(comm, "convert", folder / "arm.urdf", "-o", folder / "arm.toml")
    out, err = capsys.readouterr()
    told = f"wrote {folder / 'arm.toml'}: 1 bodies, 1 degrees of freedom\n"
    assert out == (told if comm.rank == 0 else "") and ("<safety_controller>" in err) == (comm.rank == 0)
    assert written(folder / "arm.toml").contents.body(0).joint.axis == (0, 1, 0)
    text = (folder / "arm.toml").read_text()
    assert "# left out: <safety_controller>" in text and ": q from 0 on, u from 0 on\n" in text
    with pytest.raises(InputError, match=r"exists; move it"):
        call(comm, "convert", folder / "arm.urdf", "-o", folder / "arm.toml")
    call(comm, "convert", "--force", f"{folder / 'arm.urdf'}:free", "-o", folder / "arm.toml")
    assert [body.joint.type for body in written(folder / "arm.toml").contents.bodies()] == ["free", "revolute"]
    for arguments, message in (
        (("--free", folder / "arm.urdf", "-o", folder / "x.toml"), "there is no --free: give FILE:free as MODEL"),
        (("--inertia", "repair", folder / "arm.urdf"), "there is no --inertia: give FILE:inertia=repair as MODEL"),
        (("chain:3", "-o", folder / "x.yaml"), "what is written is a TOML file"),
    ):
        with pytest.raises(InputError, match=message):
            call(comm, "convert", *arguments)


def test_a_robot_that_nothing_moves(comm: MPI.Comm, folder: Path) -> None:
    """What lets it float is told as a command takes it, not by an option that says as much."""
    if comm.rank == 0:
        (folder / "arm.urdf").write_text(ARM.replace(f'<link name="link">{INERTIAL}', '<link name="link">'))
    comm.Barrier()
    with pytest.raises(InputError, match=r"let it float by FILE:free, or `free=True`$"):
        call(comm, "check", folder / "arm.urdf")


def test_new_and_schema(comm: MPI.Comm, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "mine.toml"
    call(comm, "new", 'a "crane" of mine', "-o", path)
    system = written(path)
    assert (system.name, system.n_bodies) == ('a "crane" of mine', 13)
    with pytest.raises(InputError, match=r"mine\.toml: exists; move it"):
        call(comm, "new", "-o", path)
    with pytest.raises(InputError, match=r"what is written is no \.txt file; give a name"):
        call(comm, "new", "-o", folder / "mine.txt")
    call(comm, "new", "--schema", "-o", folder / "models.json")
    assert json.loads((folder / "models.json").read_text())["title"] == "mpimbs model"
    capsys.readouterr()
    call(comm, "check", f"{path}:length=2")
    assert ('a "crane" of mine: chain of 13 bodies' in capsys.readouterr().out) == (comm.rank == 0)
    with pytest.raises(InputError, match=r"mine\.toml: has no parameter 'len'; did you mean 'length'"):
        call(comm, "check", f"{path}:len=2")


def test_plot_and_export(comm: MPI.Comm, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = folder / "run.h5"
    if comm.rank == 0:
        simulate(system_from("chain:3"), 0.02, output=run, every=0.01, comm=MPI.COMM_SELF)
    comm.Barrier()
    call(comm, "plot", run, "q:link1,link2", "energy")
    call(comm, "export", run, "energy", "-o", folder / "run.csv")
    out = capsys.readouterr().out
    assert out == (f"drew {folder / 'run_q_energy.png'}\nwrote {folder / 'run.csv'}\n" if comm.rank == 0 else "")
    for arguments, message in (
        (("plot", run, "q", "-o", run.with_suffix(".pdf")), "what is drawn is a PNG file"),
        (("plot", run, "-o", folder / "all.png"), "name quantities, or leave -o out"),
        (("plot", folder / "none.h5", "q"), "there is no such file"),
        (("export", run, "-o", folder / "run.csv"), "exists; move it"),
        (("export", run, "-o", folder / "run.doc"), "no format has the suffix"),
    ):
        with pytest.raises(InputError, match=message):
            call(comm, *arguments)
