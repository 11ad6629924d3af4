"""Structured random systems against plain oracles, on 1 to 4 ranks, for as long as you like.

    python drivers/fuzz.py --seconds 600 --folder results/fuzz
    python drivers/fuzz.py --only 1234 --ranks 3
    python drivers/fuzz.py --seconds 600 --sequences
    python drivers/fuzz.py --seconds 60 --systems 40 --of-sources

Each system is a function of one integer, its seed (`tests/oracles/structured_systems.py`); what is compared, and how
closely, says `tests/fuzzing.py`. A job under mpiexec tries one system after another; one that crashes or hangs is
ended, the seed that it was at counts as failed, and another job goes on behind it. What is wrong in a new way is made
smaller, body by body as long as it stays wrong, and kept as a file that belongs in `tests/corpus`, whose systems are
always tested. Of every tenth seed a run of a small system is stopped, killed and continued at random, beside the same
course undisturbed (`tests/sequences.py`); of those that are wrong the seeds are kept. What the witness of a run would
have stopped (`mpimbs.run.witness`) is no wrong result in silence, and counted by itself. The counts go to
counts.json; the exit code is 1 if anything was wrong in silence, or much told.

Seeds begin by the clock, so that every run draws other systems, or by the package's sources: other systems for every
change, the same ones however often and wherever that state of the sources is tried.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import subprocess
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fault_injection import descendants
from laboratory.command import call, keep

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
LIMIT = 60.0  # s of the processor for one system, beside those for its size
SECONDS_A_BODY = 0.1
COMPILING = 900.0  # s more for the first systems of a job,
FIRST = 200  # of which there are so many
WAITING = 10  # times as long may pass in which the processor does something else
EVERY = 10  # which seeds are those of sequences
CHUNK = 100_000  # seeds between the first ones of numbers of ranks
TOLD, MOST_TOLD = 0.005, 3  # systems of which the witness may say that they are wrong: a share, or so many
SHARES = {1: 4, 2: 2, 3: 2, 4: 2}  # of the time


# --- a job: one process of every rank ---------------------------------------------------------------------------------


class Task(NamedTuple):
    """What a job tries: so many seeds from the first on, for some time (s).

    Those of `states` alone, of `sequences` alone, or all; `plain` by the default coupling alone. Reduced cases go to
    the folder `save`.
    """

    first: int
    systems: int
    seconds: float
    log: str
    most: int
    plain: bool
    states: bool
    sequences: bool
    save: str


def work(task: Task) -> None:
    """Try systems one after the other, on all ranks of the job; rank 0 writes a line before and after each."""
    sys.path.insert(0, str(TESTS))
    from mpi4py import MPI

    from courses import course_of
    from fuzzing import check, reason
    from oracles.structured_systems import case_of
    from sequences import check_sequence, kept_text

    comm, begin, seen = MPI.COMM_WORLD, time.monotonic(), set[tuple[str, ...]]()
    first, systems, seconds, _, most, plain, states, sequences, _ = task
    step = EVERY if sequences and not states else 1
    log, save = Path(task.log), Path(task.save)

    def write(**entry: Any) -> None:
        if comm.rank == 0:
            with log.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    for seed in range(first + -first % step, first + systems, step):
        if comm.bcast(time.monotonic() - begin > seconds):
            break
        write(begin=seed, bodies=0)
        try:
            course = None if seed % EVERY or (states and not sequences) else course_of(seed, comm.size, plain)
            case = case_of(seed, most=most) if course is None else course.case
            write(begin=seed, bodies=case.system.n_bodies)
            lived = None
            if course is None:
                verdict = check(case, comm, {"coupling": "dcae"} if plain else None)
            else:
                verdict, lived = check_sequence(course, comm)
        except Exception:
            traceback.print_exc()
            sys.stderr.flush()
            time.sleep(0.5)
            comm.Abort(3)
            raise
        entry = {key: getattr(verdict, key) for key in ("wrong", "told", "refused", "unjudged", "judged")}
        entry |= {"bodies": case.system.n_bodies, "loops": len(case.system.contents.loops), "features": case.features}
        write(seed=seed, lived=lived, **entry)
        kinds = {(reason(text), *case.features) for text in comm.bcast(verdict.wrong)}
        if kinds - seen and course is None:
            reduce_and_save(case, verdict, comm, save)
        elif verdict.wrong:  # on rank 0
            save.mkdir(parents=True, exist_ok=True)
            with (save / "sequences.toml").open("a") as file:
                file.write(kept_text(seed, comm.size, plain, verdict.wrong[0]))
        seen |= kinds
    write(ended=True)


def reduce_and_save(case: Any, verdict: Any, comm: Any, folder: Path) -> None:
    """Make a wrong case smaller and write it; all ranks call."""
    from fuzzing import case_text, smaller

    verdict = comm.bcast(verdict)
    least, settings, wrong = smaller(case, verdict, comm)
    if comm.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seed{case.seed}.toml").write_text(case_text(least, settings, comm.size, wrong))


# --- the parent -------------------------------------------------------------------------------------------------------


def job(ranks: int, task: Task) -> dict[str, Any] | None:
    """Run one job to its end, or end it; gives what happened at which seed if it failed."""
    log = Path(task.log)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    had = len(log.read_text().splitlines())
    environment = os.environ | {"OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}
    text = log.with_suffix(".txt")
    with text.open("w") as output:
        launcher = subprocess.Popen(
            ["mpiexec", "-n", str(ranks), sys.executable, "-X", "faulthandler", __file__, "work", json.dumps(task)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
        )  # fmt: skip
    seen, since, used, entry = had, time.monotonic(), 0.0, dict[str, Any]()
    while True:
        code = launcher.poll()
        lines = log.read_text().splitlines()
        if len(lines) > seen:
            seen, since, used, entry = len(lines), time.monotonic(), processor_time(launcher.pid), json.loads(lines[-1])
        if code is not None:
            break
        allowed = LIMIT + SECONDS_A_BODY * entry.get("bodies", 0) + (COMPILING if seen < had + 3 * FIRST else 0)
        if processor_time(launcher.pid) - used > allowed * ranks or time.monotonic() - since > WAITING * allowed:
            launcher.terminate()
            try:
                launcher.wait(20)
            except subprocess.TimeoutExpired:
                launcher.kill()
            break
        time.sleep(0.2)
    if code == 0 and "ended" in entry:
        return None
    what = f"hangs for {allowed:.0f} s" if code is None else f"crashes with exit code {code}"
    at = entry.get("begin", entry.get("seed", task.first))
    return {"seed": at, "ranks": ranks, "crashed": what, "text": text.read_text(errors="replace")[-6000:]}


def processor_time(launcher: int) -> float:
    """What all ranks of a job have used of the processor (s)."""
    total = 0
    for process in descendants(launcher):
        with contextlib.suppress(OSError):
            total += sum(map(int, Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def main(
    seconds: float = 60.0,
    systems: int = 10**9,
    seed: int | None = None,
    ranks: Sequence[int] = tuple(SHARES),
    folder: Path = Path("results/fuzz"),
    most: int = 3000,
    only: int | None = None,
    plain: bool = False,
    states: bool = False,
    sequences: bool = False,
    of_sources: bool = False,
    add: bool = False,
) -> dict[str, Any]:
    """Try systems for some time, by turns on each number of ranks.

    Parameters
    ----------
    seconds : float
        Wall time (s) of all, but for the last systems.
    systems : int
        How many on each number of ranks, at the most.
    seed : int, optional
        The first; by default one of the clock, which is printed.
    ranks : sequence of int
        On which numbers of ranks.
    folder : Path
        Where logs, reduced cases and counts.json go.
    most : int
        Bodies of a system.
    only : int, optional
        Try this seed alone.
    plain : bool
        By the default coupling with its own choice of lanes alone, for which less is compiled.
    states, sequences : bool
        Seeds of these alone; of all every tenth is of a sequence.
    of_sources : bool
        The first seed follows from the package's sources in place of the clock.
    add : bool
        To what earlier calls have left in the folder, which is removed otherwise: it may be of another state of the
        package.

    Returns
    -------
    dict
        Counts of systems and sequences, wrong ones, refusals by reason, by number of ranks.
    """
    sys.path.insert(0, str(TESTS))
    first = next(value for value in (only, seed, begin_of(of_sources)) if value is not None)
    print(f"seeds from {first}", flush=True)
    for log in () if add else folder.glob("ranks*.*"):
        log.unlink()
    failed: list[dict[str, Any]] = []
    total = sum(SHARES.get(number, 2) for number in ranks)
    for place, number in enumerate(ranks):
        share = seconds * SHARES.get(number, 2) / total
        begin = first if only is not None else first + place * CHUNK
        end, log = time.monotonic() + share, folder / f"ranks{number}.jsonl"
        left = 1 if only is not None else systems
        while left > 0 and (time.monotonic() < end or only is not None):
            rest, save = max(end - time.monotonic(), 1.0), str(folder / "corpus")
            crash = job(number, Task(begin, left, rest, str(log), most, plain, states, sequences, save))
            if crash is None:
                break
            failed.append(crash)
            with log.open("a") as file:
                file.write(json.dumps(crash) + "\n")
            print(f"seed {crash['seed']} on {number} rank(s) {crash['crashed']}:\n{crash['text'][-1500:]}", flush=True)
            left -= crash["seed"] + 1 - begin
            begin = crash["seed"] + 1
    found = counts(folder, ranks)
    show(found, folder)
    return found


def begin_of(sources: bool) -> int:
    """The first seed, by what the package's sources say or by the clock."""
    if not sources:
        return int(time.time()) % 10**8 * 10
    files = sorted((ROOT / "mpimbs").rglob("*.py"))
    return zlib.crc32(b"".join(file.read_bytes() for file in files)) % 10**8 * 10


