"""Forward dynamics of a system over the ranks of a communicator: the one pipeline of all couplings."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from numba.core.errors import NumbaError

from mpimbs.base.arguments import check_array, check_time, doubles
from mpimbs.base.errors import HaltError, InputError, SimulationError, as_meant, not_copied
from mpimbs.base.settings import takes
from mpimbs.coupling import Part, Strategy, coupling_for
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.dynamics.evaluation import NOTHING, Acted, Evaluation
from mpimbs.dynamics.joint_loads import JointLoads
from mpimbs.dynamics.loops import ClosedLoops
from mpimbs.dynamics.operators.joint_space import JointSpace
from mpimbs.dynamics.resources import EVALUATION, EVALUATION_OF_BODIES, check_memory, ranks_on_node
from mpimbs.forces.external import ExternalLoads
from mpimbs.forces.motions import GivenMotions
from mpimbs.kernels.calling import address_of
from mpimbs.kernels.checked import CHECKED
from mpimbs.model import System
from mpimbs.model.order.arranged import arranged
from mpimbs.parallel.agreement import communicator, greatest, same_system, together
from mpimbs.parallel.exchange import Exchange
from mpimbs.parallel.gather import Gather
from mpimbs.parallel.reorder import to_model_order
from mpimbs.partition.division import Division
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.scales import Scales, joint_units, scales_of
from mpimbs.sweep.structure import BOUNDARY

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Dynamics(JointSpace, JointLoads):
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
        Duplicated once; this process alone by default, of which several ranks are warned.
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

    Raises
    ------
    InputError
        On all ranks: a system that this version does not solve, more ranks than subchains or bodies, an unknown
        setting, coupling, solver or number of lanes; ranks that were given different systems, forces or settings.
    """

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

        here = ranks_on_node(given)

        def prepare() -> tuple[Strategy, Division, Part]:
            strategy = self.strategy(whole, given.size, chosen)
            check_memory(whole, EVALUATION_OF_BODIES if coupling == "dca" else EVALUATION, given.size, here)
            division, number = self.divide(strategy, whole, given, chosen)
            return strategy, division, strategy.own(arranged(whole, division.order), division, number)

        strategy, self.division, self.subchains = together(given, prepare)
        self.system = whole
        self._changes = whole.changes
        self.comm = given.Dup()
        self.cuts = self.division.cuts
        self.subchain = self.subchains.whole
        joined = MPI.COMM_SELF if self.subchains.independent else self.comm
        self.coupling = strategy.join(joined, self.subchains, self.division)
        self.kernels = strategy.evaluation
        make_exchange = functools.partial(Exchange, self.comm)
        motions = together(given, lambda: GivenMotions(self.subchain))
        self.external = ExternalLoads(
            self.subchain,
            self.cuts,
            make_exchange,
            self.subchains.loops if isinstance(self.subchains, Intervals) else (),
            motions,
        )
        self._may_fail = whole.has_loads_of_time()  # the same on all ranks
        self.follows = whole.has_motions
        self.root = np.array([0.0, 0.0, 0.0, *(-g for g in whole.gravity)])
        own = self.subchains, self.coupling, self.subchain, self.external
        self._evaluation = Evaluation(joined, strategy.evaluation, *own, self.root, chosen.overlap)
        self.model_order = to_model_order(
            self.comm, whole, self.division.order, self.cuts, self.subchain.first, self.subchain.last
        )
        self.gather_q, self.gather_u = (Gather(self.comm, self.model_order[name]) for name in ("q", "u"))
        self.evaluations = 0
        self._acted = NOTHING  # in the last evaluation that was given forces
        self.loops = ClosedLoops(self) if whole.loops else None

    @functools.cached_property
    def scales(self) -> Scales:
        """How large the system is; all ranks ask together."""
        return scales_of(self.comm, self.subchain)

    @functools.cached_property
    def units(self) -> tuple[Floats, Floats]:
        """Units of this rank's coordinates [nq], and speeds [nu]: 1 of angles, of slides the system's length (m)."""
        return joint_units(self.subchain, self.scales.length)

    def largest_speed(self, u: Floats) -> float:
        """Give the largest of all speeds (rad/s), slides in lengths of the system; the same on all ranks."""
        return float(greatest(self.comm, np.array([np.abs(u / self.units[1]).max(initial=0.0)]))[0])

    def strategy(self, system: System, ranks: int, settings: EvaluationSettings) -> Strategy:
        """Find what the coupling needs for a system on so many ranks, which a subclass may choose."""
        scheduled = {"schedule": settings.schedule, "leaves": settings.leaves}
        return coupling_for(system, settings.coupling, settings.solver, settings.lagrangian, **scheduled)

    def divide(
        self, strategy: Strategy, system: System, comm: MPI.Comm, settings: EvaluationSettings
    ) -> tuple[Division, int]:
        """Divide the system among the ranks; and say whose part is evaluated here, which a subclass may choose."""
        return strategy.divide(system, comm.size, settings.cuts, settings.tip_ratio, settings.lanes), comm.rank

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
            if not evaluation.in_phases and tau is None and self.system.changes == self._changes:
                # One call of compiled code takes no other type of array, and refuses other sizes: all that is asked
                # of small systems, whose sweeps take no longer than a few questions of Python.
                self.evaluations += 1
                if evaluation.whole(evaluation.rank, q, u, evaluation.no_tau, udot, rates):
                    if self.loops is not None and (self.loops.refining or self.evaluations == 1):
                        self._refine(t, q, u, udot)
                    return
            self._check(q, u, udot, rates, tau)
            failure = self.evaluate(t, q, u, udot, rates, tau).failure
        except (InputError, TypeError, NumbaError) as error:
            self._refuse(error, t, q, u, udot, rates, tau)
        if failure is not None:
            raise as_meant(failure)

    def _check(self, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None) -> None:
        """Refuse arrays that compiled code can't take, and a system that was changed."""
        self._check_unchanged()
        nq, nu = self.subchain.nq, self.subchain.nu
        given = {"q": (q, nq), "u": (u, nu), "udot": (udot, nu), "rates": (rates, nq)}
        for name, (array, size) in (given if tau is None else given | {"tau": (tau, nu)}).items():
            check_array(name, array, (size,))

    def _check_unchanged(self) -> None:
        if self.system.changes != self._changes:
            raise InputError(
                f"the system '{self.system.name}' was changed after this Dynamics was made, which does not know of it: "
                "make another one; or give it a copy, Dynamics(copy.deepcopy(system)), where both are needed"
            )

    def _refuse(self, error: Exception, t: float, *arrays: Any) -> NoReturn:
        """Say what is wrong with arrays, after this rank's part in the evaluation: the others wait for it."""
        try:
            self._check(*arrays)
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

    def evaluate_unforced(self, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None = None) -> None:
        """Evaluate as `evaluate` does, without functions, or wrenches and springs on bodies.

        For what is linear in `tau`, or what loops ask for.

        At no time: nothing is taken from evaluations before, nor left to others.
        """
        evaluation = self._evaluation
        if evaluation.in_phases:
            evaluation.without_forces(q, u, udot, rates, tau)
        else:
            evaluation.whole(evaluation.rank, q, u, evaluation.no_tau if tau is None else tau, udot, rates)

    def boundary_motion(self, q: Floats, u: Floats) -> Floats:
        """Give the motions of the bodies that this rank's hang on [k, BOUNDARY]; all ranks call.

        Of arrays that were checked (`agreed`): they are read by address.
        """
        return self._evaluation.boundary_motion(q, u).copy()

    def measure(self, q: Floats, u: Floats) -> None:
        """Measure how far loops are from closed (`loops.ClosedLoops.violations`); all ranks call.

        Of arrays that were checked (`agreed`): they are read by address.
        """
        self._evaluation.measure(q, u)

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
        q, u, tau = self.agreed(q, u, tau, t=t)
        if warn:
            self.warn_of_open(q, u, t)
        return self._accelerations(q, u, tau, t)[0]

    def warn_of_open(self, q: Floats, u: Floats, t: float = 0.0) -> None:
        """Warn once of a state, of arrays that were checked, that leaves loops open; all ranks call."""
        if self.loops is not None:
            self.loops.warn_of_open(*self.followed(t, q, u))

    def _accelerations(self, q: Floats, u: Floats, tau: Floats | None, t: float) -> tuple[Floats, Acted]:
        udot, rates = np.empty(self.subchain.nu), np.empty(self.subchain.nq)

        def action() -> Acted:
            acted = self.evaluate(t, q, u, udot, rates, tau)
            if self.loops is not None and not self.loops.refining:
                acted = self._refine(t, q, u, udot, acted)
            if acted.failure is not None:
                raise acted.failure
            return acted

        return udot, together(self.comm, action) if self._may_fail else action()

    def agreed(
        self, q: npt.ArrayLike, u: npt.ArrayLike, third: Any = None, name: str = "tau", t: float = 0.0
    ) -> tuple[Floats, Floats, Any]:
        """Give a state, and forces or what has this `name`, as compiled code reads them; None stays.

        InputError on all ranks if those of any are none, or the time `t` (s) of one is.
        """

        def checked() -> tuple[Floats, Floats, Floats | None]:
            self._check_unchanged()
            check_time(t)
            return *self.subchain.state(q, u), None if third is None else doubles(name, third, self.subchain.nu)

        return together(self.comm, checked)

    def gather_bodies(self, numbers: int) -> Gather:
        """Plan to gather so many numbers of every body on rank 0, in the model's order."""
        return Gather(self.comm, self.model_order["body"], numbers)

    @property
    def bodies(self) -> Integers:
        """Numbers in the model of this rank's bodies, in the order of its vectors [n]."""
        return self.subchain.system.numbers_in_model(np.arange(self.subchain.first, self.subchain.last))

    def step_motions(self, q: Floats, u: Floats, acted: Acted) -> Floats:
        """Give the motions of this rank's steps [m, BOUNDARY] in the state of an evaluation that gave `acted`.

        See `sweep.motion.motions`. Of arrays that were checked (`agreed`): they are read by address. All ranks call.
        """
        return self._evaluation.step_motions(q, u, acted).reshape(-1, BOUNDARY).copy()

    def energy_and_momentum(self, q: Floats, u: Floats) -> Floats:
        """Give kinetic and potential energy (J), linear (N s) and angular (N m s) momentum of the whole system [8].

        The same on every rank; see `Subchain.energy_and_momentum`, to which springs between bodies are added. Arguments
        and InputError as of `accelerations`.
        """
        q, u, _ = self.agreed(q, u)
        boundary = self._evaluation.boundary_motion(q, u)
        mine = self.subchain.energy_and_momentum(q, u, np.asarray(self.system.gravity), boundary)
        mine[1] += self.external.spring_energy()
        if self.loops is not None:
            mine[1] += self.loops.spring_energy(q, u)
        self.comm.Allreduce(MPI.IN_PLACE, mine)
        return mine

    def poses(self, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """Give the poses of this rank's bodies: rotations [n, 3, 3], positions [n, 3] (m); see `body_poses`.

        Arguments and InputError as of `accelerations`.
        """
        q, u, _ = self.agreed(q, u)
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

    def close(self) -> None:
        """Free the communicator; all ranks call."""
        self._evaluation.close()
        if "composites" in self.__dict__:
            self.composites.close()
        if (sweeps := self.__dict__.get("inverse_sweeps")) is not None:
            sweeps.close()
        if "factors" in self.__dict__:
            self.factors.close()
        if self.__dict__.get("_tree", self) is not self:
            self._tree.close()
        for name in ("implicit_matrix", "implicit_matrix_of_bodies"):
            if name in self.__dict__:
                self.__dict__[name].close()
        self.external.close()
        self.comm.Free()
