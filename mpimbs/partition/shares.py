"""Who owns what: the part of each rank of a chain or tree, how it hangs on the others, and its predicted cost."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from mpimbs.loops.loop_table import loops_of
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order, arranged
from mpimbs.partition.balance import LaneCosts
from mpimbs.partition.chain import BodyCosts, costs_between
from mpimbs.partition.division import Division, as_tree, divide, divide_tree
from mpimbs.partition.intervals import interval
from mpimbs.parts.lane_subtrees import Swept


class Owned(NamedTuple):
    """The bodies that a rank owns, and how they are swept."""

    first: int  # it owns the bodies at the places first to last - 1 of the order
    last: int
    components: int  # on how many bodies outside these hang, the world among them
    handles: int  # how many of them have children that another rank owns
    cost: float  # predicted, over the mean of all ranks
    swept: Swept | None = None  # of a tree without loops: how many bodies are swept in which way
    loops: int = 0  # how many loops join its bodies to those of other ranks


def shares(system: Contents, size: int) -> tuple[Order | None, list[Owned]]:
    """Divide a system among ranks, and say what each of them owns; no rank has to be there.

    Parameters
    ----------
    size : int
        Number of ranks P.

    Returns
    -------
    (Order or None, list of Owned)
        The order in which its bodies are divided, None that of the model; and the part of each rank.

    Raises
    ------
    InputError
        There are more ranks than bodies.
    """
    division = (divide_tree if as_tree(system) else divide)(system, size)
    cuts, order = division.cuts, division.order or Order.of(system)
    swept: list[Swept | None] = [None] * size
    if order.is_chain and not system.loops:
        costs = costs_between(BodyCosts(system), cuts)
        costs[:-1] *= division.tip_ratio
    else:
        _, costs, ways = LaneCosts(system, order, division.width).of(cuts)
        swept = swept if system.loops else list(ways)
    found = (interval(order, first, last) for first, last in itertools.pairwise(cuts.tolist()))
    relative = (costs / costs.mean()).tolist()
    return division.order, [
        Owned(part.first, part.last, len(part.outside_bodies), len(part.open), cost, how, loops)
        for part, cost, how, loops in zip(found, relative, swept, _leading_away(system, division), strict=True)
    ]


def _leading_away(system: Contents, division: Division) -> list[int]:
    """How many loops join bodies of each rank to those of others."""
    between = loops_of(arranged(system, division.order)).between(division.cuts)
    return np.bincount(between.ravel(), minlength=len(division.cuts) - 1).tolist()


def table_of_shares(system: Contents, order: Order | None, found: list[Owned]) -> list[str]:
    """Say who owns what, as `shares` gave it, in a table: a line for each rank, and one of their balance."""
    size = len(found)
    numbered = arranged(system, order)
    ways = Swept._fields if found[0].swept else ()
    joining = ("loops",) if system.loops else ()
    rows: list[tuple[str, ...]] = [("rank", "bodies", "hangs on", "open", *joining, *ways, "cost", "from", "to")]
    for rank, share in enumerate(found):
        names = (numbered.name_of(place) for place in (share.first, share.last - 1))
        loops = (share.loops,) if joining else ()
        numbers = rank, share.last - share.first, share.components, share.handles, *loops, *(share.swept or ())
        counts = map(str, numbers)
        rows.append((*counts, f"{share.cost:.2f}", *names))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if k >= len(row) - 2 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    listed = "in the model's order" if numbered is system else "depth first, the heaviest branch last"
    largest = max(share.cost for share in found)
    remarks = [
        "hangs on: how many bodies of other ranks, or the world; open: how many bodies have children on other ranks"
    ]
    if joining:
        between = sum(share.loops for share in found) // 2
        remarks.append(f"loops: how many lead to bodies of other ranks; {between} of {len(system.loops)} in all")
    if ways:
        remarks.append("swept in lanes: subtrees, side by side, and stretches, along a path; in doubles: the trunk")
    return [
        f"{size} rank{'s' if size > 1 else ''}, bodies {listed}; predicted balance: the dearest part costs "
        f"{largest:.2f} times the mean",
        *lines,
        *remarks,
    ]