def counts(folder: Path, ranks: Sequence[int]) -> dict[str, Any]:
    """Add up what the logs of a folder say."""
    from fuzzing import reason

    found: dict[str, Any] = {}
    for number in ranks:
        log = folder / f"ranks{number}.jsonl"
        entries = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        done = [entry for entry in entries if "wrong" in entry]
        seeds = [entry["seed"] for entry in done]
        lived = [entry for entry in done if entry.get("lived") is not None]
        found[str(number)] = {
            "systems": len(done) - len(lived),
            "sequences": len(lived),
            "lived to the end": sum(entry["judged"] for entry in lived),
            "acts": dict(sum((Counter(entry["lived"]) for entry in lived), Counter[str]())),
            "seeds": [min(seeds), max(seeds)] if seeds else [],
            "bodies": max((entry["bodies"] for entry in done), default=0),
            "evaluated": sum(entry["judged"] for entry in done if entry.get("lived") is None),
            "wrong": [entry["seed"] for entry in done if entry["wrong"]],
            "told by the witness": [entry["seed"] for entry in done if entry.get("told")],
            "crashed": [entry["seed"] for entry in entries if "crashed" in entry],
            "not judged": dict(Counter(reason(text) for entry in done for text in entry["unjudged"])),
            "refused": dict(Counter(reason(text) for entry in done for text in entry["refused"]).most_common()),
        }
    keep(folder / "counts.json", found)
    return found


