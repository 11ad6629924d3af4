"""Inject faults into running jobs at random times, restart each until it is complete, and compare with one left alone.

    python drivers/faults.py --kills 100 --others 3 --folder results/faults

A chain is one simulation, in as many jobs under mpiexec as it takes, all writing checkpoints all the time: a job meets
a fault, and must end, or go on, as docs/pages/reliability.md says, within a time, with checkpoint and output
that can be read; the next one goes on from the checkpoint; and so on to the end. `fault_injection.py` lists what is
injected and what must come of it, `fault_subjects.py` what is simulated: of each fault the chains take these by turns.
They alternate between the same number of ranks throughout, whose output must have the bits of a run that met nothing,
and another one for every job, whose output must be equal to rounding. The counts go to faults.json, after every chain;
the exit code is 1 if anything was not as documented.
"""

from __future__ import annotations

import math
import os
import random
import re
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from fault_injection import (
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
from fault_outputs import complete, difference, read, unreadable
from fault_subjects import SUBJECTS, Subject, tasks_of
from fault_tables import good, row_of, text_of
from laboratory.command import call, keep
from mpimbs.base.errors import InputError

MOST_OF_IT = 0.7  # of the time that a job takes that is left alone: faults come within this
SAMPLES = 1400  # of those that write much: room is claimed for 1024 at a time, or fewer where they are large
ENDING = 0.3  # s in which a job that has taken its last step closes its files; more where more waits for the processor
ATTEMPTS = 10  # chains whose fault comes too late, one after the other


class Whole(NamedTuple):
    """What came of a job that was left alone, and how long it took from its first checkpoint on (s)."""

    samples: dict[str, np.ndarray]
    seconds: float


class Options(NamedTuple):
    """What all chains have in common."""

    folder: Path
    halt: float  # s
    most_ranks: int
    seed: int
    end: float  # of `time.monotonic`: none of the faults asked for begins later


class Chain:
    """One simulation with its jobs: by `index` in turns on 2, 3, ... ranks, on the same or others, every fifth by pcg.

    Where the fault came too late, each further `attempt` lets it come earlier.
    """

    def __init__(self, fault: Fault, subject: Subject, index: int, options: Options, attempt: int = 0) -> None:
        self._fault, self._subject, self._options, self._attempt = fault, subject, options, attempt
        self._ranks, self._same = 2 + index % (options.most_ranks - 1), index % 2 == 0
        adaptive = fault.steps == "adaptive"
        self._settings = (subject.adaptive if adaptive else subject.fixed) + (FORCES if fault.force else ())
        if fault.steps == "much":
            step = str(subject.t_end / SAMPLES)
            self._settings += ("--dt", step, "--every", step)
        if index % 5 == 2 and adaptive and subject.pcg:
            self._settings += ("--coupling", "pcg,cuts=3")
        name = f"{subject.name} {fault.name} {index} {attempt}"
        self._chance = random.Random(f"{options.seed} {name}")
        self._place = options.folder.resolve() / re.sub(r"\W+", "_", name)
        self.counts: Counter[str] = Counter()  # of what came of it; `fault_tables.COLUMNS` has the names
        self.largest = 0.0  # difference of the complete output from that of a run left alone, on other ranks
        self.complaints: list[str] = []  # of what was not as documented

    @property
    def key(self) -> tuple[str, int, tuple[str, ...]]:
        """What the bits of the output depend on."""
        return self._subject.name, self._ranks, self._settings

    def _begin(self) -> list[str]:
        """Arguments of the first job."""
        (self._place / OUTPUT.parent).mkdir(parents=True, exist_ok=True)
        for name, text in self._subject.files.items():
            (self._place / name).write_text(text)
        t_end = str(self._subject.t_end)
        return [*self._subject.arguments, "--t-end", t_end, *self._settings, "--force", "-o", str(OUTPUT)]

    def whole(self) -> Whole:
        """One that is left alone."""
        job = Job(self._ranks, self._begin(), self._place)
        try:
            job.wait_for_checkpoint()
            begun = time.monotonic()
            code = job.end()
            lasted = time.monotonic() - begun
        except HangError:
            code = None
        finally:
            job.kill()
        if code != 0:
            raise RuntimeError(f"{job.log}: {'it hangs' if code is None else f'exit code {code}'}\n{job.text()}")
        found = Whole(read(self._place), lasted)
        shutil.rmtree(self._place)
        return found

    def run(self, faults: int, whole: Whole) -> None:
        """Inject so many faults, at most, and go on to the end."""
        shutil.rmtree(self._place, ignore_errors=True)
        jobs, ranks, most = 0, self._ranks, self._options.most_ranks
        soon = 2 * MOST_OF_IT * whole.seconds / (faults + 1) * 0.5**self._attempt  # the job left alone took its time
        while not (jobs and complete(self._place)):
            going_on = (self._place / CHECKPOINT).exists()
            arguments = ["restart", str(CHECKPOINT), *(FORCES if self._fault.force else ())]
            self.counts["restarts"] += going_on
            self.counts["anew"] += jobs > 0 and not going_on
            self._job(ranks, arguments if going_on else self._begin(), self.counts["injected"] < faults and soon)
            jobs += 1
            if self.complaints:
                return
            if not self._same:
                least = 2 if self.counts["injected"] < faults else 1
                ranks = self._chance.choice([n for n in range(least, most + 1) if n != ranks])
        found = difference(read(self._place), whole.samples)
        if self._same or jobs == 1:
            good, kind = found <= self._fault.tolerance, "same"
        else:
            good, kind = found <= ROUNDING, "other"
            self.largest = found
        met = self.counts["injected"] > 0
        self.counts[f"{kind} ranks"] += met
        self.counts[f"{kind} ranks, equal"] += met and good
        if good:
            shutil.rmtree(self._place)
        else:
            self.complaints.append(f"{self._place}: differs by {found:g} from a run left alone")

    def _job(self, ranks: int, arguments: list[str], soon: float) -> None:
        """One job, which meets the fault at most so many seconds after its first checkpoint; or is left alone: 0."""
        fault, chance = self._fault, self._chance
        when = self._subject.t_end * chance.uniform(0.05, 0.95)
        body = chance.randrange(1, self._subject.bodies)  # what acts on the first one's joint may move nothing
        force = f"{fault.force} {body} {when}"
        fails = {"fault": force} if fault.force and soon else {}
        job = Job(ranks, arguments, self._place, bool(fault.small_disk and soon), **fails)
        begun, injected, met = False, False, -math.inf
        try:
            if soon:
                begun = self._reach_random_time(job, soon)
                ending = (job.place / OUTPUT).exists() or not job.running()
                injected = not ending or bool(fault.force)
                if injected:
                    fault.inject(job, chance, self._options.halt)
            met = time.monotonic()
            code = job.end()
        except HangError:
            self.counts["hung"] += 1
            self._complain(job, "hangs")
            return
        finally:
            job.kill()
        if (self._place / "moved").exists():
            (self._place / "moved").rename(self._place / OUTPUT.parent)
        # A job that ends well whatever it meets has taken its last step before, where it ends so soon and says nothing.
        silent = time.monotonic() - met < ENDING * max(1.0, os.getloadavg()[0]) and not re.search(
            fault.message, job.text()
        )
        if complete(self._place) and (0 not in fault.codes or code != 0 or silent):
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

    def _reach_random_time(self, job: Job, soon: float) -> bool:
        """Let a job run for a while; True if that is after its first checkpoint."""
        if self._fault.force:  # which fails at a random time itself
            return False
        if self._fault.while_starting and self._chance.random() < 0.25:
            time.sleep(self._chance.uniform(0.1, 2.0))
            return False
        if job.wait_for_checkpoint():
            time.sleep(self._chance.uniform(0.0, soon))
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
        self.complaints.append(f"{self._subject.name}, {self._fault.name}, {job.log}: {what}\n{text}")


def series(
    fault: Fault, subject: Subject, index: int, faults: int, options: Options, whole: Callable[[Chain], Whole]
) -> list[Chain]:
    """Chains, one after the other, until so many faults were injected; none where the time has passed."""
    chains: list[Chain] = []
    if time.monotonic() > options.end:
        return chains
    while (left := faults - sum(chain.counts["injected"] for chain in chains)) > 0 and len(chains) < ATTEMPTS:
        chain = Chain(fault, subject, index, options, len(chains))
        chains.append(chain)
        try:
            chain.run(left, whole(chain))
        except (OSError, KeyError) as error:
            chain.complaints.append(f"{fault.name}, {subject.name}, chain {index}: its files can't be read: {error!r}")
        if chain.complaints:
            break
    return chains


def shared_wholes() -> Callable[[Chain], Whole]:
    """A function that gives what a chain is compared with, which is made once, whatever thread asks."""
    wholes: dict[Any, Whole] = {}
    locks: defaultdict[Any, Lock] = defaultdict(Lock)

    def find(chain: Chain) -> Whole:
        with locks[chain.key]:
            if chain.key not in wholes:
                wholes[chain.key] = chain.whole()
        return wholes[chain.key]

    return find


def main(
    folder: Path = Path("results/faults"),
    kills: int = 100,
    others: int = 3,
    names: Sequence[str] = (),
    topologies: Sequence[str] = (),
    halt: float = 20.0,
    most_ranks: int = 4,
    beside: int = 2,
    seed: int = 1,
    minutes: float = np.inf,
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
    names, topologies : sequence of str
        Only these faults, and only these subjects; all by default.
    halt : float
        How long a rank is stopped at the most (s).
    most_ranks : int
        Jobs that meet a fault have 2 to so many ranks.
    beside : int
        How many jobs run at a time.
    seed : int
        Of the random times, ranks and numbers of ranks; what happens at these times still differs from run to run.
    minutes : float
        What was not begun by then is left out, as if it was not asked for.
    """
    for what, asked, there in (("fault", names, FAULTS), ("topology", topologies, SUBJECTS)):
        known = [one.name for one in there]
        if unknown := set(asked) - set(known):
            raise InputError(f"unknown {what} '{min(unknown)}'; there are: {', '.join(known)}")
    began = time.monotonic()
    options = Options(folder, halt, most_ranks, seed, began + 60 * minutes)
    small_disks = mounts_small_disk()
    subjects = [subject for subject in SUBJECTS if not topologies or subject.name in topologies]
    wanted = [fault for fault in FAULTS if (not names or fault.name in names) and (small_disks or not fault.small_disk)]
    totals = {fault.name: kills if fault.name == KILLED else others for fault in wanted}
    tasks = [task for k, fault in enumerate(wanted) for task in tasks_of(fault, k, totals[fault.name], subjects)]
    found: dict[tuple[str, str], list[Chain]] = {(task.fault.name, task.subject.name): [] for task in tasks}
    tasks.sort(key=lambda task: task.before)  # so that what was done when time has passed has some of each
    if not tasks:
        raise InputError("nothing is injected: the topologies can't have these faults, or none is asked for")
    folder.mkdir(parents=True, exist_ok=True)
    whole = shared_wholes()
    asked = 0
    with ThreadPoolExecutor(beside) as pool:
        begun = {pool.submit(series, *task[:4], options, whole): task for task in tasks}
        for future in as_completed(begun):
            task, chains = begun[future], future.result()
            found[task.fault.name, task.subject.name] += chains
            asked += task.faults if chains else 0
            rows = [{"fault": fault, "topology": name} | row_of(met) for (fault, name), met in found.items() if met]
            table = {
                "seconds": time.monotonic() - began, "halt": halt, "most_ranks": most_ranks, "seed": seed,
                "small_disks": small_disks, "asked": asked, "rows": rows,
            }  # fmt: skip
            keep(folder / "faults.json", table)
    return table


def told(table: dict[str, Any]) -> None:
    """Print the counts, what went wrong, and the verdict."""
    for by in ("fault", "topology"):
        print(text_of(table["rows"], by), end="\n\n")
    for complaint in (text for row in table["rows"] for text in row["complaints"]):
        print(f"NOT AS DOCUMENTED: {complaint}")
    done = sum(row["injected"] for row in table["rows"])
    verdict = "all as documented" if good(table) else "NOT ALL AS DOCUMENTED"
    print(f"{table['seconds']:.0f} s, {done} of {table['asked']} faults; {verdict}")


if __name__ == "__main__":
    counted = call(main)
    told(counted)
    sys.exit(not good(counted))
