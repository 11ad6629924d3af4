"""The loads that pass joints: all of them, what drives joints, what accelerations need, and what these leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mpimbs.base.arguments import check_time
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.dynamics.evaluation import Acted
from mpimbs.dynamics.loops import CarriedLoads, ClosedLoops
from mpimbs.dynamics.operators.inertia import InertiaMatrix
from mpimbs.dynamics.operators.inverse import InverseDynamics, wrenched_by_loops
from mpimbs.dynamics.residual import Residual, residual_of
from mpimbs.model.contents import Contents
from mpimbs.parallel.agreement import on_root, together
from mpimbs.parts.bodies.absolute import AbsoluteBodies
from mpimbs.parts.intervals import Intervals

if TYPE_CHECKING:
    from mpimbs.closure.redundant_loads import Actuation


Accelerate = Callable[[Floats, Floats, Floats | None, float], tuple[Floats, Acted]]
OPENING = 1e-6  # of what keeps a loop closed: accelerations that open it by more are none that it allows


def _speeds_of(system: Contents, bodies: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which speeds are those of the inboard joints of some bodies [nu]."""
    found, offset = np.zeros(system.nu, bool), system.offsets()[1]
    if isinstance(bodies, str):
        raise InputError(f"actuated must be a list of names of bodies, got {bodies!r}")
    for name in bodies:
        k = system.index_of(name)
        found[offset[k] : offset[k + 1]] = True
    return found


