"""Pictures of a run, from its output file: coordinates, motion, energy, loads. Nothing is drawn on a screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from matplotlib import image
from matplotlib.figure import Figure

from mpimbs.simulation.kept_motion import open_run
from mpimbs.simulation.output_layout import SAMPLED, SEGMENTS
from mpimbs.simulation.result import motion_in
from mpimbs.study.axes import save
from mpimbs.study.curves import NAMED, Histories, draw_histories
from mpimbs.study.load_pictures import draw_loads
from mpimbs.study.motion_pictures import draw_motion
from mpimbs.study.quantities import Motion, quantities
from mpimbs.study.rod_pictures import draw_rods

Floats = npt.NDArray[np.float64]
PAGE = "overview"


def motion_of(path: str | Path, copy: str | None = None) -> Motion:
    """Give the motion in an output file, of an ensemble that of a copy, by one process."""
    return motion_in(path, copy)[0]


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
    drawn, motion = [], motion_of(path)
    *places, (_, page) = pictures_of(path).items()
    with open_run(Path(path)) as run:
        whole = Throughout(run) if SEGMENTS in run else run
        for name, place in places:
            needed, draw = PICTURES[name]
            there = needed in run or any(needed in later for later in run.get(SEGMENTS, {}).values())
            if there and f"{SAMPLED}/{needed}" not in run and (figure := draw(whole, motion)) is not None:
                drawn.append(save(figure, place))
    title = f"{motion.system.name}: {motion.t[0]:g} to {motion.t[-1]:g} s, {len(motion.t)} samples"
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


class Throughout:
    """A run whose structure changes, as pictures read it: one time axis, and bodies that hang together to the end.

    Parameters
    ----------
    run : File
    """

    def __init__(self, run: h5py.File) -> None:
        self._run, self.attrs = run, run.attrs
        numbers = sorted(map(int, run[SEGMENTS]))
        self._parts = [run, *(run[f"{SEGMENTS}/{number}"] for number in numbers)]

    def __getitem__(self, name: str) -> Any:
        if name == "model/parent":
            return self._parts[-1][name]
        if name in self._parts[-1] and isinstance(self._run[name], h5py.Dataset) and "/" not in name:
            return np.concatenate([part[name][:] for part in self._parts])
        return self._run[name]


def draw_quantities(motion: Motion, texts: Sequence[str]) -> Figure:
    """Draw what texts name of a motion, such as "q:hip,knee" or "energy": see `quantities`."""
    found = [_as_angles(history) for text in texts for history in quantities(motion, text)]
    return draw_histories(f"{motion.system.name}: {', '.join(texts)}", np.asarray(motion.t), found)


def draw_coordinates(motion: Motion) -> Figure:
    """Time histories of the joint coordinates, one set of axes for each unit [Duan & Anderson, figure 9]."""
    found = [_as_angles(history) for history in quantities(motion, "q")]
    return draw_histories(f"{motion.system.name}: joint coordinates", np.asarray(motion.t), found)


def _as_angles(history: Histories) -> Histories:
    """The angles of many rotations from the model's zero (rad): four curves for each would say nothing."""
    if history.unit != "1" or len(history.labels) <= NAMED:
        return history
    quaternions = history.values.reshape(len(history.values), -1, 4)
    angles = 2.0 * np.arctan2(np.linalg.norm(quaternions[..., 1:], axis=2), np.abs(quaternions[..., 0]))
    return Histories("angles of quaternions", "rad", angles, [name.removesuffix(" w") for name in history.labels[::4]])


def draw_energy(motion: Motion) -> Figure:
    """Kinetic, potential and total energy over time."""
    return draw_histories(f"{motion.system.name}: energy", np.asarray(motion.t), quantities(motion, "energy"))


def draw_violation(motion: Motion) -> Figure:
    """How far loops are from closed, and how fast they open."""
    return draw_histories(f"{motion.system.name}: loops", np.asarray(motion.t), quantities(motion, "violation"))


# By name: what the file must have, and how it is drawn, of the file and of the motion in it; None for nothing to draw.
PICTURES: dict[str, tuple[str, Callable[[Any, Motion], Figure | None]]] = {
    "coordinates": ("q", lambda run, motion: draw_coordinates(motion)),
    "motion": ("poses", lambda run, motion: draw_motion(run)),
    "energy": ("energy", lambda run, motion: draw_energy(motion)),
    "loads": ("loads", lambda run, motion: draw_loads(run)),
    "rods": ("loads", lambda run, motion: draw_rods(motion)),
    "violation": ("loop_violation", lambda run, motion: draw_violation(motion)),
}
