"""What a rank has of a system, as evaluations use it. No MPI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mpimbs.sweep.subchain import Subchain

Floats = npt.NDArray[np.float64]


class Part(Protocol):
    """Consecutive bodies of a system in one or more subchains, each hanging on the one before: those of a rank.

    Vectors of coordinates and speeds are in the model's order. One evaluation is, in this order, `start`, `inward` and
    `outward`; what lies between (the boundary motion and the handle loads) comes from the coupling. What the handle
    equations of a subchain are is a matter of the part and of the coupling that goes with it, see
    `coupling.Strategy`.
    """

    @property
    def plan(self) -> npt.NDArray[np.int64] | None:
        """What the passes are given in the one call of an evaluation (`mpimbs.pipeline`); None: they have no part in
        it."""
        ...

    @property
    def width(self) -> int:
        """Lanes of the widest sweep."""
        ...

    @property
    def loads(self) -> Floats:
        """A1 and f2 of each subchain in the last evaluation [count, 12] (rad/s^2, m/s^2; N m, N)."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Subchain]: ...

    def __getitem__(self, number: int) -> Subchain: ...

    def set_wrenches(self, wrenches: Floats) -> None:
        """Set the external wrenches on all steps in sequence [m * 6] (N m, N), as `Subchain.wrenches`."""
        ...

    def start(self, q: Floats, u: Floats) -> Floats:
        """Write the joint frames; give the boundary turn of all subchains together.

        Parameters
        ----------
        q, u : array [nq], [nu]
            Coordinates (rad, m, unit quaternions) and generalized speeds (rad/s, m/s).

        Returns
        -------
        array [TURNING]
            Rotation 9 from the first handle 1 to the last handle 2, and the angular velocity 3 of that (rad/s), in its
            frame, while handle 1 is held. At the tip, where nobody asks, numbers without meaning.
        """
        ...

    def inward(self, q: Floats, u: Floats, tau: Floats, turn: Floats) -> Floats:
        """Find the handle equations, given the turn of the first subchain's handle 1 [TURNING].

        Parameters
        ----------
        q, u, turn : array
        tau : array [nu] or [0]
            Generalized forces (N m, N) on top of the model's own; an empty array stands for none.

        Returns
        -------
        array [count, numbers of a block]
            `spatial.handles.SIZE` of each subchain, or `spatial.assembly.ASSEMBLY` in the acceleration form.
        """
        ...

    def outward(self, q: Floats, u: Floats, loads: Floats, udot: Floats, rates: Floats) -> None:
        """Find the accelerations, given A1 and f2 of each subchain.

        Parameters
        ----------
        q, u : array
        loads : array [count, 12]
            As of the attribute.
        udot, rates : array [nu], [nq]
            Written: generalized accelerations (rad/s^2, m/s^2) and rates of the coordinates.
        """
        ...
