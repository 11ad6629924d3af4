"""Where the time of an evaluation goes, phase by phase, beside what the machine allows: counts, peak, bandwidth, times.

A phase can't take less than its instructions at the rate of fused multiply-adds, nor less than its bytes at the
bandwidths of the memories that hold what it works on. The larger of the two is its limit. Phases follow each other:
the limit of an evaluation is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpimbs.instruments.counts import ARC_TANGENT, SINE_COSINE, Counts
from mpimbs.instruments.machine import Machine


@dataclass(frozen=True)
class Limit:
    """One phase, per body.

    Attributes
    ----------
    phase : str
    counts : Counts
    bytes_moved : float
        Between the kernel and the memories that hold what it works on.
    level : str
        The outermost of these; empty for a sum of phases.
    at_peak, at_bandwidth : float
        ns: least time of the instructions, and of the bytes.
    least : float
        The limit (ns).
    measured : dict
        ns, by the name of the measurement.
    """

    phase: str
    counts: Counts
    bytes_moved: float
    level: str
    at_peak: float
    at_bandwidth: float
    least: float
    measured: dict[str, float]

    def share(self, name: str) -> float:
        """Share of the limit that a measurement reaches; 1 is the best that the machine can do."""
        return self.least / self.measured[name]


def limits(
    counts: Mapping[str, Counts], machine: Machine, measured: Mapping[str, Mapping[str, float]], bodies: int
) -> list[Limit]:
    """Put counts, peak, bandwidth and times together.

    Parameters
    ----------
    counts : mapping
        Per body, by phase.
    machine : Machine
        One core.
    measured : mapping of mappings
        By the name of a measurement, ns per body by phase; phases may be missing.
    bodies : int
        Length of the chain, which says how much a phase touches: times are taken of each alone, over and over.
    """
    rows = []
    for phase, count in counts.items():
        moved = count.bytes_moved(machine.width)
        size = 8 * count.touched * bodies
        at_peak = 2.0 * count.instructions * machine.ranks / machine.lanes.maximum
        at_bandwidth = machine.least_time(moved, size)
        times = {name: times[phase] for name, times in measured.items() if phase in times}
        rows.append(
            Limit(phase, count, moved, machine.level(size), at_peak, at_bandwidth, max(at_peak, at_bandwidth), times)
        )
    return rows


def total(phase: str, rows: Sequence[Limit], measured: Mapping[str, float]) -> Limit:
    """Sum of phases under a name of its own, with its own measurements (ns)."""
    counts = sum((row.counts for row in rows), Counts())
    moved, at_peak, at_bandwidth, least = (
        sum(getattr(row, name) for row in rows) for name in ("bytes_moved", "at_peak", "at_bandwidth", "least")
    )
    return Limit(phase, counts, moved, "", at_peak, at_bandwidth, least, dict(measured))


def as_numbers(rows: Sequence[Limit]) -> list[dict[str, Any]]:
    """Give rows as plain dictionaries, for a JSON file."""
    return [
        {
            "phase": row.phase,
            "counts": vars(row.counts),
            "operations": row.counts.operations,
            "bytes": row.bytes_moved,
            "level": row.level,
            "ns_at_peak": row.at_peak,
            "ns_at_bandwidth": row.at_bandwidth,
            "ns_limit": row.least,
            "ns_measured": row.measured,
            "share_of_limit": {name: row.share(name) for name in row.measured},
        }
        for row in rows
    ]


def markdown(rows: Sequence[Limit], best: str, others: Sequence[str] = ()) -> str:
    """Lay out the limits as a table in Markdown, per body.

    Parameters
    ----------
    rows : sequence of Limit
    best : str
        Name of the measurement whose share of the limit is shown.
    others : sequence of str
        Names of further measurements, shown as times alone.
    """
    header = ["phase", "operations", "bytes", "limit, ns", f"{best}, ns", "share", *(f"{name}, ns" for name in others)]
    lines = [header, ["---"] + ["---:"] * (len(header) - 1)]
    for row in rows:
        cells = [row.phase, f"{row.counts.operations:.0f}", f"{row.bytes_moved:.0f}", _time(row.least)]
        cells += [_time(row.measured[best]), f"{100 * row.share(best):.0f} %"] if best in row.measured else ["", ""]
        cells += [_time(row.measured[name]) if name in row.measured else "" for name in others]
        lines.append(cells)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _time(ns: float) -> str:
    return f"{ns:.0f}" if ns >= 100 else f"{ns:.1f}" if ns >= 10 else f"{ns:.2f}"


def describe(machine: Machine) -> str:
    """Say what the machine can do, in a few lines."""
    m = machine
    lines = [
        f"{'one core' if m.ranks == 1 else f'{m.ranks} cores at once'}: {m.lanes.maximum:.1f} GFLOP/s of fused "
        f"multiply-adds in registers of {m.width} doubles, {m.doubles.maximum:.1f} on single doubles; "
        f"{m.in_flight:.1f} under way at once, {m.frequency():.2f} GHz if each takes 4 cycles"
    ]
    for level, size in m.sizes.items():
        lines.append(
            f"{level}, {size / 1024:.0f} KiB: {m.triad[level].maximum:.0f} GB/s a = b + s c, "
            f"{m.copy[level].maximum:.0f} GB/s a = b (median {m.triad[level].median:.0f}, {m.copy[level].median:.0f})"
        )
    lines.append(f"a sine with its cosine is taken for {SINE_COSINE} operations, an arc tangent for {ARC_TANGENT}")
    return "\n".join(lines)
