"""Numbers over time, drawn so that they can be read: a few as curves with names, some by colour, many as a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from mpimbs.model.summary import listed
from mpimbs.study.axes import show_no_noise

Floats = npt.NDArray[np.float64]
NAMED = 12  # curves that are named one by one
COLOURED = 24  # curves that are told apart by colour; more are a map
MAPPED = 400  # rows of a map; of more an even choice is drawn
_SAME = 1e-9  # of the largest number, or of 1, less than which is no change
_DIGITS, _TOLD = 9, 2  # of numbers that are drawn as one curve, and how many of its names are told
_SHOWN = 6  # names beside a map or colours
_COLOURS = "viridis"
_CUT = 2.0  # % of the numbers at either end that the colours don't tell apart: a whip's crack is far above the rest


class Histories(NamedTuple):
    """Numbers of one kind over time: what they are, their unit, the values [samples, k], and k labels.

    Of some the order of magnitude matters.
    """

    name: str
    unit: str
    values: Floats
    labels: Sequence[str]
    logarithmic: bool = False

    @property
    def told(self) -> str:
        """What stands at the axis."""
        return f"{self.name} ({self.unit})"


def unchanging(values: Floats) -> bool:
    """Whether numbers [samples, k] stay as they are, but for rounding."""
    return bool(np.nanmax(np.ptp(values, axis=0), initial=0.0) <= _SAME * np.nanmax(np.abs(values), initial=1.0))


def even_choice(count: int, most: int = MAPPED) -> npt.NDArray[np.int64]:
    """Numbers below `count`, at most so many, evenly apart."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def draw_histories(title: str, t: Floats, found: Sequence[Histories]) -> Figure:
    """Draw numbers over time, a row of axes for each kind.

    Parameters
    ----------
    title : str
    t : array [samples]
        s.
    found : sequence of Histories
        NaN leaves a gap.
    """
    maps = any(len(history.labels) > COLOURED for history in found)
    heights = [4.0 if len(history.labels) > COLOURED else 3.4 for history in found]
    figure = Figure(figsize=(11.0 if maps else 9.0, 1.0 + sum(heights)), layout="constrained")
    figure.suptitle(title)
    rows = figure.add_gridspec(len(found), 4, height_ratios=heights)
    first: Any = None
    for row, history in enumerate(found):
        many = len(history.labels) > COLOURED
        axes = figure.add_subplot(rows[row, :3] if many else rows[row, :], sharex=first)
        first = first or axes
        if many:
            _draw_map(axes, figure.add_subplot(rows[row, 3], sharey=axes), t, history)
        else:
            (_draw_named if len(history.labels) <= NAMED else _draw_coloured)(axes, t, history)
        axes.set_xlim(t[0], t[-1] if t[-1] > t[0] else t[0] + 1.0)
    axes.set_xlabel("time (s)")
    return figure


def _draw_named(axes: Any, t: Floats, history: Histories) -> None:
    named: dict[object, list[str]] = {}
    still = unchanging(history.values)  # where curves would lie on one another: one for each number
    for k, label in enumerate(history.labels):
        named.setdefault(round(float(history.values[0, k]), _DIGITS) if still else k, []).append(label)
    for labels in named.values():
        curve = history.values[:, list(history.labels).index(labels[0])]
        axes.plot(t, curve, lw=1.2, label=listed(labels, _TOLD))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    _finish(axes, history)


def _draw_coloured(axes: Any, t: Floats, history: Histories) -> None:
    """Draw curves coloured by their place, with some of the names."""
    places = np.arange(len(history.labels))
    mappable = ScalarMappable(Normalize(0, places[-1]), _COLOURS)
    for colour, curve in zip(mappable.to_rgba(places), history.values.T, strict=True):
        axes.plot(t, curve, color=colour, lw=1.0)
    shown = even_choice(len(places), _SHOWN)
    axes.figure.colorbar(mappable, ax=axes).set_ticks(shown, labels=[history.labels[k] for k in shown])
    _finish(axes, history)


def _finish(axes: Any, history: Histories) -> None:
    if history.logarithmic:
        axes.set_yscale("log")
    else:
        show_no_noise(axes, history.values[np.isfinite(history.values)])
    if unchanging(history.values):
        axes.set_title("nothing changes here", fontsize="small", loc="right")
    axes.set_ylabel(history.told)
    axes.grid(alpha=0.3)


def _draw_map(axes: Any, beside: Any, t: Floats, history: Histories) -> None:
    """Draw a map of place and time, and beside it the least, the mean and the largest at each place."""
    count = len(history.labels)
    places = even_choice(count)
    values = history.values[:, places]
    norm = LogNorm() if history.logarithmic else Normalize(*_range(values))
    shown = axes.pcolormesh(t, places, values.T, shading="nearest", norm=norm, rasterized=True)
    axes.figure.colorbar(shown, ax=axes, extend="both", label=history.told)
    least, most = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    beside.fill_betweenx(places, least, most, alpha=0.25, lw=0)
    beside.plot(most, places, lw=1.0, label="largest")
    beside.plot(np.nanmean(values, axis=0), places, "k", lw=1.0, label="mean")
    beside.set(xlabel=history.told, xscale="log" if history.logarithmic else "linear")
    beside.tick_params(labelleft=False)
    beside.grid(alpha=0.3)
    beside.legend(fontsize="small")
    ticks = places[even_choice(len(places), _SHOWN)]
    axes.set_yticks(ticks, [history.labels[k] for k in ticks])
    axes.set_ylim(places[-1] + 0.5, places[0] - 0.5)  # the root is on top, as it hangs
    if len(places) < count:
        axes.set_title(f"{len(places)} of {count}", fontsize="small", loc="right")


def _range(values: Floats) -> tuple[float, float]:
    """What the colours tell apart."""
    low, high = np.nanpercentile(values, (_CUT, 100 - _CUT))
    if low == high:
        low, high = np.nanmin(values), np.nanmax(values)
    return (float(low), float(high)) if low < high else (float(low), float(low) + 1.0)
