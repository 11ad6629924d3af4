"""Who owns what: the part of each rank of a chain or tree, how it hangs on the others, and its predicted cost."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from mpimbs.model import System
from mpimbs.model.order import Order
from mpimbs.partition.chain import BodyCosts, body_costs, costs_between
from mpimbs.partition.division import check_ranks, check_solved, divide
from mpimbs.partition.intervals import cut_intervals, interval, swept_costs
from mpimbs.sizes import tuned


class Owned(NamedTuple):
    """What a rank owns.

    Attributes
    ----------
    first, last : int
        It owns the bodies at the places first to last - 1 of the system's depth-first order.
    components : int
        On how many bodies outside these hang, the world among them.
    handles : int
        How many of them have children that another rank owns.
    cost : float
        Predicted, over the mean of all ranks.
    """

    first: int
    last: int
    components: int
    handles: int
    cost: float


def shares(system: System, order: Order, size: int) -> list[Owned]:
    """Divide a system among ranks, and say what each of them owns; no rank has to be there.

    Parameters
    ----------
    system : System
    order : Order
        Its depth-first order.
    size : int
        Number of ranks P.

    Raises
    ------
    InputError
        There are more ranks than bodies, or the system has a loop.
    """
    if order.is_chain:
        division = divide(system, size)
        cuts = division.cuts
        costs = costs_between(BodyCosts(system), cuts)
        costs[:-1] *= division.tip_ratio
    else:
        check_solved(system)
        check_ranks(system, size)
        bodies = body_costs(system.joint_types())[order.bodies]
        cuts = cut_intervals(order, bodies, size)
        costs = np.add.reduceat(swept_costs(order, bodies, cuts, tuned().tip_ratio), cuts[:-1])
    found = (interval(order, first, last) for first, last in itertools.pairwise(cuts.tolist()))
    relative = (costs / costs.mean()).tolist()
    return [
        Owned(part.first, part.last, len(part.hung_on), len(part.open), cost)
        for part, cost in zip(found, relative, strict=True)
    ]


def told(system: System, size: int) -> list[str]:
    """Say who owns what, in a table: a line for each rank, and one of their balance; errors as of `shares`."""
    order = Order.as_listed(system) or Order.of(system)
    rows: list[tuple[str, ...]] = [("rank", "bodies", "hangs on", "open", "cost", "from", "to")]
    found = shares(system, order, size)
    for rank, share in enumerate(found):
        names = (system.name_of(order.body(place)) for place in (share.first, share.last - 1))
        counts = map(str, (rank, share.last - share.first, share.components, share.handles))
        rows.append((*counts, f"{share.cost:.2f}", *names))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if k >= 5 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    listed = "depth first, the heaviest branch last; this version needs them listed depth first on several ranks"
    numbered = "in the model's order" if order.is_identity else listed
    largest = max(share.cost for share in found)
    return [
        f"{size} rank{'s' if size > 1 else ''}, bodies {numbered}; predicted balance: the dearest part costs "
        f"{largest:.2f} times the mean",
        *lines,
        "hangs on: how many bodies of other ranks, or the world; open: how many bodies have children on other ranks",
    ]
