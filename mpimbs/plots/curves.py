"""What pictures share, and numbers over time, a few as curves with names, some by colour, many as a map, and modes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.places import replacing
from mpimbs.dynamics.statics.modes import Modes
from mpimbs.model.contents import Contents
from mpimbs.model.summary import comma_list
from mpimbs.parts.kinematics import kinematics
from mpimbs.parts.subchain import Subchain
from mpimbs.plots.quantities import Histories

_TICKS = 15  # ticks
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
    axis.set_major_locator(FixedLocator(places) if places else LogLocator(subs=subs, numticks=_TICKS))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}" if value >= 1e-4 else f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def show_no_noise(axes: Any, values: Floats, span: float = 1.0) -> None:
    """Give the vertical axis a span of its own where all values are the same but for rounding."""
    low, high = float(values.min()), float(values.max())
    if high - low < _ROUNDING * max(abs(low), abs(high), span):
        axes.set_ylim(low - span, high + span)


_MOST = 12  # modes that are drawn
_COLUMNS = 4
_SHARE = 0.2  # of the system's size, how far the farthest point is displaced
_SMALL = 1e-4  # rad and m, of differences


def draw_modes(system: Contents, q: Floats, modes: Modes) -> Figure:
    """Shapes of modes about coordinates: each in the plane of the longest side and of most of its motion."""
    part, parents = Subchain(system), system.parents()
    rest = _points(part, q)
    spread = np.ptp(rest, axis=0)
    shapes = [_SHARE * max(float(spread.max()), 1e-3) * _motion(part, q, shape) for shape in modes.shapes[:_MOST]]
    columns = min(_COLUMNS, len(shapes))
    rows = -(-len(shapes) // columns)
    figure = Figure(figsize=(3.2 * columns + 0.5, 2.8 * rows + 0.8), layout="constrained")
    figure.suptitle(f"{system.name}: modes")
    for number, (motion, frequency) in enumerate(zip(shapes, modes.frequencies, strict=False), 1):
        axes = figure.add_subplot(rows, columns, number)
        up = int(np.argmax(np.abs(motion).max(axis=0)))
        across = int(np.argmax(np.where(np.arange(3) == up, -1.0, spread)))
        for points, colour, style in ((rest, "0.7", "-"), (rest + motion, "C0", "-"), (rest - motion, "C0", ":")):
            axes.plot(*_lines(points, parents)[:, [across, up]].T, color=colour, ls=style, lw=1.2)
        told = f"{frequency:.5g} Hz" if frequency >= 0 else f"grows, {-2 * np.pi * frequency:.4g} 1/s"
        axes.set_title(f"{number}: {told}", fontsize="small")
        axes.set(xlabel=f"{'xyz'[across]} (m)", ylabel=f"{'xyz'[up]} (m)")
        axes.set_aspect("equal", adjustable="datalim")
        axes.grid(alpha=0.3)
    return figure


def _points(part: Subchain, q: Floats) -> Floats:
    """Where each body begins, and where it reaches to, twice its center of mass [n, 2, 3]."""
    _, rotations, origins, *_ = kinematics(part, q)
    reach = np.einsum("nij,nj->ni", rotations, 2 * part.columns.center_of_mass)
    return np.stack((origins, origins + reach), axis=1).reshape(-1, 3)


def _motion(part: Subchain, q: Floats, shape: Floats) -> Floats:
    """How those points move along a shape, the farthest by 1 m."""
    small = _SMALL / max(float(np.abs(shape).sum()), 1e-300)
    moved = _points(part, part.displaced(q, small * shape)) - _points(part, part.displaced(q, -small * shape))
    return np.asarray(moved / max(float(np.linalg.norm(moved, axis=1).max()), 1e-300))


def _lines(points: Floats, parents: Integers) -> Floats:
    """Lines from the origin of each body's parent to its own and to where it reaches, and gaps [4 n, 3]."""
    pairs = points.reshape(-1, 2, 3)
    inboard = pairs[np.where(parents >= 0, parents, np.arange(len(parents))), 0]
    return np.stack((inboard, pairs[:, 0], pairs[:, 1], np.full_like(inboard, np.nan)), axis=1).reshape(-1, 3)


