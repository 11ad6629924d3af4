"""Extrapolation of an iteration that progresses slowly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats

FARTHEST = 1e6  # iterations that are skipped at the most: beyond it is rounding that they repeat


class Extrapolation:
    """Goes on from where two iterations lead to [Anderson 1965, of depth one]; all ranks make it together and call.

    Exact where all but one part of the error are gone already, as close to a singular position, where one combination
    of constraints is almost none, and all others are met at once.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    carried, weighed : sequence of arrays
        This rank's state, an affine function of itself in each iteration: what only goes along, and that of which the
        changes tell how far to go.

    Attributes
    ----------
    still : bool
        Whether progress is so slow that millions of iterations would be skipped.
    """

    def __init__(self, comm: MPI.Comm, carried: Sequence[Floats], weighed: Sequence[Floats]) -> None:
        self._comm, self._parts = comm, [*carried, *weighed]
        self._first = sum(part.size for part in carried)
        self._ends = np.cumsum([part.size for part in self._parts])[:-1]
        self._begun = self._found = self._moved = np.concatenate(self._parts)
        self.forget()

    def forget(self) -> None:
        """Begin with another solution."""
        self._known, self.still = 0, False

    def take(self, slow: bool) -> bool:
        """Take the state after an iteration, and replace it where progress is slow; gives whether it has."""
        found = np.concatenate(self._parts)
        earlier, moved = self._found, found - self._begun
        before, self._moved, self._found, self._begun = self._moved, moved, found, found
        self._known += 1
        if not slow or self._known < 3:
            return False
        turned = (moved - before)[self._first :]
        sums = np.array([moved[self._first :] @ turned, turned @ turned])
        if self._comm.size > 1:
            self._comm.Allreduce(MPI.IN_PLACE, sums)
        if not sums[1] > 0.0:
            self.still = True
            return False
        share = sums[0] / sums[1]
        if not abs(share) <= FARTHEST:
            self.still = True
            return False
        self._begun = found - share * (found - earlier)
        for part, values in zip(self._parts, np.split(self._begun, self._ends), strict=True):
            part[:] = values
        return True
