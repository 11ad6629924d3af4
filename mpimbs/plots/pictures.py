"""Pictures of a run, from its output file: coordinates, motion, energy, loads, also along rods. None on a screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps, image
from matplotlib.figure import Figure

from mpimbs.files.motion import ALL, Motion
from mpimbs.files.rods import rods_of
from mpimbs.plots.curves import NAMED, draw_histories, even_choice, save, show_no_noise
from mpimbs.plots.motions import draw_motion
from mpimbs.plots.quantities import Histories, quantities
from mpimbs.run.result import load

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


PAGE = "overview"
_NOTHING = 1e-9  # of the largest force, N or at a lever of 1 m: what is below it is rounding
_NO_FORCE = 1e-12  # N: bodies in free fall


def motion_of(path: str | Path) -> Motion:
    """Give the motion in an output file, by one process."""
    return load(path).there


def draw_run(path: str | Path) -> list[Path]:
    """Draw the pictures of an output file, as PNG beside it, and at last a page with all of them.

    Parameters
    ----------
    path : path
        An HDF5 file of `mpimbs run`; motion needs its poses, loads its loads.

    Returns
    -------
    list of Path
        The pictures.
    """
    drawn, motion = [], motion_of(path).one()
    *places, (_, page) = pictures_of(path).items()
    for name, place in places:
        needed, draw = PICTURES[name]
        whole = needed in NOT_OF_BODIES or len(motion.kept(needed)) == motion.system.n_bodies
        if whole and motion.holds(needed) and (figure := draw(motion)) is not None:
            drawn.append(save(figure, place))
    title = f"{motion.title}: {motion.t[0]:g} to {motion.t[-1]:g} s, {len(motion.t)} samples"
    return [*drawn, save(draw_page(title, drawn), page)]


def draw_page(title: str, pictures: Sequence[Path]) -> Figure:
    """A page with pictures that were drawn, two side by side."""
    filled = [0.0, 0.0]  # of each column, in widths
    places = []
    for picture in pictures:
        drawn = image.imread(picture)
        column, height = int(np.argmin(filled)), drawn.shape[0] / drawn.shape[1]
        places.append((drawn, column, filled[column], height))
        filled[column] += height
    width, head = 7.5, 0.6  # inches
    whole = head + width * max(filled)
    figure = Figure(figsize=(2 * width, whole))
    figure.suptitle(title, y=1 - 0.3 * head / whole)
    for drawn, column, top, height in places:
        low = 1 - (head + width * (top + height)) / whole
        figure.add_axes((0.5 * column, low, 0.5, width * height / whole), frameon=False).imshow(drawn)
        figure.axes[-1].set_axis_off()
    return figure


def pictures_of(path: str | Path) -> dict[str, Path]:
    """Where the pictures of an output file go."""
    path = Path(path)
    return {name: path.with_name(f"{path.stem}_{name}.png") for name in (*PICTURES, PAGE)}


def draw_quantities(motion: Motion, texts: Sequence[str], about: str = "") -> Figure:
    """Draw what texts name of a motion, such as "q:hip,knee" or "energy", below what the picture is about.

    See `quantities`.
    """
    found = [_as_angles(history) for text in texts for history in quantities(motion, text)]
    copies = f", {len(motion.names)} copies" if motion.names else ""
    return draw_histories(f"{motion.title}{copies}: {about or ', '.join(texts)}", motion.t, found)


def draw_coordinates(motion: Motion) -> Figure:
    """Time histories of the joint coordinates, one set of axes for each unit [Duan & Anderson, figure 9]."""
    return draw_quantities(motion, ["q"], "joint coordinates")


def draw_energy(motion: Motion) -> Figure:
    """Kinetic, potential and total energy over time."""
    return draw_quantities(motion, ["energy"])


def draw_violation(motion: Motion) -> Figure:
    """How far loops are from closed, and how fast they open."""
    return draw_quantities(motion, ["violation"], "loops")


def draw_loads(motion: Motion) -> Figure:
    """Tension and magnitude of the moment at the joints: curves over time for a few bodies, for many a map."""
    system = motion.system
    bodies = even_choice(system.n_bodies)
    loads, pull, moment = (motion.some(name, ALL, bodies) for name in ("loads", "tension", "moment"))
    least = max(_NOTHING * float(np.abs(loads[..., 3:]).max()), _NO_FORCE)
    names = [system.name_of(k) for k in bodies.tolist()]
    found = [
        Histories(name, unit, np.where(np.abs(values) > least, values, 0.0), names)
        for name, unit, values in (("tension", "N", pull), ("moment at the joint", "N m", moment))
    ]
    more = "" if len(bodies) == system.n_bodies else f" ({len(bodies)} of {system.n_bodies})"
    return draw_histories(f"{system.name}: loads at the joints, on each body by its parent{more}", motion.t, found)


def _as_angles(history: Histories) -> Histories:
    """The angles of many rotations from the model's zero (rad): four curves for each would say nothing."""
    if history.unit != "1" or len(history.labels) <= NAMED:
        return history
    quaternions = history.values.reshape(len(history.values), -1, 4)
    angles = 2.0 * np.arctan2(np.linalg.norm(quaternions[..., 1:], axis=2), np.abs(quaternions[..., 0]))
    return Histories("angles of quaternions", "rad", angles, [name.removesuffix(" w") for name in history.labels[::4]])


# By name: what samples must have, of all bodies, and how it is drawn; None for nothing to draw.
PICTURES: dict[str, tuple[str, Callable[[Motion], Figure | None]]] = {
    "coordinates": ("q", draw_coordinates),
    "motion": ("poses", draw_motion),
    "energy": ("energy", draw_energy),
    "loads": ("loads", draw_loads),
    "rods": ("loads", draw_rods),
    "violation": ("loop_violation", draw_violation),
}
NOT_OF_BODIES = ("energy", "loop_violation")
