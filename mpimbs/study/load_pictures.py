"""Joint loads of a run: tension and moment of every body, over time and along the chain."""

from __future__ import annotations

from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from mpimbs.study.axes import show_no_noise

Floats = npt.NDArray[np.float64]
_FEW = 10  # bodies whose histories are curves with names; more are a map
_MOST = 400  # bodies in a map; of more an even choice is drawn
_NOTHING = 1e-9  # of the largest force, N or at a lever of 1 m: what is below it is rounding
_NO_FORCE = 1e-12  # N: bodies in free fall
_CUT = 2.0  # % of the numbers at either end that the colours don't tell apart: a whip's crack is far above the rest


class Histories(NamedTuple):
    """One number of some bodies over time: what it is, its unit, and the values [samples, bodies]."""

    name: str
    unit: str
    values: Floats


def tension(force: Floats, center: Floats) -> Floats:
    """Give the pull along each body: of the force by its parent, what points away from the center of mass.

    Parameters
    ----------
    force : array [samples, n, 3]
        On each body by its parent, in the body's frame (N).
    center : array [n, 3]
        Center of mass, from the joint (m). Where it is at the joint there is no direction: the magnitude then.

    Returns
    -------
    array [samples, n]
        N; negative for a push.
    """
    reach = np.linalg.norm(center, axis=1)
    along = -np.einsum("tni,ni->tn", force, center) / np.where(reach > 0, reach, 1.0)
    return np.asarray(np.where(reach > 0, along, np.linalg.norm(force, axis=2)))


def histories(run: h5py.File, bodies: npt.NDArray[np.int64]) -> list[Histories]:
    """Tension and magnitude of the moment at the joints of some bodies."""
    loads = run["loads"][:, bodies]
    pull = tension(loads[:, :, 3:], run["model/center_of_mass"][:][bodies])
    moment = np.linalg.norm(loads[:, :, :3], axis=2)
    return [Histories("tension", "N", pull), Histories("moment at the joint", "N m", moment)]


def draw_loads(run: h5py.File) -> Figure:
    """Tension and moment: curves over time for a few bodies; for many a map, and the extremes along the chain."""
    names = run["model/body"].asstr()[:]
    n = len(names)
    bodies = np.unique(np.linspace(0, n - 1, min(n, _MOST)).astype(int))
    found = histories(run, bodies)
    least = max(_NOTHING * float(np.abs(run["loads"][:, bodies, 3:]).max()), _NO_FORCE)
    found = [h._replace(values=np.where(np.abs(h.values) > least, h.values, 0.0)) for h in found]
    title = f"{run.attrs['name']}: loads at the joints, on each body by its parent"
    draw = _draw_curves if n <= _FEW else _draw_maps
    figure = draw(run["time"][:], bodies, found, names)
    figure.suptitle(title if len(bodies) == n else f"{title} ({len(bodies)} of {n})")
    return figure


def _draw_curves(t: Floats, bodies: npt.NDArray[np.int64], found: list[Histories], names: Any) -> Figure:
    figure = Figure(figsize=(9.0, 7.0), layout="constrained")
    for axes, history in zip(figure.subplots(len(found), 1, sharex=True), found, strict=True):
        for body, curve in zip(bodies, history.values.T, strict=True):
            axes.plot(t, curve, lw=1.2, label=names[body])
        axes.set(ylabel=f"{history.name} ({history.unit})", xlim=(t[0], t[-1]))
        show_no_noise(axes, history.values)
        axes.grid(alpha=0.3)
    axes.set_xlabel("time (s)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize="small")
    return figure


def _draw_maps(t: Floats, bodies: npt.NDArray[np.int64], found: list[Histories], names: Any) -> Figure:
    figure = Figure(figsize=(11.0, 8.0), layout="constrained")
    places = figure.subplots(len(found), 2, sharey=True, gridspec_kw={"width_ratios": (3, 1)})
    for (axes, beside), history in zip(places, found, strict=True):
        low, high = _range(history.values)
        shown = axes.pcolormesh(t, bodies, history.values.T, shading="nearest", vmin=low, vmax=high, rasterized=True)
        figure.colorbar(shown, ax=axes, extend="both", label=f"{history.name} ({history.unit})")
        middle = history.values.mean(axis=0)
        beside.fill_betweenx(bodies, history.values.min(axis=0), history.values.max(axis=0), alpha=0.25, lw=0)
        beside.plot(history.values.max(axis=0), bodies, lw=1.0, label="largest")
        beside.plot(middle, bodies, "k", lw=1.0, label="mean")
        beside.set(xlabel=f"{history.name} ({history.unit})")
        beside.grid(alpha=0.3)
        beside.legend(fontsize="small")
        axes.set(xlabel="time (s)")
        ticks = bodies[np.unique(np.linspace(0, len(bodies) - 1, 6).astype(int))]
        axes.set_yticks(ticks, [names[k] for k in ticks])
        axes.set_ylim(bodies[-1] + 0.5, bodies[0] - 0.5)  # the root is on top, as it hangs
    return figure


def _range(values: Floats) -> tuple[float, float]:
    """What the colours tell apart."""
    low, high = np.percentile(values, (_CUT, 100 - _CUT))
    if low == high:
        low, high = values.min(), values.max()
    return (float(low), float(high)) if low < high else (float(low), float(low) + 1.0)
