"""What came of injected faults: counts of chains of jobs, their sums by fault and by topology, and these as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from mpimbs.plots.tables import markdown

KINDS = ("same", "other")
COLUMNS = ("injected", "as documented", "hung", "launcher stays", "too late", "restarts", "anew",
           "same ranks", "same ranks, equal", "other ranks", "other ranks, equal")  # fmt: skip


class Met(Protocol):
    """A chain of jobs that has met its faults."""

    counts: Counter[str]
    largest: float
    complaints: list[str]


def row_of(chains: Sequence[Met]) -> dict[str, Any]:
    """The counts of some chains as one."""
    counts = sum((chain.counts for chain in chains), Counter())
    on_ranks = {name: counts[name] for name in sorted(counts) if name.startswith("on ")}
    complaints = [text for chain in chains for text in chain.complaints]
    largest = max((chain.largest for chain in chains), default=0.0)
    return {name: counts[name] for name in COLUMNS} | {
        "ranks": on_ranks, "largest difference": largest, "complaints": complaints
    }  # fmt: skip


def good(table: dict[str, Any]) -> bool:
    """Whether all was injected, and as documented."""
    rows = table["rows"]
    return table["asked"] == sum(row["as documented"] for row in rows) and not any(row["complaints"] for row in rows)


def sums(rows: Sequence[dict[str, Any]], by: str) -> dict[str, dict[str, Any]]:
    """The rows of each fault or topology as one, and of all of them."""
    found: dict[str, dict[str, Any]] = {}
    for name in [*dict.fromkeys(row[by] for row in rows), "all"]:
        mine = [row for row in rows if name in (row[by], "all")]
        ranks = sum((Counter(row["ranks"]) for row in mine), Counter())
        found[name] = {column: sum(row[column] for row in mine) for column in COLUMNS}
        found[name] |= {
            "ranks": dict(sorted(ranks.items())),
            "largest difference": max(row["largest difference"] for row in mine),
        }
    return found


def text_of(rows: Sequence[dict[str, Any]], by: str) -> str:
    """The counts of each fault or topology, for people."""
    found = []
    for name, row in sums(rows, by).items():
        on_ranks = ", ".join(f"{count} {ranks}" for ranks, count in row["ranks"].items())
        found.append({
            by: name, "injected": f"{row['injected']} ({on_ranks})",
            **{column: row[column] for column in ("as documented", "hung", "launcher stays", "restarts", "anew")},
            **{f"{kind} ranks, equal": f"{row[f'{kind} ranks, equal']} of {row[f'{kind} ranks']}" for kind in KINDS},
            "largest difference": row["largest difference"],
        })  # fmt: skip
    return markdown(found)