class JointLoads:
    """Gives loads and forces of joints; all ranks call together.

    Vectors are the rank's own part, in the order of its vectors.

    Parameters
    ----------
    divided : DividedSystem
    loops : ClosedLoops or None
        Of the same system.
    inverse : InverseDynamics
    accelerate : callable
        Gives the accelerations of q, u, tau, t, and what acted (`StateDerivative.accelerations`).
    inertia : InertiaMatrix
    """

    def __init__(
        self,
        divided: DividedSystem,
        loops: ClosedLoops | None,
        inverse: InverseDynamics,
        accelerate: Accelerate,
        inertia: InertiaMatrix,
    ) -> None:
        self._divided, self._loops, self._inverse, self._accelerate = divided, loops, inverse, accelerate
        self._inertia = inertia

    def joint_loads(self, q: Floats, u: Floats, tau: Floats | None = None, t: float = 0.0) -> Floats:
        """Give the loads that this rank's bodies receive through their inboard joints, from their parents [n, 6].

        The whole load that passes the joint: the reaction of what it constrains, and what drives it (torque, spring,
        damper, `tau`), together. Its component along the motion subspace, S^T load, is the generalized force of the
        joint; a free joint passes nothing else. The parent receives the opposite load, at the same point. Weight and
        wrenches are loads from outside: a body that hangs at rest receives the force m g upward.

        One evaluation, then sweeps over the rank's own bodies without further messages. Of a joint that follows a given
        motion this is what it takes; its rotor is turned by what drives it, too.

        Parameters
        ----------
        q, u, tau, t
            As in `accelerations`.

        Returns
        -------
        array [n, 6]
            Moment (N m) about the origin of the body's frame, where its joint lies on it, then force (N): on the body,
            in body frame components.

        Raises
        ------
        InputError, SimulationError
            As `accelerations`.
        """
        return self.joints_and_loops(q, u, tau, t).joints

    def joints_and_loops(self, q: Floats, u: Floats, tau: Floats | None = None, t: float = 0.0) -> CarriedLoads:
        """Give the loads of joints, as `joint_loads`, and those of loops, by the same evaluation."""
        q, u, tau = self._divided.agreed(q, u, tau, t=t)
        if self._loops is not None:
            self._loops.warn_of_open(q, u, t)
        _, acted = self._accelerate(q, u, tau, t)
        return self.after(*self._divided.followed(t, q, u), acted, tau)

    def after(self, q: Floats, u: Floats, acted: Acted, tau: Floats | None = None, least: bool = True) -> CarriedLoads:
        """Give the loads in the state of the evaluation just made, which gave `acted`; `least` as of `ClosedLoops`."""
        forces = acted.forces if tau is None or acted.forces.size else tau
        self._find_loads(q, u)
        given = q, u, forces, self._divided.evaluation.turns
        if self._loops is not None:
            return self._loops.joint_loads(*given, least)
        return CarriedLoads(*self._divided.subchains.joint_loads(*given), None)

    def _find_loads(self, q: Floats, u: Floats) -> None:
        """Find what passes the joints of bodies whose accelerations were found one by one: inverse dynamics."""
        divided, part = self._divided, self._divided.subchains
        if isinstance(part, AbsoluteBodies):
            work, *_ = wrenched_by_loops(divided.comm, divided.subchain, part, len(divided.system.loops), np.zeros(0))
            between, still = divided.between, divided.still
            between.see(q, u)
            between.prescribed(q, u, still, divided.root, work)
            part.wrenches[:] = part.loads[: len(part.wrenches)]
            between.forces(q, u, still, still, part.wrenches, work)  # which leaves the loads there

    def drive_forces(self, q: Floats, u: Floats, t: float = 0.0) -> Floats:
        """Give the generalized forces [nu] (N m, N) by which joints follow given motions; 0 of other joints.

        On top of springs, dampers and torques of the model along the joint; in place of any other force along it.
        Arguments and errors as of `accelerations`.
        """
        q, u, _ = self._divided.agreed(q, u, t=t)
        if self._loops is not None:
            self._loops.warn_of_open(q, u, t)
        _, acted = self._accelerate(q, u, None, t)
        return self.driving(*self._divided.followed(t, q, u), acted)

    def driving(self, q: Floats, u: Floats, acted: Acted) -> Floats:
        """Give what `drive_forces` gives, after an evaluation of joints that follow; all ranks call."""
        motions, part = self._divided.external.motions, self._divided.subchains
        if self._divided.follows:  # on any rank, and all have to find them
            self._find_loads(q, u)
        if not motions or not acted.forces.size:
            return np.zeros(self._divided.subchain.nu)
        forces, wrenches = acted.forces, None
        if isinstance(part, Intervals) and self._loops is not None:
            wrenches, forces = part.by_loops(forces)
        given = q, u, forces, self._divided.evaluation.turns
        return motions.forces(q, u, part.joint_loads(*given, wrenches)[1])

    def residual(
        self, q: Floats, u: Floats, udot: Floats | None = None, tau: Floats | None = None, t: float = 0.0
    ) -> Residual:
        """Tell what accelerations leave of the equations of motion and of the loops: nothing but rounding, if right.

        Inverse dynamics of `udot`, by recursive Newton-Euler sweeps in doubles, against what acts, with the loads of
        loops and gears that an evaluation finds; and the rows of these, which accelerations have to satisfy. One
        evaluation and five sweeps of O(n).

        Parameters
        ----------
        q, u, tau, t
            As in `accelerations`.
        udot : array [nu], optional
            Generalized accelerations (rad/s^2, m/s^2), this rank's part; by default those of `accelerations`.

        Raises
        ------
        InputError, SimulationError
            As `accelerations`.
        """
        q, u, tau = self._divided.agreed(q, u, tau, t=t)
        given = None if udot is None else self._divided.agreed(q, u, udot, "udot", t)[2]
        found, acted = self._accelerate(q, u, tau, t)
        forces = acted.forces if acted.forces.size else np.zeros(self._divided.subchain.nu)
        q, u = self._divided.followed(t, q, u)
        udot = found if given is None else given
        return residual_of(self._divided, self._loops, q, u, udot, forces, self._inertia.solve)

    def inverse_dynamics(
        self, q: Floats, u: Floats, udot: Floats, t: float = 0.0, actuated: Sequence[str] | None = None
    ) -> Floats:
        """Give the generalized forces `tau` [nu] (N m, N), on top of the model's, under which a state has the
        accelerations `udot` [nu]: `accelerations` in reverse.

        Gravity, springs, dampers, torques, wrenches and functions of the model act as in `accelerations`. Long chains
        lose digits: rounding of one joint's acceleration moves all bodies beyond (1e-9 at 512 bodies). Of joints that
        follow given motions these are the forces of `drive_forces`, which make the joints move by this `udot`.

        Through loops and gears many forces, with as many loads of these, do the same. Those of least norm are given, in
        N m and, of slides, N times the system's size; or the forces of joints that have actuators. The loads that loops
        then carry are given by `actuation`. State and `udot` have to be such as the loops allow.

        Parameters
        ----------
        q, u, t
            As in `accelerations`.
        udot : array [nu]
            Generalized accelerations (rad/s^2, m/s^2), this rank's part.
        actuated : sequence of str, optional
            Of a system with loops, the bodies whose inboard joints have actuators; all by default.

        Raises
        ------
        InputError, SimulationError
            As `accelerations`; with loops, on all ranks: a state that leaves them open, or accelerations that open
            them; joints that can't make the motion; given motions beside loops.
        """
        if self._loops is not None:
            return self.actuation(q, u, udot, t, actuated).tau
        if actuated is not None:
            raise InputError("actuated: the system has no loops, so every joint needs the force that it needs")
        if self._divided.comm.size == 1:
            check_time(t)
        if not self._divided.may_fail and (found := self._inverse.at_once(q, u, udot, True)) is not None:
            return found
        q, u, udot = self._divided.agreed(q, u, udot, "udot", t)
        forces = np.zeros(self._divided.subchain.nu)
        if self._divided.may_fail:
            boundary = self._divided.boundary_motion(q, u)
            together(self._divided.comm, lambda: self._divided.external.apply(t, q, u, boundary, forces))
            forces[self._divided.subchain.columns.prescribed] = 0.0  # of joints that follow, what their drive has to do
        return self._inverse.needed(q, u, udot, forces)

    def actuation(
        self, q: Floats, u: Floats, udot: Floats, t: float = 0.0, actuated: Sequence[str] | None = None
    ) -> Actuation:
        """Give the forces of `inverse_dynamics` of a system with loops, the loads that loops carry then, and whether no
        other forces of these joints do the same.

        Arguments and errors as of `inverse_dynamics`.
        """
        loops, system = self._loops, self._divided.system
        if loops is None:
            raise InputError("actuation: the system has no loops; see `inverse_dynamics`")
        q, u, udot = self._divided.agreed(q, u, udot, "udot", t)
        if self._divided.follows:
            raise InputError("inverse dynamics through loops is for joints that follow no motion: see `drive_forces`")
        acting = None if actuated is None else together(self._divided.comm, lambda: _speeds_of(system, actuated))
        if wrong := loops.opened(q, u):
            raise InputError(wrong)
        carried = self.joints_and_loops(q, u, t=t).loops
        assert carried is not None
        needed = self.residual(q, u, udot, t=t)
        if needed.loops > OPENING:
            raise InputError(
                f"these accelerations open loop {needed.loop!r}, by {needed.loops:.1e} of what keeps it closed: give "
                "such as the loops allow, as those of `accelerations` are"
            )
        whole, force = self._divided.gather_q(q), self._divided.gather_u(needed.forces)
        found = on_root(
            self._divided.comm,
            lambda: None if whole is None or force is None else loops.actuated(whole, force, carried, acting),
        )
        of_all: Actuation = self._divided.comm.bcast(found)
        return of_all._replace(tau=of_all.tau[self._divided.gather_u.part].copy())
