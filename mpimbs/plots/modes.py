"""The shapes of modes: the bodies of a system at rest and displaced to either side."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from mpimbs.dynamics.statics.modes import Modes
from mpimbs.model import System
from mpimbs.parts.kinematics import kinematics
from mpimbs.parts.subchain import Subchain

Floats = npt.NDArray[np.float64]

_MOST = 12  # modes that are drawn
_COLUMNS = 4
_SHARE = 0.2  # of the system's size, how far the farthest point is displaced
_SMALL = 1e-4  # rad and m, of differences


def draw_modes(system: System, q: Floats, modes: Modes) -> Figure:
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


def _lines(points: Floats, parents: npt.NDArray[np.int64]) -> Floats:
    """Lines from the origin of each body's parent to its own and to where it reaches, and gaps [4 n, 3]."""
    pairs = points.reshape(-1, 2, 3)
    hung = pairs[np.where(parents >= 0, parents, np.arange(len(parents))), 0]
    return np.stack((hung, pairs[:, 0], pairs[:, 1], np.full_like(hung, np.nan)), axis=1).reshape(-1, 3)
