"""Seed faults into a copy of the package, one after the other, and tell which tests catch each.

    python drivers/mutants.py --folder results/mutants

The faults stand in `mutants.toml`: a function or method of the package, wherever it is, a text that occurs in it
exactly once, what takes its place, and the tests that are run then, all of them also without any fault, where they have
to pass. Of several functions of one name it is that with the text. A mutant is caught where
one of its tests fails, or the job ends in another way than well. The table goes to mutants.json; the exit code is 1 if
a mutant is not caught, or a test fails without one.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from laboratory.command import call, keep

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("mpimbs", "tests", "drivers", "docs", "jobs", "pyproject.toml", "README.md", "LICENSE")
LIMIT = 180.0  # s for the tests of one mutant, most of which compiling may take; or
LONGER = 2.0  # times as long as they take without it, with all to be compiled, whichever is more
SOUND_LIMIT = 1200.0  # s for tests without a fault, some of which compile all that they need


class Mutant(NamedTuple):
    """A fault, and what should notice."""

    name: str
    kind: str
    function: str  # with the name of its class: where `old` occurs
    old: str
    new: str
    tests: list[str]  # as pytest takes them
    ranks: int = 1

    def places(self) -> list[Place]:
        """Where the text occurs in functions of the name; once, where all is well."""
        found = []
        for name, inside in functions().get(self.function, []):
            text, at = (ROOT / name).read_text(encoding="utf-8"), -1
            part = text[inside]
            while (at := part.find(self.old, at + 1)) >= 0:
                found.append(Place(name, inside.start + at))
        return found


class Place(NamedTuple):
    """Where a text occurs."""

    file: str
    at: int


@functools.cache
def functions() -> dict[str, list[tuple[str, slice]]]:
    """All functions of the package by their names, those of classes before: of each the file, and its part of that."""
    found: dict[str, list[tuple[str, slice]]] = {}
    for path in sorted((ROOT / "mpimbs").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        begins = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
        waiting: list[tuple[str, ast.AST]] = [("", ast.parse(text))]
        while waiting:
            prefix, above = waiting.pop()
            for node in ast.iter_child_nodes(above):
                if isinstance(node, ast.FunctionDef):
                    inside = slice(begins[node.lineno - 1], begins[node.end_lineno or node.lineno])
                    found.setdefault(prefix + node.name, []).append((str(path.relative_to(ROOT)), inside))
                elif isinstance(node, ast.ClassDef):
                    waiting.append((f"{prefix}{node.name}.", node))
    return found


def read_mutants() -> list[Mutant]:
    """All mutants of the file beside this one.

    Raises
    ------
    ValueError
        The text of one does not occur exactly once, or is not changed.
    """
    mutants = [
        Mutant(**fields)
        for fields in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["mutant"]
    ]
    for mutant in mutants:
        count = len(mutant.places())
        if count != 1 or mutant.old == mutant.new:
            raise ValueError(f"{mutant.name}: occurs {count} times in `{mutant.function}`, not once: {mutant.old!r}")
    return mutants


def run_tests(copy: Path, tests: list[str], ranks: int, limit: float) -> tuple[bool, str]:
    """Whether tests pass in a copy of the tree within a limit [s], and the first that fails."""
    # Without what an MPI job sets for its ranks: they would be taken for ranks of that one.
    job = ("OMPI_COMM", "OMPI_UNIV", "OMPI_LOCAL", "OMPI_APP", "OMPI_NUM", "OMPI_FIRST", "OMPI_FILE", "OMPI_MCA_orte",
           "OMPI_MCA_ess", "OMPI_MCA_pmix", "PMIX_", "PMI_", "ORTE_", "HYDRA")  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if not name.startswith(job)}
    environment |= {"PYTHONPATH": str(copy), "TEST_TIME_LIMIT": str(limit)}
    environment["MPIMBS_CACHE_DIR"] = str(copy / "kernels")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--color=no", *tests]
    if ranks > 1:
        command = ["mpiexec", "-n", str(ranks), *command, "--with-mpi"]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            timeout=limit,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired:
        return False, "hangs"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)|(tests/\S+::\S+) \((?:call|setup)\) failed", done.stdout, re.MULTILINE)
    return done.returncode == 0, (found.group(1) or found.group(2)) if found else f"exit code {done.returncode}"


def main(folder: Path = Path("results/mutants"), only: str = "") -> dict[str, Any]:
    """Try all mutants, or those whose name or kind has a text in it; give the table."""
    mutants = [mutant for mutant in read_mutants() if only in f"{mutant.kind} {mutant.name}"]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as room:
        copy = Path(room)
        for name in COPIED:
            source = ROOT / name
            shutil.copytree(source, copy / name) if source.is_dir() else shutil.copy(source, copy / name)
        sound: dict[tuple[tuple[str, ...], int], tuple[bool, float]] = {}
        for mutant in mutants:
            began = time.monotonic()
            key = tuple(mutant.tests), mutant.ranks
            if key not in sound:
                passes, _ = run_tests(copy, mutant.tests, mutant.ranks, SOUND_LIMIT)
                sound[key] = passes, max(LIMIT, LONGER * (time.monotonic() - began))
            is_sound, limit = sound[key]
            (found,) = mutant.places()
            place = copy / found.file
            text = place.read_text(encoding="utf-8")
            seeded = text[: found.at] + mutant.new + text[found.at + len(mutant.old) :]
            place.write_text(seeded, encoding="utf-8")
            passed, first = run_tests(copy, mutant.tests, mutant.ranks, limit)
            place.write_text(text, encoding="utf-8")
            row = {"kind": mutant.kind, "name": mutant.name, "file": found.file, "ranks": mutant.ranks}
            rows.append(row | {"caught": not passed, "by": None if passed else first, "sound": is_sound})
            what = "its tests fail without it" if not is_sound else "NOT CAUGHT" if passed else f"caught by {first}"
            print(f"{mutant.kind}: {mutant.name}: {what} ({time.monotonic() - began:.0f} s)", flush=True)
    table = {"mutants": rows, "caught": sum(row["caught"] and row["sound"] for row in rows)}
    keep(folder / "mutants.json", table)
    print(text_of(table))
    return table


def text_of(table: dict[str, Any]) -> str:
    """The table for the documentation."""
    lines = ["| fault | where | caught by |", "|---|---|---|"]
    for row in table["mutants"]:
        ranks = f", {row['ranks']} ranks" if row["ranks"] > 1 else ""
        caught = "`" + re.sub(r"^tests/", "", row["by"]) + "`" if row["caught"] else "nothing"
        lines.append(f"| {row['kind']}: {row['name']} | `{row['file'].removeprefix('mpimbs/')}` | {caught}{ranks} |")
    return "\n".join(lines)


if __name__ == "__main__":
    table = call(main)
    sys.exit(table["caught"] != len(table["mutants"]))
