"""The binary tree of a schedule [Yamane & Nakamura, figure 6], with a colour for each rank and its critical path."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mpimbs.partition.schedule_search import Found
from mpimbs.study.axes import new_figure
from mpimbs.study.partition_pictures import MOST_NAMED, rank_colours

SCHEDULE_PICTURE = "schedule.png"
MOST_NUMBERED = 80  # nodes with their numbers
_WIDE, _HIGH = 11.0, 7.5  # inches


def draw_schedule(name: str, found: Found) -> Figure:
    """Draw a schedule: leaves at the bottom, each join above what it joins, in the colour of a rank that does it.

    Parameters
    ----------
    name : str
        Of the system.
    found : Found
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
