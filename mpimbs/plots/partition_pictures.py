"""What ranks own, and in which order they join it, with a colour for each.

The partition of a system among ranks is its tree, level by level; a schedule is a binary tree [Yamane & Nakamura,
figure 6], with its critical path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from mpimbs.base.arrays import Floats, Integers
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order
from mpimbs.partition.schedule_search import Found
from mpimbs.partition.shares import Owned
from mpimbs.plots.curves import new_figure

PARTITION_FILE, SCHEDULE_PICTURE = "partition.png", "schedule.png"
MOST_DRAWN = 20_000  # bodies; of a larger tree small subtrees are left out
MOST_NAMED = 10  # ranks with colours and a line of the legend of their own; of more a bar tells
MOST_NUMBERED = 80  # nodes of a schedule with their numbers
COLOURS = "viridis"
_AREA = 6e4  # of all dots together (points^2)
_WIDE, _HIGH = 11.0, 7.5  # inches


def draw_partition(system: Contents, order: Order | None, owned: Sequence[Owned]) -> Figure:
    """Draw which bodies each rank owns.

    Bodies of one depth stand in a row, or in a column where the tree is deeper than wide; the longest branches run
    straight. Joints that are cut are black.

    Parameters
    ----------
    system, order, owned
        As given to, and by, `partition.shares.shares`.
    """
    order = Order.of(system) if order is None else order
    drawn, least = drawn_bodies(order.ends - np.arange(order.n))
    number = np.full(order.n + 1, -1)
    number[drawn] = np.arange(len(drawn))
    parents = number[order.parents[drawn]]
    rank = np.searchsorted([share.first for share in owned], drawn, "right") - 1
    across, depth = layered(parents)
    sideways = bool(depth.max() > 2.0 * np.ptp(across))
    points = np.stack((depth, across) if sideways else (across, depth), axis=1)

    title = f"{system.name}: {len(owned)} rank{'s' if len(owned) > 1 else ''}"
    if least > 1:
        title += f"; drawn are {len(drawn)} bodies, those with subtrees of {least} or more"
    figure, axes = new_figure(title, "", "", _WIDE, _HIGH)
    mappable, colours = rank_colours(len(owned))
    below = np.flatnonzero(parents >= 0)
    cut = rank[below] != rank[parents[below]]
    ends = np.stack((points[parents[below]], points[below]), axis=1)
    thin = float(np.clip(1000.0 / len(drawn), 0.3, 1.0))
    axes.add_collection(LineCollection(ends[~cut], colors=colours[rank[below[~cut]]], lw=thin))
    axes.add_collection(LineCollection(ends[cut], colors="k", lw=1.5 * thin))
    size = float(np.clip(_AREA / len(drawn), 4.0, 60.0))
    axes.scatter(*points.T, s=size, c=colours[rank], lw=0, zorder=2)
    _name_ranks(figure, axes, mappable, colours, owned)
    (axes.set_xlabel if sideways else axes.set_ylabel)("bodies from the root")
    (axes.set_yticks if sideways else axes.set_xticks)([])
    (axes.xaxis if sideways else axes.yaxis).set_major_locator(MaxNLocator(integer=True))
    if not sideways:
        axes.invert_yaxis()
    return figure


def drawn_bodies(sizes: Integers) -> tuple[Integers, int]:
    """Choose what is drawn: bodies whose subtrees, of `sizes` [n], have so many bodies at the least that these are few.

    Returns
    -------
    (array, int)
        Their places, ascending, and that number.
    """
    if len(sizes) <= MOST_DRAWN:
        return np.arange(len(sizes)), 1
    least = min(int(np.sort(sizes)[-MOST_DRAWN - 1]) + 1, int(sizes.max()))
    return np.flatnonzero(sizes >= least), least


def layered(parents: Integers) -> tuple[Floats, Integers]:
    """Place a tree in layers, as narrow as can be [Wetherell & Shannon 1979]; each body above its last child.

    Parameters
    ----------
    parents : array [n]
        Of each body, before it in depth-first order; -1 the world.

    Returns
    -------
    (array [n], array [n])
        Place across, 1 apart at least in a layer; and depth, 0 that of what is on the world.
    """
    n, above = len(parents), parents.tolist()
    depth, last = [0] * n, [-1] * n
    for k, parent in enumerate(above):
        if parent >= 0:
            depth[k], last[parent] = depth[parent] + 1, k
    # From the tips of each branch on, from left to right: after all bodies of its subtree.
    free = [0.0] * (max(depth) + 1)  # next place of each layer
    moved = [0.0] * len(free)  # of what is in a layer and below it
    across, shift = [0.0] * n, [0.0] * n
    for k in _after_their_subtrees(above):
        d, child = depth[k], last[k]
        place = free[d] if child < 0 else across[child]
        moved[d] = max(moved[d], free[d] - place) if child >= 0 else moved[d]
        shift[k] = moved[d] if child >= 0 else 0.0
        across[k] = place + shift[k]
        free[d] = across[k] + 1.0
    carried = [0.0] * n
    for k, parent in enumerate(above):
        if parent >= 0:
            carried[k] = carried[parent] + shift[parent]
    return np.array(across) + carried, np.array(depth)


def _after_their_subtrees(parents: list[int]) -> list[int]:
    """Bodies in the order in which their subtrees end; `parents` are in depth-first order."""
    found: list[int] = []
    path: list[int] = []
    for k, parent in enumerate(parents):
        while path and path[-1] != parent:
            found.append(path.pop())
        path.append(k)
    return found + path[::-1]


def rank_colours(ranks: int) -> tuple[ScalarMappable, Floats]:
    """Colours of the ranks [ranks, 4]: as different as can be for a few, else along a bar."""
    mappable = ScalarMappable(Normalize(0, max(ranks - 1, 1)), COLOURS)
    if ranks <= MOST_NAMED:
        return mappable, np.array([colormaps["tab10"](k) for k in range(ranks)])
    return mappable, np.asarray(mappable.to_rgba(np.arange(ranks)))


def _name_ranks(figure: Figure, axes: Any, mappable: ScalarMappable, colours: Floats, owned: Sequence[Owned]) -> None:
    if len(owned) > MOST_NAMED:
        figure.colorbar(mappable, ax=axes, label="rank")
        return
    handles = [
        Line2D([], [], marker="o", lw=0, color=colour,
               label=f"rank {rank}: {share.last - share.first} bodies, cost {share.cost:.2f}")
        for rank, (share, colour) in enumerate(zip(owned, colours, strict=True))
    ]  # fmt: skip
    if len(owned) > 1:
        handles.append(Line2D([], [], color="k", label="cut joints"))
    figure.legend(handles=handles, loc="outside right upper", fontsize="small")


def draw_schedule(name: str, found: Found) -> Figure:
    """Draw a schedule: leaves at the bottom, each join above what it joins, in the colour of a rank that does it.

    Parameters
    ----------
    name : str
        Of the system.
    """
    schedule, count = found.schedule, len(found.schedule.owners)
    across, height = [float(leaf) for leaf in range(count)], [0] * count
    for left, right, _ in schedule.joins:
        across.append(0.5 * (across[left] + across[right]))
        height.append(1 + max(height[left], height[right]))
    title = f"{name}: {schedule.size} rank{'s' if schedule.size > 1 else ''}, "
    figure, axes = new_figure(title + f"{1e6 * found.predicted.seconds:.2f} us predicted", "leaves", "", _WIDE, _HIGH)
    mappable, colours = rank_colours(schedule.size)
    critical = set(found.predicted.through())
    for node, above in enumerate(schedule.above):
        if above >= 0:
            on_path = above in critical and _leads_to(schedule.above, critical, node, found)
            ends = [across[node], across[above]], [height[node], height[above]]
            axes.plot(*ends, color="k" if on_path else "0.75", lw=2.5 if on_path else 1.0, zorder=1)
    first = [ranks[0] for ranks in schedule.holders]
    dots = float(np.clip(2e4 / len(across), 6.0, 250.0))
    axes.scatter(across, height, s=dots, c=colours[first], zorder=2)
    if len(across) <= MOST_NUMBERED:
        for node, place in enumerate(zip(across, height, strict=True)):
            axes.annotate(str(node), place, ha="center", va="center", fontsize="x-small", color="w")
    if schedule.size > MOST_NAMED:
        figure.colorbar(mappable, ax=axes, label="rank")
    else:
        lines = [
            Line2D([], [], marker="o", lw=0, color=colour, label=f"rank {rank}") for rank, colour in enumerate(colours)
        ]
        lines.append(Line2D([], [], color="k", lw=2.5, label="critical path"))
        figure.legend(handles=lines, loc="outside right upper", fontsize="small")
    axes.set_yticks([])
    return figure


def _leads_to(above: list[int], critical: set[int], node: int, found: Found) -> bool:
    """Whether the critical path comes up by a node: it is on it, or a leaf of the rank that begins it."""
    if node in critical:
        return True
    owners = found.schedule.owners
    return node < len(owners) and owners[node] == found.predicted.path[0].rank
