"""The far ends of loops between intervals: their motions, from whoever has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.loops.loops import Loops
from mpimbs.parallel.exchange import Exchange
from mpimbs.parts.intervals import Intervals
from mpimbs.sweep.structure import BOUNDARY

Floats = npt.NDArray[np.float64]


class FarEnds:
    """Brings motions of bodies at which loops end to where the loops' other ends are; all ranks make and call it.

    An end whose other one no rank has gets its own motion: so the share of one rank among many is timed.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    part : Intervals
        That of this rank, of a system with loops.

    Attributes
    ----------
    any : bool
        Whether there is any such loop, on whichever rank.
    """

    def __init__(self, comm: MPI.Comm, part: Intervals) -> None:
        mine = [(int(loops.numbers[at]), loops, at) for loops in part.loops for at in loops.far.tolist()]
        mine.sort(key=lambda entry: entry[0])
        of_ranks: list[list[int]] = comm.allgather([number for number, _, _ in mine])
        self.any = any(of_ranks)
        where: dict[int, list[int]] = {}
        for rank, numbers in enumerate(of_ranks):
            for number in numbers:
                where.setdefault(number, []).append(rank)
        self._here: list[tuple[tuple[Loops, int], tuple[Loops, int]]] = []  # an end, and that whose motion it gets
        self._others: dict[int, list[tuple[Loops, int]]] = {}
        waiting: dict[int, tuple[Loops, int]] = {}
        for number, loops, at in mine:
            owners = where[number]
            if owners[0] != owners[-1]:
                self._others.setdefault(sum(owners) - comm.rank, []).append((loops, at))
            elif number in waiting:
                left, right = waiting.pop(number), (loops, at)
                self._here += [(left, right), (right, left)]
            else:
                waiting[number] = loops, at
        self._here += [(end, end) for end in waiting.values()]
        sizes = {rank: BOUNDARY * len(ends) for rank, ends in sorted(self._others.items())}
        self._exchange = Exchange(comm, sizes, sizes)

    def __call__(self) -> None:
        """Bring them: after the motions of this rank's steps were found."""
        for (loops, at), (other, there) in self._here:
            loops.place_far(at, other.near_motion(there))
        ends = self._in_sequence()
        self._exchange.to_others[:] = np.concatenate([np.zeros(0), *(loops.near_motion(at) for loops, at in ends)])
        self._exchange()
        for (loops, at), motion in zip(ends, self._exchange.from_others.reshape(-1, BOUNDARY), strict=True):
            loops.place_far(at, motion)

    def _in_sequence(self) -> Sequence[tuple[Loops, int]]:
        return [end for _, ends in sorted(self._others.items()) for end in ends]

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return self._exchange.seconds

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        self._exchange.close()
