"""What every rank of an evaluation does, in order: computes, sends, receives. Written from the plans of the real run.

Collective operations of MPI stand as the messages of a butterfly, which short ones are.

Couplings that make use of what was before are traced over evaluations of a simulation, recorded to be played again.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, cast

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.bench.predict.cluster import Cluster
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.evaluation import Acted
from mpimbs.dynamics.state_derivative import StateDerivative
from mpimbs.parallel.butterfly import ALSO_TO, FROM, TAG, TO, schedule
from mpimbs.parallel.native import PROC_NULL
from mpimbs.partition.schedule import JOIN, RECEIVE_LOADS, RECEIVE_VALUE, SEND_LOADS, SEND_VALUE, Schedule
from mpimbs.sweep.structure import TURNING

Message = tuple[int, int, int]  # from, to, tag
Port = dict["_Transfer", None]  # what passes it, in the order in which it began
_AT_ONCE = 1e-13  # s: times that differ by rounding


class _Transfer:
    """A message on its way between two nodes."""

    __slots__ = ("left", "message", "ports", "rate", "since", "version")

    def __init__(self, message: Message, size: float, ports: tuple[Port, Port]) -> None:
        self.message, self.left, self.ports = message, size, ports
        self.rate = self.since = 0.0
        self.version = 0  # of the time at which it ends


class _Evaluation:
    """The ranks and the messages between them, in the order of time."""

    def __init__(self, traces: Sequence[Trace], cluster: Cluster) -> None:
        self._cluster = cluster
        self._events: list[list[Occurrence]] = [trace.events for trace in traces]
        self._at = [0] * len(traces)
        self.times = [0.0] * len(traces)
        self._nodes = [cluster.node(trace.rank) for trace in traces]
        self._arrivals: dict[Message, float] = {}
        self._waiting: dict[Message, int] = {}
        self._out: list[Port] = [{} for _ in range(max(self._nodes) + 1)]
        self._into: list[Port] = [{} for _ in self._out]
        self._queue: list[tuple[float, int, _Transfer, int]] = []  # time, order, what, version; 0 where it begins
        self._order = itertools.count()

    def play(self) -> None:
        for rank in range(len(self.times)):
            self._run(rank)
        while self._queue:
            self._step()
        if self._waiting:
            source, target, tag = next(iter(self._waiting))
            raise ValueError(f"rank {target} waits for a message with tag {tag} that rank {source} does not send")

    def _run(self, rank: int) -> None:
        """Go on with a rank until it waits, or is done."""
        cluster, nodes, now = self._cluster, self._nodes, self.times[rank]
        between, within = cluster.between_nodes, cluster.within_node
        events, node = self._events[rank], nodes[rank]
        for k in range(self._at[rank], len(events)):
            kind, amount, other, tag = events[k]
            if kind == COMPUTE:
                now += amount / cluster.core_speed
            elif kind == SEND and nodes[other] == node:
                now += within.send_overhead
                self._deliver((rank, other, tag), now + within.latency + amount / within.bandwidth)
            elif kind == SEND:
                now += between.send_overhead
                transfer = _Transfer((rank, other, tag), amount, (self._out[node], self._into[nodes[other]]))
                heappush(self._queue, (now, next(self._order), transfer, 0))
            else:
                message = other, rank, tag
                if message not in self._arrivals:
                    self._waiting[message] = rank
                    self._at[rank], self.times[rank] = k, now
                    return
                link = within if nodes[other] == node else between
                now = max(now, self._arrivals.pop(message)) + link.receive_overhead
        self._at[rank], self.times[rank] = len(events), now

    def _deliver(self, message: Message, time: float) -> None:
        self._arrivals[message] = time
        if message in self._waiting:
            self._run(self._waiting.pop(message))

    def _step(self) -> None:
        """Begin and end the transfers of the next time, and share the ports anew."""
        now = self._queue[0][0]
        changed: dict[int, Port] = {}
        while self._queue and self._queue[0][0] <= now + _AT_ONCE:
            time, _, transfer, version = heappop(self._queue)
            if version != transfer.version:
                continue  # it ends at another time by now
            for port in transfer.ports:
                changed[id(port)] = port
            if version == 0:
                transfer.since = time
                for port in transfer.ports:
                    port[transfer] = None
            else:
                transfer.version = -1
                for port in transfer.ports:
                    del port[transfer]
                self._deliver(transfer.message, time + self._cluster.between_nodes.latency)
        for port in changed.values():
            for transfer in port:
                self._share(transfer, now)

    def _share(self, transfer: _Transfer, now: float) -> None:
        out, into = transfer.ports
        rate = self._cluster.between_nodes.bandwidth / max(len(out), len(into))
        if rate != transfer.rate:
            transfer.left -= transfer.rate * (now - transfer.since)
            transfer.since, transfer.rate = max(now, transfer.since), rate
            transfer.version += 1
            end = transfer.since + max(transfer.left, 0.0) / rate
            heappush(self._queue, (end, next(self._order), transfer, transfer.version))


def evaluate(traces: Sequence[Trace], cluster: Cluster) -> float:
    """Give the time at which the last rank is done (s).

    Parameters
    ----------
    traces : sequence of Trace
        One of each rank, by rank.

    Raises
    ------
    ValueError
        Ranks wait for messages that nobody sends.
    """
    evaluation = _Evaluation(traces, cluster)
    evaluation.play()
    return max(evaluation.times)


COMPUTE, SEND, RECEIVE = range(3)
DOUBLE = 8  # bytes
LOADS = 12  # doubles, of two handles


class Occurrence(NamedTuple):
    """One thing that a rank does."""

    kind: int  # COMPUTE for some seconds; SEND or RECEIVE a message of so many bytes
    amount: float  # seconds or bytes
    other: int = PROC_NULL  # the rank that it is sent to, or received from
    tag: int = 0  # messages of the same tag are sent at about the same time, and are told apart by it


class Sweeps(NamedTuple):
    """Seconds of an evaluation of one rank's bodies, messages and joins with other ranks left out.

    call: of Python, before the first phase; the phases as in `pipeline`; and of loops that lead to other ranks, between
    motion and inward: moving, before the scan of motions, and placing, before and behind the exchange of ends
    elsewhere."""

    call: float
    motion: float
    inward: float
    coupling: float
    outward: float
    moving: float = 0.0
    placing: float = 0.0


@functools.lru_cache(maxsize=1 << 14)
def _rows(rank: int, size: int, to_the_right: bool) -> list[list[int]]:
    return [[int(item) for item in row] for row in schedule(rank, size, to_the_right)]


class Trace:
    """The trace of one rank; the methods are called in the order in which the rank does things, on every rank the same.

    Parameters
    ----------
    alone : bool
        Whether nothing of any rank hangs on others: then scans and butterflies are over none.
    """

    def __init__(self, rank: int, size: int, alone: bool = False) -> None:
        self.rank, self.size = rank, size
        self.events: list[Occurrence] = []
        self._tag = 0
        self._joined = 1 if alone else size
        self._levels = (self._joined - 1).bit_length()

    def _tags(self, count: int) -> int:
        """Reserve so many tags; the first."""
        self._tag += count
        return self._tag - count

    def compute(self, seconds: float) -> None:
        """Compute for some time."""
        if seconds > 0.0:
            self.events.append(Occurrence(COMPUTE, seconds))

    def _send(self, row: list[int], size: int, base: int) -> None:
        for target in (row[TO], row[ALSO_TO]):
            if target != PROC_NULL:
                self.events.append(Occurrence(SEND, size, target, base + row[TAG]))

    def _receive(self, row: list[int], size: int, base: int) -> None:
        if row[FROM] != PROC_NULL:
            self.events.append(Occurrence(RECEIVE, size, row[FROM], base + row[TAG]))

    def scan(self, doubles: int = TURNING) -> None:
        """Scan over the ranks, as `parallel.scan` does: a level's message is waited for when the next is due."""
        rows, base = _rows(self.rank, self._joined, True), self._tags(self._levels)
        for level, row in enumerate(rows):
            if level:
                self._receive(rows[level - 1], doubles * DOUBLE, base)
            self._send(row, doubles * DOUBLE, base)
        if rows:
            self._receive(rows[-1], doubles * DOUBLE, base)

    def butterfly(self, doubles: int, join: float) -> None:
        """Exchange values of so many doubles at every level, as `parallel.butterfly` does, and join them (s)."""
        base = self._tags(self._levels)
        for row in _rows(self.rank, self._joined, False):
            self._send(row, doubles * DOUBLE, base)
            self._receive(row, doubles * DOUBLE, base)
            self.compute(join)

    def assembly(self, schedule: Schedule, doubles: Sequence[int], joins: Sequence[float]) -> None:
        """Join values in the order of a schedule, as `coupling.intervals` does; loads on two handles come back.

        `doubles` are those of the value of each node; `joins` the time of each join (s), up and down.
        """
        base, leaves = self._tags(2 * len(schedule.holders)), len(schedule.owners)
        for kind, node, other in schedule.steps[self.rank]:
            if kind == JOIN:
                self.compute(joins[node - leaves])
            elif kind in (SEND_VALUE, RECEIVE_VALUE):
                sends = SEND if kind == SEND_VALUE else RECEIVE
                self.events.append(Occurrence(sends, doubles[node] * DOUBLE, other, base + 2 * node))
            elif kind in (SEND_LOADS, RECEIVE_LOADS):
                sends = SEND if kind == SEND_LOADS else RECEIVE
                self.events.append(Occurrence(sends, LOADS * DOUBLE, other, base + 2 * node + 1))

    def exchange(self, sizes: Mapping[int, int]) -> None:
        """Swap messages of so many doubles with some ranks, as `parallel.exchange` does."""
        tag = self._tags(1)
        for kind in (SEND, RECEIVE):
            self.events += [Occurrence(kind, doubles * DOUBLE, other, tag) for other, doubles in sorted(sizes.items())]


