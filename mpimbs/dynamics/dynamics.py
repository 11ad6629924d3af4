"""Forward dynamics of a system over the ranks of a communicator, and what is asked of it beside: its operators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from numba.core.errors import NumbaError

from mpimbs.base.errors import HaltError, InputError, SimulationError, as_meant, not_copied
from mpimbs.base.names import DOUBLING
from mpimbs.base.settings import takes
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.dynamics.divided import DividedSystem, Share
from mpimbs.dynamics.evaluation import NOTHING, Acted
from mpimbs.dynamics.joint_loads import JointLoads
from mpimbs.dynamics.loops import ClosedLoops
from mpimbs.dynamics.operators.composites import ROWS
from mpimbs.dynamics.operators.factor import Factor
from mpimbs.dynamics.operators.inertia import InertiaMatrix
from mpimbs.dynamics.operators.inverse import InverseDynamics
from mpimbs.dynamics.operators.jacobians import PART, WORLD_FRAME, Jacobians
from mpimbs.dynamics.residual import Residual
from mpimbs.kernels.calling import address_of
from mpimbs.kernels.checked import CHECKED
from mpimbs.model import System
from mpimbs.parallel.agreement import communicator, same_system, together
from mpimbs.parallel.reorder import Gather

if TYPE_CHECKING:
    import scipy.sparse

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


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
    subchain : Subchain
        All that this rank owns, as one piece.
    subchains : Part
        The same, as it is swept.
    cuts : array [P + 1]
        Rank r owns the bodies at the places cuts[r] to cuts[r + 1] - 1 of that order.
    model_order : dict of str to Reorder
        Brings parts into the model's order, for files: of vectors like "q" and "u", and of rows for each "body".
    coupling : Coupling
        What joins the subchains.
    kernels : str
        Those that evaluate (`pipeline.EVALUATE`).
    division : Division
        Which subchains there are, and who owns them.
    external : ExternalLoads
        What acts on this rank's bodies from outside.
    evaluations : int
        Evaluations so far.
    follows : bool
        Whether any joints of the system follow given motions.
    root : array [6]
        Acceleration of the root: -g (m/s^2).
    loops : ClosedLoops or None
        What keeps the loops closed, where the system has any.
    divided : DividedSystem
        What this and its operators are given: the parts of the ranks, and what sweeps them.
    inertia, inverse, jacobians, loads : InertiaMatrix, InverseDynamics, Jacobians, JointLoads
        Operators: M, formed, applied and factored; inverse dynamics; Jacobians; what passes joints.

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
        system: System | str | Path,
        comm: MPI.Comm | None = None,
        coupling: str = EvaluationSettings.coupling,
        **settings: Any,
    ) -> None:
        given = communicator(comm)

        def asked(system: System) -> tuple[EvaluationSettings, dict[str, str]]:
            found = EvaluationSettings.asked({"coupling": coupling, **settings})
            return found, found.described()

        whole, chosen = same_system(given, system, asked)
        self.divided = divided = DividedSystem(whole, given, chosen, self._share)
        self.system, self.comm, self.division, self.cuts = whole, divided.comm, divided.division, divided.cuts
        self.subchain, self.subchains, self.coupling = divided.subchain, divided.subchains, divided.coupling
        self.kernels, self.external, self.follows = divided.kernels, divided.external, divided.follows
        self.root, self.model_order = divided.root, divided.model_order
        self.gather_q, self.gather_u = divided.gather_q, divided.gather_u
        self._evaluation = divided.evaluation
        self.evaluations = 0
        self._acted = NOTHING  # in the last evaluation that was given forces
        self.loops = ClosedLoops(divided) if whole.loops else None
        self.inverse = InverseDynamics(divided)
        self.inertia = InertiaMatrix(divided, self.inverse)
        self.jacobians = Jacobians(divided, self.inertia)
        self.loads = JointLoads(divided, self.loops, self.inverse, self._accelerations)

    def __reduce__(self) -> NoReturn:
        not_copied("Dynamics", "make one where it is needed, from its `system`")

    def derivative(
        self, t: float, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None = None
    ) -> None:
        """Evaluate the state derivative [design, section 2].

        Parameters
        ----------
        t : float
            Time (s), for the model's functions.
        q, u : array [nq], [nu]
            Coordinates (rad, m, quaternions) and generalized speeds (rad/s, m/s).
        udot, rates : array [nu], [nq]
            Written: generalized accelerations and rates of the coordinates.
        tau : array [nu], optional
            Generalized forces (N m, N) on top of the model's.

        Raises
        ------
        InputError
            On the rank that gave an array of another shape or type, or one that is not contiguous or read-only; the
            others find accelerations that are not finite.
        SimulationError
            On the rank whose user function failed.
        """
        evaluation = self._evaluation
        try:
            if not evaluation.in_phases and tau is None and self.system.changes == self.divided.changes:
                # One call of compiled code takes no other type of array, and refuses other sizes: all that is asked
                # of small systems, whose sweeps take no longer than a few questions of Python.
                self.evaluations += 1
                if evaluation.whole(evaluation.rank, q, u, evaluation.no_tau, udot, rates):
                    if self.loops is not None and (self.loops.refining or self.evaluations == 1):
                        self._refine(t, q, u, udot)
                    return
            self.divided.check(q, u, udot, rates, tau)
            failure = self.evaluate(t, q, u, udot, rates, tau).failure
        except (InputError, TypeError, NumbaError) as error:
            self._refuse(error, t, q, u, udot, rates, tau)
        if failure is not None:
            raise as_meant(failure)

    def _refuse(self, error: Exception, t: float, *arrays: Any) -> NoReturn:
        """Say what is wrong with arrays, after this rank's part in the evaluation: the others wait for it."""
        try:
            self.divided.check(*arrays)
        except InputError as wrong:
            if self.comm.size > 1:
                nq, nu = self.subchain.nq, self.subchain.nu
                nothing = np.full(nq, np.nan), np.full(nu, np.nan), np.empty(nu), np.empty(nq)
                self.evaluate(t, *nothing)
            raise wrong from None
        raise error

    def evaluate(self, t: float, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None = None) -> Acted:
        """Evaluate the state derivative as `derivative` does, of arrays that were checked: they are read by address.

        Gives what acted; among it the failure of a user function, which is not raised.
        """
        self.evaluations += 1
        evaluation, acted = self._evaluation, NOTHING
        if evaluation.in_phases:
            acted = evaluation.in_turn(t, q, u, udot, rates, tau)
        else:
            evaluation.whole(evaluation.rank, q, u, evaluation.no_tau if tau is None else tau, udot, rates)
            if tau is not None:
                acted = self._acted = self._acted if self._acted.forces is tau else Acted(tau)
        if self.loops is not None and (self.loops.refining or self.evaluations == 1):
            acted = self._refine(t, q, u, udot, acted)
        return acted

    def _refine(self, t: float, q: Floats, u: Floats, udot: Floats, acted: Acted = NOTHING) -> Acted:
        """Refine an evaluation by what it leaves of the loops' equations (`ClosedLoops.refine`); all ranks call.

        Gives what acted, with what halts the program meanwhile.
        """
        assert self.loops is not None
        try:
            q, u = self.external.motions.follow(t, q, u)
        except HaltError as halt:
            acted = acted._replace(failure=halt)
        except SimulationError:  # found in the evaluation, which has no numbers then
            pass
        self.loops.refine(q, u, udot)
        return acted

    @property
    def compiled(self) -> tuple[int, Integers] | None:
        """Where the compiled evaluation is (`kernels.calling`), and the table that it is given; None where Python has a
        say in evaluations."""
        evaluation = self._evaluation
        if evaluation.in_phases or self.loops is not None or CHECKED:
            return None
        q, u = np.empty(self.subchain.nq), np.empty(self.subchain.nu)
        return address_of(evaluation.whole, evaluation.rank, q, u, evaluation.no_tau, u, q), evaluation.rank

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
        if warn:
            self.warn_of_open(q, u, t)
        return self._accelerations(q, u, tau, t)[0]

    def warn_of_open(self, q: Floats, u: Floats, t: float = 0.0) -> None:
        """Warn once of a state, of arrays that were checked, that leaves loops open; all ranks call."""
        if self.loops is not None:
            self.loops.warn_of_open(q, u, t)

    def _accelerations(self, q: Floats, u: Floats, tau: Floats | None, t: float) -> tuple[Floats, Acted]:
        udot, rates = np.empty(self.subchain.nu), np.empty(self.subchain.nq)

        def action() -> Acted:
            acted = self.evaluate(t, q, u, udot, rates, tau)
            if self.loops is not None and not self.loops.refining:
                acted = self._refine(t, q, u, udot, acted)
            if acted.failure is not None:
                raise acted.failure
            return acted

        return udot, together(self.comm, action) if self.divided.may_fail else action()

    def energy_and_momentum(self, q: Floats, u: Floats) -> Floats:
        """Give kinetic and potential energy (J), linear (N s) and angular (N m s) momentum of the whole system [8].

        The same on every rank; see `Subchain.energy_and_momentum`, to which springs between bodies are added. Arguments
        and InputError as of `accelerations`.
        """
        q, u, _ = self.divided.agreed(q, u)
        motion = self.subchain.motions(q, u, self._evaluation.boundary_motion(q, u))
        mine = self.subchain.energy_and_momentum(q, u, np.asarray(self.system.gravity), motion)
        mine[1] += self.external.spring_energy(motion)
        if self.loops is not None:
            mine[1] += self.loops.spring_energy(q, u)
        self.comm.Allreduce(MPI.IN_PLACE, mine)
        return mine

    def poses(self, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """Give the poses of this rank's bodies: rotations [n, 3, 3], positions [n, 3] (m); see `body_poses`.

        Arguments and InputError as of `accelerations`.
        """
        q, u, _ = self.divided.agreed(q, u)
        return self.subchain.body_poses(q, self._evaluation.boundary_motion(q, u))

    @property
    def timed(self) -> bool:
        """Whether evaluations are timed phase by phase, which takes about 0.1 us each."""
        return self._evaluation.timed

    @timed.setter
    def timed(self, wanted: bool) -> None:
        self._evaluation.timed = wanted

    @property
    def in_phases(self) -> bool:
        """Whether Python calls the phases of evaluations, as it must for functions; may be set, not cleared."""
        return self._evaluation.in_phases

    @in_phases.setter
    def in_phases(self, wanted: bool) -> None:
        self._evaluation.in_phases = self._evaluation.in_phases or wanted

    @property
    def lanes(self) -> int:
        """Number of pieces that this rank sweeps side by side at the most."""
        return self.subchains.width

    def seconds(self) -> dict[str, float]:
        """Wall time spent so far, by phase (s): sweep, coupling, communication (messages of both)."""
        return self._evaluation.seconds()

    @property
    def laps(self) -> Floats:
        """Time spent so far in the phases of evaluations (s): motion, inward, coupling, outward."""
        return self._evaluation.laps

    @property
    def bodies(self) -> Integers:
        """Numbers in the model of this rank's bodies, in the order of its vectors [n]."""
        return self.divided.bodies

    def agreed(
        self, q: npt.ArrayLike, u: npt.ArrayLike, third: Any = None, name: str = "tau", t: float = 0.0
    ) -> tuple[Floats, Floats, Any]:
        """Give a state, and forces or what has this `name`, as compiled code reads them; see `DividedSystem.agreed`."""
        return self.divided.agreed(q, u, third, name, t)

    def followed(self, t: float, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """Give a state with that of joints that follow given motions at a time (s); see `DividedSystem.followed`."""
        return self.divided.followed(t, q, u)

    def gather_bodies(self, numbers: int) -> Gather:
        """Plan to gather so many numbers of every body on rank 0, in the model's order."""
        return self.divided.gather_bodies(numbers)

    def boundary_motion(self, q: Floats, u: Floats) -> Floats:
        """Give the motions of the bodies that this rank's hang on [k, BOUNDARY], of arrays that were checked."""
        return self.divided.boundary_motion(q, u)

    def step_motions(self, q: Floats, u: Floats, acted: Acted) -> Floats:
        """Give the motions of this rank's steps [m, BOUNDARY]; see `DividedSystem.step_motions`."""
        return self.divided.step_motions(q, u, acted)

    # --- operators: each says what its own method does

    def inertia_matrix(self, q: Floats, form: str = DOUBLING, layout: str = ROWS, out: Floats | None = None) -> Any:
        """Give the joint-space inertia matrix M [nu, nu of all]: this rank's rows; see `InertiaMatrix.matrix`."""
        return self.inertia.matrix(q, form, layout, out)

    def inverse_inertia_matrix(self, q: Floats) -> Floats:
        """Give the inverse of the inertia matrix: this rank's rows; see `InertiaMatrix.inverse_matrix`."""
        return self.inertia.inverse_matrix(q)

    def gather_rows(self, rows: Floats) -> Floats | None:
        """Give a matrix of which each rank has its rows on rank 0, in the model's order; None elsewhere."""
        return self.inertia.gather_rows(rows)

    def multiply(self, q: Floats, v: Floats) -> Floats:
        """Give M v [nu] without forming M; see `InertiaMatrix.multiply`."""
        return self.inertia.multiply(q, v)

    def solve(self, q: Floats, f: Floats) -> Floats:
        """Give M^-1 f [nu] without forming M; see `InertiaMatrix.solve`."""
        return self.inertia.solve(q, f)

    def factor(self, q: Floats, armature: Floats | None = None) -> Factor:
        """Factor M in a state, for many right-hand sides; see `InertiaMatrix.factor`."""
        return self.inertia.factor(q, armature)

    def inertia_operator(self, q: Floats, inverse: bool = False) -> scipy.sparse.linalg.LinearOperator:
        """Give M, or its inverse, as a scipy operator; see `InertiaMatrix.operator`."""
        return self.inertia.operator(q, inverse)

    def inertia_shell(self, q: Floats, inverse: bool = False) -> Any:
        """Give M, or its inverse, as a PETSc shell matrix; see `InertiaMatrix.shell`."""
        return self.inertia.shell(q, inverse)

    def loop_jacobian(self, q: Floats) -> scipy.sparse.csr_array:
        """Give the Jacobian of what the loops constrain [constraints, nu]; see `InertiaMatrix.loop_jacobian`."""
        return self.inertia.loop_jacobian(q)

    def loop_responses(self, q: Floats) -> Floats:
        """Give M^-1 J^T [nu, constraints] of what the loops constrain; see `InertiaMatrix.loop_responses`."""
        return self.inertia.loop_responses(q)

    def jacobian(
        self, q: Floats, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME, on: str = PART
    ) -> Floats:
        """Give the Jacobian of a point of a body [6, nu]; see `Jacobians.of_point`."""
        return self.jacobians.of_point(q, body, point, frame, on)

    def jacobian_product(
        self, q: Floats, u: Floats, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME
    ) -> Floats:
        """Give J u [6], how a body turns and a point of it moves; see `Jacobians.product`."""
        return self.jacobians.product(q, u, body, point, frame)

    def jacobian_transpose(
        self, q: Floats, wrench: Any, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME
    ) -> Floats:
        """Give J^T w [nu] of a wrench at a point of a body; see `Jacobians.transpose`."""
        return self.jacobians.transpose(q, wrench, body, point, frame)

    def jacobian_bias(
        self, q: Floats, u: Floats, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME
    ) -> Floats:
        """Give dJ/dt u [6]; see `Jacobians.bias`."""
        return self.jacobians.bias(q, u, body, point, frame)

    def center_of_mass(self, q: Floats) -> tuple[Floats, Floats]:
        """Give the centre of mass [3] (m), and its Jacobian [3, nu]; see `Jacobians.center_of_mass`."""
        return self.jacobians.center_of_mass(q)

    def operational_inertia(self, q: Floats, points: Any, frame: str = WORLD_FRAME) -> Floats:
        """Give J M^-1 J^T [6 k, 6 k] of points of bodies; see `Jacobians.operational_inertia`."""
        return self.jacobians.operational_inertia(q, points, frame)

    def joint_loads(self, q: Floats, u: Floats, tau: Floats | None = None, t: float = 0.0) -> Floats:
        """Give the loads that this rank's bodies receive through their joints [n, 6]; see `JointLoads.joint_loads`."""
        return self.loads.joint_loads(q, u, tau, t)

    def drive_forces(self, q: Floats, u: Floats, t: float = 0.0) -> Floats:
        """Give the generalized forces [nu] by which joints follow given motions; see `JointLoads.drive_forces`."""
        return self.loads.drive_forces(q, u, t)

    def residual(
        self, q: Floats, u: Floats, udot: Floats | None = None, tau: Floats | None = None, t: float = 0.0
    ) -> Residual:
        """Tell what accelerations leave of the equations of motion; see `JointLoads.residual`."""
        return self.loads.residual(q, u, udot, tau, t)

    def inverse_dynamics(
        self, q: Floats, u: Floats, udot: Floats, t: float = 0.0, actuated: Sequence[str] | None = None
    ) -> Floats:
        """Give the generalized forces [nu] that accelerations need; see `JointLoads.inverse_dynamics`."""
        return self.loads.inverse_dynamics(q, u, udot, t, actuated)

    def close(self) -> None:
        """Free the communicator; all ranks call."""
        self.inertia.close()
        self.inverse.close()
        self.divided.close()
