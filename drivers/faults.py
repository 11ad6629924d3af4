"""Inject faults into running jobs at random times, restart each until it is complete, and compare with one left alone.

    python drivers/faults.py --kills 100 --others 3 --folder results/faults

A chain is one simulation, in as many jobs under mpiexec as it takes, all writing checkpoints all the time: a job meets
a fault, and must end, or go on, as docs/pages/reliability.md says, within a time, with checkpoint and output
that can be read; the next one goes on from the checkpoint; and so on to the end. `fault_injection.py` lists what is
injected and what must come of it. Chains alternate between the same number of ranks throughout, whose output must have
the bits of a run that met nothing, and another one for every job, whose output must be equal to rounding. The counts go
to faults.json; the exit code is 1 if anything was not as documented.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import click
import h5py
import numpy as np
from fault_injection import (
    ADAPTIVE,
    CHECKPOINT,
    CONTINUED,
    FAULTS,
    FORCES,
    KILLED,
    OUTPUT,
    ROUNDING,
    Fault,
    HangError,
    Job,
    mounts_small_disk,
    remove_folder,
)

from mpimbs.errors import InputError
from mpimbs.simulation.checkpoint import read_header
from mpimbs.simulation.output import part_of

MODEL, BODIES, T_END = "chain:8", 8, 3.0
SOON = 0.5  # s after a job's first checkpoint, at the most, until it meets its fault
KILLS_OF_A_CHAIN = 5  # at the most
ATTEMPTS = 20  # chains whose fault comes too late, one after the other


def read(place: Path) -> dict[str, np.ndarray]:
    """The samples of an output, complete or not."""
    part = part_of(place / OUTPUT)
    with h5py.File(part if part.exists() else place / OUTPUT, "r", libver="latest", swmr=True) as file:
        found = {name: data[()] for name, data in file.items() if isinstance(data, h5py.Dataset)}
        return found | {"status": np.array(file.attrs["status"])}


def complete(place: Path) -> bool:
    return (place / OUTPUT).exists() and read(place)["status"] == "complete"


def difference(ours: dict[str, np.ndarray], whole: dict[str, np.ndarray]) -> float:
    """Largest difference of states, over the largest state; infinite if samples are missing or twice there."""
    if not np.array_equal(ours["time"], whole["time"]):
        return np.inf
    return max(float(np.max(np.abs(ours[name] - whole[name])) / np.max(np.abs(whole[name]))) for name in ("q", "u"))


def unreadable(place: Path) -> str:
    """What is wrong with the last checkpoint, and with the samples before it."""
    try:
        kept = read_header(place / CHECKPOINT)["recorder"]["count"]
        samples = read(place)
    except (InputError, OSError, KeyError) as error:
        return str(error)
    if len(samples["time"]) < kept or not np.isfinite(samples["q"]).all():
        return f"{len(samples['time'])} samples are left, the checkpoint comes after {kept}; or some are not finite"
    return ""


class Options(NamedTuple):
    """What all chains have in common."""

    folder: Path
    halt: float  # s
    most_ranks: int
    seed: int


class Chain:
    """One simulation with its jobs.

    Parameters
    ----------
    fault : Fault
    index : int
        Of the chains of this fault: by turns on 2, 3, ... ranks, on the same or other ranks; every fifth by pcg.
    options : Options
    attempt : int
        Which of those in sequence, where the fault came too late.

    Attributes
    ----------
    counts : Counter
        What came of it; `COLUMNS` has the names.
    largest : float
        Difference of the complete output from that of a run left alone, on other ranks.
    complaints : list of str
        What was not as documented.
    """

    def __init__(self, fault: Fault, index: int, options: Options, attempt: int = 0) -> None:
        self._fault, self._options = fault, options
        self._ranks, self._same = 2 + index % (options.most_ranks - 1), index % 2 == 0
        self._settings = fault.settings
        if index % 5 == 2 and fault.settings == ADAPTIVE:
            self._settings += ("--coupling", "pcg", "--cuts", "3")
        self._chance = random.Random(f"{options.seed} {fault.name} {index} {attempt}")
        self._place = options.folder.resolve() / re.sub(r"\W+", "_", f"{fault.name} {index} {attempt}")
        self.counts: Counter[str] = Counter()
        self.largest = 0.0
        self.complaints: list[str] = []

    @property
    def key(self) -> tuple[int, tuple[str, ...]]:
        """What the bits of the output depend on."""
        return self._ranks, self._settings

    def _begin(self) -> list[str]:
        """Arguments of the first job."""
        (self._place / OUTPUT.parent).mkdir(parents=True, exist_ok=True)
        return ["run", MODEL, "--t-end", str(T_END), *self._settings, "--force", "-o", str(OUTPUT)]

    def whole(self) -> dict[str, np.ndarray]:
        """The output of one that is left alone."""
        job = Job(self._ranks, self._begin(), self._place)
        try:
            code = job.end()
        except HangError:
            code = None
        finally:
            job.kill()
        if code != 0:
            raise RuntimeError(f"{job.log}: {'it hangs' if code is None else f'exit code {code}'}\n{job.text()}")
        found = read(self._place)
        shutil.rmtree(self._place)
        return found

    def run(self, faults: int, whole: dict[str, np.ndarray]) -> None:
        """Inject so many faults, at most, and go on to the end."""
        shutil.rmtree(self._place, ignore_errors=True)
        jobs, ranks, most = 0, self._ranks, self._options.most_ranks
        while not (jobs and complete(self._place)):
            going_on = (self._place / CHECKPOINT).exists()
            arguments = ["restart", str(CHECKPOINT), *(FORCES if "--forces" in self._settings else ())]
            self.counts["restarts"] += going_on
            self.counts["anew"] += jobs > 0 and not going_on
            self._job(ranks, arguments if going_on else self._begin(), self.counts["injected"] < faults)
            jobs += 1
            if self.complaints:
                return
            if not self._same:
                least = 2 if self.counts["injected"] < faults else 1
                ranks = self._chance.choice([n for n in range(least, most + 1) if n != ranks])
        found = difference(read(self._place), whole)
        if self._same or jobs == 1:
            good, kind = found <= self._fault.tolerance, "same"
        else:
            good, kind = found <= ROUNDING, "other"
            self.largest = found
        self.counts[f"{kind} ranks"] += 1
        self.counts[f"{kind} ranks, equal"] += good
        if good:
            shutil.rmtree(self._place)
        else:
            self.complaints.append(f"{self._place}: differs by {found:g} from a run left alone")

    def _job(self, ranks: int, arguments: list[str], disturbed: bool) -> None:
        """One job, which meets the fault or is left alone."""
        fault, chance = self._fault, self._chance
        force = f"{fault.force} {chance.randrange(BODIES)} {T_END * chance.uniform(0.05, 0.95)}"
        fails = {"fault": force} if fault.force and disturbed else {}
        job = Job(ranks, arguments, self._place, fault.small_disk and disturbed, **fails)
        begun = injected = False
        try:
            if disturbed:
                begun = self._reach_random_time(job)
                injected = job.running() or bool(fault.force)
                if injected:
                    fault.inject(job, chance, self._options.halt)
            code = job.end()
        except HangError:
            self.counts["hung"] += 1
            self._complain(job, "hangs")
            return
        finally:
            job.kill()
        if (self._place / "moved").exists():
            (self._place / "moved").rename(self._place / OUTPUT.parent)
        if complete(self._place) and (0 not in fault.codes or code != 0):
            self.counts["too late"] += injected
        elif injected:
            self.counts["injected"] += 1
            self.counts[f"on {ranks} ranks"] += 1
            self.counts["launcher stays"] += code is None
            wrong = self._undocumented(job, code, begun)
            self.counts["as documented"] += not wrong
            if wrong:
                self._complain(job, wrong)
        elif code != 0:
            self._complain(job, f"has met nothing, and ends with exit code {code}")

    def _reach_random_time(self, job: Job) -> bool:
        """Let a job run for a while; True if that is after its first checkpoint."""
        if self._fault.force:  # which fails at a random time itself
            return False
        if self._fault.while_starting and self._chance.random() < 0.25:
            time.sleep(self._chance.uniform(0.1, 2.0))
            return False
        if job.wait_for_checkpoint():
            time.sleep(self._chance.uniform(0.0, SOON))
        return True

    def _undocumented(self, job: Job, code: int | None, begun: bool) -> str:
        """What is not as documented about a job's end; nothing if all is."""
        fault, text = self._fault, job.text()
        if code is None:
            if begun or not fault.while_starting:
                return "has no ranks any more, but its mpiexec stays"
        elif code not in fault.codes and (fault.codes or code in (0, 2, CONTINUED)):
            return f"ends with exit code {code}"
        if not re.search(fault.message, text):
            return f"does not say '{fault.message}'"
        if "Traceback" in text:
            return "shows a traceback"
        if (self._place / CHECKPOINT).exists():
            return unreadable(self._place)
        return "has lost its checkpoint" if begun and fault.inject is not remove_folder else ""

    def _complain(self, job: Job, what: str) -> None:
        text = job.text()[-1500:]
        self.complaints.append(f"{self._fault.name}, {job.log}: {what}\n{text}")


