"""What a coupling is."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from mpimbs.parallel.butterfly import Butterfly

Floats = npt.NDArray[np.float64]


class Coupling(Protocol):
    """A strategy that finds the loads between subchains.

    It is made once with the ranks' communicator and this rank's subchains. `seconds` is the time that it has spent in
    messages; `plan` what its compiled form is given in the one call of an evaluation (`mpimbs.pipeline`), None if it
    has no such form.
    """

    @property
    def plan(self) -> npt.NDArray[np.int64] | None: ...

    @property
    def seconds(self) -> float: ...

    def statistics(self) -> dict[str, int]:
        """What solutions took so far, by name; empty where they always take the same."""
        ...

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        ...

    @property
    def solve(self) -> Solve | None:
        """What Python calls to find the boundary values of this rank's subchains; None where compiled code does."""
        ...


class Solve(Protocol):
    """Finds the boundary values of a rank's subchains."""

    def __call__(self, t: float, q: Floats, blocks: Floats, root: Floats) -> Floats:
        """Find them; all ranks call.

        Parameters
        ----------
        t : float
            Time (s).
        q : array [nq]
            Coordinates of all of this rank's subchains.
        blocks : array [count, SIZE]
            Handle equations of the subchains, as in `spatial.handles`.
        root : array [6]
            Acceleration of the root: -g, in the inertial frame (m/s^2).

        Returns
        -------
        array [count, 12]
            A1, acceleration of handle 1, and f2, load on handle 2, of each (rad/s^2, m/s^2; N m, N).
        """
        ...


class ButterflyCoupling:
    """What couplings by one butterfly have in common.

    Parameters
    ----------
    butterfly : Butterfly
        Its own; closed with it.
    """

    def __init__(self, butterfly: Butterfly) -> None:
        self._butterfly = butterfly

    solve = None

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        self._butterfly.close()

    def statistics(self) -> dict[str, int]:
        """Nothing: all solutions take the same."""
        return {}

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return self._butterfly.seconds
