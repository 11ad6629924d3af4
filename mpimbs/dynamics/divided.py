"""A system divided among the ranks of a communicator, and what evaluates it: what operators and loops are given."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arguments import check_array, check_time, doubles
from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.coupling import Part, Strategy, coupling_for
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.dynamics.between_ranks import BetweenRanks
from mpimbs.dynamics.evaluation import Acted, Evaluation
from mpimbs.dynamics.resources import EVALUATION, EVALUATION_OF_BODIES, check_memory, ranks_on_node
from mpimbs.forces.external import ExternalLoads
from mpimbs.forces.motions import GivenMotions
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import arranged
from mpimbs.parallel.agreement import greatest, together
from mpimbs.parallel.exchange import Exchange
from mpimbs.parallel.reorder import Gather, to_model_order
from mpimbs.partition.division import Division
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.scales import Scales, joint_units, scales_of
from mpimbs.sweep.structure import BOUNDARY

Share = tuple[Division, int]  # and the rank whose part is evaluated here


class DividedSystem:
    """A system of which each rank has its part: who owns what, checked vectors, sweeps; all ranks call together.

    Vectors are the rank's own part, as of `Dynamics`.

    Parameters
    ----------
    system : Contents
        The same on every rank, validated.
    given : MPI.Comm
        Duplicated.
    settings : EvaluationSettings
    share : (Division, int), optional
        In place of the division that the coupling makes for these ranks.

    Attributes
    ----------
    comm, system, subchain, gather_q, gather_u
        See `Dynamics`.
    subchains : Part
        All that this rank owns, as it is swept.
    cuts : array [P + 1]
        Rank r owns the bodies at the places cuts[r] to cuts[r + 1] - 1 of the order of `Dynamics`.
    division : Division
        Which subchains there are, and who owns them.
    coupling : Coupling
        What joins the subchains.
    kernels : str
        Those that evaluate (`pipeline.EVALUATE`).
    external : ExternalLoads
        What acts on this rank's bodies from outside.
    follows : bool
        Whether any joints of the system follow given motions.
    root : array [6]
        Acceleration of the root: -g (m/s^2).
    model_order : dict of str to Reorder
        Brings parts into the model's order, for files: of vectors like "q" and "u", and of rows for each "body".
    evaluation : Evaluation
        What evaluates this rank's part.
    changes : int
        `Contents.changes` when it was divided.
    may_fail : bool
        Whether evaluations call what may fail: functions of the user's; the same on all ranks.

    Raises
    ------
    InputError
        On all ranks, as `Dynamics`.
    """

    def __init__(
        self, system: Contents, given: MPI.Comm, settings: EvaluationSettings, share: Share | None = None
    ) -> None:
        here = ranks_on_node(given)

        def prepare() -> tuple[Strategy, Division, Part]:
            scheduled = {"schedule": settings.schedule, "leaves": settings.leaves}
            strategy = coupling_for(system, settings.coupling, settings.solver, settings.lagrangian, **scheduled)
            kind = EVALUATION_OF_BODIES if settings.coupling == "dca" else EVALUATION
            check_memory(system, kind, given.size, here)
            asked = settings.cuts, settings.tip_ratio, settings.lanes
            division, number = share or (strategy.divide(system, given.size, *asked), given.rank)
            return strategy, division, strategy.own(arranged(system, division.order), division, number)

        strategy, self.division, self.subchains = together(given, prepare)
        self.system, self.changes = system, system.changes
        self.comm = given.Dup()
        self.cuts = self.division.cuts
        self.subchain = self.subchains.whole
        joined = MPI.COMM_SELF if self.subchains.independent else self.comm
        self.coupling = strategy.join(joined, self.subchains, self.division)
        self.kernels = strategy.evaluation
        motions = together(given, lambda: GivenMotions(self.subchain))
        loops = self.subchains.loops if isinstance(self.subchains, Intervals) else ()
        make_exchange = functools.partial(Exchange, self.comm)
        self.external = ExternalLoads(self.subchain, self.cuts, make_exchange, loops, motions)
        self.may_fail = system.has_loads_of_time()
        self.follows = system.has_motions
        self.root = np.array([0.0, 0.0, 0.0, *(-g for g in system.gravity)])
        own = self.subchains, self.coupling, self.subchain, self.external
        self.evaluation = Evaluation(joined, strategy.evaluation, *own, self.root, settings.overlap)
        self.model_order = to_model_order(
            self.comm, system, self.division.order, self.cuts, self.subchain.first, self.subchain.last
        )
        self.gather_q, self.gather_u = (Gather(self.comm, self.model_order[name]) for name in ("q", "u"))

    @functools.cached_property
    def between(self) -> BetweenRanks:
        """Inverse dynamics of this rank's bodies, and what it takes of the others'; all ranks ask together."""
        return BetweenRanks(self.evaluation.comm, self.subchain, self.evaluation.scan_of_motions)

    def alike(self, system: Contents) -> DividedSystem:
        """Give a system of as many bodies, divided among the ranks as this one is; all ranks call.

        By `dcae`, whichever coupling this one has: its equations of joints or bodies are solved as they stand, where
        others iterate, or hold what may be larger.
        """
        return DividedSystem(system, self.comm, EvaluationSettings(), (self.division, self.comm.rank))

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

    @property
    def lanes(self) -> int:
        """Number of pieces that this rank sweeps side by side at the most."""
        return self.subchains.width

    @property
    def bodies(self) -> Integers:
        """Numbers in the model of this rank's bodies, in the order of its vectors [n]."""
        return self.subchain.system.numbers_in_model(np.arange(self.subchain.first, self.subchain.last))

    def gather_bodies(self, numbers: int) -> Gather:
        """Plan to gather so many numbers of every body on rank 0, in the model's order."""
        return Gather(self.comm, self.model_order["body"], numbers)

    # --- vectors as compiled code reads them

    def check_unchanged(self) -> None:
        """Refuse a system that was changed."""
        if self.system.changes != self.changes:
            raise InputError(
                f"the system '{self.system.name}' was changed after this Dynamics was made, which does not know of it: "
                "make another one; or give it a copy, Dynamics(copy.deepcopy(system)), where both are needed"
            )

    def check(self, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None) -> None:
        """Refuse arrays that compiled code can't take, and a system that was changed; on this rank."""
        self.check_unchanged()
        nq, nu = self.subchain.nq, self.subchain.nu
        given = {"q": (q, nq), "u": (u, nu), "udot": (udot, nu), "rates": (rates, nq)}
        for name, (array, size) in (given if tau is None else given | {"tau": (tau, nu)}).items():
            check_array(name, array, (size,))

    def agreed(
        self, q: npt.ArrayLike, u: npt.ArrayLike, third: Any = None, name: str = "tau", t: float = 0.0
    ) -> tuple[Floats, Floats, Any]:
        """Give a state, and forces or what has this `name`, as compiled code reads them; None stays.

        InputError on all ranks if those of any are none, or the time `t` (s) of one is.
        """

        def checked() -> tuple[Floats, Floats, Floats | None]:
            self.check_unchanged()
            check_time(t)
            return *self.subchain.state(q, u), None if third is None else doubles(name, third, self.subchain.nu)

        return together(self.comm, checked)

    @functools.cached_property
    def still(self) -> Floats:
        """Speeds of a system at rest [nu]; not to be written."""
        return np.zeros(self.subchain.nu)

    def coordinates(self, q: npt.ArrayLike) -> Floats:
        """Give coordinates as compiled code reads them; as `agreed`."""
        return self.agreed(q, self.still)[0]

    def pair(self, q: npt.ArrayLike, vector: npt.ArrayLike, name: str) -> tuple[Floats, Floats]:
        """Give coordinates and a vector of this name [nu] as compiled code reads them; as `agreed`."""
        q, _, given = self.agreed(q, self.still, vector, name)
        return q, given

    def followed(self, t: float, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """Give this rank's coordinates and speeds, with those of joints that follow a given motion at time `t` (s).

        Evaluations take them so; `inverse_dynamics`, `energy_and_momentum` and `poses` take what they are given.

        Raises
        ------
        SimulationError
            On all ranks: a motion can't be found at that time.
        """
        return together(self.comm, lambda: self.external.motions.follow(t, q, u)) if self.follows else (q, u)

    # --- sweeps, of arrays that were checked: they are read by address

    def evaluate_unforced(self, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None = None) -> None:
        """Evaluate as `StateDerivative.evaluate` does, without functions, or wrenches and springs on bodies.

        For what is linear in `tau`, or what loops ask for. At no time: nothing is taken from evaluations before, nor
        left to others.
        """
        evaluation = self.evaluation
        if evaluation.in_phases:
            evaluation.without_forces(q, u, udot, rates, tau)
        else:
            evaluation.whole(evaluation.rank, q, u, evaluation.no_tau if tau is None else tau, udot, rates)

    def boundary_motion(self, q: Floats, u: Floats) -> Floats:
        """Give the motions of the bodies that this rank's hang on [k, BOUNDARY]."""
        return self.evaluation.boundary_motion(q, u).copy()

    def measure(self, q: Floats, u: Floats) -> None:
        """Measure how far loops are from closed (`dynamics.loops.ClosedLoops.violations`)."""
        self.evaluation.measure(q, u)

    def step_motions(self, q: Floats, u: Floats, acted: Acted) -> Floats:
        """Give the motions of this rank's steps [m, BOUNDARY] in the state of an evaluation that gave `acted`.

        See `sweep.motion.motions`.
        """
        return self.evaluation.step_motions(q, u, acted).reshape(-1, BOUNDARY).copy()

    def close(self) -> None:
        """Free what MPI holds, the communicator last."""
        if "between" in self.__dict__:
            self.between.close()
        self.evaluation.close()
        self.external.close()
        self.comm.Free()
