"""What a core can do at most: its rate of fused multiply-adds, and its bandwidth to each level of memory, measured.

Small compiled loops over the kernels' own number types; the figures bound what the kernels can reach.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import WIDTHS, load, native_width, store, width
from mpimbs.kernels.memory import aligned_zeros
from mpimbs.kernels.widths import by_width

Floats = npt.NDArray[np.float64]

CHAINS = 16  # independent chains of operations: more than two units with a latency of 4 to 5 cycles take at once
CACHES = {"L1": 32 << 10, "L2": 512 << 10, "L3": 16 << 20}  # bytes, where the system doesn't tell
COPY, TRIAD = 16, 24  # bytes read and written per number of a = b and a = b + s c
LEVELS = (*CACHES, "DRAM")
MOST = 256 << 20  # bytes, the largest working set


class Rate(NamedTuple):
    """A rate over several runs."""

    minimum: float
    median: float
    maximum: float


@dataclass(frozen=True)
class Machine:
    """What one core, or several at once, can do.

    Attributes
    ----------
    ranks : int
        Cores that the figures are the sum of.
    width : int
        Doubles in a SIMD register.
    lanes, doubles : Rate
        Fused multiply-adds on full registers and on single doubles (GFLOP/s, two operations each).
    dependent : Rate
        The same on registers, each waiting for the one before (GFLOP/s).
    caches : dict
        Bytes of the caches of a core, from "L1" on.
    sizes : dict
        Bytes of the working set with which each level was measured, "DRAM" the last.
    copy, triad : dict
        Bytes read and written per time, by level, of a = b and a = b + s c (GB/s); a line that is written counts once,
        though memory may have to read it first.
    """

    ranks: int
    width: int
    lanes: Rate
    doubles: Rate
    dependent: Rate
    caches: dict[str, int]
    sizes: dict[str, int]
    copy: dict[str, Rate]
    triad: dict[str, Rate]

    @property
    def in_flight(self) -> float:
        """Fused multiply-adds under way at once: units times latency in cycles, whatever the frequency is."""
        return self.lanes.maximum / self.dependent.maximum

    def frequency(self, latency: int = 4) -> float:
        """Frequency of a core (GHz) on which a fused multiply-add has this latency (cycles)."""
        return latency * self.dependent.maximum / (2 * self.width * self.ranks)

    def level(self, size: float) -> str:
        """Innermost level that holds `size` bytes."""
        return next((name for name, capacity in self.caches.items() if size <= capacity), "DRAM")

    def least_time(self, moved: float, size: float) -> float:
        """Give the least time (ns) in which a core moves bytes, over and over.

        Parameters
        ----------
        moved : float
            Bytes moved.
        size : float
            Bytes of the different numbers among them. Each level of memory holds a share of these, the inner ones as
            much as they can, and delivers that share.
        """
        found = within = 0.0
        for name in LEVELS:
            held = max(within, min(size, self.caches.get(name, size)))
            found += (held - within) / max(size, 1.0) * moved * self.ranks / self.triad[name].maximum
            within = held
        return found


# --- the loops ------------------------------------------------------------------------------------------------------


@kernel(inline=True)
def _load4(zero, numbers, first):
    w = width(zero)
    i = first * w
    a = (load(zero, numbers, i), load(zero, numbers, i + w))
    return a + (load(zero, numbers, i + 2 * w), load(zero, numbers, i + 3 * w))


@kernel(inline=True)
def _each(x, m, s):
    return (x[0] * m + s, x[1] * m + s, x[2] * m + s, x[3] * m + s)


@kernel(inline=True)
def _in_turn(x, m, s):
    x = x * m + s
    x = x * m + s
    x = x * m + s
    return x * m + s


@kernel
def _independent(zero, times, numbers):
    """Advance `CHAINS` numbers `times` times each, x <- x m + s; every one starts elsewhere, or they would be one."""
    m = load(zero, numbers, CHAINS * width(zero))
    s = load(zero, numbers, (CHAINS + 1) * width(zero))
    a = _load4(zero, numbers, 0)
    b = _load4(zero, numbers, 4)
    c = _load4(zero, numbers, 8)
    d = _load4(zero, numbers, 12)
    for _ in range(times):
        a = _each(a, m, s)
        b = _each(b, m, s)
        c = _each(c, m, s)
        d = _each(d, m, s)
    e = a + b + c + d
    x = zero
    for i in range(CHAINS):
        x = x + e[i]
    store(numbers, 0, x)


@kernel
def _dependent(zero, times, numbers):
    """Advance one number `CHAINS` * `times` times."""
    m = load(zero, numbers, CHAINS * width(zero))
    s = load(zero, numbers, (CHAINS + 1) * width(zero))
    x = load(zero, numbers, 0)
    for _ in range(times):
        x = _in_turn(_in_turn(_in_turn(_in_turn(x, m, s), m, s), m, s), m, s)
    store(numbers, 0, x)


@kernel
def _multiply_add(zero, chained, times, numbers):
    if chained:
        _dependent(zero, times, numbers)
    else:
        _independent(zero, times, numbers)


@kernel
def _copy(zero, times, a, b):
    w = width(zero)
    for _ in range(times):
        for i in range(0, a.shape[0], 4 * w):
            store(a, i, load(zero, b, i))
            store(a, i + w, load(zero, b, i + w))
            store(a, i + 2 * w, load(zero, b, i + 2 * w))
            store(a, i + 3 * w, load(zero, b, i + 3 * w))


@kernel
def _triad(zero, times, a, b, c):
    w = width(zero)
    s = zero + 0.5
    for _ in range(times):
        for i in range(0, a.shape[0], 4 * w):
            store(a, i, load(zero, b, i) + s * load(zero, c, i))
            store(a, i + w, load(zero, b, i + w) + s * load(zero, c, i + w))
            store(a, i + 2 * w, load(zero, b, i + 2 * w) + s * load(zero, c, i + 2 * w))
            store(a, i + 3 * w, load(zero, b, i + 3 * w) + s * load(zero, c, i + 3 * w))


@kernel
def _stream(zero, triad, times, a, b, c):
    if triad:
        _triad(zero, times, a, b, c)
    else:
        _copy(zero, times, a, b)


_MULTIPLY_ADD = by_width(_multiply_add)
_STREAM = by_width(_stream, WIDTHS)


# --- the measurements -----------------------------------------------------------------------------------------------


def aligned(values: npt.ArrayLike) -> Floats:
    """Copy an array to a flat one that begins on a cache line, so that no load of lanes crosses two."""
    given = np.ravel(values)
    copy = aligned_zeros(given.size)
    copy[:] = given
    return copy


def cache_sizes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    """Bytes of the data caches of a core, "L1" to "L3", as the system tells them; usual ones where it doesn't."""
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size[-1:] in "KM":
            found[f"L{level}"] = int(size[:-1]) << (10 if size.endswith("K") else 20)
    return {name: found.get(name, usual) for name, usual in CACHES.items()}


