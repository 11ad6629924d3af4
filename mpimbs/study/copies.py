"""What the copies of an ensemble did, side by side: quantities of all of them, as curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mpimbs.simulation.ensembles.result import EnsembleResult, KeptCopies
from mpimbs.simulation.result import load
from mpimbs.study.curves import Histories, draw_histories
from mpimbs.study.quantities import quantities


def kept_copies(path: str | Path) -> KeptCopies | None:
    """Give the motion of the copies in an output file; None of one that is of no ensemble."""
    result = load(path)
    return result.kept if isinstance(result, EnsembleResult) else None


def quantities_of_copies(copies: KeptCopies, text: str) -> list[Histories]:
    """Give what a text names of all copies, as `quantities` of one: a curve for each number and copy."""
    each = [quantities(copies.copy(name), text) for name in copies.names]
    found = []
    for parts in zip(*each, strict=True):
        first = parts[0]
        several = len(first.labels) > 1
        labels = [
            f"{name}: {label}" if several else name
            for name, part in zip(copies.names, parts, strict=True)
            for label in part.labels
        ]
        title = first.name if several else f"{first.name} of {first.labels[0]}"
        values = np.hstack([part.values for part in parts])
        found.append(Histories(title, first.unit, values, labels, logarithmic=first.logarithmic))
    return found


def draw_copies(copies: KeptCopies, texts: Sequence[str]) -> Figure:
    """Draw what texts name of all copies, such as "q:hip" or "energy"."""
    t = copies.array("time")
    found = [history for text in texts for history in quantities_of_copies(copies, text)]
    title = f"{copies.system.name}, {len(copies.names)} copies: {', '.join(texts)}"
    return draw_histories(title, np.asarray(t), found)
