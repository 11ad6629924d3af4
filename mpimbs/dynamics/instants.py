"""States that are sampled: what quantities are computed from, each part when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.dynamics.dynamics import Dynamics
from mpimbs.dynamics.loops import CarriedLoads
from mpimbs.model.columns import Columns
from mpimbs.parallel.agreement import together
from mpimbs.parts.kinematics import pose_numbers


class States:
    """States that are sampled, and what is known of them: of a system at several times, or of copies at one.

    All ranks make it together and look. A row of each array is one of them, of this rank's part.

    Parameters
    ----------
    dynamics : callable
        Gives the dynamics of the system of which a state is, by its number.
    t : sequence of float
        s.
    q, u : array [states, nq], [states, nu]
        This rank's part.
    held : sequence of (array [nu] or None)
        Forces on joints on top of the model's (N m, N).
    """

    def __init__(
        self,
        dynamics: Callable[[int], Dynamics],
        t: Sequence[float],
        q: Floats,
        u: Floats,
        held: Sequence[Floats | None],
    ) -> None:
        self._dynamics, self.t, self.q, self.u, self.held = dynamics, t, q, u, held

    @property
    def columns(self) -> Columns:
        """Those of this rank's bodies."""
        return self._dynamics(0).subchain.columns

    @cached_property
    def energy(self) -> Floats:
        """Kinetic and potential energy of the whole system [states, 2], J."""
        pairs = enumerate(zip(self.q, self.u, strict=True))
        return np.array([self._dynamics(k).energy_and_momentum(*state)[:2] for k, state in pairs])

    @property
    def poses(self) -> Floats:
        """Position (m) and quaternion of the bodies [states, n, 7]."""
        return pose_numbers(*map(np.array, zip(*map(self.poses_of, range(len(self.q))), strict=True)))

    def poses_of(self, k: int) -> tuple[Floats, Floats]:
        """Rotations [n, 3, 3] and positions [n, 3] (m) in a state."""
        return self._dynamics(k).poses(self.q[k], self.u[k])

    @property
    def joint_loads(self) -> Floats:
        """The loads of joints [states, n, 6]; with the following an evaluation of each state."""
        return np.array([each.joints for each in self._carried])

    @property
    def joint_forces(self) -> Floats:
        """The forces of joints along their motion subspaces [states, nu]."""
        return np.array([each.forces for each in self._carried])

    @property
    def loop_loads(self) -> Floats:
        """The loads of all loops [states, loops, 6]."""
        return np.array([each.loops for each in self._carried])

    @cached_property
    def _carried(self) -> list[CarriedLoads]:
        return [self.carried(k) for k in range(len(self.q))]

    def carried(self, k: int) -> CarriedLoads:
        """Give the loads that joints and loops carry in a state: an evaluation."""
        dynamics, given = self._dynamics(k), (self.q[k], self.u[k], self.held[k], self.t[k])
        return together(dynamics.comm, lambda: dynamics.loads.joints_and_loops(*given))

    @cached_property
    def measured(self) -> Floats:
        """How far loops are from closed, in two ways [states, loops, 4]; see `StateClosing.apart`."""
        loops = self._dynamics(0).loops
        assert loops is not None and self.energy is not None  # which checks the states
        return loops.all_measured(self.q, self.u)

    @cached_property
    def violations(self) -> Floats:
        """How far loops are from closed [states, loops, 2]."""
        return self.measured[..., :2]
