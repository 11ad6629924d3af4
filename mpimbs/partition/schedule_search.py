"""Schedules that are found: of all binary trees over neighbours that with the least predicted time, and its cuts.

The best tree over leaves is found from those over fewer of them, exactly for what it takes from the slowest leaf to the
whole [Yamane & Nakamura, section 5.1, leave it to intuition]. Leaves of which much is joined on the way to the whole
then get fewer bodies, and others more. What is given is the best of all that were tried, by `schedule_times`, which are
also balanced and serial: so it is predicted to be no slower than these.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.base.settings import AUTO, BALANCED, BODIES, LEAVES, SCHEDULES, SERIAL, SWEEPS  # noqa: F401
from mpimbs.kernels.compiler import kernel
from mpimbs.loops.loop_table import loops_of
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order, arranged
from mpimbs.partition.balance import LaneCosts
from mpimbs.partition.division import Division, check_pieces, divide_tree, refuse_thin
from mpimbs.partition.intervals import move_to_few_handles, open_handles
from mpimbs.partition.schedule import Growing, Ranks, Schedule, balanced, owners_of, serial
from mpimbs.partition.schedule_file import Laid, read_schedule
from mpimbs.partition.schedule_times import (
    PACKAGE_COSTS,
    AssemblyCosts,
    Joins,
    OpenHandles,
    Predicted,
    count_handles,
    join_seconds,
    time_schedule,
)

MADE = {BALANCED: balanced, SERIAL: serial}


def divide_scheduled(
    system: Contents,
    size: int,
    cuts: int | None = None,
    tip_ratio: float | None = None,
    lanes: int | None = None,
    schedule: str = BALANCED,
    leaves: str = SWEEPS,
) -> Division:
    """Divide a system into the leaves of a schedule: single bodies, or intervals that are swept.

    Parameters and errors are those of `partition.division.divide_tree`, and:

    Parameters
    ----------
    schedule : str
        One of SCHEDULES, or the path of a file (`partition.schedule_file`), which has leaves of its own.
    leaves : str
        One of LEAVES.

    Raises
    ------
    InputError
        Cuts of their own with single bodies, or with a file; what `read_schedule` finds.
    """
    if leaves == BODIES and cuts is not None:
        raise InputError(f"with `leaves='bodies'` every joint is cut already; leave `cuts={cuts}` out")
    divided = divide_tree(system, size, None if leaves == BODIES else cuts, tip_ratio, lanes)
    if schedule not in SCHEDULES:
        laid = _of_file(schedule, system, size, cuts, leaves)
    else:
        laid = lay(system, divided, leaves, schedule)
    if leaves == BODIES:
        refuse_thin(system, "assembly with `leaves='bodies'`")
    check_pieces(system, laid.bounds, laid.order)
    owners = np.searchsorted(laid.schedule.owners, np.arange(size + 1))
    return Division(divided.width, 1.0, laid.bounds, owners, laid.order, laid.schedule)


def lay(system: Contents, divided: Division, leaves: str, schedule: str, costs: AssemblyCosts = PACKAGE_COSTS) -> Laid:
    """Lay a schedule of SCHEDULES over a system that is divided among its ranks; what is found moves cuts too."""
    order, bounds = divided.order or Order.of(system), divided.bounds
    if schedule == AUTO:
        if leaves == SWEEPS and len(bounds) != len(divided.cuts):
            raise InputError("the schedule 'auto' has one swept leaf for each rank; leave `cuts` out")
        search = Search(system, order, len(divided.cuts) - 1, divided.width, leaves == BODIES, costs)
        found = search.best(divided.cuts)
        return Laid(order, found.bounds, found.schedule)
    counts = np.diff(divided.owners)
    if leaves == BODIES:
        counts, bounds = np.diff(divided.cuts), np.arange(system.n_bodies + 1)
    return Laid(order, bounds, MADE[schedule](counts.tolist()))


def _of_file(name: str, system: Contents, size: int, cuts: int | None, leaves: str) -> Laid:
    if cuts is not None or leaves != SWEEPS:
        given = f"cuts={cuts}" if cuts is not None else f"leaves='{leaves}'"
        raise InputError(f"the schedule of a file has its own leaves; leave `{given}` out")
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        raise InputError(f"unknown schedule '{name}'; choose one of: {', '.join(SCHEDULES)}; or name a .toml file")
    return read_schedule(path, system, size)


ROUNDS = 4  # of moving cuts to where the tree wants them
MOST_LEAVES = 1100  # over which the best tree is looked for: time grows with the third power


class Found(NamedTuple):
    """A schedule over leaves, and what it is predicted to take."""

    bounds: Integers
    schedule: Schedule
    predicted: Predicted


@kernel
def best_splits(first, last, leaves, parallel, messages, costs, opened, outside, grounded, loops, splits, seconds):
    """Find where to split every group of neighbouring leaves so that its time is the least.

    Parameters
    ----------
    first, last : int
        The leaves `first` to `last` - 1.
    leaves : array
        Time of each leaf (s), by its number.
    parallel : bool
        The halves of a group are joined at the same time, by different ranks, which exchange their values; else one
        after the other.
    messages : array [leaves + 1, leaves + 1]
        Time of the message with the value of each group (s).
    costs, opened, outside, grounded, loops
        As of `join_seconds`, and `OpenHandles`.
    splits : int64 array [leaves + 1, leaves + 1]
        Written: the leaf with which the right half of each group begins.
    seconds : array [leaves + 1, leaves + 1]
        Written: its time.
    """
    for i in range(first, last):
        seconds[i, i + 1] = leaves[i]
    for length in range(2, last - first + 1):
        for i in range(first, last - length + 1):
            j = i + length
            best, at = np.inf, i + 1
            for m in range(i + 1, j):
                one, other = seconds[i, m], seconds[m, j]
                total = max(one + messages[i, m], other + messages[m, j]) if parallel else one + other
                if total >= best:
                    continue
                total += join_seconds(
                    costs, opened[i, m], opened[m, j], outside[m, j], grounded[m, j], loops[i, m], loops[m, j], loops[i,
                    j]
                )  # fmt: skip
                if total < best:
                    best, at = total, m
            splits[i, j], seconds[i, j] = at, best


class Search:
    """Looks for the best schedule of a system.

    Parameters
    ----------
    order : Order
        Of its bodies.
    size : int
        Number of ranks.
    width : int
        Number of lanes, as of `Division`.
    single : bool
        Whether leaves are single bodies.
    """

    def __init__(
        self, system: Contents, order: Order, size: int, width: int, single: bool, costs: AssemblyCosts
    ) -> None:
        self._order, self._size, self._single, self._costs = order, size, single, costs
        self._lanes = LaneCosts(system, order, 1 if single else width)
        self._loops = loops_of(arranged(system, order)) if system.loops else None
        self._of_bodies = count_handles(order, np.arange(order.n + 1), self._loops) if single else None

    def of(self, kind: str, cuts: Integers) -> Found:
        """The schedule "balanced" or "serial" over the parts that ranks have by some cuts [P + 1]."""
        make: Callable[[list[int]], Schedule] = balanced if kind == "balanced" else serial
        counts = np.diff(cuts).tolist() if self._single else [1] * self._size
        bounds = np.arange(self._order.n + 1) if self._single else cuts
        return self._found(bounds, make(counts))

    def best(self, cuts: Integers) -> Found:
        """The best schedule that is found, from some cuts on."""
        found = [self.of(kind, cuts) for kind in ("balanced", "serial")]
        if (self._order.n if self._single else self._size) > MOST_LEAVES:
            return min(found, key=_seconds)
        handles = open_handles(self._order)
        for _ in range(ROUNDS):
            made, beyond = self._best_tree(cuts)
            found.append(made)
            found.append(self.of("balanced", cuts))
            moved = self._moved(cuts, beyond, handles)
            if np.array_equal(moved, cuts):
                break
            cuts = moved
        return min(found, key=_seconds)

    def _found(self, bounds: Integers, schedule: Schedule) -> Found:
        handles = self._handles_of(bounds)
        return Found(bounds, schedule, time_schedule(schedule, self._leaves(bounds), handles, self._costs))

    def _handles_of(self, bounds: Integers) -> OpenHandles:
        if self._of_bodies is not None:
            return self._of_bodies
        return count_handles(self._order, bounds, self._loops)

    def _leaves(self, bounds: Integers) -> Floats:
        """Time of each leaf (s)."""
        swept = self._lanes.of(bounds).intervals * self._costs.body
        return swept + (self._costs.leaf if self._single else 0.0)

    def _best_tree(self, cuts: Integers) -> tuple[Found, Floats]:
        """The best tree for the parts of some cuts; and what of it each rank has beyond its sweeps (s) [P]."""
        bounds = np.arange(self._order.n + 1) if self._single else cuts
        counts = np.diff(cuts) if self._single else np.ones(self._size, np.int64)
        handles, leaves = self._handles_of(bounds), self._leaves(bounds)
        growing = Growing(owners_of(counts.tolist()))
        ends = np.concatenate(([0], np.cumsum(counts)))
        nodes, parts = [], np.zeros(self._size)
        for rank, (first, last) in enumerate(itertools.pairwise(ends.tolist())):
            splits, seconds = self._splits(first, last, handles, leaves, False)
            nodes.append(_grow(growing, first, last, splits, None, lambda *_, who=(rank,): who))
            parts[rank] = seconds[first, last]
        across = handles.of_groups(ends)
        splits, _ = self._splits(0, self._size, across, parts, True)
        _grow(growing, 0, self._size, splits, nodes, lambda i, j: tuple(range(i, j)))
        schedule = growing.made()
        return self._found(bounds, schedule), self._beyond(schedule, handles)

    def _splits(
        self, first: int, last: int, handles: OpenHandles, leaves: Floats, parallel: bool
    ) -> tuple[Integers, Floats]:
        count = len(handles.open)
        splits, seconds = np.zeros((count, count), np.int64), np.zeros((count, count))
        messages = self._costs.message(handles.doubles) if parallel else np.zeros((count, count))
        costs, (opened, outside, grounded, loops, _) = np.array(self._costs), handles
        best_splits(first, last, leaves, parallel, messages, costs, opened, outside, grounded, loops, splits, seconds)
        return splits, seconds

    def _beyond(self, schedule: Schedule, handles: OpenHandles) -> Floats:
        """Give the time of every rank beyond its sweeps, at work or waiting, on the way to the whole (s) [P]."""
        joins, spans, doubles = Joins(handles, self._costs), schedule.spans, handles.doubles
        found = np.zeros(self._size)
        for left, right, ranks in schedule.joins:
            took = joins.seconds(spans[left][0], spans[left][1], spans[right][1])
            if len(ranks) > 1:
                took += self._costs.message(max(doubles[spans[left]], doubles[spans[right]]))
            found[list(ranks)] += took
        return found

    def _moved(self, cuts: Integers, beyond: Floats, handles: Integers) -> Integers:
        """Move cuts so that sweeps and what comes beyond together take all ranks the same time."""
        bodies = self._lanes.of(cuts).bodies * self._costs.body + (self._costs.leaf if self._single else 0.0)
        if self._single:
            beyond = beyond - beyond.min()
        total = float(bodies.sum())
        wanted = np.maximum((total + beyond.sum()) / self._size - beyond, 0.2 * total / self._size)
        before = np.cumsum(bodies) - 0.5 * bodies
        inner = np.searchsorted(before, total * np.cumsum(wanted / wanted.sum())[:-1])
        moved = np.concatenate(([0], inner, [self._order.n]))
        numbers = np.arange(self._size + 1)
        moved = np.maximum.accumulate(moved - numbers) + numbers
        moved = np.minimum(moved, self._order.n - self._size + numbers)
        return moved if self._single else move_to_few_handles(moved, bodies, handles)


def _grow(
    growing: Growing, i: int, j: int, splits: Integers, nodes: list[int] | None, ranks: Callable[..., Ranks]
) -> int:
    """Join the leaves i to j - 1 as the splits say, without recursion; gives the number of what is made."""
    made: dict[tuple[int, int], int] = {}
    todo = [(i, j)]
    while todo:
        low, high = todo[-1]
        if high - low == 1:
            made[todo.pop()] = low if nodes is None else nodes[low]
            continue
        middle = int(splits[low, high])
        halves = (low, middle), (middle, high)
        missing = [half for half in halves if half not in made]
        if missing:
            todo += missing[::-1]
            continue
        made[todo.pop()] = growing.join(made[halves[0]], made[halves[1]], ranks(low, high))
    return made[i, j]


def _seconds(found: Found) -> float:
    return found.predicted.seconds
