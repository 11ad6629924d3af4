"""When all ranks of an ensemble have got as far as a sample, told without waiting for each other."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI


class Rounds:
    """Gives what any rank has told, round after round; a round is over when every rank has told its facts.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own; it must outlive this. All ranks make it together.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._told, self._heard = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._request: MPI.Request | None = None
        self._asks = 0  # not told yet

    def __call__(self, facts: int, asks: int, wait: bool) -> int | None:
        """Tell facts and what is asked for, and give what all have told; None while others work.

        Parameters
        ----------
        facts : int
            In bits, of this round: what was told first in it counts.
        asks : int
            In bits. What comes after this rank has told is told in the next round.
        wait : bool
            Wait for the others.
        """
        self._asks |= asks
        if self._request is None:
            self._told[0], self._asks = facts | self._asks, 0
            if self._comm.size == 1:
                return int(self._told[0])
            self._request = self._comm.Iallreduce(self._told, self._heard, MPI.BOR)
        if wait:
            self._request.Wait()
        elif not self._request.Test():
            return None
        self._request = None
        return int(self._heard[0])
