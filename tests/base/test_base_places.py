"""Places of files: nothing is written onto what was read, or what is no regular file, and over nothing unasked."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mpimbs.base.errors import InputError
from mpimbs.base.lock import Lock
from mpimbs.base.places import check_folder, check_new, note_input, part_of, replacing


def precious(path: Path) -> None:
    path.write_text("precious")
    note_input(path)


def linked(path: Path) -> None:
    precious(path.with_name("model.toml"))
    os.link(path.with_name("model.toml"), path)


def soft(path: Path) -> None:
    path.symlink_to("results.h5")


def script(path: Path) -> None:
    path.write_text("depth = 3\n")
    sys.modules["of_the_user"] = type(sys)("of_the_user")
    sys.modules["of_the_user"].__file__ = str(path)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "an input": (precious, "is an input (out), and would be lost; choose another name with `output`"),
    "an input by another name": (linked, "is an input (model.toml), and would be lost"),
    "a module": (script, "is the Python module of_the_user, and would be lost"),
    "a link": (soft, "is a link to results.h5; give the name of the file"),
    "a pipe": (os.mkfifo, "is a named pipe; give the name of a file with `output`"),
    "a folder": (Path.mkdir, "is a folder; give the name of a file with `output`"),
}


@pytest.mark.parametrize("part", [False, True], ids=["itself", "its part"])
@pytest.mark.parametrize("case", BAD)
def test_what_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, part: bool) -> None:
    make, reason = BAD[case]
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    path = tmp_path / "out"
    place = part_of(path) if part else path
    make(place)
    kind, names = os.lstat(place), sorted(tmp_path.iterdir())
    with pytest.raises(InputError) as error:
        check_new(path, force=True)
    assert str(error.value).startswith(f"{place}: {reason.replace('(out)', f'({place.name})')}")
    with pytest.raises(InputError), replacing(path) as other:
        other.write_text("other")
    assert os.path.samestat(kind, os.lstat(place)) and sorted(tmp_path.iterdir()) == names


def test_devices() -> None:
    with pytest.raises(InputError, match=r"^/dev/null: is a device; give the name of a file with `output`; or not$"):
        check_new(Path("/dev/null"), force=True, instead="; or not")


def test_files_are_replaced_when_asked_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(InputError, match=r"out: exists; move it, .* or replace it with `force=True`"):
        check_new(path, force=False)
    check_new(path, force=True)
    with pytest.raises(KeyError), replacing(path) as part:
        part.write_text("half")
        raise KeyError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with replacing(path) as part:
        part.write_text("new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_an_input_that_is_gone_is_none(tmp_path: Path) -> None:
    """Its number may be that of another file by now."""
    precious(tmp_path / "model.toml")
    (tmp_path / "model.toml").rename(tmp_path / "out")
    check_new(tmp_path / "out", force=True)


def test_what_another_process_writes(tmp_path: Path) -> None:
    held = Lock(tmp_path / "out")
    for action in (lambda: check_new(tmp_path / "out", True), replacing(tmp_path / "out").__enter__):
        with pytest.raises(InputError, match="out: is being written by"):
            action()
    held.release()


def test_folders(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b", ["one"], force=False)
    (tmp_path / "a" / "b" / "one").write_text("old")
    with pytest.raises(InputError, match=r"one: exists; .*`force=True`"):
        check_folder(tmp_path / "a" / "b", ["two", "one"], force=False)
    with pytest.raises(InputError, match="one: is no folder; choose another place with `output`, or none"):
        check_folder(tmp_path / "a" / "b" / "one", [], force=True, instead=", or none")
    with pytest.raises(InputError, match=r"/proc/none: can't be made \("):
        check_folder(Path("/proc/none"), [], force=True)
