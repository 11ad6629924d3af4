"""Kernels: what is compiled, and where it is kept."""

import ast
import errno
import importlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
import pytest
from llvmlite import binding
from numba.core import errors, event

import mpimbs
from mpi_helpers import plain_environment
from mpimbs.coupling.augmented import augmented_equations
from mpimbs.coupling.pcg import constraint_equations
from mpimbs.dynamics import pipeline
from mpimbs.kernels import emission, kernel_cache, machine_code, reach
from mpimbs.kernels.compiler import kernel, kernel_overload
from mpimbs.kernels.kernel_cache import cache_folder, cache_folders, remove_unused, stamp_of
from mpimbs.kernels.reach import code_of
from mpimbs.kernels.turns import Turns
from mpimbs.stepping import march
from mpimbs.values.handles import join


@kernel
def _twice(values):
    for i in range(values.size):
        values[i] = values[i] * 2.0


@kernel
def _four_times(values):
    _twice(values)
    _twice(values)


@kernel
def _never_made(values):
    values[0] *= 3.0


@kernel
def _calls_what_is_never_made(values):
    _never_made(values)


@kernel
def _itself(values):
    return values


def test_only_what_python_calls_is_compiled() -> None:
    """A kernel within another is a part of it; called from Python, it is compiled too, with the same result."""
    within, alone = np.arange(3.0), np.arange(3.0)
    _four_times(within)
    assert not _twice.overloads
    for _ in range(2):
        _twice(alone)
    np.testing.assert_array_equal(within, [0.0, 4.0, 8.0])
    np.testing.assert_array_equal(alone, within)


def _large(x: float) -> float:
    raise NotImplementedError


@kernel_overload(_large)
def _large_compiled(x):
    """What is too large for LLVM to inline it at two places."""

    def compiled(x):
        for k in range(7):
            x = np.sin(x) * np.cos(x + k) + np.tan(x) - np.exp(-x) + np.log(x * x + 1.0) + np.arctan(x)
            x = np.sinh(x) / (np.cosh(x) + k) - np.hypot(x, k) + np.cbrt(x) + np.log1p(x * x) - np.expm1(-x * x)
        return x

    return compiled


@kernel
def _calls_large(values):
    for k in range(values.size):
        values[k] = _large(values[k]) + _large(2.0 * values[k]) * _large(-values[k])


def test_code_has_no_names_for_what_it_keeps_to_itself() -> None:
    """numba's names are unique in one process; kept code of another process had them, and was taken for one's own."""
    arguments = (numba.float64[::1],)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_calls_large._cache, "load_overload", lambda *_: None)
        _calls_large.compile(arguments)
    functions = list(_calls_large.overloads[arguments].library._final_module.functions)
    inside = [f.name for f in functions if not f.is_declaration and "compiled" in f.name]
    shared = [f.name for f in functions if f.linkage == binding.Linkage.linkonce_odr and not f.is_declaration]
    assert inside and not shared


def test_code_that_fails_to_be_made_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is made in another thread: what breaks there is raised wherever the code is wanted, and nothing hangs."""
    monkeypatch.setattr(machine_code, "_AWAITED", {})

    def broken(*_: object) -> bytes:
        raise MemoryError("no room")

    monkeypatch.setattr(emission, "_object_code", broken)
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room"):
            _calls_what_is_never_made(np.ones(2))


def test_arrays_are_not_returned() -> None:
    """Nobody counts who uses an array: a kernel that Python calls can't return one."""
    with pytest.raises(errors.TypingError, match="returns no array"):
        _itself(np.zeros(1))