NAMED = 12  # curves that are named one by one
COLOURED = 24  # curves that are told apart by colour; more are a map
MAPPED = 400  # rows of a map; of more an even choice is drawn
_SAME = 1e-9  # of the largest number, or of 1, less than which is no change
_DIGITS, _TOLD = 9, 2  # of numbers that are drawn as one curve, and how many of its names are told
_SHOWN = 6  # names beside a map or colours
_LOW, _FEW_TICKS = 1.8, 2  # inches, and ticks, of axes where nothing changes
_COLOURS = "viridis"
_CUT = 2.0  # % of the numbers at either end that the colours don't tell apart: a whip's crack is far above the rest


def unchanging(values: Floats) -> npt.NDArray[np.bool_]:
    """Which of the numbers [samples, k] stay as they are, but for rounding."""
    return np.asarray(np.ptp(values, axis=0) <= _SAME * np.nanmax(np.abs(values), initial=1.0))


def even_choice(count: int, most: int = MAPPED) -> Integers:
    """Numbers below `count`, at most so many, evenly apart."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def draw_histories(title: str, t: Floats, found: Sequence[Histories]) -> Figure:
    """Draw numbers over time, a row of axes for each kind.

    Parameters
    ----------
    t : array [samples]
        s.
    found : sequence of Histories
        NaN leaves a gap.
    """
    kinds = [_curves(history) for history in found]
    maps = any(len(curves) > COLOURED for curves in kinds)
    heights = [
        4.0 if len(curves) > COLOURED else _height(history) for history, curves in zip(found, kinds, strict=True)
    ]
    figure = Figure(figsize=(11.0 if maps else 9.0, 1.0 + sum(heights)), layout="constrained")
    figure.suptitle(title)
    rows = figure.add_gridspec(len(found), 4, height_ratios=heights)
    first: Any = None
    for row, (history, curves) in enumerate(zip(found, kinds, strict=True)):
        many = len(curves) > COLOURED
        axes = figure.add_subplot(rows[row, :3] if many else rows[row, :], sharex=first)
        first = first or axes
        if many:
            _draw_map(axes, figure.add_subplot(rows[row, 3], sharey=axes), t, history)
        elif len(curves) <= NAMED:
            _draw_named(axes, t, history, curves)
        else:
            _draw_coloured(axes, t, history)
        axes.set_xlim(t[0], t[-1] if t[-1] > t[0] else t[0] + 1.0)
    axes.set_xlabel("time (s)")
    return figure


def _curves(history: Histories) -> dict[int, str]:
    """The numbers that are drawn, each with its name: what stays at one value, side by side, is one line."""
    values, labels = history.values, history.labels
    still = unchanging(values)
    if history.logarithmic or (len(labels) > COLOURED and not still.all()):
        return dict(enumerate(labels))
    alike: dict[object, list[int]] = {}
    for k, stays in enumerate(still.tolist()):
        alike.setdefault(f"{values[0, k] + 0.0:.{_DIGITS}g}" if stays else k, []).append(k)
    names = {key: comma_list([labels[k] for k in own], _TOLD) for key, own in alike.items()}
    return {
        own[0]: names[key] if key == own[0] else f"{names[key]}\n{'stay' if len(own) > 1 else 'stays'} at {key}"
        for key, own in alike.items()
    }


def _height(history: Histories) -> float:
    """Give the height of axes, in inches: there is little to see where nothing changes."""
    return _LOW if unchanging(history.values).all() and not history.logarithmic else 3.4


def _draw_named(axes: Any, t: Floats, history: Histories, curves: dict[int, str]) -> None:
    for k, name in curves.items():
        axes.plot(t, history.values[:, k], lw=1.2, label=name)
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
    if unchanging(history.values).all():
        axes.set_title("nothing changes here", fontsize="small", loc="right")
        axes.yaxis.set_major_locator(MaxNLocator(_FEW_TICKS))
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
    """Give the range that the colours tell apart."""
    low, high = np.nanpercentile(values, (_CUT, 100 - _CUT))
    if low == high:
        low, high = np.nanmin(values), np.nanmax(values)
    return (float(low), float(high)) if low < high else (float(low), float(low) + 1.0)
