"""A cluster as predictions see it: what a message costs, how many ranks share a node, how fast a core is.

Clusters are TOML files. Two come with the package; the machine at hand, "here", is measured between two ranks.
"""

from __future__ import annotations

import time
from importlib import resources
from pathlib import Path
from typing import Annotated

import numpy as np
from mpi4py import MPI
from pydantic import ConfigDict, Field

from mpimbs.base.errors import InputError
from mpimbs.bench.cost_fit import fit
from mpimbs.model.text.table import CheckedTable, suggest
from mpimbs.model.text.toml import read_toml
from mpimbs.parallel.agreement import first_on_node, together
from mpimbs.parallel.exchange import Exchange, swap
from mpimbs.parallel.native import channel, send_only, start, wait

HERE = "here"
ONE_NODE = 1 << 20  # ranks on the node of a machine of which nothing but one node is known
_SIZES = (12, 36, 144, 1024, 4096)  # doubles of the messages that are measured
_ROUNDS = 12  # over all sizes, so that a slow moment meets all

Seconds = Annotated[float, Field(strict=True, ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(strict=True, gt=0.0)]


class Link(CheckedTable):
    """What a message takes from one rank to another: send_overhead + latency + bytes / bandwidth + receive_overhead.

    Attributes
    ----------
    latency : float
        Time on the way, without the overheads (s).
    bandwidth : float
        Between nodes that of a node's port, in each direction, which its ranks share; within a node that of each
        message (bytes/s).
    send_overhead, receive_overhead : float
        Time of the core for a message (s).
    """

    model_config = ConfigDict(title="link")

    latency: Seconds = Field(description="the time of a message on the way, s")
    bandwidth: Positive = Field(description="bytes/s")
    send_overhead: Seconds = Field(description="the time of the sender's core, s")
    receive_overhead: Seconds = Field(description="the time of the receiver's core, s")

    @property
    def overheads(self) -> float:
        """Time of a core for a message sent and one received (s)."""
        return self.send_overhead + self.receive_overhead

    @property
    def end_to_end(self) -> float:
        """Time of a short message from one rank to the other (s)."""
        return self.latency + self.overheads


class Cluster(CheckedTable):
    """Nodes of equal cores, and the messages between them.

    Attributes
    ----------
    name : str
    ranks_per_node : int
        Ranks are placed node by node.
    core_speed : float
        Speed of a core, relative to the one on which sweeps are timed.
    between_nodes, within_node : Link
    """

    name: str
    ranks_per_node: Annotated[int, Field(strict=True, ge=1, description="how many ranks share a node")]
    core_speed: Positive = 1.0
    between_nodes: Link = Field(description="the table [between_nodes]")
    within_node: Link = Field(description="the table [within_node]")

    def node(self, rank: int) -> int:
        """The node of a rank."""
        return rank // self.ranks_per_node

    def link(self, one: int, other: int) -> Link:
        """The link that joins two ranks."""
        return self.within_node if self.node(one) == self.node(other) else self.between_nodes


def presets() -> list[str]:
    """Names of the clusters that come with the package."""
    folder = resources.files("mpimbs.bench.predict") / "clusters"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def read_cluster(path: str | Path) -> Cluster:
    """Read a cluster from a TOML file.

    Raises
    ------
    InputError
        The file can't be read, is no TOML, or describes no cluster; the message names file, key and remedy.
    """
    return read_toml(path, Cluster)


def cluster_named(name: str, comm: MPI.Comm = MPI.COMM_SELF) -> Cluster:
    """Give a cluster by the name of a preset, "here", or the path of a TOML file; all ranks call.

    Raises
    ------
    InputError
        On all ranks: there is none of that name; "here" on one rank; what `read_cluster` finds.
    """
    if name == HERE:
        return measure_here(comm)
    known = presets()
    if name in known:
        with resources.as_file(resources.files("mpimbs.bench.predict") / "clusters" / f"{name}.toml") as path:
            return read_cluster(path)

    def read() -> Cluster:
        if not name.endswith(".toml") and not Path(name).exists():
            raise InputError(f"unknown cluster '{name}'{suggest(name, [*known, HERE])}; or name a .toml file")
        return read_cluster(name)

    return together(comm, read)


# --- the machine at hand ---------------------------------------------------------------------------------------------


def measure_here(comm: MPI.Comm) -> Cluster:
    """Measure messages between the first two ranks; all ranks call. The cluster is one node, of as many cores as ranks.

    Raises
    ------
    InputError
        On all ranks: there is only one.
    """
    if comm.size < 2:
        raise InputError(
            "cluster 'here' is measured between 2 ranks: start with mpiexec -n 2, or choose another `cluster`"
        )
    first_on_node(comm, _use_message_kernels)
    pair = comm.Split(0 if comm.rank < 2 else MPI.UNDEFINED)
    link = None
    if pair != MPI.COMM_NULL:
        link = _measured_link(pair)
        pair.Free()
    found: Link = comm.bcast(link)
    return Cluster(name=HERE, ranks_per_node=ONE_NODE, core_speed=1.0, between_nodes=found, within_node=found)


def _use_message_kernels() -> None:
    alone = MPI.COMM_SELF.Dup()
    nothing = Exchange(alone, {}, {})
    swap(nothing.plan)
    nothing.close()
    _send_and_receive(alone, 0)
    alone.Free()


def _measured_link(pair: MPI.Comm) -> Link:
    """Fit exchanges of several sizes; the overheads are those of messages that nobody waits for."""
    alone = MPI.COMM_SELF.Dup()
    nothing = Exchange(alone, {}, {})
    other = 1 - pair.rank
    exchanges = [Exchange(pair, {other: doubles}, {other: doubles}) for doubles in _SIZES]
    laps, call = np.empty((_ROUNDS, len(_SIZES))), np.inf
    for lap in laps:
        call = min(call, _once(alone, nothing))  # of Python's call
        lap[:] = [_once(pair, exchange) for exchange in exchanges]
    for exchange in (nothing, *exchanges):
        exchange.close()
    alone.Free()
    took = laps.min(axis=0) - call
    send, receive = _send_and_receive(pair, other)
    offset, slope = fit([[1.0, 8.0 * doubles] for doubles in _SIZES], took)
    send, receive = min(send, 0.5 * offset), min(receive, 0.5 * offset)
    return Link(
        latency=max(float(offset - send - receive), 0.0), bandwidth=float(1.0 / max(slope, 1e-12)),
        send_overhead=float(send), receive_overhead=float(receive),
    )  # fmt: skip


def _once(comm: MPI.Comm, exchange: Exchange, count: int = 200, runs: int = 8) -> float:
    """Seconds of one of many swaps in succession, of the slowest rank, in the fastest of some runs."""
    laps = np.empty(runs)
    for k in range(runs):
        comm.Barrier()
        began = time.perf_counter()
        for _ in range(count):
            swap(exchange.plan)
        laps[k] = (time.perf_counter() - began) / count
    comm.Allreduce(MPI.IN_PLACE, laps, MPI.MAX)
    return float(laps.min())


def _send_and_receive(comm: MPI.Comm, other: int, doubles: int = 144, runs: int = 200) -> tuple[float, float]:
    """Seconds of a call that sends, and of one that receives what is there already: medians, over both ranks."""
    own = comm.Dup()
    plan = channel(own)
    mine, theirs = np.zeros(doubles), np.zeros(doubles)
    request = own.Recv_init(theirs, other, 0)
    address = MPI._addressof(request)
    laps = np.empty((runs, 2))
    for k in range(runs):
        own.Barrier()
        start(address)
        own.Barrier()
        before = float(plan.seconds[0])
        send_only(plan, mine, other, 0)
        sent = float(plan.seconds[0])
        own.Barrier()
        wait(plan, address)
        laps[k] = sent - before, float(plan.seconds[0]) - sent
    request.Free()
    send, receive = own.allreduce(np.median(laps, axis=0), MPI.SUM) / own.size
    own.Free()
    return float(send), float(receive)