def loud(count: dict[str, Any]) -> bool:
    """Whether the witness had more to tell than positions beside singular ones explain."""
    return len(count["told by the witness"]) > max(MOST_TOLD, TOLD * (count["systems"] + count["sequences"]))


def show(found: dict[str, Any], folder: Path) -> None:
    """Print the counts, and what was wrong."""
    for number, count in found.items():
        parts = (
            f"{len(count['wrong'])} wrong",
            f"{len(count['told by the witness'])} wrong and told by the witness",
            f"{len(count['crashed'])} crashed",
            f"{sum(count['not judged'].values())} not judged",
        )
        print(
            f"{number} rank(s): {count['systems']} systems, {count['evaluated']} evaluations, {count['sequences']} "
            f"sequences, {count['lived to the end']} to the end, {', '.join(parts)}"
        )
        if count["acts"]:
            print(f"    of sequences {', '.join(f'{name} {times}' for name, times in count['acts'].items())}")
        for text, times in count["refused"].items():
            print(f"    refused {times} times: {text}")
        log = folder / f"ranks{number}.jsonl"
        for line in log.read_text().splitlines() if log.exists() else ():
            entry = json.loads(line)
            for text in (*entry.get("wrong", ()), *entry.get("told", ()))[:3]:
                print(f"    seed {entry['seed']} ({entry['bodies']} bodies, {entry['loops']} loops): {text}")


if __name__ == "__main__":
    faulthandler.enable()
    if sys.argv[1:2] == ["work"]:
        work(Task(*json.loads(sys.argv[2])))
    else:
        found = call(main)
        sys.exit(any(count["wrong"] or count["crashed"] or loud(count) for count in found.values()))
