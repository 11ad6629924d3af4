"""Forward dynamics of a system over the ranks of a communicator, and what is asked of it beside: its operators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import not_copied
from mpimbs.base.former import former_attribute, refuse_former
from mpimbs.base.settings import DOUBLING, takes
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.dynamics.divided import DividedSystem, Share
from mpimbs.dynamics.joint_loads import JointLoads
from mpimbs.dynamics.loops import ClosedLoops
from mpimbs.dynamics.operators.composites import ROWS
from mpimbs.dynamics.operators.inertia import InertiaMatrix
from mpimbs.dynamics.operators.inverse import InverseDynamics
from mpimbs.dynamics.operators.jacobians import PART, WORLD_FRAME, Jacobians
from mpimbs.dynamics.state_derivative import StateDerivative
from mpimbs.model import ModelLike
from mpimbs.model.contents import Contents
from mpimbs.parallel.agreement import communicator, same_system
from mpimbs.parts.subchain import AT_REST

# Where names of former versions are now: they answer for one version.
MOVED = {
    **{name: f"divided.{name}" for name in (
        "agreed", "boundary_motion", "coupling", "cuts", "division", "external", "followed", "follows",
        "gather_bodies", "kernels", "lanes", "model_order", "root", "step_motions", "subchains",
    )},
    **{name: f"derivative.{name}" for name in (
        "compiled", "evaluate", "evaluations", "in_phases", "laps", "seconds", "timed",
    )},
    **{name: f"inertia.{name}" for name in (
        "factor", "gather_rows", "loop_jacobian", "loop_responses", "multiply", "solve",
    )},
    "inverse_inertia_matrix": "inertia.inverse_matrix", "inertia_operator": "inertia.operator",
    "inertia_shell": "inertia.shell", "center_of_mass": "jacobians.center_of_mass",
    **{f"jacobian_{name}": f"jacobians.{name}" for name in ("bias", "product", "transpose")},
    "operational_inertia": "jacobians.operational_inertia",
    "drive_forces": "loads.drive_forces", "residual": "loads.residual",
}  # fmt: skip


class Dynamics:
    """Forward dynamics of a system, distributed over the ranks of a communicator.

    Each rank owns consecutive bodies of the chain: one subchain or, if there are more cuts than ranks, several; of a
    tree, bodies that follow one another in a depth-first order. That is the order in which the model lists them where
    it is depth first and serves, else the one with the heaviest child last; `bodies` says which they are.

    Vectors given and returned are the rank's own part: q and u of its bodies' joints, or a row for each body, in the
    order of `bodies`. Of vectors of the whole model these are `q[dynamics.gather_q.part]` and
    `u[dynamics.gather_u.part]`; `gather_q(part)` and `gather_u(part)` put the parts back. On one rank without cuts, and
    of chains, that is the model's order. All ranks make it together and call its methods together.

    Parameters
    ----------
    system : System, str or Path
        The same on every rank; or what names it, as for `system_from`. Changed afterwards, it needs another `Dynamics`.
    comm : MPI.Comm, optional
        Duplicated once; all ranks of the job by default.
    coupling : str
        How the subchains are joined: a name in `mpimbs.coupling.COUPLINGS`.
    **settings
        Any of `mpimbs.coupling.settings.EvaluationSettings`: lanes, tip_ratio, cuts, overlap, solver, lagrangian.

    Attributes
    ----------
    system : System
    comm : MPI.Comm
        This object's own.
    subchain : Subchain
        All bodies that this rank owns, as one piece; its `q` and `u` are the model's initial state.
    gather_q, gather_u : Gather
        Put parts into the model's order, on rank 0.
    derivative : StateDerivative
        Called as `derivative(t, q, u, udot, rates, tau)` it evaluates once; it counts and times evaluations.
    loops : ClosedLoops or None
        What keeps the loops closed, where the system has any.
    inertia : InertiaMatrix
        M: formed, applied, solved with, factored.
    jacobians : Jacobians
        Of points of bodies and of the centre of mass, formed and applied.
    loads : JointLoads
        What passes joints and what drives them; the residual of the equations of motion.
    divided : DividedSystem
        The parts of the ranks, and what couples and sweeps them.

    Raises
    ------
    InputError
        On all ranks: a system that this version does not solve, more ranks than subchains or bodies, an unknown
        setting, coupling, solver or number of lanes; ranks that were given different systems, forces or settings.
    """

    _share: Share | None = None  # in place of the division that the coupling makes

    @takes(EvaluationSettings)
    def __init__(
        self,
        system: ModelLike,
        comm: MPI.Comm | None = None,
        coupling: str = EvaluationSettings.coupling,
        **settings: Any,
    ) -> None:
        given = communicator(comm)

        def asked(system: Contents) -> tuple[EvaluationSettings, dict[str, str]]:
            found = EvaluationSettings.asked({"coupling": coupling, **settings})
            return found, found.described()

        whole, chosen = same_system(given, system, asked)
        self.divided = divided = DividedSystem(whole, given, chosen, self._share)
        self.system, self.comm, self.subchain = whole, divided.comm, divided.subchain
        self.gather_q, self.gather_u = divided.gather_q, divided.gather_u
        self.loops = ClosedLoops(divided) if whole.loops else None
        self.derivative = StateDerivative(divided, self.loops)
        self._inverse = InverseDynamics(divided)
        self.inertia = InertiaMatrix(divided, self._inverse)
        self.jacobians = Jacobians(divided, self.inertia)
        self.loads = JointLoads(divided, self.loops, self._inverse, self.derivative.accelerations, self.inertia)

    def __reduce__(self) -> NoReturn:
        not_copied("Dynamics", "make one where it is needed, from its `system`")

    def accelerations(
        self, q: Floats, u: Floats, tau: Floats | None = None, t: float = 0.0, warn: bool = True
    ) -> Floats:
        """Give the generalized accelerations [nu]; arguments as in `derivative`, or what numpy makes arrays of.

        A state that leaves loops open, in positions or speeds, is evaluated as it stands: all ends of loops accelerate
        alike, wherever they are. A warning says so once, unless `warn` is False.

        Raises
        ------
        InputError
            On all ranks: the array of one is of another size or not finite, or has a quaternion that is zero; a time
            is none.
        SimulationError
            On all ranks: a user function failed.
        """
        q, u, tau = self.divided.agreed(q, u, tau, t=t)
        if warn and self.loops is not None:
            self.loops.warn_of_open(q, u, t)
        return self.derivative.accelerations(q, u, tau, t)[0]

    def energy_and_momentum(self, q: Floats, u: Floats) -> Floats:
        """Give kinetic and potential energy (J), linear (N s) and angular (N m s) momentum of the whole system [8].

        The same on every rank; see `Subchain.totals`, to which springs between bodies are added. Arguments
        and InputError as of `accelerations`.
        """
        q, u, _ = self.divided.agreed(q, u)
        return totals_of(self, q[None], u[None])[0]

    def poses(self, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """Give the poses of this rank's bodies: rotations [n, 3, 3], positions [n, 3] (m); see `body_poses`.

        Arguments and InputError as of `accelerations`.
        """
        q, u, _ = self.divided.agreed(q, u)
        return self.subchain.body_poses(q, self.divided.evaluation.boundary_motion(q, u))

    @property
    def bodies(self) -> Integers:
        """Numbers in the model of this rank's bodies, in the order of its vectors [n]."""
        return self.divided.bodies

    def inertia_matrix(self, q: Floats, form: str = DOUBLING, layout: str = ROWS, out: Floats | None = None) -> Any:
        """Give the joint-space inertia matrix M [nu, nu of all]: this rank's rows; see `InertiaMatrix.matrix`."""
        return self.inertia.matrix(q, form, layout, out)

    def jacobian(
        self, q: Floats, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME, on: str = PART
    ) -> Floats:
        """Give the Jacobian of a point of a body [6, nu]; see `Jacobians.of_point`."""
        return self.jacobians.of_point(q, body, point, frame, on)

    def joint_loads(self, q: Floats, u: Floats, tau: Floats | None = None, t: float = 0.0) -> Floats:
        """Give the loads that this rank's bodies receive through their joints [n, 6]; see `JointLoads.joint_loads`."""
        return self.loads.joint_loads(q, u, tau, t)

    def inverse_dynamics(
        self, q: Floats, u: Floats, udot: Floats, t: float = 0.0, actuated: Sequence[str] | None = None
    ) -> Floats:
        """Give the generalized forces [nu] that accelerations need; see `JointLoads.inverse_dynamics`."""
        return self.loads.inverse_dynamics(q, u, udot, t, actuated)

    def close(self) -> None:
        """Free the communicator; all ranks call."""
        self.inertia.close()
        self._inverse.close()
        self.divided.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return former_attribute(self, "dynamics", MOVED, name)

        def __setattr__(self, name: str, value: Any) -> None:
            refuse_former("dynamics", MOVED, name)
            super().__setattr__(name, value)


def totals_of(dynamics: Dynamics, q: Floats, u: Floats) -> Floats:
    """Give energy and momentum of the whole system in states [states, 8]; all ranks call.

    As `Dynamics.energy_and_momentum`, of this rank's part of states [states, nq], [states, nu], which are doubles,
    finite, and not looked at.
    """
    comm, subchain, external, loops = dynamics.comm, dynamics.subchain, dynamics.divided.external, dynamics.loops
    boundary, states = AT_REST[None], list(zip(q, u, strict=True))
    if comm.size > 1:
        boundary = np.array([dynamics.divided.evaluation.boundary_motion(*state).flatten() for state in states])
    found = subchain.totals(q, u, boundary)
    for state, there, total in zip(states, itertools.cycle(boundary), found, strict=False):
        if external.springs is not None:
            total[1] += external.spring_energy(subchain.motions(*state, there))
        if loops is not None:
            total[1] += loops.spring_energy(*state)
    for total in found if comm.size > 1 else ():  # in what order MPI adds may depend on how much it is given
        comm.Allreduce(MPI.IN_PLACE, total)
    return found
