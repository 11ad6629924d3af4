"""The matrix of linearly implicit steps, solved with by the sweep itself [design, section 14].

With M udot = f - K q - D u, where joints alone are stiff, K and D are diagonal in relative coordinates. A stage of a
linearly implicit method solves (1 - h J) x = r with J = [[0, G], [-M^-1 K G^+, -M^-1 D]], G the rates of the
coordinates by the speeds. That is, for x_u = r_u + z and x_q = r_q + h G x_u,

    (M + h D + h^2 K) z = -h (D + h K) r_u - h K G^+ r_q,

whose left side is the inertia matrix of a system with heavier rotors: factored once a step, and solved with by load
sweeps; or by evaluations at rest, by any sweep, over any ranks and through loops. What acts on single bodies, tension,
drag, the ground, adds V^T K_b V to K and V^T D_b V to D, V how the bodies move by the speeds: on the left bodies are
heavier by h D_b + h^2 K_b, on the right stands inverse divided of bodies that have no other inertia than those.

Tendons and springs between bodies act along their lengths, beside the rest: see `lengths`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.dynamics.operators.factor import Factors, HeavierJoints, LoadSweeps
from mpimbs.dynamics.operators.inverse import InverseSweeps
from mpimbs.dynamics.operators.lengths import Lengths
from mpimbs.dynamics.operators.stage_kernels import (
    LoadsPlan,
    StagePlan,
    TensionPlan,
    factor_stage,
    loads_of_one,
    look_at_bodies,
    solve_heavier,
    solve_stage,
)
from mpimbs.dynamics.operators.tension import BodyResistance
from mpimbs.kernels.calling import address_of
from mpimbs.kernels.memory import Table
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.open_bodies import HEAD, OWN
from mpimbs.parts.part import Part
from mpimbs.parts.subchain import AT_REST
from mpimbs.parts.subchains import JOINT_LOADS_OF_ALL, Subchains
from mpimbs.sweep.added import AddedPlan
from mpimbs.sweep.along_joints import Stops
from mpimbs.sweep.build import NO_BODIES
from mpimbs.sweep.grip import NO_GRIP, Grip
from mpimbs.sweep.structure import ADDED, BODY, FIXED, TURN, TURNING, Structure
from mpimbs.values.handles import SIZE

Compiled = tuple[int, int, int, Integers]
NO_ROWS = np.zeros((0, 8), np.int64)
_MASS = 15  # where the first mass stands in a row of `Structure.added`
_INERTIA = 12  # where a body's own inertia begins in a row of `Structure.fixed`
_NONE = np.zeros((0, ADDED))


class _Bodies:
    """Puts what bodies are heavier by that are told apart (`Contents.apart`) where sweeps read it.

    Parameters
    ----------
    structures : sequence of Structure
        What is swept.
    first : int
        The first of this rank's bodies.

    Attributes
    ----------
    rows : array [any, 8]
        What compiled code is given.
    lanes : list of int
        Of each.
    """

    def __init__(self, structures: Sequence[Structure], first: int) -> None:
        self.rows, self.lanes = np.zeros((len(structures), 8), np.int64), list[int]()
        self._tables: list[Table] = []
        for row, structure in zip(self.rows, structures, strict=True):
            different = int(structure.steps[:, BODY].max()) + 1  # where no joint moves
            lanes = structure.pitch.size // max(len(structure.axes), 1) or structure.added.size // (different * ADDED)
            told = np.rint(structure.added.reshape(-1, ADDED, lanes)[:, _MASS]).astype(np.int64)  # turned, too
            bodies, lane = np.nonzero(told)
            places, numbers = bodies * ADDED * lanes + lane, told[bodies, lane] - 1 - first
            self._tables.append(Table(AddedPlan(structure.added, places, numbers, lanes)))
            data = self._tables[-1].data
            row[:2] = data.ctypes.data, data.size
            self.lanes.append(lanes)


class _Product:
    """Applies V^T B V, of matrices B of the bodies and their motions V by the speeds: inverse divided at rest.

    All ranks make it together and call.
    """

    def __init__(self, divided: DividedSystem) -> None:
        subchain, at_rest = divided.subchain, np.zeros(6)
        if subchain.system.is_chain:
            self.sweeps = InverseSweeps(divided, at_rest, apart=True)
            structures = [structure for structure, _ in self.sweeps.joints]
            self.bodies = _Bodies(structures, subchain.first)
            for structure, lanes in zip(structures, self.bodies.lanes, strict=True):
                structure.fixed.reshape(-1, FIXED, lanes)[:, _INERTIA:] = 0.0
            return
        made = subchain.made
        m = len(made.structure.steps)
        steps, fixed = made.structure.steps.copy(), made.structure.fixed.reshape(-1, FIXED)
        fixed = fixed[steps[:, BODY]]
        fixed[:, _INERTIA:] = 0.0
        steps[:, BODY] = np.arange(m)
        added, none = np.zeros(m * ADDED), np.zeros(0)
        added.reshape(-1, ADDED)[made.body_step, _MASS] = 1 + subchain.first + np.arange(subchain.n_bodies)
        structure = made.structure._replace(steps=steps, fixed=fixed.reshape(-1), armature=none, added=added)
        self.sweeps = InverseSweeps(divided, at_rest, structure=structure)
        self.bodies = _Bodies([structure], subchain.first)

    def close(self) -> None:
        """Free what MPI holds."""
        self.sweeps.close()


class ImplicitMatrix:
    """1 - h J of a system in a state, J by the springs, dampers, servos and friction of its joints, and along lengths.

    All ranks call together.

    Of a quaternion's spring J has the one for small turns; of what acts in loops or by weight, nothing, and of what
    acts on bodies only what `at` is given: it is for methods whose order does not depend on J.

    Parameters
    ----------
    factors : Factors
        Of the same system.
    of_bodies : bool
        Whether `at` may be given what acts on bodies, too.
    """

    def __init__(self, divided: DividedSystem, factors: Factors, of_bodies: bool = False) -> None:
        self._divided, self._subchain = divided, divided.subchain
        columns = self._subchain.columns
        load_sweeps = None if divided.system.loops else factors.load_sweeps(of_bodies)
        self._heavier = heavier = load_sweeps or HeavierJoints(divided, True, of_bodies)
        # of the same bodies on the same ranks, with the heavier rotors, where nothing acts; none where load sweeps do
        self.resting = None if isinstance(heavier, LoadSweeps) else heavier.resting
        system = divided.system
        self._lengths = Lengths(divided) if system.loads.tendons or system.springs else None
        self._still = np.zeros(self._subchain.nu)
        self._of_bodies, rows, own = of_bodies, NO_ROWS, _NONE
        if of_bodies:
            seen = [structure for structure, _ in heavier.joints if len(structure.steps)]
            self._bodies, made = _Bodies(seen, self._subchain.first), self._subchain.made
            rows, added = self._bodies.rows, made.structure.added.reshape(-1, ADDED)
            own = np.zeros((self._subchain.n_bodies, ADDED))
            if len(added):
                own[:] = added[made.structure.steps[made.body_step, BODY]]
        self._q, structure, nu = heavier.q, self._subchain.structure, self._subchain.nu
        self._acts = np.zeros(2, np.int64)
        # of bodies: what compiled stages find, by names of `StagePlan`
        self._resisting = {"stiffness_of_bodies": np.zeros(0), "damping_of_bodies": np.zeros(0)}
        factor, solve, swept_by = heavier.compiled
        plan = StagePlan(
            structure=structure, q=self._q, by_speed=np.zeros(nu), by_place=np.zeros(nu),
            plain=int(not (structure.steps[:, TURN] == 4).any()), step=np.full(1, np.nan), stiffness=columns.stiffness,
            damping=columns.damping, rotors=heavier.rotors, armature=heavier.armature, stops=Stops.of(columns),
            bounded=divided.external.bounded, tau=np.empty(nu), z=np.empty(nu),
            factor=factor, solve=solve, factors=swept_by, needed=0,
            pulls=NO_BODIES, drags=NO_BODIES, acts=self._acts, still=self._still,
            along=np.empty(nu), pushing=np.empty(nu), bodies=rows, of_pulls=NO_ROWS, of_drags=NO_ROWS,
            own=own.reshape(-1), tension=NO_BODIES, resistance=NO_BODIES, **self._resisting,
            lengths=NO_BODIES if self._lengths is None else self._lengths.plan,
        )  # fmt: skip
        self._table = Table(plan)

    def at(
        self,
        q: Floats,
        step: float,
        stiffness: Floats | None = None,
        damping: Floats | None = None,
        u: Floats | None = None,
        grip: Grip = NO_GRIP,
        anchors: int = 0,
    ) -> None:
        """Take it in a state, for a step.

        Parameters
        ----------
        q : array [nq]
        step : float
            h (s).
        stiffness, damping : array [n, ADDED], optional
            Of what acts on bodies, against changes of their poses and twists, about their origins: upper triangles of
            symmetric 6x6 matrices, not indefinite, in the frames of the steps that carry them. One is there on all
            ranks or on none.
        u : array [nu], optional
            Speeds, by which servos and friction are at the ends of their ranges or not; at rest by default.
        grip : Grip, optional
            What friction holds, beside its dampers, with the anchors of a state.
        """
        u = self._still if u is None else u
        self._acts[:] = stiffness is not None, damping is not None
        given = {}
        if stiffness is not None:
            _, given["stiffness_of_bodies"] = self._pulls, stiffness.reshape(-1)
        if damping is not None:
            _, given["damping_of_bodies"] = self._drags, damping.reshape(-1)
        self._set(given)
        factor_stage(self._table.data, q, u, step, grip, anchors)
        self._set({name: self._resisting[name] for name in given})
        self.tell()

    def tell(self) -> None:
        """Warn of what was left out where steps began."""
        if self._lengths is not None:
            self._lengths.tell()

    def _set(self, given: dict[str, Any]) -> None:
        """Change arguments of compiled stages."""
        for name, value in given.items():
            self._table.set(name, value)

    def solve(self, r: Floats, x: Floats, times: float = 1.0) -> None:
        """Write x [nq + nu] of (1 - h J) x = r [nq + nu], so many times; contiguous arrays, not the same.

        What stands behind these numbers is left as it is.
        """
        solve_stage(self._table.data, r, x, times)

    @property
    def compiled(self) -> Compiled | None:
        """Where compiled code finds what looks at a state (0: nothing does), `factor_stage` and `solve_stage`, and
        their table; None where Python has a say."""
        return None if self._of_bodies else self._entries(0)

    def _entries(self, look: int) -> Compiled:
        table, room = self._table.data, np.empty(0)
        factor = address_of(factor_stage, table, room, room, 0.0, NO_GRIP, 0)
        return look, factor, address_of(solve_stage, table, room, room, 0.0), table

    def of_bodies(self, resistance: BodyResistance, part: Part) -> Compiled | None:
        """Give where compiled code finds stages with what bodies resist by, by evaluations of a part; as `compiled`.

        Tension counts where `counting` says so.
        """
        lanes, comm = isinstance(part, Subchains), self._divided.comm
        looped = part if self._divided.system.loops and isinstance(part, Intervals) else None
        if not lanes:  # of several ranks each has one piece, whose handles tell what it needs of the others
            of_handles = looped is not None or not self._divided.system.loops
            alone = comm.size == 1 or (isinstance(part, Intervals) and len(part) == 1)
            if not comm.allreduce(of_handles and alone, MPI.LAND):
                return None
        _, whole, tension, room = self._pulls, part.whole, resistance.tension, np.empty(0)
        if lanes:
            joint_loads, table = JOINT_LOADS_OF_ALL[part.width], part.plan
        else:
            self._loads = self._loads_of(part, looped)
            joint_loads, table = loads_of_one, self._loads.data
        found = TensionPlan(
            part=table,
            joint_loads=address_of(joint_loads, table, room, room, room, room),
            loads=np.zeros(len(whole.structure.steps) * 6),
            carriers=whole.made.body_step,
            frames=np.ascontiguousarray(whole.made.body_frame).reshape(-1),
            received=np.zeros(6 * whole.n_bodies),
            levers=tension.levers,
            of_one=tension.of_one,
            stiffness=tension.found,
        )
        self._tension, self._acts = Table(found), resistance.acts
        self._resisting = {"stiffness_of_bodies": resistance.stiffness, "damping_of_bodies": resistance.damping}
        self._set({"acts": resistance.acts, "resistance": resistance.plan} | self._resisting)
        if resistance.functions:
            _ = self._drags  # which all ranks make together
        return self._entries(address_of(look_at_bodies, self._table.data, room, room, room))

    def counting(self, tension: bool) -> None:
        """Say whether compiled stages `of_bodies` count tension."""
        self._table.set("tension", self._tension.data if tension else NO_BODIES)

    def _loads_of(self, part: Part, looped: Intervals | None) -> Table:
        """What `loads_of_one` is given, of a part where it has loops."""
        subchain, divided, none = self._subchain, self._divided, np.zeros(0)
        made, nu, k, nobody = subchain.made, subchain.nu, len(subchain.inboard), np.zeros(0, np.int64)
        turn_at, given_at, outer_at, outer = nobody, nobody, nobody, nobody
        if divided.comm.size > 1:
            assert isinstance(part, Intervals)
            before, (given_at, outer_at), outer = subchain.outside.before, part.handle_places(), subchain.outer_steps
            turn_at = np.where(before >= 0, HEAD + before * (OWN + TURNING) + OWN, -1)
        return Table(
            LoadsPlan(
                loops=NO_BODIES if looped is None else looped.acting_loops.data,
                wrenches=none if looped is None else subchain.wrenches,
                geared=np.empty(0 if looped is None else nu),
                structure=made.structure,
                springs=made.springs,
                work=subchain.work if looped is None else subchain.wrenched(),
                turns=np.tile(AT_REST[:TURNING], k),
                given=np.tile(divided.root, k),
                outer=outer,
                outer_loads=np.zeros(6 * len(outer)),
                scanned=divided.evaluation.scanned_turns,
                turn_at=turn_at,
                handed=part.loads.reshape(-1),
                given_at=given_at,
                outer_at=outer_at,
                acted=divided.evaluation.acted,
                total=np.empty(nu),
                udot=np.empty(nu),
                block=np.empty(SIZE),
            )
        )

    @functools.cached_property
    def _pulls(self) -> _Product:
        return self._product("pulls")

    @functools.cached_property
    def _drags(self) -> _Product:
        return self._product("drags")

    def _product(self, name: str) -> _Product:
        made, room = _Product(self._divided), self._still
        sweeps = made.sweeps
        needed = address_of(sweeps.needed, sweeps.plan, room, room, room, room, room, 0)
        self._set({"needed": needed, name: sweeps.plan, f"of_{name}": made.bodies.rows})
        return made

    def heavier(self, tau: Floats, z: Floats) -> None:
        """Write z [nu] of (M + h D + h^2 K) z = tau [nu]."""
        solve_heavier(self._table.data, tau, z)

    def close(self) -> None:
        """Free what MPI holds; all ranks call."""
        for made in (self._heavier, *map(self.__dict__.get, ("_pulls", "_drags"))):
            if made is not None:
                made.close()
