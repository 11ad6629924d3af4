"""A long run, watched for what it does not give back: memory, file handles, MPI requests and communicators.

    mpiexec -n 2 python drivers/endurance.py chain:4 --steps 1000000 --folder results

While `mpimbs.simulate` runs, with output and checkpoints, a thread of every rank reads its resident memory and open
files (/proc/self), the bytes of malloc in use (mallinfo2 of glibc: those of MPI, PETSc, HDF5, numpy), and the blocks in
use of Python's allocator. Their least in the second, a middle and the last tenth of the run are compared. MPI does not
tell how many requests there are, but takes each from malloc: what one takes is measured, and bounds the number of those
that can have been left. A communicator that is left shifts the handles of the next ones. A run of a hundredth of
the steps comes before, so that what is made once is there. What grew is named, and the exit code is 1 then.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import mpimbs
from laboratory.command import call
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.parallel.agreement import on_root, together
from mpimbs.plots.curves import new_figure, save
from mpimbs.plots.tables import host, write_tables
from mpimbs.run.result import Result

WINDOWS = {"start": (0.1, 0.2), "middle": (0.45, 0.55), "end": (0.9, 1.0)}  # shares of the rows seen
BETWEEN = 0.8  # of the steps, from the start to the end
FEWEST = 100  # steps
FEWEST_ROWS = 10
ROOM = 1024  # rows of what is seen: when they are full, every second one is dropped
REQUESTS = 4096  # made to measure what one takes
LEAST_REQUEST = 64.0  # bytes
COMMUNICATORS = 16  # more than a run has at once


class Quantity(NamedTuple):
    """What is watched: how it is printed, and how much it may grow from start to end, once and by the step."""

    label: str
    unit: int
    once: int
    by_step: float


# Once: free lists of MPI and HDF5 grow by some tens of items of 1 KB; what a checkpoint takes for a moment, 0.5 MB,
# finds another place in the heap; Python keeps up to 2000 tuples of each length for later use, and samples wait for a
# second before they are written. By the step: in 100 steps a block of the least size that malloc gives (32 bytes), or
# one of Python's.
QUANTITIES = {
    "resident": Quantity("resident memory, KB", 1024, 2**20, 0.32),
    "malloc": Quantity("malloc in use, KB", 1024, 2**17, 0.32),
    "objects": Quantity("Python's blocks", 1, 4000, 0.01),
    "handles": Quantity("file handles", 1, 0, 0.0),
}
COLUMNS = ("rank", "quantity", *WINDOWS, "most", "growth", "limit", "growth_per_million_steps")


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


class Watch:
    """Sees what this process uses, again and again, by a thread, in memory of a fixed size."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        if not (hasattr(self._library, "mallinfo2") and os.path.exists("/proc/self/statm")):
            raise InputError("this driver reads /proc and calls mallinfo2: start it on Linux with glibc 2.33 or later")
        self._library.mallinfo2.restype = _Mallinfo
        self._seen = np.ones((ROOM, 1 + len(QUANTITIES)))  # ones: so that the pages are there
        self._count, self._pause = 0, 0.002  # s
        self._ended = threading.Event()

    @property
    def seen(self) -> Floats:
        """Rows of time (s) and use."""
        return self._seen[: self._count]

    def use(self) -> dict[str, int]:
        """What is in use now: bytes, bytes, blocks, files."""
        with open("/proc/self/statm", "rb", buffering=0) as file:
            resident = int(file.read().split()[1]) * resource.getpagesize()
        info = self._library.mallinfo2()
        files = len(os.listdir("/proc/self/fd")) - 1  # without that of the list itself
        return dict(
            zip(QUANTITIES, (resident, info.uordblks + info.hblkhd, sys.getallocatedblocks(), files), strict=True)
        )

    def look(self) -> None:
        """See what is in use now."""
        if self._count == ROOM:
            self._seen[: ROOM // 2] = self._seen[::2].copy()
            self._count, self._pause = ROOM // 2, 2 * self._pause
        self._seen[self._count] = time.perf_counter(), *self.use().values()
        self._count += 1

    def _keep_looking(self) -> None:
        while not self._ended.wait(self._pause):
            self.look()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look now and then, as long as the block runs."""
        thread = threading.Thread(target=self._keep_looking, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def request_bytes(self) -> float:
        """Measure what an MPI request takes from malloc, beyond those that MPI has at hand from earlier ones."""
        room, requests = bytearray(8), []
        taken = [LEAST_REQUEST]
        while np.count_nonzero(np.array(taken) > LEAST_REQUEST) < 2 and len(taken) < 100:  # one is of new ones only
            before = self.use()["malloc"]
            requests += [MPI.COMM_SELF.Send_init(room, 0) for _ in range(REQUESTS)]
            taken.append((self.use()["malloc"] - before) / REQUESTS)
        for request in requests:
            request.Free()
        return max(taken)


def last_handle(comm: MPI.Comm) -> int:
    """The largest number, as Fortran knows them, of some new communicators: Open MPI gives the least that are free."""
    copies = [comm.Dup() for _ in range(COMMUNICATORS)]
    largest = max(copy.py2f() for copy in copies)
    for copy in copies:
        copy.Free()
    return largest


def rows_of(seen: Floats, begin: float, end: float, rank: int, steps: int) -> list[dict[str, Any]]:
    """What was used in the windows of a time span, how much of it grew, and may have."""
    within = seen[(seen[:, 0] >= begin) & (seen[:, 0] < end)]
    if len(within) < FEWEST_ROWS:
        raise InputError(f"{steps} steps are over before they are seen; give more --steps")
    windows = {name: within[int(low * len(within)) : int(high * len(within))] for name, (low, high) in WINDOWS.items()}
    rows = []
    for column, (name, quantity) in enumerate(QUANTITIES.items(), 1):
        least = {window: int(chosen[:, column].min()) for window, chosen in windows.items()}
        growth, limit = least["end"] - least["start"], quantity.once + quantity.by_step * BETWEEN * steps
        most, by_million = int(within[:, column].max()), 1e6 * growth / BETWEEN / steps
        rows.append(dict(zip(COLUMNS, (rank, name, *least.values(), most, growth, limit, by_million), strict=True)))
    return rows


def main(
    system: str = "chain:4", folder: Path = Path("results"), steps: int = 1_000_000, coupling: str = "dcae",
    cuts: int | None = None, integrator: str = "rk4", dt: float = 1e-3, rtol: float | None = None,
    checkpoint_steps: int = 1000, samples: int = 1000, comm: MPI.Comm = MPI.COMM_WORLD,
) -> dict[str, Any]:  # fmt: skip
    """Watch a run, print the table, write endurance.json, .tsv and .png.

    Parameters
    ----------
    system : str
        A generator or a model file, as `mpimbs run` takes it.
    folder : Path
        Where all files go, those of the run too.
    steps : int
        Of the size `dt` (s); with `rtol` the run takes the time of these, in steps of its own.
    coupling, cuts, integrator
        See `mpimbs.simulate`.
    rtol : float, optional
        Adaptive steps in place of fixed ones.
    checkpoint_steps : int
        From one checkpoint to the next.
    samples : int
        Of the output.

    Returns
    -------
    dict
        rows (`COLUMNS`), of every rank; ranks (messages_left, handles_left, communicators_left, request_bytes,
        requests_left_at_most); left, in words; and of the run steps, evaluations, seconds. The same on all ranks.

    Raises
    ------
    InputError, SimulationError
        On all ranks: see `mpimbs.simulate`; the run is too short, or the system does not tell what is in use.
    """
    if steps < FEWEST:
        raise InputError(f"{steps} steps are no long run; give {FEWEST} at least")
    watch = together(comm, Watch)
    model = together(comm, lambda: mpimbs.system_from(system))
    on_root(comm, lambda: folder.mkdir(parents=True, exist_ok=True))
    kind: dict[str, Any] = {"dt": dt} if rtol is None else {"rtol": rtol, "atol": rtol}
    kind |= {"coupling": coupling, "cuts": cuts, "integrator": integrator, "force": True}

    def run(count: int) -> Result:
        every, checkpoints = dt * max(1, count // samples), mpimbs.Checkpoints(steps=min(checkpoint_steps, count // 2))
        output = folder / "endurance.h5"
        return mpimbs.simulate(model, count * dt, comm, every=every, output=output, checkpoints=checkpoints, **kind)

    run(max(FEWEST, steps // 100))
    handle, files = last_handle(comm), watch.use()["handles"]
    with watch.looking():
        began = time.perf_counter()
        result = run(steps)
    begin = began + result.seconds["set-up"] + result.seconds["compile"]
    end = began + sum(result.seconds.values())
    comm.Barrier()  # whatever was sent has arrived
    mine: dict[str, Any] = {
        "messages_left": int(comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)), "handles_left": watch.use()["handles"] - files,
        "communicators_left": last_handle(comm) - handle, "request_bytes": watch.request_bytes(),
    }  # fmt: skip
    rows = together(comm, lambda: rows_of(watch.seen, begin, end, comm.rank, result.steps))
    room = next(row["growth"] for row in rows if row["quantity"] == "malloc") + QUANTITIES["malloc"].once
    mine["requests_left_at_most"] = max(0.0, room / mine["request_bytes"])
    parts = comm.allgather((mine, rows, watch.seen))
    found = {
        "system": system, "coupling": coupling, "cuts": cuts, "integrator": integrator, "dt": dt, "rtol": rtol,
        "checkpoint_steps": checkpoint_steps, "samples": samples, "machine": host(), "steps": result.steps,
        "evaluations": result.evaluations, "seconds": sum(result.seconds.values()),
        "rows": [row for _, rows, _ in parts for row in rows], "ranks": [part for part, _, _ in parts],
    }  # fmt: skip
    found["left"] = left_of(found)
    on_root(comm, lambda: report(found, folder, [seen for _, _, seen in parts]))
    return comm.bcast(found)


def left_of(found: dict[str, Any]) -> list[str]:
    """Say what grew beyond its limit, or was left."""
    grown = [row for row in found["rows"] if row["growth"] > row["limit"]]
    words = [f"rank {row['rank']}: {row['quantity']} +{row['growth']}, limit {row['limit']:.0f}" for row in grown]
    for rank, part in enumerate(found["ranks"]):
        for name in ("messages_left", "handles_left", "communicators_left"):
            words += [f"rank {rank}: {name.replace('_', ' ')}: {part[name]}"] if part[name] > 0 else []
    return words


def report(found: dict[str, Any], folder: Path, seen: list[Floats]) -> None:
    """Print the table, write the figures, and draw what was seen."""
    title = f"{found['system']}, {found['coupling']}, {len(seen)} rank(s): {found['steps']} steps"
    print(f"{title}, {found['evaluations']} evaluations in {found['seconds']:.0f} s")
    print(f"rank {'':20s}" + "".join(f"{name:>10s}" for name in COLUMNS[2:-1]))
    for row in found["rows"]:
        label, unit, _, _ = QUANTITIES[row["quantity"]]
        print(f"{row['rank']:4d} {label:20s}" + "".join(f"{row[name] / unit:10.0f}" for name in COLUMNS[2:-1]))
    for rank, part in enumerate(found["ranks"]):
        most, size = part["requests_left_at_most"], part["request_bytes"]
        print(f"{rank:4d} MPI requests of {size:.0f} bytes: at most {most:.0f} can have been left")
    print("\n".join(found["left"] or ["nothing is left"]), flush=True)
    write_tables(folder, "endurance", found, found["rows"], COLUMNS)
    figure, axes = new_figure(title, "wall time (s)", "resident memory since the start (MB)")
    other = axes.twinx()
    other.set_ylabel("file handles (dashed)")
    for rank, rows in enumerate(seen):
        at = rows[:, 0] - rows[0, 0]
        axes.plot(at, (rows[:, 1] - rows[0, 1]) / 2**20, label=f"rank {rank}")
        other.plot(at, rows[:, 1 + list(QUANTITIES).index("handles")], "--", lw=0.8)
    axes.legend(loc="center right")
    axes.set_ylim(-1.0, max(5.0, axes.get_ylim()[1]))
    other.set_ylim(0, 1.2 * other.get_ylim()[1])
    save(figure, folder / "endurance.png")


if __name__ == "__main__":
    sys.exit(bool(call(main)["left"]))
