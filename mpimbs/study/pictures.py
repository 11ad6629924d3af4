"""Pictures of a run, from its output file: coordinates, motion, energy, loads. Nothing is drawn on a screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from mpimbs.model.joints import joint_type
from mpimbs.simulation.output_layout import SEGMENTS
from mpimbs.study.axes import new_figure, save, show_no_noise
from mpimbs.study.load_pictures import draw_loads
from mpimbs.study.motion_pictures import draw_motion
from mpimbs.study.rod_pictures import draw_rods, has_rods

Floats = npt.NDArray[np.float64]
MOST_LINES = 64  # curves in one picture; of more coordinates an even choice is drawn
MOST_NAMES = 12  # curves that are named one by one
COLOURS = "viridis"
_AXES = {"rad": "angles (rad)", "m": "displacements (m)", "1": "quaternions w x y z"}
_ROTATIONS = "angles of quaternions (rad)"  # four curves for each of many joints say nothing

PICTURES: dict[str, tuple[str, Callable[[h5py.File], Figure]]] = {}


class Coordinate(NamedTuple):
    """A coordinate: its place in q, the body whose joint it moves, what it is called, and its unit."""

    place: int
    body: int
    name: str
    unit: str


def draw_run(path: str | Path) -> list[Path]:
    """Draw the pictures of an output file, as PNG beside it.

    Parameters
    ----------
    path : path
        An HDF5 file of `mpimbs run`; motion needs its poses, loads its loads.

    Returns
    -------
    list of Path
        The pictures.
    """
    drawn = []
    with h5py.File(path, "r") as run:
        for name, place in pictures_of(path).items():
            needed, draw = PICTURES[name]
            if needed in run and (draw is not draw_rods or has_rods(run)):
                whole = run if draw is draw_coordinates or SEGMENTS not in run else Throughout(run)
                drawn.append(save(draw(whole), place))
    return drawn


def pictures_of(path: str | Path) -> dict[str, Path]:
    """Where the pictures of an output file go."""
    path = Path(path)
    return {name: path.with_name(f"{path.stem}_{name}.png") for name in PICTURES}


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


def coordinates(run: h5py.File) -> list[Coordinate]:
    """Give the coordinates of a run's model: by the name of the body whose joint they move, and a letter if several."""
    names = run["model/body"].asstr()[:]
    kinds = run["model/joint_type"].asstr()[:]
    found = []
    for body, (name, kind, first) in enumerate(zip(names, kinds, run["model/q_offset"][:-1], strict=True)):
        units = joint_type(kind).q_units
        letters = _letters(units)
        for k, (unit, letter) in enumerate(zip(units, letters, strict=True)):
            found.append(Coordinate(int(first) + k, body, f"{name} {letter}".strip(), unit))
    return found


def _letters(units: Sequence[str]) -> list[str]:
    """What tells the coordinates of one joint from each other: w x y z of quaternions, x y z of others, if several."""
    of = {unit: [k for k, other in enumerate(units) if other == unit] for unit in units}
    turns = iter("wxyz")
    return [
        next(turns) if unit == "1" else "" if len(of[unit]) == 1 else "xyz"[of[unit].index(k)]
        for k, unit in enumerate(units)
    ]


def draw_coordinates(run: h5py.File) -> Figure:
    """Time histories of the joint coordinates, one set of axes for each unit [Duan & Anderson, figure 9]."""
    t, every = run["time"][:], coordinates(run)
    units = [unit for unit in _AXES if any(c.unit == unit for c in every)]
    figure = Figure(figsize=(9.0, 1.0 + 3.6 * len(units)), layout="constrained")
    until = ", to the first event" if SEGMENTS in run else ""
    figure.suptitle(f"{run.attrs['name']}: joint coordinates{until}")
    for axes, unit in zip(np.ravel(figure.subplots(len(units), 1, sharex=True)), units, strict=True):
        of_unit = [c for c in every if c.unit == unit]
        many = len(of_unit) > MOST_NAMES
        shown = [c for c in of_unit if c.name.endswith(" w")] if many and unit == "1" else of_unit
        chosen = [shown[k] for k in np.unique(np.linspace(0, len(shown) - 1, min(len(shown), MOST_LINES)).astype(int))]
        read = _angles if len(shown) < len(of_unit) else _values
        values = read(run["q"], chosen)
        (_draw_many if many else _draw_named)(axes, t, values, chosen)
        show_no_noise(axes, values)
        axes.set(ylabel=_ROTATIONS if read is _angles else _AXES[unit], xlim=(t[0], t[-1]))
        axes.grid(alpha=0.3)
        if len(chosen) < len(shown):
            axes.set_title(f"{len(chosen)} of {len(shown)}", fontsize="small", loc="right")
    axes.set_xlabel("time (s)")
    return figure


def _values(q: h5py.Dataset, chosen: Sequence[Coordinate]) -> Floats:
    return np.asarray(q[:, [c.place for c in chosen]])


def _angles(q: h5py.Dataset, chosen: Sequence[Coordinate]) -> Floats:
    """Angles of the rotations from the model's zero whose quaternions begin at these coordinates (rad)."""
    w = np.abs(_values(q, chosen))
    xyz = [q[:, [c.place + k for c in chosen]] for k in (1, 2, 3)]
    return np.asarray(2.0 * np.arctan2(np.linalg.norm(xyz, axis=0), w))


def _draw_named(axes: Any, t: Floats, values: Floats, chosen: Sequence[Coordinate]) -> None:
    for c, curve in zip(chosen, values.T, strict=True):
        axes.plot(t, curve, lw=1.2, label=c.name)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")


def _draw_many(axes: Any, t: Floats, values: Floats, chosen: Sequence[Coordinate]) -> None:
    """Draw curves coloured by their body, with some of the names."""
    bodies = [c.body for c in chosen]
    mappable = ScalarMappable(Normalize(bodies[0], max(bodies[-1], bodies[0] + 1)), COLOURS)
    for colour, curve in zip(mappable.to_rgba(np.array(bodies)), values.T, strict=True):
        axes.plot(t, curve, color=colour, lw=1.0)
    bar = axes.figure.colorbar(mappable, ax=axes)
    shown = [chosen[k] for k in np.unique(np.linspace(0, len(chosen) - 1, 6).astype(int))]
    bar.set_ticks([c.body for c in shown], labels=[c.name.split()[0] for c in shown])


def draw_energy(run: h5py.File) -> Figure:
    """Kinetic, potential and total energy over time."""
    t, energy = run["time"][:], run["energy"][:]
    figure, axes = new_figure(f"{run.attrs['name']}: energy", "time (s)", "energy (J)")
    for label, values in (("kinetic", energy[:, 0]), ("potential", energy[:, 1]), ("total", energy.sum(axis=1))):
        axes.plot(t, values, label=label, lw=1.5)
    axes.legend()
    axes.set_xlim(t[0], t[-1])
    return figure


PICTURES.update(
    coordinates=("q", draw_coordinates),
    motion=("poses", draw_motion),
    energy=("energy", draw_energy),
    loads=("loads", draw_loads),
    rods=("loads", draw_rods),
)
