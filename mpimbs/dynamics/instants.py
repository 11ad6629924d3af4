"""States of a system that are sampled: what quantities are computed from, each part when it is first asked for."""

from __future__ import annotations

from functools import cached_property

from mpimbs.base.arrays import Floats
from mpimbs.dynamics.dynamics import Dynamics
from mpimbs.dynamics.loops import CarriedLoads
from mpimbs.parallel.agreement import together
from mpimbs.parts.kinematics import pose_numbers


class StateAt:
    """A state at a time, as `quantities.Instant` has it; all ranks make it together and look.

    Parameters
    ----------
    t : float
        s.
    q, u : array [nq], [nu]
        This rank's part.
    held : array [nu], optional
        Forces on joints on top of the model's (N m, N).
    """

    def __init__(self, dynamics: Dynamics, t: float, q: Floats, u: Floats, held: Floats | None = None) -> None:
        self._dynamics, self.t, self.q, self.u, self._held = dynamics, t, q, u, held
        self.columns = dynamics.subchain.columns

    @cached_property
    def energy(self) -> Floats:
        return self._dynamics.energy_and_momentum(self.q, self.u)[:2]

    @property
    def poses(self) -> Floats:
        return pose_numbers(*self._dynamics.poses(self.q, self.u))

    @property
    def joint_loads(self) -> Floats:
        return self.carried.joints

    @property
    def joint_forces(self) -> Floats:
        return self.carried.forces

    @property
    def loop_loads(self) -> Floats:
        assert self.carried.loops is not None
        return self.carried.loops

    @cached_property
    def carried(self) -> CarriedLoads:
        """The loads that joints and loops carry: an evaluation."""
        dynamics, given = self._dynamics, (self.q, self.u, self._held, self.t)
        return together(dynamics.comm, lambda: dynamics.loads.joints_and_loops(*given))

    @cached_property
    def measured(self) -> Floats:
        """How far loops are from closed, in two ways [loops, 4]; see `StateClosing.apart`."""
        assert self._dynamics.loops is not None and self.energy is not None  # which checks the state
        return self._dynamics.loops.measured(self.q, self.u)

    @cached_property
    def violations(self) -> Floats:
        return self.measured[:, :2]
