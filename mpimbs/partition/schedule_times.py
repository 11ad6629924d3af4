"""How long a schedule is predicted to take, and which of its steps no other can make up for: its critical path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.partition.assembly_costs import (
    INWARD_SHARE,
    MOTION_SHARE,
    OUTWARD_SHARE,
    AssemblyCosts,
    OpenHandles,
    join_seconds,
)
from mpimbs.partition.schedule import JOIN, RECEIVE_LOADS, RECEIVE_VALUE, SEND_LOADS, SEND_VALUE, SPREAD, Schedule

SWEPT_IN, SWEPT_OUT = -2, -1  # kinds of what a rank does beside the steps of a schedule
UP = 0.75  # of the time of a join, about
TURN = 14  # doubles of a turn in the scan, about


class Done(NamedTuple):
    """Something that a rank has done.

    Attributes
    ----------
    kind : int
        Of `schedule.Step`, or SWEPT_IN, SWEPT_OUT.
    node, rank : int
        -1 is all that a rank owns.
    seconds : float
        When it was done.
    waited : bool
        Whether it had to wait for a message.
    """

    kind: int
    node: int
    rank: int
    seconds: float
    waited: bool = False


class Predicted(NamedTuple):
    """A schedule's predicted time (s), from a state to the accelerations, and its critical path, from the begin on."""

    seconds: float
    path: list[Done]

    def through(self) -> list[int]:
        """The joins of the critical path on the way up."""
        return [done.node for done in self.path if done.kind == JOIN]


class Joins:
    """Predicts joins of a schedule's nodes, each once.

    Parameters
    ----------
    handles : OpenHandles
        Of the schedule's leaves.
    """

    def __init__(self, handles: OpenHandles, costs: AssemblyCosts) -> None:
        self._handles, self._costs = handles, np.array(costs)
        self._known: dict[tuple[int, ...], float] = {}

    def seconds(self, i: int, m: int, j: int) -> float:
        """Time of a join of leaves i to m - 1 with leaves m to j - 1, up and down (s)."""
        h = self._handles
        numbers = h.open[i, m], h.open[m, j], h.outside[m, j], h.grounded[m, j]
        key = tuple(map(int, (*numbers, h.loops[i, m], h.loops[m, j], h.loops[i, j])))
        if key not in self._known:
            self._known[key] = float(join_seconds(self._costs, *key))
        return self._known[key]


def time_schedule(
    schedule: Schedule, leaves: Floats | Sequence[float], handles: OpenHandles, costs: AssemblyCosts
) -> Predicted:
    """Predict what a schedule takes: every rank does its steps in sequence, and waits for messages.

    Parameters
    ----------
    leaves : array [leaves]
        Time of the sweeps of each (s).
    """
    size, joins = schedule.size, Joins(handles, costs)
    swept = np.bincount(schedule.owners, leaves, minlength=size)
    steps, spans, count = schedule.steps, schedule.spans, len(schedule.owners)
    scan = (size - 1).bit_length() * costs.message(TURN)
    now = (np.maximum.accumulate(MOTION_SHARE * swept) + scan + INWARD_SHARE * swept).tolist()
    done = [[Done(SWEPT_IN, -1, rank, time)] for rank, time in enumerate(now)]
    took = [joins.seconds(spans[left][0], spans[left][1], spans[right][1]) for left, right, _ in schedule.joins]
    of_groups = handles.doubles
    doubles = [int(of_groups[span]) for span in spans]
    numbers = [6 * int(handles.open[span] + handles.outside[span] + handles.loops[span] + 1) for span in spans]
    arrived: dict[tuple[int, int, int, int], tuple[float, int]] = {}
    waiting: dict[tuple[int, int, int, int], int] = {}
    sources: dict[tuple[int, int], tuple[int, int]] = {}  # where in `done` what a rank waited for was sent
    at, ready = [0] * size, list(range(size))
    while ready:
        rank = ready.pop()
        while at[rank] < len(steps[rank]):
            kind, node, other = steps[rank][at[rank]]
            waited = False
            if kind in (JOIN, SPREAD):
                now[rank] += took[node - count] * (UP if kind == JOIN else 1.0 - UP)
            elif kind in (SEND_VALUE, SEND_LOADS):
                now[rank] += costs.overhead
                message = RECEIVE_VALUE if kind == SEND_VALUE else RECEIVE_LOADS, node, rank, other
                size_of = doubles[node] if kind == SEND_VALUE else numbers[node]
                there = now[rank] + costs.message(size_of) - 2 * costs.overhead
                arrived[message] = there, len(done[rank])
                if message in waiting:
                    ready.append(waiting.pop(message))
            else:
                message = kind, node, other, rank
                if message not in arrived:
                    waiting[message] = rank
                    break
                time, sent = arrived[message]
                waited = time > now[rank]
                sources[rank, len(done[rank])] = other, sent
                now[rank] = max(now[rank], time) + costs.overhead
            done[rank].append(Done(kind, node, rank, now[rank], waited))
            at[rank] += 1
    ends = [time + OUTWARD_SHARE * sweep for time, sweep in zip(now, swept, strict=True)]
    last = int(np.argmax(ends))
    path = [Done(SWEPT_OUT, -1, last, ends[last])]
    rank, number = last, len(done[last]) - 1
    while number >= 0:
        found = done[rank][number]
        path.append(found)
        rank, number = sources[rank, number] if found.waited else (rank, number - 1)
    return Predicted(float(ends[last]), path[::-1])
