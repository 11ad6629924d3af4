"""Pictures of a run, from its output file: coordinates, motion trace, energy. Nothing is drawn on a screen."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from mpimbs.study.axes import new_figure, save

Floats = npt.NDArray[np.float64]
MOST_LINES = 64  # curves in one picture; of more coordinates an even choice is drawn
SNAPSHOTS = 40  # poses in a motion trace
COLOURS = "viridis"


def draw_run(path: str | Path) -> list[Path]:
    """Draw the pictures of an output file, as PNG beside it.

    Parameters
    ----------
    path : path
        An HDF5 file of `mpimbs run`; the motion trace needs its poses.

    Returns
    -------
    list of Path
        The pictures.
    """
    path = Path(path)
    pictures = {"coordinates": draw_coordinates, "motion": draw_motion, "energy": draw_energy}
    drawn = []
    with h5py.File(path, "r") as run:
        for name, draw in pictures.items():
            if name == "motion" and "poses" not in run:
                continue
            drawn.append(save(draw(run), path.with_name(f"{path.stem}_{name}.png")))
    return drawn


def _colour_bar(figure: Figure, axes: Any, label: str, low: float, high: float) -> Any:
    from matplotlib.cm import ScalarMappable

    mappable = ScalarMappable(Normalize(low, high), COLOURS)
    figure.colorbar(mappable, ax=axes, label=label)
    return mappable


def draw_coordinates(run: h5py.File) -> Figure:
    """Time histories of the joint coordinates [Duan & Anderson, figure 9]."""
    t, q = run["time"][:], run["q"][:]
    count = q.shape[1]
    chosen = np.unique(np.linspace(0, count - 1, min(count, MOST_LINES)).astype(int))
    title = f"{run.attrs['name']}: joint coordinates"
    figure, axes = new_figure(
        title if len(chosen) == count else f"{title} ({len(chosen)} of {count})", "time (s)", "q (rad, m)"
    )
    mappable = _colour_bar(figure, axes, "coordinate", 1, max(count, 2))
    for k in chosen:
        axes.plot(t, q[:, k], color=mappable.to_rgba(k + 1), lw=1.0)
    axes.set_xlim(t[0], t[-1])
    return figure


def draw_energy(run: h5py.File) -> Figure:
    """Kinetic, potential and total energy over time."""
    t, energy = run["time"][:], run["energy"][:]
    figure, axes = new_figure(f"{run.attrs['name']}: energy", "time (s)", "energy (J)")
    for label, values in (("kinetic", energy[:, 0]), ("potential", energy[:, 1]), ("total", energy.sum(axis=1))):
        axes.plot(t, values, label=label, lw=1.5)
    axes.legend()
    axes.set_xlim(t[0], t[-1])
    return figure


def draw_motion(run: h5py.File) -> Figure:
    """Motion trace: the system at evenly spaced times [Duan & Anderson, figure 10]."""
    figure, axes = new_figure(f"{run.attrs['name']}: motion trace", "", "", 7.0, 7.0)
    trace_motion(axes, run, np.arange(len(run["model/body"])))
    _colour_bar(figure, axes, "time (s)", run["time"][0], run["time"][-1])
    return figure


def draw_subchains(run: h5py.File) -> Figure:
    """Motion traces of each subchain, and of all together [Duan & Anderson, figure 10]; the run must have poses."""
    cuts = json.loads(run.attrs["settings"])["cuts"]
    parts = [("entire chain", 0, cuts[-1])]
    if len(cuts) > 2:
        subchains = enumerate(itertools.pairwise(cuts), 1)
        parts += [(f"subchain {k}: bodies {a + 1} to {b}", a, b) for k, (a, b) in subchains]
    columns = min(5, len(parts))
    rows = -(-len(parts) // columns)
    figure = Figure(figsize=(4 * columns, 4 * rows), layout="constrained")
    places = np.ravel(figure.subplots(rows, columns))
    for axes, (title, first, last) in zip(places, parts, strict=False):
        trace_motion(axes, run, np.arange(first, last))
        axes.set_title(title)
    for axes in places[len(parts) :]:
        axes.set_axis_off()
    return figure


def trace_motion(axes: Any, run: h5py.File, bodies: Sequence[int] | npt.NDArray[np.int64]) -> None:
    """Draw the lines between the joints of some bodies, at evenly spaced times, coloured by time.

    Each body is drawn from its inboard joint to those of its children; one without children to its center of mass. The
    plane is that of the two inertial axes along which the bodies move most.
    """
    times = run["time"][:]
    chosen = np.unique(np.linspace(0, len(times) - 1, SNAPSHOTS).astype(int))
    poses = run["poses"][chosen]
    parent = run["model/parent"][:]
    center = run["model/center_of_mass"][:]
    origin = poses[:, :, :3]
    leaf = np.setdiff1d(np.arange(len(parent)), parent)
    inner = [k for k in range(len(parent)) if parent[k] >= 0 and parent[k] in set(map(int, bodies))]
    ends = [k for k in leaf if k in set(map(int, bodies))]
    tips = (
        origin[:, ends] + np.stack([_turned(poses[:, k, 3:], center[k]) for k in ends], axis=1)
        if ends
        else origin[:, :0]
    )
    start = np.concatenate([origin[:, parent[inner]], origin[:, ends]], axis=1)
    stop = np.concatenate([origin[:, inner], tips], axis=1)
    plane = np.sort(np.argsort(np.ptp(np.concatenate([start, stop], axis=1), axis=(0, 1)))[-2:])
    lines = np.stack([start, stop], axis=2)[..., plane].reshape(-1, 2, 2)
    colours = np.repeat(times[chosen], len(inner) + len(ends))
    axes.add_collection(
        LineCollection(list(lines), array=colours, cmap=COLOURS, norm=Normalize(times[0], times[-1]), linewidths=1.0)
    )
    axes.autoscale()
    axes.set_aspect("equal", adjustable="datalim")
    axes.set(xlabel=f"{'xyz'[plane[0]]} (m)", ylabel=f"{'xyz'[plane[1]]} (m)")


def _turned(quaternions: Floats, vector: Floats) -> Floats:
    """A body vector in inertial components, for quaternions w x y z [samples, 4]."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_quat(quaternions[:, [1, 2, 3, 0]]).apply(vector)