def test_text_is_no_code() -> None:
    """Comments, docstrings and layout leave the compiled code valid; constants, defaults and decorators don't."""
    source = b'"""One."""\n@kernel(inline=True)\ndef f(x, y=1):\n    """Two."""\n    return x + y * 2.0\n'
    same = (
        b'"""Three."""\n\n# four\n@kernel(inline=True)\ndef f(x, y=1):\n    # five\n    return (x\n        + y * 2.0)\n'
    )
    assert code_of(ast.parse(source)) == code_of(ast.parse(same.replace(b"    # five", b'    """Six."""')))
    for old, new in ((b"2.0", b"3.0"), (b"y=1", b"y=2"), (b"inline=True", b""), (b"x +", b"x -")):
        assert code_of(ast.parse(source)) != code_of(ast.parse(source.replace(old, new)))


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder's part, where no home can be written."""
    monkeypatch.delenv("MPIMBS_CACHE_DIR", raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no folder
    monkeypatch.setattr(kernel_cache.tempfile, "tempdir", str(tmp_path))
    cache_folders.cache_clear()
    yield tmp_path / f"mpimbs-{os.getuid()}"
    cache_folders.cache_clear()


def test_temporary_folder_is_private(base: Path) -> None:
    """Compiled code is loaded from a folder under the temporary one only if nobody else can write there."""
    assert cache_folder().parent == base and base.stat().st_mode & 0o077 == 0
    base.chmod(0o777)
    cache_folders.cache_clear()
    assert cache_folder().parent == base.parent


def test_old_folders_are_removed(tmp_path: Path) -> None:
    """Folders of earlier states go after 30 days without use; what is not ours stays."""
    old = time.time() - 86400 * (kernel_cache.UNUSED_DAYS + 1)
    names = ("0123456789abcdef", "fedcba9876543210", "something else")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "f.nbi").touch()
        if name != names[1]:
            os.utime(tmp_path / name, (old, old))
    remove_unused(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [names[1], names[2]]


@pytest.mark.subprocess
def test_processors_have_folders_and_widths_of_their_own(tmp_path: Path) -> None:
    """Code for AVX2 is not loaded where it is for AVX-512, SSE or the processor at hand; lanes are as registers are."""
    text = "from mpimbs.kernels.lanes import native_width; from mpimbs.kernels.kernel_cache import cache_folder"
    found = {}
    for width, given in {8: "skylake-avx512 +avx512f,+avx2", 4: "haswell +avx2,+fma", 2: "x86-64 +sse2"}.items():
        name, features = given.split()
        own = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "MPIMBS_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", f"{text}; print(native_width(), cache_folder())"]
        done = subprocess.run(command, env=plain_environment() | own, capture_output=True, text=True, check=True)
        found[width] = done.stdout.split()
    assert [int(lanes) for lanes, _ in found.values()] == list(found)
    assert len({folder for _, folder in found.values()}) == len(found)