def working_sets(caches: dict[str, int]) -> dict[str, int]:
    """Bytes with which to measure each level: half a cache, but of the last, which cores share, no more than 8 times
    the one before; and four times the caches for the memory behind them."""
    sizes = {name: size // 2 for name, size in caches.items()}
    sizes["L3"] = max(min(sizes["L3"], 8 * caches["L2"]), 2 * caches["L2"])
    sizes["DRAM"] = min(max(4 * caches["L3"], 64 << 20), MOST)
    return sizes


def measure_core(comm: MPI.Comm | None = None, runs: int = 7) -> Machine:
    """Measure this rank's core, in about a second.

    Parameters
    ----------
    comm : MPI.Comm, optional
        Its ranks measure at once, in step, and share what their cores share; all call. This process alone by default.
    runs : int

    Returns
    -------
    Machine
        Of this rank; add those of the others with `of_all_ranks`.
    """
    together = MPI.COMM_SELF if comm is None else comm
    w = native_width()

    def rate(run: Callable[..., None], arrays: tuple[Floats, ...], work: float, seconds: float) -> Rate:
        """Billions of `work` per second, by runs of so many seconds in all; `work` is that of one repetition."""
        run(1, *arrays)
        began = time.perf_counter()
        run(8, *arrays)
        once = max((time.perf_counter() - began) / 8, 1e-9)
        times = together.allreduce(max(1, int(seconds / runs / once)), MPI.MIN)
        laps = np.empty(runs)
        for k in range(runs):
            together.Barrier()
            began = time.perf_counter()
            run(times, *arrays)
            laps[k] = time.perf_counter() - began
        rates = 1e-9 * work * times / laps
        return Rate(float(rates.min()), float(np.median(rates)), float(rates.max()))

    def multiply_adds(lanes: int, chained: bool) -> Rate:
        starts = np.linspace(1.0, 2.0, CHAINS * lanes)
        numbers = aligned(np.concatenate([starts, np.full(lanes, 0.5), np.full(lanes, 1.0)]))
        return rate(functools.partial(_MULTIPLY_ADD[lanes], chained), (numbers,), 2.0 * CHAINS * lanes, 0.05)

    caches = cache_sizes()
    sizes = working_sets(caches)
    copy, triad = {}, {}
    for name, size in sizes.items():
        n = size // 8 // 3 // (4 * w) * (4 * w)
        arrays = tuple(aligned(np.full(n, value)) for value in (0.0, 1.0, 2.0))
        # a copy goes over two of the three arrays: its working set is smaller by a third
        copy[name] = rate(functools.partial(_STREAM[w], False), arrays, COPY * n, 0.05)
        triad[name] = rate(functools.partial(_STREAM[w], True), arrays, TRIAD * n, 0.05)
    peaks = (multiply_adds(w, False), multiply_adds(1, False), multiply_adds(w, True))
    return Machine(1, w, *peaks, caches, sizes, copy, triad)


def of_all_ranks(machine: Machine, comm: MPI.Comm) -> Machine:
    """Add up what the ranks measured at once; all call, all get it."""
    machines = comm.allgather(machine)

    def total(rates: list[Rate]) -> Rate:
        return Rate(*(sum(column) for column in zip(*rates, strict=True)))

    return dataclasses.replace(
        machine,
        ranks=sum(m.ranks for m in machines),
        lanes=total([m.lanes for m in machines]),
        doubles=total([m.doubles for m in machines]),
        dependent=total([m.dependent for m in machines]),
        copy={level: total([m.copy[level] for m in machines]) for level in machine.copy},
        triad={level: total([m.triad[level] for m in machines]) for level in machine.triad},
    )
