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

    @property
    def begins(self) -> bool:
        """Whether this rank has told nothing yet in the round: else what it tells now is not heard."""
        return self._request is None

    def __call__(self, facts: int, wait: bool) -> int | None:
        """Tell facts, where this rank has told none in the round, and give what all have told; None while others work.

        Parameters
        ----------
        facts : int
            In bits.
        wait : bool
            Wait for the others.
        """
        if self._comm.size == 1:
            return facts
        if self._request is None:
            self._told[0] = facts
            self._request = self._comm.Iallreduce(self._told, self._heard, MPI.BOR)
        if wait:
            self._request.Wait()
        elif not self._request.Test():
            return None
        self._request = None
        return int(self._heard[0])
