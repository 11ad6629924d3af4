"""What rods of a run carry: tension and bending moment along them, at some times and at the most."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from mpimbs.files.motion import Motion
from mpimbs.files.rods import rods_of
from mpimbs.plots.axes import show_no_noise

_TIMES = 8  # of which there are curves
_MOST = 4  # rods that are drawn


def draw_rods(motion: Motion) -> Figure | None:
    """Tension, bending moment and torsion along the rods: curves at some times, and the range of all samples.

    None where there are no rods.
    """
    system, t = motion.system, motion.t
    rods = rods_of(system)
    if not rods:
        return None
    shown = list(rods)[:_MOST]
    figure = Figure(figsize=(4.0 + 4.0 * len(shown), 9.0), layout="constrained")
    places = figure.subplots(3, len(shown), sharex="col", squeeze=False)
    samples = np.unique(np.linspace(0, len(t) - 1, min(len(t), _TIMES)).astype(int))
    for column, name in enumerate(shown):
        rod = motion.rod(name)
        bending = np.linalg.norm(rod.bending, axis=2)
        found = ("tension (N)", rod.tension), ("bending moment (N m)", bending), ("torsion (N m)", rod.torsion)
        for axes, (label, values) in zip(places[:, column], found, strict=True):
            axes.fill_between(rod.s, values.min(axis=0), values.max(axis=0), color="0.9", label="range")
            for k in samples:
                colour = colormaps["viridis"](k / max(len(t) - 1, 1))
                axes.plot(rod.s, values[k], lw=1.2, color=colour, label=f"{t[k]:.3g} s")
            axes.set_ylabel(label)
            show_no_noise(axes, values)
            axes.grid(alpha=0.3)
        places[0, column].set_title(name)
        places[-1, column].set_xlabel("along the rod (m)")
    figure.legend(*places[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    of = "" if len(shown) == len(rods) else f" ({len(shown)} of {len(rods)})"
    figure.suptitle(f"{system.name}: loads along rods{of}")
    return figure
