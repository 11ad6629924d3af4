"""Kill runs at random times, restart each from its checkpoint until it is complete, and compare with one left alone.

    python drivers/faults.py --kills 100 --folder results

A chain is one simulation: a job under mpiexec that writes checkpoints all the time, of which one rank is killed by
SIGKILL after a random time; another that goes on from the checkpoint, and is killed too; and so on to the end. Chains
alternate between the same number of ranks throughout, whose output must have the bits of a run that nobody killed, and
a random one for every job, whose output must be equal to rounding. The counts go to faults.json.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import click
import h5py
import numpy as np

MODEL = "chain:8"
SETTINGS = ["--t-end", "1.5", "--every", "0.005", "--rtol", "1e-11", "--atol", "1e-11"]
ROUNDING = 1e-9  # relative: 1e-12 of a few steps, amplified by the motion
KILLED = (0.3, 1.2)  # when, over the time of a job that nobody kills: most of the first third is its start
LIMIT = 120.0  # s for one job


class HangError(Exception):
    """A job that does not end."""


def job(ranks: int, arguments: list[str], folder: Path, kill_after: float | None, chance: random.Random) -> int:
    """Run mpimbs on so many ranks, kill one of them after a time, and give the exit code."""
    command = ["mpiexec", "-n", str(ranks), sys.executable, "-m", "mpimbs", *arguments]
    with open(folder / "log.txt", "ab") as log:
        launcher = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            if kill_after is not None:
                try:
                    return launcher.wait(timeout=kill_after)
                except subprocess.TimeoutExpired:
                    ranks_alive = children(launcher.pid)
                    if ranks_alive:
                        os.kill(chance.choice(ranks_alive), signal.SIGKILL)
            return launcher.wait(timeout=LIMIT)
        except ProcessLookupError:
            return launcher.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            launcher.terminate()
            launcher.wait()
            raise HangError(f"{' '.join(command)} has not ended after {LIMIT:g} s") from None


def children(process: int) -> list[int]:
    """Processes that another has started."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in listed.split()]


def read(path: Path) -> dict[str, np.ndarray]:
    """The samples of an output file."""
    with h5py.File(path, "r") as file:
        return {name: data[()] for name, data in file.items() if isinstance(data, h5py.Dataset)}


def difference(ours: dict[str, np.ndarray], whole: dict[str, np.ndarray]) -> float:
    """Largest difference of states, over the largest state; infinite if samples are missing or twice there."""
    if not np.array_equal(ours["time"], whole["time"]):
        return np.inf
    return max(float(np.max(np.abs(ours[name] - whole[name])) / np.max(np.abs(whole[name]))) for name in ("q", "u"))


def main(
    folder: Path, kills: int = 100, coupling: str = "dcae", most_ranks: int = 3, seed: int = 1
) -> dict[str, object]:
    """Kill so many times, and return the counts.

    Parameters
    ----------
    folder : Path
        Gets faults.json, and a folder for every chain while it runs.
    kills : int
        How often a rank is killed in sum.
    coupling : str
    most_ranks : int
        Jobs have 1 to so many ranks.
    seed : int
        Of the random times, ranks and numbers of ranks.
    """
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    begin = ["run", MODEL, *SETTINGS, "--coupling", coupling, "-o", "out.h5", "--checkpoint-steps", "10", "--force"]
    if coupling == "pcg":
        begin += ["--cuts", "3"]
    whole: dict[int, dict[str, np.ndarray]] = {}
    spans: dict[int, float] = {}
    for ranks in range(1, most_ranks + 1):
        place = folder / f"whole{ranks}"
        place.mkdir(exist_ok=True)
        began = time.monotonic()
        if job(ranks, begin, place, None, chance) != 0:
            raise RuntimeError((place / "log.txt").read_text())
        spans[ranks] = time.monotonic() - began
        whole[ranks] = read(place / "out.h5")
    counts: Counter[str] = Counter()
    largest = 0.0
    began = time.monotonic()
    while counts["kills"] < kills:
        counts["chains"] += 1
        same = counts["chains"] % 2 == 1
        place = folder / f"chain{counts['chains']}"
        place.mkdir(exist_ok=True)
        first = ranks = chance.randint(1, most_ranks)
        while not (place / "out.h5").exists():
            going_on = (place / "out.checkpoint.h5").exists()
            counts["restarts" if going_on else "runs from the beginning"] += 1
            arguments = ["restart", "out.checkpoint.h5"] if going_on else begin
            after = chance.uniform(*(share * spans[ranks] for share in KILLED)) if counts["kills"] < kills else None
            code = job(ranks, arguments, place, after, chance)
            killed = code != 0 and code != 2
            counts["kills"] += killed
            if code == 2:
                counts["refused"] += 1
                print((place / "log.txt").read_text()[-1000:])
                break
            ranks = first if same else chance.randint(1, most_ranks)
        else:
            found = difference(read(place / "out.h5"), whole[first])
            if same:
                counts["same ranks: chains with the same bits" if found == 0.0 else "same ranks: DIFFERENT"] += 1
            else:
                largest = max(largest, found)
                counts["other ranks: equal to rounding" if found < ROUNDING else "other ranks: DIFFERENT"] += 1
        print(f"{time.monotonic() - began:.0f} s: {dict(counts)}", flush=True)
    table = {"coupling": coupling, "counts": dict(counts), "largest_difference_on_other_ranks": largest}
    (folder / "faults.json").write_text(json.dumps(table, indent=1))
    return table


@click.command()
@click.option("--folder", type=Path, default="results", show_default=True)
@click.option("--kills", type=int, default=100, show_default=True)
@click.option("--coupling", default="dcae", show_default=True)
@click.option("--most-ranks", type=int, default=3, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def command(**parameters: object) -> None:
    """Kill runs at random times, restart them, and compare with one left alone."""
    print(json.dumps(main(**parameters), indent=1))  # type: ignore[arg-type]


if __name__ == "__main__":
    command()
