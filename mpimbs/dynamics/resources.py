"""What a system takes of memory, and what the machine has: known before anything is made for its bodies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.model.contents import Contents


class Need(NamedTuple):
    """Bytes that a rank takes at the most at one time."""

    whole: float  # for each body of the whole system
    body: float  # for each of its own bodies
    number: float  # for each of its own coordinates and speeds
    tree_body: float  # for each body of a tree, in place of `body`: one piece, of which no part is made again
    loop: float  # for each of its own loops, of which everything is swept as a tree

    def of(self, system: Contents, ranks: int) -> float:
        """Give the memory that one of so many ranks takes, of equal shares."""
        body = self.body if system.is_chain and not system.loops else self.tree_body
        own = body * system.n_bodies + self.number * (system.nq + system.nu) + self.loop * len(system.loops)
        return self.whole * system.n_bodies + own / ranks


# Measured with spatial_chain and rope of 10^6 bodies on 1 and 2 ranks, dca with spatial_chain:200000, and tree:17:2;
# good to 10 %. Loops with four_bar and boom; where many columns travel far, as in four_bar_chain, it is twice as much.
DIVISION = Need(0, 20, 0, 20, 0)
EVALUATION = Need(0, 55, 26, 1040, 13000)
EVALUATION_OF_BODIES = Need(0, 4340, 50, 4340, 0)  # dca: an assembly for each, and no loops
SIMULATION = Need(40, 1000, 195, 1700, 13000)


_GROUP = Path("/sys/fs/cgroup")  # of this process, where it is in a container
# Of versions 2 and 1: limit, use, where it is told of the files that the system keeps in memory, and by what name.
_GROUPS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


def free_memory(swap: bool = True) -> float:
    """Bytes that this machine, or the control group of this process, has left; infinite where it doesn't say.

    Parameters
    ----------
    swap : bool
        Count what the machine would put on a disk.
    """
    return min(_limits(swap), default=float("inf"))


def _limits(swap: bool) -> Iterator[float]:
    try:
        told = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        yield sum(1024.0 * int(told[name].split()[0]) for name in ("MemAvailable", "SwapFree")[: 1 + swap])
    except (OSError, KeyError, ValueError):
        pass
    for limit, used, details, files in _GROUPS:
        try:
            kept = dict(line.split() for line in (_GROUP / details).read_text().splitlines())
            taken = float((_GROUP / used).read_text()) - float(kept[files])  # those are dropped when memory is needed
            yield float((_GROUP / limit).read_text()) - taken
        except (OSError, KeyError, ValueError):  # there is none, or it says "max"
            continue


def ranks_on_node(comm: MPI.Comm) -> int:
    """How many ranks of a communicator share this node's memory; all ranks call."""
    if comm.size == 1:
        return 1
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return node.size
    finally:
        node.Free()


def check_memory(system: Contents, need: Need, ranks: int = 1, here: int = 1) -> None:
    """Refuse a system for which the memory of this node doesn't suffice.

    Parameters
    ----------
    need : Need
        What is to be done with it.
    ranks, here : int
        How many there are, and how many of them on this node.

    Raises
    ------
    InputError
        It needs more than is left.
    """
    each, left = need.of(system, ranks), free_memory()
    if each * here > left:
        share = f"each of {ranks} ranks, {here} of them on this node" if ranks > 1 else "1 rank"
        raise InputError(
            f"system '{system.name}': its {system.n_bodies} bodies take about {gigabytes(each)} of memory on {share}, "
            f"which has {gigabytes(left)} left; take fewer bodies, or more nodes"
        )


def gigabytes(size: float) -> str:
    """A number of bytes, to be read."""
    return f"{size / 1e9:.2g} GB" if size < 1e11 else f"{size / 1e9:.0f} GB"
