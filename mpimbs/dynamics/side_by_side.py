"""Copies of one system with different states or parameters, evaluated side by side in SIMD lanes, on one process."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import HaltError, InputError, LoadNotFiniteError, SimulationError
from mpimbs.dynamics.between_ranks import BetweenRanks
from mpimbs.dynamics.dynamics import Dynamics
from mpimbs.dynamics.instants import States
from mpimbs.dynamics.loops import CarriedLoads
from mpimbs.dynamics.residual import Residual, residual_of
from mpimbs.forces.at_once import ACTING, ActingPlan, act_at_once
from mpimbs.forces.external import ExternalLoads
from mpimbs.forces.springs import MakeExchange
from mpimbs.kernels.calling import address_of, call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, assign, borrowed, read, schema, size_of, span, table_at
from mpimbs.model import facts
from mpimbs.model.contents import Contents
from mpimbs.model.facts import digest
from mpimbs.model.summary import validate
from mpimbs.parallel.exchange import Exchange
from mpimbs.parts.entries import SYSTEMS_ALONE
from mpimbs.parts.scales import scales_of
from mpimbs.parts.side_by_side import side_by_side
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.parts.tiles import ALONE, Kinds, Placed, Tiles
from mpimbs.parts.totals import TOTALS, TOTALS_OF_COPIES
from mpimbs.sweep.build import Build
from mpimbs.sweep.grip import Grip
from mpimbs.sweep.motion import make_quaternions_unit
from mpimbs.sweep.structure import Structure


class CopiesPlan(NamedTuple):
    """Arguments of an evaluation of copies on which something acts from outside."""

    sweep: int  # where the kernel of `SYSTEMS_ALONE` is
    tiles: Integers  # its table
    time: Floats  # [1] (s), read
    acting: Integers  # [copies]: addresses of tables of `forces.at_once.ActingPlan`, 0 where nothing acts
    nq: int
    nu: int
    forces: Floats  # [copies * nu], written: what is given, and what acts along joints
    wrenches: Floats  # [copies * m * 6], written; empty where none acts


_COPIES, _SIZE_OF_ACTING = schema(CopiesPlan), size_of(ActingPlan)


@kernel
def evaluate_copies(plan, q, u, tau, udot, rates):
    """Evaluate copies side by side, as `SYSTEMS_ALONE`, after what acts on each."""
    q, u, tau, udot, rates = borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates)
    p = read(plan, _COPIES)
    each = p.wrenches.size // p.acting.size
    for i in range(p.forces.size):
        p.forces[i] = tau[i] if tau.size > 0 else 0.0
    for i in range(p.wrenches.size):
        p.wrenches[i] = 0.0
    for k in range(p.acting.size):
        if p.acting[k] != 0:
            acting = table_at(p.acting[k], _SIZE_OF_ACTING)
            read(acting, ACTING.time)[0] = p.time[0]
            act_at_once(acting, span(q, k * p.nq, p.nq), span(u, k * p.nu, p.nu), span(p.forces, k * p.nu, p.nu))
            wrenches = read(acting, ACTING.wrenches)
            assign(span(p.wrenches, k * each, wrenches.size), wrenches)
    return call_at(p.sweep, (p.tiles, q, u, p.forces, udot, rates))


class ForcesOfCopies:
    """Evaluates the models' functions, wrenches and springs for copies, one after another.

    A copy whose function fails is told of, and the others are none the worse.

    Parameters
    ----------
    subchains : sequence of Subchain
        One for all copies, or one for each.
    make_exchange : callable
        Makes what springs need; see `ActingSprings`.
    """

    def __init__(self, subchains: Sequence[Subchain], make_exchange: MakeExchange) -> None:
        self._subchains = subchains
        self._external = [ExternalLoads(part, np.array([0, part.n_bodies]), make_exchange) for part in subchains]
        # whether any copy has wrenches, body forces or springs; springs between bodies
        self.wrenches = any(external.wrenches for external in self._external)
        self.springs = any(external.springs is not None for external in self._external)
        self.idle: set[int] = set()  # copies whose functions are not called
        self.failures: dict[int, str] = {}  # copies whose functions failed in the last call, and how

    def __bool__(self) -> bool:
        """Whether anything acts on any copy."""
        return any(external.any for external in self._external)

    @property
    def asks(self) -> bool:
        """Whether steps call functions of Python's, which may take any time."""
        return any(external.at_once is not None and external.at_once.asks for external in self._external)

    def compile(self) -> None:
        """Compile those functions that are numba's to compile."""
        for external in self._external:
            external.compile()

    def plans(self, copies: int) -> Integers | None:
        """Give where the tables are of what acts at once on each of so many copies; None where Python has a say."""
        found = np.zeros(len(self._external), np.int64)
        for k, external in enumerate(self._external):
            if external.any:
                if external.at_once is None:
                    return None
                found[k] = external.at_once.plan.ctypes.data
        return np.tile(found, copies // len(found))

    def add(self, t: float, q: Floats, u: Floats, tau: Floats, wrenches: Floats) -> None:
        """Add to generalized forces and wrenches at a time `t` (s); where a function fails, the forces are NaN.

        Parameters
        ----------
        q, u : array [copies, nq], array [copies, nu]
        tau : array [copies, nu]
        wrenches : array [copies, m * 6]
            On the steps of each copy, or without columns.
        """
        self.failures = {}
        for k in range(len(q)):
            which = k % len(self._external)
            external, part = self._external[which], self._subchains[which]
            if not external.any or k in self.idle:
                continue
            try:
                external.apply(t, q[k], u[k], AT_REST[None], tau[k])
            except HaltError:
                raise
            except SimulationError as error:
                tau[k] = np.nan
                if not isinstance(error, LoadNotFiniteError):  # which a smaller step may avoid
                    self.failures[k] = str(error)
                continue
            if external.wrenches:
                wrenches[k] += part.wrenches

    def spring_energy(self, copy: int, motion: Floats) -> float:
        """Potential energy (J) of a copy's springs between bodies, whose steps move so [m * BOUNDARY]."""
        return self._external[copy % len(self._external)].spring_energy(motion)


class _Copy:
    """One copy, whose accelerations others have found; see `residual.Evaluated`."""

    subchains = coupling = None

    def __init__(self, system: Contents, subchain: Subchain) -> None:
        self.system, self.subchain, self.comm = system, subchain, MPI.COMM_SELF
        self.scales = scales_of(self.comm, subchain)
        self.root = np.concatenate((np.zeros(3), -np.asarray(system.gravity)))
        self.between = BetweenRanks(self.comm, subchain)


class SideBySide:
    """Forward dynamics of copies of a system, chain or tree, as many side by side as there are lanes.

    Parameters
    ----------
    systems : sequence of System
        One for all copies, or one for each: with the same bodies, parents and joint types, see `check_alike`, and none
        that `why_apart` names. Lanes are copies in sequence that have the same gravity.
    count : int
        Number of copies.
    lanes : int
        Copies side by side; of fewer copies than lanes one after the other is evaluated.
    wrenches : bool
        Whether wrenches on bodies will be given.

    Attributes
    ----------
    count, n_bodies, nq, nu : int
        Copies; and bodies, coordinates and speeds of each.
    systems : sequence of System
    forces : ForcesOfCopies
        What the models let act from outside.
    time : array [1]
        Read by compiled evaluations (s).
    """

    def __init__(self, systems: Sequence[Contents], count: int, lanes: int, wrenches: bool = False) -> None:
        self.systems, self.count = systems, count
        self._alone: dict[int, Dynamics] = {}  # of those whose samples need it, by their systems
        self._checked: dict[Subchain, _Copy] = {}
        self.n_bodies, self.nq, self.nu = systems[0].n_bodies, systems[0].nq, systems[0].nu
        self._subchains = [Subchain(system) for system in systems]
        self._made = [part.made for part in self._subchains]
        self.forces = ForcesOfCopies(self._subchains, functools.partial(Exchange, MPI.COMM_SELF))
        self._wrenched = wrenches or self.forces.wrenches
        self._tiles = [self._make_tiles(lanes, *run) for run in self._runs()]
        steps = max(tiles.wrenches.size for tiles in self._tiles)
        self._wrenches, self._given = np.zeros(steps), np.zeros(steps * wrenches)
        self._forced = bool(self.forces)
        self._none, self._tau = np.zeros(0), np.zeros((count, self.nu))
        self.time = np.zeros(1)  # of compiled evaluations (s)
        self._table: Table | None = None

    def _runs(self) -> Iterator[tuple[int, int]]:
        """First copy of each run of the same gravity, and that behind its last."""
        gravities = [system.gravity for system in self.systems]
        begins = [k for k in range(len(gravities)) if k == 0 or gravities[k] != gravities[k - 1]]
        return itertools.pairwise([*begins, self.count])

    def _make_tiles(self, lanes: int, first: int, last: int) -> Tiles:
        """Make the tiles that sweep copies of the same gravity."""
        width = lanes if last - first >= lanes else 1
        kinds = Kinds()
        found: dict[int, int] = {}
        chosen = []
        for start in range(first, last, width):
            lane = min(start, last - width)  # the last tile may take copies a second time
            key = 0 if len(self._made) == 1 else lane
            if key not in found:
                pieces: list[Build] = self._made * width if len(self._made) == 1 else self._made[lane : lane + width]
                found[key] = kinds.add(side_by_side(pieces) if width > 1 else pieces[0], self.nq, width)
            chosen.append(Placed(found[key], width, lane))
        tiles = Tiles(kinds, chosen, tip=True, wrenches=self._wrenched, lanes_are=ALONE)
        tiles.loads.reshape(-1, 12)[:, 3:6] = -np.asarray(self.systems[first % len(self.systems)].gravity)
        return tiles

    def compile(self, checked: bool = False) -> None:
        """Compile, or load from the cache, what evaluations and samples call; `checked`: and what checks them does.

        No function is called.
        """
        self.forces.compile()
        q, u = self.initial_state()
        udot = np.empty(u.shape)
        self._sweep(q.ravel(), u.ravel(), self._none, udot.reshape(-1), np.empty(q.size))
        self.energies(q, u)
        if checked:
            self._residual(0, q[0], u[0], udot[0])

    @property
    def lanes(self) -> int:
        """Number of copies that are evaluated side by side."""
        return max(tiles.width for tiles in self._tiles)

    @property
    def compiled(self) -> tuple[int, Integers] | None:
        """Where the compiled evaluation is, and its table; None where Python has a say. See `StateDerivative`."""
        tiles, none = self._tiles[0], self._none
        if len(self._tiles) > 1 or self._given.size:
            return None
        sweep = address_of(SYSTEMS_ALONE[tiles.width], tiles.plan, none, none, none, none, none)
        if not self._forced:
            return sweep, tiles.plan
        if (acting := self.forces.plans(self.count)) is None:
            return None
        rooms = self.time, acting, self.nq, self.nu, self._tau.reshape(-1), tiles.wrenches
        self._table = Table(CopiesPlan(sweep, tiles.plan, *rooms))
        return address_of(evaluate_copies, self._table.data, none, none, none, none, none), self._table.data

    @property
    def structure(self) -> Structure:
        """The joints and bodies of the first copy."""
        return self._made[0].structure

    def grip(self) -> Grip:
        """Give what friction of all copies has beside its dampers."""
        parts = [Grip.of(part.columns) for part in self._subchains]
        return Grip.joined(parts * (self.count // len(parts)), self.nq, self.nu)

    def initial_state(self) -> tuple[Floats, Floats]:
        """Give the models' initial states: q [copies, nq], u [copies, nu] (rad, m, quaternions; rad/s, m/s)."""
        return initial_states(self.systems, self.count)

    def evaluate(self, t: float, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None = None) -> None:
        """Evaluate the state derivative of every copy, of arrays that are read by address.

        Where a function of a copy's model fails, its accelerations are not finite, and its forces tell of it.

        Parameters
        ----------
        t : float
            Time (s), for the models' functions.
        q, u, udot, rates : array [copies * nq], [copies * nu], [copies * nu], [copies * nq]
            The last two are written.
        tau : array [copies * nu], optional
            Generalized forces (N m, N) on top of the models'.
        """
        given = self._none if tau is None else tau
        if self._forced:
            self._tau[:] = 0.0 if tau is None else tau.reshape(self._tau.shape)
            self._wrenches[:] = self._given if self._given.size else 0.0
            steps = self._wrenches.reshape(self.count, -1)
            self.forces.add(t, q.reshape(self.count, -1), u.reshape(self.count, -1), self._tau, steps)
            self._act()
            given = self._tau.reshape(-1)
        self._sweep(q, u, given, udot, rates)

    def _sweep(self, q: Floats, u: Floats, tau: Floats, udot: Floats, rates: Floats) -> None:
        for tiles in self._tiles:
            SYSTEMS_ALONE[tiles.width](tiles.plan, q, u, tau, udot, rates)

    def _act(self) -> None:
        """Let the wrenches act."""
        for tiles in self._tiles:
            tiles.wrenches[:] = self._wrenches[: tiles.wrenches.size]

    def set_wrenches(self, wrench: Floats) -> None:
        """Set external wrenches [copies, n_bodies, 6] at the bodies' origins, in their components, moment first."""
        if not self._given.size:
            raise InputError("wrenches are given to a batch that was made without: make it with wrenches=True")
        steps = self._given.reshape(self.count, -1, 2, 3)
        for k in range(self.count):
            made = self._made[k % len(self._made)]
            steps[k, made.body_step] = wrench[k].reshape(-1, 2, 3) @ made.body_frame
        self._wrenches[:] = self._given
        self._act()

    def make_quaternions_unit(self, q: Floats) -> None:
        """Scale every quaternion in `q` [copies, nq] to unit length, as is due after a step of an integrator."""
        for own in q:
            make_quaternions_unit(0.0, self.structure, own)

    def energies(self, q: Floats, u: Floats) -> Floats:
        """Give kinetic and potential energy (J) of every copy [copies, 2]; see `Dynamics.energy_and_momentum`."""
        parts, found = self._subchains, np.empty((self.count, TOTALS))
        for tiles in self._tiles:
            gravity = -tiles.loads.reshape(-1, 12)[0, 3:6]
            TOTALS_OF_COPIES[tiles.width](tiles.plan, gravity, AT_REST, q.reshape(-1), u.reshape(-1), found.reshape(-1))
        for k in range(self.count) if self.forces.springs else ():
            found[k, 1] += self.forces.spring_energy(k, parts[k % len(parts)].motions(q[k], u[k]))
        return found[:, :2]

    def residuals(self, t: float, q: Floats, u: Floats, chosen: Sequence[int]) -> Iterator[tuple[int, Residual]]:
        """Give what the accelerations found for some copies at a time (s) leave of their equations of motion.

        One evaluation of all, and sweeps over each of these by itself; see `JointLoads.residual`. A copy whose forces
        could not be found is left out.

        Parameters
        ----------
        q, u : array [copies, nq], array [copies, nu]
            States of all copies.
        chosen : sequence of int
            Which copies.
        """
        udot, rates = np.empty(u.size), np.empty(q.size)
        self.evaluate(t, q.ravel(), u.ravel(), udot, rates)
        acting = self._wrenches.reshape(self.count, -1)
        for k in chosen:
            wrenches = self._subchains[k % len(self._subchains)].wrenches
            if np.isfinite(self._tau[k]).all():
                wrenches[:] = acting[k, : wrenches.size]
                yield k, self._residual(k, q[k], u[k], udot.reshape(u.shape)[k])

    def _residual(self, k: int, q: Floats, u: Floats, udot: Floats) -> Residual:
        """Give the residual of the accelerations of a copy, under the loads that acted last."""
        part = self._subchains[k % len(self._subchains)]
        if part not in self._checked:
            self._checked[part] = _Copy(self.systems[k % len(self.systems)], part)
        return residual_of(self._checked[part], None, q, u, udot, self._tau[k])

    def sampled(self, t: float, q: Floats, u: Floats, given: Floats | None, left: npt.NDArray[np.bool_]) -> States:
        """Give what is known of all copies at a time (s), in states [copies, nq], [copies, nu].

        `given` [copies, nu] are forces on their joints. Loads of those that are `left` behind are no numbers.
        """
        return _CopiesAt(self, t, q, u, [None] * self.count if given is None else list(given), left)

    def alone(self, copy: int) -> Dynamics:
        """Give the dynamics of a copy by itself."""
        k = copy % len(self.systems)
        if k not in self._alone:
            self._alone[k] = Dynamics(self.systems[k], MPI.COMM_SELF)
        return self._alone[k]

    def close(self) -> None:
        """Free what MPI holds."""
        for dynamics in self._alone.values():
            dynamics.close()

    def poses(self, copy: int, q: Floats) -> tuple[Floats, Floats]:
        """Give the poses of a copy's bodies at its coordinates [nq]: rotations [n, 3, 3], positions [n, 3] (m)."""
        return self._subchains[copy % len(self._subchains)].body_poses(q)


class _CopiesAt(States):
    """Copies at a time, energies and poses of which need no more than what evaluates them side by side."""

    def __init__(
        self, copies: SideBySide, t: float, q: Floats, u: Floats, held: list[Floats | None], left: npt.NDArray[np.bool_]
    ) -> None:
        super().__init__(copies.alone, [t] * copies.count, q, u, held)
        self._copies, self._left = copies, left

    @functools.cached_property
    def energy(self) -> Floats:
        return self._copies.energies(self.q, self.u)

    def poses_of(self, k: int) -> tuple[Floats, Floats]:
        return self._copies.poses(k, self.q[k])

    def carried(self, k: int) -> CarriedLoads:
        if not self._left[k]:
            return super().carried(k)
        nothing = np.full((self._copies.systems[0].n_bodies, 6), np.nan)
        return CarriedLoads(nothing, np.full(self.u.shape[1], np.nan), None)


def initial_states(systems: Sequence[Contents], count: int) -> tuple[Floats, Floats]:
    """Give the initial states of so many copies of a system, or of one of each: q [copies, nq], u [copies, nu]."""
    parts = zip(*(system.initial_state(0, system.n_bodies) for system in systems), strict=True)
    q, u = (np.repeat(np.array(part), count // len(systems), axis=0) for part in parts)
    return q, u


def check_alike(systems: Sequence[Contents]) -> None:
    """Refuse systems that are no copies of each other.

    Raises
    ------
    InputError
        Names the first that can't, and why.
    """
    types, parents = systems[0].joint_types(), systems[0].parents()
    for k, system in enumerate(systems):
        validate(system)
        if not (np.array_equal(system.joint_types(), types) and np.array_equal(system.parents(), parents)):
            raise InputError(
                f"system {k} of the batch has other joints or parents than the first: a batch takes copies that "
                "differ in numbers only"
            )


def why_apart(systems: Sequence[Contents]) -> str | None:
    """Say what keeps systems from being evaluated side by side, if anything does."""
    for k, system in enumerate(systems):
        if system.loops or system.has_motions:
            why = "closes a loop" if system.loops else "has joints that follow given motions"
            return f"system {k} of the batch ('{system.name}') {why}"
    return None


def facts_of(systems: Sequence[Contents]) -> dict[str, Any]:
    """Give the facts that ranks which evaluate copies must agree on; see `model.facts`."""
    if len(systems) == 1:
        return facts(systems[0])
    digests: dict[str, Any] = {f"system {k}": digest(tuple(facts(system).items())) for k, system in enumerate(systems)}
    return {"the number of systems": len(systems)} | digests
