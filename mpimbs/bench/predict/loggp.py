"""The time of traces by the LogGP model: latency L, overhead o, and time per byte G, of Alexandrov et al. (1995).

A message that a rank begins to send at t frees it at t + o, arrives at t + o + L + bytes G, and takes its receiver o
more. The gap g between messages is that of their bytes. Messages that pass the port of a node at the same time share it
evenly: each has the bandwidth of the port over the number of those that pass there, at the busier of its two ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from heapq import heappop, heappush

from mpimbs.bench.predict.cluster import Cluster
from mpimbs.bench.predict.trace import COMPUTE, SEND, Occurrence, Trace

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
    cluster : Cluster

    Raises
    ------
    ValueError
        Ranks wait for messages that nobody sends.
    """
    evaluation = _Evaluation(traces, cluster)
    evaluation.play()
    return max(evaluation.times)
