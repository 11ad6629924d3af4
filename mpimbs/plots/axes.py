"""What all pictures have in common: figures with one set of axes, ticks with plain numbers, PNG files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from mpimbs.base.arrays import Floats
from mpimbs.base.places import replacing

_MOST = 15  # ticks
_ROUNDING = 1e-9
_APART = 0.055  # of the axis, for a number of four digits


def save(figure: Figure, path: Path) -> Path:
    """Save a figure as PNG and return its path."""
    with replacing(path) as part:
        figure.savefig(part, dpi=150, format="png")
    return path


def new_figure(title: str, x: str, y: str, width: float = 8.0, height: float = 5.0) -> tuple[Figure, Any]:
    """Make a figure with one set of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return figure, axes


def number_ticks(axis: Any, at: Iterable[float] = ()) -> None:
    """Give a logarithmic axis ticks that are plain numbers, far enough apart to be read.

    Parameters
    ----------
    axis : matplotlib axis
        With its data: how far these reach decides on the ticks.
    at : iterable of float
        The numbers that there are data for, such as numbers of ranks: ticks stand there, as far as there is room;
        elsewhere at 1, 2, 5, 10, ...
    """
    low, high = np.log10(axis.get_view_interval())
    decades = max(high - low, 1e-9)
    places: list[float] = []
    for place in sorted(set(at)):
        if not places or np.log10(place / places[-1]) > _APART * decades:
            places.append(place)
    subs = (1.0,) if decades > 4 else (1.0, 2.0, 5.0) if decades > 0.8 else tuple(np.arange(1.0, 10.0, 0.5))
    axis.set_major_locator(FixedLocator(places) if places else LogLocator(subs=subs, numticks=_MOST))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}" if value >= 1e-4 else f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def show_no_noise(axes: Any, values: Floats, span: float = 1.0) -> None:
    """Give the vertical axis a span of its own where all values are the same but for rounding."""
    low, high = float(values.min()), float(values.max())
    if high - low < _ROUNDING * max(abs(low), abs(high), span):
        axes.set_ylim(low - span, high + span)