def compute_seconds(trace: Trace) -> float:
    """Time that a rank computes."""
    return sum(event.amount for event in trace.events if event.kind == COMPUTE)


MOST = 200  # evaluations
ROOM = 2**27  # bytes that they may take
RTOL = 1e-8  # of the simulation


class _Recorder:
    """Stands in for a `StateDerivative`, and keeps what it is asked for."""

    compiled = None  # Python is asked

    def __init__(self, derivative: StateDerivative) -> None:
        self.recorded = derivative
        self.asked: list[tuple[float, Floats, Floats]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.recorded, name)

    def evaluate(
        self, t: float, q: Floats, u: Floats, udot: Floats, rates: Floats, held: Floats | None = None
    ) -> Acted:
        self.asked.append((t, q.copy(), u.copy()))
        return self.recorded.evaluate(t, q, u, udot, rates, held)


def record(dynamics: Dynamics, q: Floats, u: Floats) -> list[tuple[float, Floats, Floats]]:
    """Simulate for some steps, and give time (s), coordinates and speeds of every evaluation; all ranks call.

    Parameters
    ----------
    q, u : array [nq], [nu]
        This rank's part of the initial state.
    """
    from mpimbs.stepping.integrators import make_integrator
    from mpimbs.stepping.schemes import Accuracy

    recorder = _Recorder(dynamics.derivative)
    largest = max(dynamics.comm.allgather(q.nbytes + u.nbytes))
    count = int(np.clip(ROOM // max(largest, 1), 2, MOST))
    dynamics.derivative = cast(StateDerivative, recorder)
    try:
        stepper = make_integrator(dynamics, q, u, "dopri5", Accuracy(RTOL, RTOL))
        recorder.asked.clear()  # the trial of the first step
        while len(recorder.asked) < count:
            stepper.step_towards(np.inf)
        stepper.close()
    finally:
        dynamics.derivative = recorder.recorded
    return recorder.asked[:count]


def player(dynamics: Dynamics, q: Floats, u: Floats, udot: Floats) -> tuple[Callable[[], None], Callable[[], None]]:
    """Give a function that evaluates the next of the recorded states, and one that begins with the first again.

    Parameters
    ----------
    q, u : array [nq], [nu]
        This rank's part of the initial state.
    udot : array [nu]
        Written at every evaluation: generalized accelerations.
    """
    states = record(dynamics, q, u)
    rates = np.empty(len(q))
    at = 0

    def evaluate() -> None:
        nonlocal at
        t, q, u = states[at]
        at = (at + 1) % len(states)
        dynamics.derivative.evaluate(t, q, u, udot, rates)

    def begin() -> None:
        nonlocal at
        at = 0

    return evaluate, begin