PACKAGE = {
    "__init__": "",
    "base": "SIZE = 3\nOTHER = 4\n\n\ndef plain():\n    return SIZE\n",
    "overloads": (
        "from mpimbs.base import OTHER\n\n\ndef load(x):\n    pass\n\n\n@kernel_overload(load)\n"
        "def _load(x):\n    return lambda x: OTHER\n"
    ),
    "parts": (
        "from mpimbs import base\nfrom mpimbs.base import SIZE as ROOM\n\n\n"
        "def helper():\n    return base.plain()\n\n\n"
        "class Row(NamedTuple):\n    width: int\n\n\nclass Plan(NamedTuple):\n    row: Row\n\n\n"
        "PLAN = schema(Plan)\n\n\n@kernel\ndef inner(x: helper) -> helper:\n    return x * ROOM + PLAN\n\n\n"
        "@kernel\ndef beside(x):\n    return x + 1\n"
    ),
    "entries": (
        "from mpimbs.overloads import load\nfrom mpimbs.parts import beside, inner\n\n\n"
        "@kernel\ndef one(x):\n    return inner(x)\n\n\n@kernel\ndef two(x):\n    return beside(load(x))\n\n\n"
        "TABLE = {}\nTABLE['two'] = 2\n"
    ),
}
CHANGES = {  # a module, a text in it, another one: and which of the entries are compiled anew
    "a constant that one uses": ("base", "SIZE = 3", "SIZE = 5", {"one"}),
    "a constant of an overload": ("base", "OTHER = 4", "OTHER = 5", {"two"}),
    "plain Python": ("parts", "return base.plain()", "return 7", set()),
    "plain Python that an annotation names": ("base", "    return SIZE", "    return 8", set()),
    "a kernel within": ("parts", "x * ROOM", "x - ROOM", {"one"}),
    "what is within a table": ("parts", "width: int", "depth: int\n    width: int", {"one"}),
    "one beside it": ("parts", "x + 1", "x + 2", {"two"}),
    "what is imported under a name": ("parts", "import SIZE as ROOM", "import OTHER as ROOM", {"one"}),
    "an overload": ("overloads", "lambda x: OTHER", "lambda x: x", {"two"}),
    "what is done at the top of the module": ("entries", "['two'] = 2", "['two'] = 3", {"one", "two"}),
    "an entry itself": ("entries", "return inner(x)", "return inner(x) + x", {"one"}),
    "a comment": ("parts", "x + 1", "x + 1  # so", set()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_entry_is_compiled_anew_where_what_it_reaches_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Functions, constants, overloads and what acts by itself, through imports; not what stands beside them."""
    folder = tmp_path / "mpimbs"
    folder.mkdir()
    monkeypatch.setattr(reach, "SOURCES", folder)
    for module, text in PACKAGE.items():
        (folder / f"{module}.py").write_text(text, encoding="utf-8")

    monkeypatch.setattr(reach, "BEGAN", time.time() + 60.0)  # as if each were a process of its own

    def stamps() -> dict[str, str]:
        kept = reach.Stamps(tmp_path / "stamps.json")
        return {entry: kept.of_names([("mpimbs.entries", entry)]) for entry in ("one", "two")}

    before = stamps()
    assert stamps() == before and len(set(before.values())) == 2
    module, old, new, anew = CHANGES[name]
    assert PACKAGE[module].count(old) == 1
    (folder / f"{module}.py").write_text(PACKAGE[module].replace(old, new), encoding="utf-8")
    after = stamps()
    assert {entry for entry in before if after[entry] != before[entry]} == anew
    (folder / f"{module}.py").write_text(PACKAGE[module], encoding="utf-8")
    assert stamps() == before


def test_what_changes_under_a_running_process_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs what it has read: code that it compiles later is not taken for that of the new text."""
    folder, kept = tmp_path / "mpimbs", tmp_path / "stamps.json"
    folder.mkdir()
    monkeypatch.setattr(reach, "SOURCES", folder)
    for module, text in PACKAGE.items():
        (folder / f"{module}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(reach, "BEGAN", time.time() + 60.0)
    right = reach.Stamps().of_names([("mpimbs.entries", "one")])
    monkeypatch.setattr(reach, "BEGAN", time.time() - 60.0)
    assert reach.Stamps(kept).of_names([("mpimbs.entries", "one")]) != right and not kept.exists()
    for file in folder.iterdir():  # of a server whose clock is ahead
        os.utime(file, (time.time() + 3600.0,) * 2)
    assert reach.Stamps(kept).of_names([("mpimbs.entries", "one")]) == right and kept.exists()


# Entries of the package, and changes of its sources: which of the entries each reaches.
ENTRIES = {
    "chain": pipeline.EVALUATE["dcae"][1],
    "tree": pipeline.EVALUATE["intervals"][4],
    "augmented": augmented_equations.factor_equations,
    "pcg": constraint_equations.form,
    "join": join,
    "march": march.march,
}
TOUCHED = {
    ("coupling/augmented/augmented_equations.py", "return sound\n", "return not sound\n"): {"augmented"},
    ("coupling/pcg/constraint_equations.py", "SWAP.to_others", "SWAP.from_others"): {"pcg"},
    ("sweep/structure.py", "    damping: Floats", "    touched: int\n    damping: Floats"): {"chain", "tree"},
    ("sweep/inward.py", "scale_row(a, x)", "scale_row(x, a)"): {"chain", "tree"},
    ("values/handles.py", "factor <= LARGEST_FACTOR", "factor < LARGEST_FACTOR"): {"chain", "tree", "join"},
    ("kernels/lanes.py", "WIDTHS = ", "WIDTHS = 0, "): set(ENTRIES),
    ("dynamics/divided.py", "import functools\n", "import functools\n\nTOUCHED = functools\n"): set(),
    ("model/system.py", "class System", "TOUCHED = 1\n\n\nclass System"): set(),
    ("stepping/march.py", "def march(", "def march(touched, "): {"march"},
}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, to be changed."""
    folder = tmp_path_factory.mktemp("copied") / "mpimbs"
    shutil.copytree(Path(mpimbs.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@contextmanager
def changed(file: Path, old: str, new: str) -> Iterator[None]:
    """A file with another text in the place of the first of its kind."""
    source = file.read_text(encoding="utf-8")
    assert old in source, (file, old)
    file.write_text(source.replace(old, new, 1), encoding="utf-8")
    yield
    file.write_text(source, encoding="utf-8")


def test_a_coupling_costs_others_nothing(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change in one coupling's kernels, or in plain Python, leaves the compiled code of other entries valid."""
    monkeypatch.setattr(reach, "SOURCES", copied)
    monkeypatch.setattr(reach, "BEGAN", time.time() + 60.0)

    def stamps() -> dict[str, str]:
        kept = reach.Stamps()
        return {name: kept.of(entry.py_func) for name, entry in ENTRIES.items()}

    before = stamps()
    for (file, old, new), anew in TOUCHED.items():
        with changed(copied / file, old, new):
            after = stamps()
        assert {name for name in before if after[name] != before[name]} == anew, file
    assert stamps() == before


@pytest.mark.subprocess
def test_a_change_compiles_what_it_reaches_and_nothing_else(copied: Path, tmp_path: Path) -> None:
    """What numba compiles anew for a join of two subchains after changes of a joint's elimination, and of joins."""
    text = (
        "import numpy as np\n"
        "from numba.core import event\n"
        "from mpimbs.values.handles import RESPONSE, SCRATCH, SIZE, join\n"
        "with event.install_recorder('numba:compile') as compiled:\n"
        "    join(np.zeros(SIZE), np.zeros(SIZE), np.zeros(SIZE), np.zeros(RESPONSE), np.zeros(SCRATCH))\n"
        "print(len(compiled.buffer))\n"
    )

    def compiled() -> int:
        given = {"MPIMBS_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(copied.parent)}
        command = [sys.executable, "-P", "-c", text]
        done = subprocess.run(command, env=plain_environment() | given, capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert compiled() > 10 and compiled() == 0
    with changed(copied / "sweep/inward.py", "scale_row(a, x)", "scale_row(x, a)"):
        assert compiled() == 0
    with changed(copied / "values/handles.py", "factor <= LARGEST_FACTOR", "factor < LARGEST_FACTOR"):
        assert compiled() > 10
    assert compiled() == 0


def compiled_anew(monkeypatch: pytest.MonkeyPatch) -> tuple[float, int]:
    """What kernels give that this process has not compiled yet, and how many were compiled."""
    monkeypatch.setattr(machine_code, "_LOADED", {})
    values = np.ones(1)
    scope = {"__name__": __name__, "_twice": kernel(_twice.py_func)}
    with event.install_recorder("numba:compile") as compiled:
        kernel(FunctionType(_four_times.py_func.__code__, scope))(values)
    return float(values[0]), len(compiled.buffer) // 2


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """A place that MPIMBS_CACHE_DIR names, and the user's."""
    monkeypatch.setenv("MPIMBS_CACHE_DIR", str(tmp_path / "first"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernel_cache, "_full", set())
    machine_code._has_room.cache_clear()
    cache_folders.cache_clear()
    yield tmp_path / "first", tmp_path / "mpimbs" / "kernels"
    cache_folders.cache_clear()
    machine_code._has_room.cache_clear()


def test_a_cache_that_can_only_be_read(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is loaded; the rest goes to the user's."""
    first, second = places
    assert compiled_anew(monkeypatch) == (4.0, 2)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != first and access(path, mode))
    cache_folders.cache_clear()
    assert cache_folder().parent == second and compiled_anew(monkeypatch) == (4.0, 0)
    for file in first.rglob("*.nb*"):
        file.unlink()
    assert compiled_anew(monkeypatch) == (4.0, 1)  # of the two, the inner one is there
    assert {file.suffix for file in second.rglob("*.*") if file.parent != second} >= {".nbi", ".nbc"}


@pytest.mark.parametrize("seen", [True, False], ids=["before", "when it is written"])
def test_a_disk_that_is_full(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seen: bool
) -> None:
    """One line, and the next place; a later process finds there what this one has left."""
    first, second = places

    def full(path: Path, *rest: Any) -> None:
        if first in path.parents:
            raise OSError(errno.ENOSPC, "No space left on device")

    if seen:
        monkeypatch.setattr(machine_code, "check_room", full)
    else:
        saved = numba.core.caching.IndexDataCacheFile.save
        monkeypatch.setattr(
            numba.core.caching.IndexDataCacheFile,
            "save",
            lambda self, *given: (full(Path(self._index_path)), saved(self, *given)),
        )
    assert compiled_anew(monkeypatch) == (4.0, 2)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{first} can't be written (No space left on device)" in said
    assert f"is kept in {second};" in said and len(list(second.rglob("*.nbi"))) == 1
    monkeypatch.setattr(kernel_cache, "_full", set())  # as of another process
    machine_code._has_room.cache_clear()
    cache_folders.cache_clear()
    assert compiled_anew(monkeypatch)[1] <= (not seen)


def test_one_process_compiles_and_others_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel at a time, and only where several may want the same."""
    text = (
        "import sys; from pathlib import Path; from mpimbs.kernels.turns import COMPILING\n"
        "with COMPILING.meant():\n"
        "    assert COMPILING.begin(Path(sys.argv[1]), 'kernel'); print('began', flush=True); sys.stdin.readline()\n"
    )
    command, turns = [sys.executable, "-c", text, str(tmp_path)], Turns()
    assert not turns.begin(tmp_path, "kernel")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other, turns.meant():
        assert other.stdin and other.stdout and other.stdout.readline() == "began\n"
        assert turns.begin(tmp_path, "another kernel") and not turns.begin(tmp_path, "one within it")
        turns.end()
        threading.Timer(0.3, lambda: print(file=other.stdin, flush=True)).start()
        began = time.monotonic()
        assert turns.begin(tmp_path, "kernel") and time.monotonic() - began > 0.2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"compiles kernels into {tmp_path.parent}: waiting for it" in said


@pytest.mark.parametrize("damage", [b"", b"garbage", None], ids=["empty", "garbage", "cut"])
def test_damaged_files_are_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damage: bytes | None
) -> None:
    """Each file of a kernel and of what it calls; one line says where they were."""
    monkeypatch.setattr(machine_code, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(machine_code, "cache_folders", lambda: (tmp_path,))

    def doubled() -> float:
        return compiled_anew(monkeypatch)[0]

    assert doubled() == 4.0
    kept = sorted(tmp_path.iterdir())
    assert {file.suffix for file in kept} == {".nbi", ".nbc", ".part"}
    for file in kept:
        file.write_bytes(file.read_bytes()[:-9] if damage is None else damage)
        capsys.readouterr()
        assert doubled() == 4.0
        said = capsys.readouterr().err
        assert said.count("\n") == (file.suffix != ".part") and (not said or str(tmp_path) in said)
        assert doubled() == 4.0 and not capsys.readouterr().err


@pytest.mark.parametrize("text", ["def f(x):\n    return x\n", "def f(x):\n    return [].append(hidden)\n"])
def test_kernels_that_no_change_would_be_seen_of_are_refused(text: str) -> None:
    """Of the package, where they neither stand at the top of a module nor are made around what does."""
    scope: dict[str, Any] = {"hidden": [1], "__name__": "mpimbs.cli.words"}
    exec(compile(text, str(Path(mpimbs.__file__).parent / "cli" / "words.py"), "exec"), scope)
    with pytest.raises(RuntimeError, match=r"mpimbs\.cli\.words\.f: "):
        kernel(scope["f"])(1.0)


def test_kernels_of_others_depend_on_what_they_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant of another file, or of one that this imports; not comments, and not what is installed."""
    texts = {
        "one": "import numpy\nfrom two_of_these import A\n\nB = 2\n",
        "two_of_these": "import three_of_these\n\nA = 1\n",
        "three_of_these": "C = 3  # so\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("two_of_these")
    before = stamp_of(tmp_path / "one.py")
    (tmp_path / "three_of_these.py").write_text("C = 3\n", encoding="utf-8")
    assert stamp_of(tmp_path / "one.py") == before
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(f"{text}D = 4\n", encoding="utf-8")
        assert stamp_of(tmp_path / "one.py") != before
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    for name in ("two_of_these", "three_of_these"):
        del sys.modules[name]