COLUMNS = ("injected", "as documented", "hung", "launcher stays", "too late", "restarts", "anew",
           "same ranks", "same ranks, equal", "other ranks", "other ranks, equal")  # fmt: skip


def series(fault: Fault, index: int, faults: int, options: Options, wholes: dict[Any, Any]) -> list[Chain]:
    """Chains, one after the other, until so many faults were injected."""
    chains: list[Chain] = []
    while (left := faults - sum(chain.counts["injected"] for chain in chains)) > 0 and len(chains) < ATTEMPTS:
        chain = Chain(fault, index, options, len(chains))
        chains.append(chain)
        try:
            chain.run(left, wholes[chain.key])
        except (OSError, KeyError) as error:
            chain.complaints.append(f"{fault.name}, chain {index}: its files can't be read: {error!r}")
        if chain.complaints:
            break
    return chains


def main(
    folder: Path,
    kills: int = 100,
    others: int = 3,
    names: Sequence[str] = (),
    halt: float = 20.0,
    most_ranks: int = 4,
    beside: int = 2,
    seed: int = 1,
) -> dict[str, Any]:
    """Inject the faults, and return the counts.

    Parameters
    ----------
    folder : Path
        Gets faults.json, and a folder for every chain while it runs; those of chains that went wrong stay.
    kills : int
        How often a rank is killed, in sum.
    others : int
        How often each of the other faults is injected.
    names : sequence of str
        Only these faults; all by default.
    halt : float
        How long a rank is stopped (s).
    most_ranks : int
        Jobs that meet a fault have 2 to so many ranks.
    beside : int
        How many jobs run at a time.
    seed : int
        Of the random times, ranks and numbers of ranks; what happens at these times still differs from run to run.
    """
    unknown = set(names) - {fault.name for fault in FAULTS}
    if unknown:
        raise InputError(f"unknown fault '{min(unknown)}'; there are: {', '.join(fault.name for fault in FAULTS)}")
    folder.mkdir(parents=True, exist_ok=True)
    options = Options(folder, halt, most_ranks, seed)
    small_disks = mounts_small_disk()
    wanted = [fault for fault in FAULTS if (not names or fault.name in names) and (small_disks or not fault.small_disk)]
    tasks: list[tuple[Fault, int, int]] = []
    for first, fault in enumerate(wanted):  # few of each are on different numbers of ranks too
        total, each = (kills, KILLS_OF_A_CHAIN) if fault.name == KILLED else (others, 1)
        tasks += [(fault, first + k, min(each, total - done)) for k, done in enumerate(range(0, total, each))]
    began = time.monotonic()
    found: dict[str, list[Chain]] = {fault.name: [] for fault in wanted}
    with ThreadPoolExecutor(beside) as pool:
        alone = {chain.key: chain for chain in (Chain(fault, index, options) for fault, index, _ in tasks)}
        wholes = dict(zip(alone, pool.map(Chain.whole, alone.values()), strict=True))
        for task, chains in zip(tasks, pool.map(lambda task: series(*task, options, wholes), tasks), strict=True):
            found[task[0].name] += chains
    table = {
        "model": MODEL, "seconds": time.monotonic() - began, "halt": halt, "most_ranks": most_ranks, "seed": seed,
        "small_disks": small_disks, "faults": {name: _row(chains) for name, chains in found.items()},
    }  # fmt: skip
    table["good"] = all(
        row["injected"] == row["as documented"] == (kills if name == KILLED else others) and not row["complaints"]
        for name, row in table["faults"].items()
    )
    (folder / "faults.json").write_text(json.dumps(table, indent=1))
    return table


