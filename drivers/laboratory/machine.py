"""What a core can do at most: its rate of fused multiply-adds, and its bandwidth to each level of memory, measured.

Small compiled loops over the kernels' own number types; the figures bound what the kernels can reach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats
from mpimbs.bench.laps import least_each
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, native_width, store, width
from mpimbs.kernels.memory import aligned_zeros
from mpimbs.kernels.widths import by_width

CHAINS = 16  # independent chains of operations: more than two units with a latency of 4 to 5 cycles take at once
CACHES = {"L1": 32 << 10, "L2": 512 << 10, "L3": 16 << 20}  # bytes, where the system doesn't tell
TRIAD = 24  # bytes read and written per number of a = b + s c
MOST = 256 << 20  # bytes, the largest working set


@dataclass(frozen=True)
class Machine:
    """What a core can do."""

    width: int  # doubles in a SIMD register
    lanes: float  # fused multiply-adds on full registers and on single doubles (GFLOP/s, two operations each)
    doubles: float
    caches: dict[str, int]  # bytes of the caches of a core, from "L1" on
    # bytes read and written per time by a = b + s c, by level, "DRAM" the last (GB/s); a line that is written counts
    # once, though memory may have to read it first
    bandwidth: dict[str, float]

    def level(self, size: float) -> str:
        """Innermost level that holds `size` bytes."""
        return next((name for name, capacity in self.caches.items() if size <= capacity), "DRAM")

    def least_time(self, instructions: float, size: float, lanes: bool) -> float:
        """Give the least time (ns) of so many fused multiply-adds that touch all of `size` bytes, over and over.

        Each level of memory holds a share of these, the inner ones as much as they can, and delivers that share.
        """
        moved = within = 0.0
        for name, rate in self.bandwidth.items():
            held = max(within, min(size, self.caches.get(name, size)))
            moved += (held - within) / rate
            within = held
        return max(moved, 2.0 * instructions / (self.lanes if lanes else self.doubles))


@kernel(inline=True)
def _load4(zero, numbers, first):
    w = width(zero)
    i = first * w
    a = (load(zero, numbers, i), load(zero, numbers, i + w))
    return a + (load(zero, numbers, i + 2 * w), load(zero, numbers, i + 3 * w))


@kernel(inline=True)
def _each(x, m, s):
    return (x[0] * m + s, x[1] * m + s, x[2] * m + s, x[3] * m + s)


@kernel
def _multiply_add(zero, times, numbers):
    """Advance `CHAINS` numbers `times` times each, x <- x m + s; every one starts elsewhere, or they would be one."""
    m, s = load(zero, numbers, CHAINS * width(zero)), load(zero, numbers, (CHAINS + 1) * width(zero))
    a, b = _load4(zero, numbers, 0), _load4(zero, numbers, 4)
    c, d = _load4(zero, numbers, 8), _load4(zero, numbers, 12)
    for _ in range(times):
        a, b, c, d = _each(a, m, s), _each(b, m, s), _each(c, m, s), _each(d, m, s)
    x = zero
    for i in range(4):
        x = x + a[i] + b[i] + c[i] + d[i]
    store(numbers, 0, x)


@kernel
def _triad(zero, times, a, b, c):
    w, s = width(zero), zero + 0.5
    for _ in range(times):
        for i in range(0, a.shape[0], 4 * w):
            store(a, i, load(zero, b, i) + s * load(zero, c, i))
            store(a, i + w, load(zero, b, i + w) + s * load(zero, c, i + w))
            store(a, i + 2 * w, load(zero, b, i + 2 * w) + s * load(zero, c, i + 2 * w))
            store(a, i + 3 * w, load(zero, b, i + 3 * w) + s * load(zero, c, i + 3 * w))


_MULTIPLY_ADD = by_width(_multiply_add)
_TRIAD = by_width(_triad)


def aligned(values: npt.ArrayLike) -> Floats:
    """Copy an array to a flat one that begins on a cache line, so that no load of lanes crosses two."""
    copy = aligned_zeros(np.size(values))
    copy[:] = np.ravel(values)
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
    return CACHES | {name: found[name] for name in CACHES if name in found}


def measure_core(seconds: float = 0.05) -> Machine:
    """Measure this core: the best of some runs of so many seconds (s) for each figure.

    Bandwidth is measured in half a cache, but of the last, which cores share, in no more than 8 times the one before;
    and in four times the caches for the memory behind them.
    """
    w, caches = native_width(), cache_sizes()
    sizes = {name: size // 2 for name, size in caches.items()}
    sizes["L3"] = max(min(sizes["L3"], 8 * caches["L2"]), 2 * caches["L2"])
    sizes["DRAM"] = min(max(4 * caches["L3"], 64 << 20), MOST)

    def rate(run: Callable[..., None], arrays: tuple[Floats, ...], work: float) -> float:
        return 1e-9 * work / least_each(lambda times: run(times, *arrays), seconds)

    def multiply_adds(lanes: int) -> float:
        starts = np.linspace(1.0, 2.0, CHAINS * lanes)
        numbers = aligned(np.concatenate([starts, np.full(lanes, 0.5), np.full(lanes, 1.0)]))
        return rate(_MULTIPLY_ADD[lanes], (numbers,), 2.0 * CHAINS * lanes)

    def triad(size: int) -> float:
        n = size // TRIAD // (4 * w) * (4 * w)
        return rate(_TRIAD[w], tuple(aligned(np.full(n, value)) for value in (0.0, 1.0, 2.0)), TRIAD * n)

    return Machine(w, multiply_adds(w), multiply_adds(1), caches, {name: triad(size) for name, size in sizes.items()})
