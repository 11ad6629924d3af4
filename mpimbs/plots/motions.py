"""Motion traces: the bodies of a run as lines from joint to joint, at several times, from the side and from above."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.spatial.transform import Rotation

from mpimbs.base.arrays import Floats, Integers
from mpimbs.files.motion import ALL, Motion

Bodies = Sequence[int] | Integers
SNAPSHOTS = 40  # poses in the trace of a chain
_OF_A_TREE = 8  # of a tree: its branches cover one another
_FEW = 8  # ends whose paths are drawn
_JOINTS = 40  # bodies whose joints are dots in the last pose
_FLAT = 0.08  # an extent below this share of the largest is not worth a view
_THIN = 0.25  # the narrowest side of a picture, of its longest
_WIDE, _HIGH = 11.0, 7.5  # inches, at the most
_TICKS = 1.4  # numbers an inch, side by side
_NAMES = "xyz"


def _colours() -> ListedColormap:
    """Viridis without its yellow end, which is hard to see on white."""
    from matplotlib import colormaps

    return ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.92, 256)))


class View(NamedTuple):
    """Which inertial axis is to the right, which one upward, and whether it is drawn downward instead."""

    right: int
    up: int
    downward: bool
    name: str


class Skeleton:
    """Lines that stand for some bodies: each from its joint to the next ones, or to its center of mass.

    A body without a joint beyond its center of mass is drawn to that; at the end of a chain, as far as the one before
    it, if that is of the same kind.

    Parameters
    ----------
    motion : Motion
        Of a run, with poses of all bodies. Where the structure changes, bodies hang together as in the end.
    bodies : sequence of int
        Those that are drawn.

    Attributes
    ----------
    drawn : list of int
        The bodies.
    times : array [snapshots]
        s.
    points : array [snapshots, bodies + tips, 3]
        Origins of all bodies, then tips (m).
    paths : list of list of int
        Points that are joined by lines.
    ends : list of int
        Points at which nothing more is joined.
    """

    def __init__(self, motion: Motion, bodies: Bodies) -> None:
        self._motion, self._parent = motion, motion.segments[-1].system.parents()
        self._center = motion.system.columns().center_of_mass
        self.drawn = drawn = [int(k) for k in bodies]
        children: dict[int, list[int]] = {k: [] for k in drawn}
        for k in np.flatnonzero(np.isin(self._parent, drawn)).tolist():
            children[int(self._parent[k])].append(k)
        n = len(self._parent)
        first = motion.some("poses", np.array([0]))[0]
        tips = {k: tip for k in drawn if (tip := self._tip(k, children[k], first)) is not None}
        self._tips = list(tips.items())
        for number, k in enumerate(tips):
            children[k].append(n + number)
        self.paths = _paths(drawn, self._parent, children)
        self.ends = [path[-1] for path in self.paths]
        shots = _OF_A_TREE if len(self.ends) > 2 and len(drawn) > len(self.ends) else SNAPSHOTS
        chosen = np.unique(np.linspace(0, len(motion.t) - 1, shots).astype(int))
        self.times = motion.t[chosen]
        self.points = self._points(motion.some("poses", chosen))

    def _tip(self, k: int, children: list[int], poses: Floats) -> Floats | None:
        """Where a body ends, in its own frame, if no joint is there."""
        center, reach = self._center[k], np.linalg.norm(self._center[k])
        if not reach or any(np.linalg.norm(poses[j, :3] - poses[k, :3]) >= reach for j in children):
            return None
        before = int(self._parent[k])
        if not children and before >= 0 and np.allclose(self._center[before], center):
            away = poses[k, :3] - poses[before, :3]
            offset = Rotation.from_quat(poses[before, 3:], scalar_first=True).apply(away, inverse=True)
            if np.linalg.norm(offset) > reach:
                return offset
        return np.asarray(center)

    def _points(self, poses: Floats) -> Floats:
        tips = [poses[:, k, :3] + _turned(poses[:, k, 3:], tip) for k, tip in self._tips]
        return np.concatenate([poses[:, :, :3], *(tip[:, None] for tip in tips)], axis=1)

    def way(self, end: int) -> Floats:
        """Give the places of one point at all samples [samples, 3]."""
        n = len(self._parent)
        k, tip = (end, np.zeros(3)) if end < n else self._tips[end - n]
        pose = self._motion.some("poses", ALL, k)
        return np.asarray(pose[:, :3] + _turned(pose[:, 3:], tip))

    def extents(self) -> Floats:
        """Least and greatest coordinates of what is drawn [2, 3]."""
        seen = self.points[:, sorted(set(itertools.chain(*self.paths)))]
        return np.stack([seen.min(axis=(0, 1)), seen.max(axis=(0, 1))])


def _paths(drawn: Sequence[int], parent: Integers, children: dict[int, list[int]]) -> list[list[int]]:
    """Lines along the bodies: each goes on with the first child, and further children begin lines of their own."""
    inside = set(drawn)
    starts = [[k] for k in drawn if int(parent[k]) not in inside]
    paths = []
    while starts:
        path = starts.pop()
        while following := children.get(path[-1], []):
            starts += [[path[-1], other] for other in following[1:]]
            path.append(following[0])
        paths.append(path)
    return paths


def _turned(quaternions: Floats, vector: Floats) -> Floats:
    """A body vector in inertial components, for quaternions w x y z [samples, 4]."""
    return np.asarray(Rotation.from_quat(quaternions, scalar_first=True).apply(vector))


def views(gravity: Sequence[float], extents: Floats) -> list[View]:
    """Choose from where a motion is seen: with gravity downward, from the side and, where there is width, from above.

    Parameters
    ----------
    gravity : sequence of float
        m/s^2; without any, the two widest directions are seen.
    extents : array [3]
        Of what is drawn along the inertial axes (m).

    Returns
    -------
    list of View
        One or two, not mirrored.
    """
    order = [int(k) for k in np.argsort(-np.asarray(extents), kind="stable")]
    least = _FLAT * float(np.max(extents))
    weight = np.abs(gravity)
    if not weight.any():
        right, up = sorted(order[:2])
        found = [View(right, up, False, "")]
        return found if extents[order[2]] < least else [*found, View(right, order[2], False, "")]
    up = int(np.argmax(weight))
    turned = gravity[up] > 0  # the axis points down
    right, deep = (k for k in order if k != up)
    cyclic = (right, deep, up) in ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    side, above = View(right, up, turned, "from the side"), View(right, deep, cyclic == turned, "from above")
    if extents[deep] < least:
        return [side]
    return [above] if extents[up] < least else [side, above]


def draw_motion(motion: Motion) -> Figure:
    """Motion trace: the system at evenly spaced times [Duan & Anderson, figure 10]."""
    system, t = motion.system, motion.t
    skeleton = Skeleton(motion, range(system.n_bodies))
    low, high = skeleton.extents()
    seen = views(system.gravity, high - low)
    sizes = [_frame(low, high, view) for view in seen]
    across = np.array([[b - a for a, b in size] for size in sizes])  # [views, 2]: width and height (m)
    beside = min(_WIDE / across[:, 0].sum(), _HIGH / across[:, 1].max())
    below = min(_WIDE / across[:, 0].max(), _HIGH / across[:, 1].sum())
    scale, shape = (beside, (1, len(seen))) if beside >= below else (below, (len(seen), 1))
    inches = scale * across
    width, height = (inches[:, k].sum() if shape[1 - k] > 1 else inches[:, k].max() for k in (0, 1))
    room = (1.2 + 0.9 * shape[1], 0.7 + 0.7 * shape[0])  # colour bar, labels, titles
    figure = Figure(figsize=(max(width + room[0], 4.5), max(height + room[1], 3.5)), layout="constrained")
    ratios = {"width_ratios": inches[:, 0]} if shape[0] == 1 else {"height_ratios": inches[:, 1]}
    places = np.ravel(figure.subplots(*shape, gridspec_kw=ratios))
    for axes, view, (right, up), size in zip(places, seen, sizes, inches, strict=True):
        trace(axes, skeleton, view)
        axes.set_xlim(right)
        axes.set_ylim(up[::-1] if view.downward else up)
        axes.xaxis.set_major_locator(MaxNLocator(max(2, int(_TICKS * size[0]))))
        axes.set_title(view.name, fontsize="medium")
    figure.suptitle(f"{system.name}: motion")
    figure.colorbar(_mappable(t[0], t[-1]), ax=list(places), label="time (s)")
    return figure


def draw_subchains(motion: Motion, cuts: Sequence[int]) -> Figure:
    """Motion traces of each subchain, and of all together [Duan & Anderson, figure 10]: from one cut to the next."""
    parts = [("entire chain", 0, cuts[-1])]
    if len(cuts) > 2:
        subchains = enumerate(itertools.pairwise(cuts), 1)
        parts += [(f"subchain {k}: bodies {a + 1} to {b}", a, b) for k, (a, b) in subchains]
    columns = min(5, len(parts))
    rows = -(-len(parts) // columns)
    figure = Figure(figsize=(4 * columns, 4 * rows), layout="constrained")
    places = np.ravel(figure.subplots(rows, columns))
    for axes, (title, first, last) in zip(places, parts, strict=False):
        skeleton = Skeleton(motion, range(first, last))
        low, high = skeleton.extents()
        trace(axes, skeleton, views(motion.system.gravity, high - low)[0])
        axes.autoscale()
        axes.set_title(title)
    for axes in places[len(parts) :]:
        axes.set_axis_off()
    return figure


def _frame(low: Floats, high: Floats, view: View) -> list[tuple[float, float]]:
    """Limits of the axes to the right and upward: what is drawn, with a margin, and nothing too thin."""
    pair = [view.right, view.up]
    middle, half = 0.5 * (low + high)[pair], 0.53 * (high - low)[pair]
    half = np.maximum(half, max(_THIN * half.max(), 1e-9))
    return [(float(m - h), float(m + h)) for m, h in zip(middle, half, strict=True)]


def _mappable(first: float, last: float) -> ScalarMappable:
    return ScalarMappable(Normalize(first, last), _colours())


def trace(axes: Any, skeleton: Skeleton, view: View) -> None:
    """Draw bodies at their times, coloured by time; the last pose thicker, and the ways of a few ends."""
    plane = [view.right, view.up]
    points, colour = skeleton.points[..., plane], _mappable(skeleton.times[0], skeleton.times[-1])
    for end in skeleton.ends if len(skeleton.ends) <= _FEW else []:
        axes.plot(*skeleton.way(end)[:, plane].T, color="0.7", lw=0.8, zorder=1)
    # One line along many bodies rather than one for each: short ones leave gaps between them.
    lines = [shot[path] for shot in points for path in skeleton.paths]
    times = np.repeat(skeleton.times, len(skeleton.paths))
    widths = np.where(times == skeleton.times[-1], 2.0, 0.9)
    axes.add_collection(
        LineCollection(
            lines, array=times, cmap=colour.cmap, norm=colour.norm, linewidths=widths, capstyle="round",
            joinstyle="round", zorder=2,
        )
    )  # fmt: skip
    if len(skeleton.drawn) <= _JOINTS:
        axes.scatter(*points[-1, skeleton.drawn].T, s=12, color=colour.to_rgba(skeleton.times[-1]), zorder=3)
    axes.set_aspect("equal", adjustable="box")
    axes.grid(alpha=0.3)
    axes.set(xlabel=f"{_NAMES[view.right]} (m)", ylabel=f"{_NAMES[view.up]} (m)")
