"""Kernels: what is compiled, and where it is kept."""

import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import errors

import mpimbs
from mpi_helpers import plain_environment
from mpimbs.kernels import kernel_cache
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.kernel_cache import cache_folder, code_of, remove_unused, stamp_of


def test_all_kernels_are_hashed() -> None:
    """Every file that defines a kernel is among those whose change makes another folder of compiled code."""
    package = Path(mpimbs.__file__).parent
    hashed = {path for part in kernel_cache._WITH_KERNELS for path in package.glob(part)}
    defining = {path for path in package.rglob("*.py") if "\n@kernel" in path.read_text(encoding="utf-8")}
    assert defining and not defining - hashed
    calling = re.compile(r"^from mpimbs\.(\w+)", re.MULTILINE)
    beside = ("partition", "study")  # which call kernels of others, too
    within = [path.read_text(encoding="utf-8") for path in defining if path.parent.name not in beside]
    known = {part.split("/")[0] for part in kernel_cache._WITH_KERNELS} | {"base"}
    assert {name for text in within for name in calling.findall(text)} <= known


@kernel
def _twice(values):
    for i in range(values.size):
        values[i] = values[i] * 2.0


@kernel
def _four_times(values):
    _twice(values)
    _twice(values)


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
    assert code_of(source) == code_of(same.replace(b"    # five", b'    """Six."""'))
    for old, new in ((b"2.0", b"3.0"), (b"y=1", b"y=2"), (b"inline=True", b""), (b"x +", b"x -")):
        assert code_of(source) != code_of(source.replace(old, new))


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder's part, where no home can be written."""
    monkeypatch.delenv("MPIMBS_CACHE_DIR", raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no folder
    monkeypatch.setattr(kernel_cache.tempfile, "tempdir", str(tmp_path))
    cache_folder.cache_clear()
    yield tmp_path / f"mpimbs-{os.getuid()}"
    cache_folder.cache_clear()


def test_temporary_folder_is_private(base: Path) -> None:
    """Compiled code is loaded from a folder under the temporary one only if nobody else can write there."""
    assert cache_folder().parent == base and base.stat().st_mode & 0o077 == 0
    base.chmod(0o777)
    cache_folder.cache_clear()
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


def test_kernels_that_no_change_would_be_seen_of_are_refused() -> None:
    """Of the package, where its folder of compiled code does not depend on their file."""
    file = Path(mpimbs.__file__).parent / "cli" / "words.py"
    scope: dict[str, Any] = {}
    exec(compile("def f(x):\n    return x\n", str(file), "exec"), scope)
    with pytest.raises(RuntimeError, match=r"words\.py: has a kernel, and is not among"):
        kernel(scope["f"])


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