def _row(chains: list[Chain]) -> dict[str, Any]:
    counts = sum((chain.counts for chain in chains), Counter())
    on_ranks = {name: counts[name] for name in sorted(counts) if name.startswith("on ")}
    complaints = [text for chain in chains for text in chain.complaints]
    largest = max((chain.largest for chain in chains), default=0.0)
    return {name: counts[name] for name in COLUMNS} | {
        "ranks": on_ranks, "largest difference": largest, "complaints": complaints
    }  # fmt: skip


def text_of(table: dict[str, Any]) -> str:
    """The counts, for people."""
    lines = [
        "| fault | injected | as documented | hung | mpiexec alone stayed | went on from a checkpoint | began anew | "
        "complete on the same ranks: same bits | on others: equal to rounding | largest difference |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in table["faults"].items():
        on_ranks = ", ".join(f"{count} {ranks}" for ranks, count in row["ranks"].items())
        lines.append(
            f"| {name} | {row['injected']} ({on_ranks}) | {row['as documented']} | {row['hung']} | "
            f"{row['launcher stays']} | {row['restarts']} | {row['anew']} | "
            f"{row['same ranks, equal']} of {row['same ranks']} | {row['other ranks, equal']} of {row['other ranks']} "
            f"| {row['largest difference']:.0e} |"
        )
    return "\n".join(lines)


@click.command()
@click.option("--folder", type=Path, default="results/faults", show_default=True)
@click.option("--kills", type=int, default=100, show_default=True, help="How often a rank is killed.")
@click.option("--others", type=int, default=3, show_default=True, help="How often each other fault is.")
@click.option("--only", "names", multiple=True, help="A fault by its name; may be repeated.")
@click.option("--halt", type=float, default=20.0, show_default=True, help="How long a rank is stopped, s.")
@click.option("--most-ranks", type=click.IntRange(3), default=4, show_default=True)
@click.option("--beside", type=int, default=2, show_default=True, help="How many jobs run at a time.")
@click.option("--seed", type=int, default=1, show_default=True)
def command(**parameters: Any) -> None:
    """Inject faults into jobs, restart them, and compare with one left alone."""
    table = main(**parameters)
    print(text_of(table))
    for complaint in (text for row in table["faults"].values() for text in row["complaints"]):
        print(f"NOT AS DOCUMENTED: {complaint}")
    print(f"{table['seconds']:.0f} s; {'all as documented' if table['good'] else 'NOT ALL AS DOCUMENTED'}")
    sys.exit(not table["good"])


if __name__ == "__main__":
    command()
