"""The comparison with peers in a process of its own, which may crash, or run out of time or memory, without harm."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpimbs.instruments.peers import OURS, compare
from mpimbs.model import system_from
from mpimbs.resources import free_memory

JOB = ("OMPI_", "PMIX_", "PMI_", "ORTE_", "HYDRA")  # what tells a process that it is a rank of a job


def compare_apart(
    spec: str, seconds: float, names: Sequence[str], memory: float | None = None, limit: float = 300.0
) -> dict[str, dict[str, Any]]:
    """Call `compare` in a process of its own.

    The process may take what memory is free when it begins, so that a peer that needs more than was estimated meets an
    error of its own rather than the end of some process that the system chooses.

    Parameters
    ----------
    spec : str
        The model, as `mpimbs run` takes it.
    seconds, names, memory
        As for `compare`.
    limit : float
        Wall time for everything, set-up included (s).

    Returns
    -------
    dict of str to dict
        As `compare`; where the process gave no answer, every program has the reason.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(JOB)}
    paths = [str(Path(__file__).parents[2]), environment.get("PYTHONPATH", "")]  # this package, wherever it lies
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    order = json.dumps([spec, seconds, list(names), memory])
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, order],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        reason = f"out of time: no answer after {limit:g} s, set-up included"
    else:
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
        last = (done.stderr.strip().splitlines() or [""])[-1]
        code = done.returncode
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        reason = f"failed: the process ended with {cause} {last}".rstrip()
    return {name: {"reason": reason} for name in (OURS, *names)}


def _answer(order: str) -> None:
    """What the process does."""
    spec, seconds, names, memory = json.loads(order)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = min(free_memory(swap=False), math.inf if hard < 0 else hard)
    if most < math.inf:
        resource.setrlimit(resource.RLIMIT_DATA, (int(most), hard))
    print(json.dumps(compare(system_from(spec), seconds, names, memory=memory)))


if __name__ == "__main__":
    _answer(sys.argv[1])
