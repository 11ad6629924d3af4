"""All that acts from outside in one call of compiled code, which calls the user's functions, those of Python's, too.

What a function does that is no number, or fails, is found by the call; who wants words for what a compiled one did has
Python call it again, in that state.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numba
import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import HaltError
from mpimbs.forces.acting import (
    ActingBodyForce,
    ActingJointForce,
    BodyForcePlan,
    JointForcePlan,
    add_body_force,
    add_joint_force,
)
from mpimbs.forces.calls import ByPython, RowsArrays, TimeFunctions, values_at
from mpimbs.forces.springs import (
    NO_SPRINGS,
    ActingSprings,
    SpringArrays,
    SpringFunctionPlan,
    call_function_of_springs,
    find_tensions,
    power_of_springs,
    pull_bodies,
    see_coincidence,
    see_ends,
)
from mpimbs.forces.tendons import (
    NO_TENDONS,
    ActingTendons,
    TendonArrays,
    drive_tendons,
    find_tendons,
    force_of_tendons,
    pull_joints,
)
from mpimbs.forces.wrenches import ActingWrenches, WrenchArrays, set_wrenches, take_functions
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, assign, borrowed, read, schema, size_of, table_at
from mpimbs.kernels.tuples import load3
from mpimbs.parts.entries import move
from mpimbs.parts.open_bodies import BoundaryPlan, Scans, boundary_plan, see_boundary
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.sweep.added import add_fluid_loads
from mpimbs.sweep.along_joints import Bounded, force_of_bounded
from mpimbs.sweep.structure import BOUNDARY, PLACE, Structure, Workspace


class ActingPlan(NamedTuple):
    """Arguments of what acts at once."""

    time: Floats  # [1] (s), read
    torques: RowsArrays  # of joints, over time
    along: Integers  # speeds along which these act
    servos: RowsArrays  # torques of servos over time
    driven: Integers  # which of the following these are
    bounded: Bounded
    joint_forces: Integers  # addresses of tables of `acting.JointForcePlan`
    body_forces: Integers  # of `acting.BodyForcePlan`
    spring_functions: Integers  # of `springs.SpringFunctionPlan`
    structure: Structure
    work: Workspace
    scan: BoundaryPlan
    boundary: Floats  # [k * BOUNDARY]: motions of what the bodies hang on, of the world or written
    motion: Floats  # [m * BOUNDARY]: of the steps, written
    moves: int  # whether what acts depends on these
    powered: int  # whether its power is asked for
    given: WrenchArrays
    wrenches: Floats  # [m * 6], written
    fluid: Floats  # [m * 6]: what added masses have in these, written; empty where there are none
    gravity: Floats  # [3]
    springs: SpringArrays
    tendons: TendonArrays
    power: Floats  # [1], written (W): of all but what is in the energy
    wrong: Floats  # [2]: 1 where something failed, or was not finite, and when (s): the first such call since it was 0
    wrong_q: Floats  # [nq]: the state then
    wrong_u: Floats  # [nu]
    wrong_boundary: Floats  # [k * BOUNDARY]: and where springs ended
    wrong_ends: Floats


ACTING = schema(ActingPlan)
_SIZE_OF_JOINT_FORCE, _SIZE_OF_BODY_FORCE = size_of(JointForcePlan), size_of(BodyForcePlan)
_SIZE_OF_SPRING_FUNCTION = size_of(SpringFunctionPlan)


@kernel
def power_of_wrenches(wrenches, motion):
    """Power (W) of wrenches on the steps [m * 6]."""
    power = 0.0
    for step in range(wrenches.size // 6):
        for i in range(6):
            power += wrenches[6 * step + i] * motion[step * BOUNDARY + PLACE + i]
    return power


@kernel(inline=True)
def _act_along_joints(p, t, q, u, tau):
    """Add what acts along joints, and its power; gives whether no function failed, and all is finite."""
    power, good = 0.0, True
    if p.along.size > 0:
        good = values_at(t, p.torques)
        for i in range(p.along.size):
            at, value = p.along[i], p.torques.values[i]
            tau[at] += value
            power += value * u[at]
    if p.driven.size > 0:
        good = values_at(t, p.servos) and good
        for i in range(p.driven.size):
            k = p.driven[i]
            p.bounded.torque[k] = p.servos.values[i]
            at = p.bounded.speeds[k]
            value = force_of_bounded(p.bounded, k, q[p.bounded.places[k]], u[at])
            tau[at] += value
            power += value * u[at]
    if p.tendons.of.size > 0:
        if p.tendons.driven.size > 0:
            good = values_at(t, p.tendons.rows) and good
            drive_tendons(p.tendons)
        force_of_tendons(p.tendons)
        power += pull_joints(p.tendons, u, tau)
    for k in range(p.joint_forces.size):
        given = table_at(p.joint_forces[k], _SIZE_OF_JOINT_FORCE)
        good = good and add_joint_force(given, t, q, u, tau, p.power)
    p.power[0] += power
    return good


@kernel(inline=True)
def _act_on_bodies(p, t, q, u):
    """Set the wrenches on the steps, and add their power; gives whether no function failed, and all is finite."""
    power, good = 0.0, True
    if p.given.over_time.size > 0:
        good = values_at(t, p.given.rows)
        take_functions(p.given)
    set_wrenches(p.given, p.motion, p.wrenches)
    for k in range(p.body_forces.size):
        given = table_at(p.body_forces[k], _SIZE_OF_BODY_FORCE)
        good = good and add_body_force(given, t, p.motion, p.wrenches)
    if p.powered != 0 and (p.given.own.size > 0 or p.body_forces.size > 0):
        power += power_of_wrenches(p.wrenches, p.motion)
    if p.fluid.size > 0:
        for i in range(p.fluid.size):
            p.fluid[i] = 0.0
        add_fluid_loads(0.0, p.structure, load3(0.0, p.gravity, 0), p.motion, p.fluid)
        for i in range(p.fluid.size):
            p.wrenches[i] += p.fluid[i]
    if p.springs.of.size > 0:
        find_tensions(p.springs)
        for k in range(p.spring_functions.size):
            given = table_at(p.spring_functions[k], _SIZE_OF_SPRING_FUNCTION)
            good = good and call_function_of_springs(given, t, p.springs)
        see_coincidence(p.springs)
        good = good and pull_bodies(p.springs, p.motion, p.wrenches) < 0
        power += power_of_springs(p.springs)
    p.power[0] += power
    return good


@kernel
def act(plan, q, u, tau, known):
    """Add what acts along joints to `tau` [nu], and set the wrenches on the steps, given the motions of the boundary.

    Of a state that is not finite, `tau` is not finite, and no function is told. Where what others tell of the ends of
    springs and of tendons is `known`, it is not asked for.
    """
    p = read(plan, ACTING)
    if p.motion.size > 0 and (p.moves != 0 or p.powered != 0):
        move(p.structure, p.work, q, u, p.boundary, p.motion)
    if not known:
        see_ends(p.springs, p.motion)  # before anything fails here: others wait for it
        find_tendons(p.tendons, q, u)
    finite = True
    for i in range(q.size):
        finite = finite and np.isfinite(q[i])
    for i in range(u.size):
        finite = finite and np.isfinite(u[i])
    for i in range(p.boundary.size):
        finite = finite and np.isfinite(p.boundary[i])
    for i in range(p.springs.ends.size):
        finite = finite and np.isfinite(p.springs.ends[i])
    if not finite:
        for i in range(tau.size):
            tau[i] = np.nan
        return
    t = p.time[0]
    p.power[0] = 0.0
    good = _act_along_joints(p, t, q, u, tau)
    if p.wrenches.size > 0:
        good = _act_on_bodies(p, t, q, u) and good
    if not good:
        for i in range(tau.size):
            tau[i] = np.nan
        if p.wrong[0] == 0.0:
            p.wrong[0], p.wrong[1] = 1.0, t
            assign(p.wrong_q, q)
            assign(p.wrong_u, u)
            assign(p.wrong_boundary, p.boundary)
            assign(p.wrong_ends, p.springs.ends)


@kernel
def act_from_python(plan, q, u, tau, known):
    """Act as `act`, which is compiled once for all who call it so."""
    act(plan, borrowed(q), borrowed(u), borrowed(tau), known)


@kernel
def act_at_once(plan, q, u, tau):
    """Act as `act`, after the motions of the boundary were scanned, where that is needed; all ranks call."""
    q, u, tau = borrowed(q), borrowed(u), borrowed(tau)
    p = read(plan, ACTING)
    if p.scan.entry != 0:
        see_boundary(p.structure, p.work, p.scan, q, u, p.boundary)
    act(plan, q, u, tau, False)


class Acting(NamedTuple):
    """The loads from outside on the bodies of a rank; see `ExternalLoads`."""

    subchain: Subchain
    torques: TimeFunctions
    along: Integers
    servos: TimeFunctions
    driven: Integers
    bounded: Bounded
    joint_forces: list[ActingJointForce]
    body_forces: list[ActingBodyForce]
    wrenches: ActingWrenches
    springs: ActingSprings | None
    tendons: ActingTendons | None
    fluid: Floats


class ActingAtOnce:
    """Lets all that acts from outside on a rank's bodies do so at once.

    Attributes
    ----------
    time : array [1]
        Read by compiled code (s); not a number before any call.
    """

    def __init__(self, acting: Acting) -> None:
        a = self._acting = acting
        self.time, self._power, self._wrong = np.full(1, np.nan), np.zeros(1), np.zeros(2)
        subchain = a.subchain
        self._ends = np.zeros(0) if a.springs is None else a.springs.arrays.ends
        self._boundary = np.tile(AT_REST, len(subchain.inboard))
        self._wrong_at = np.zeros(subchain.nq), np.zeros(subchain.nu), self._boundary.copy(), np.zeros(self._ends.size)
        self._scan: Scans | None = None
        self._over_time = [a.torques, a.servos, a.wrenches.functions]
        self._over_time += [] if a.tendons is None else [a.tendons.functions]
        self._called = [each.called for each in self._over_time]
        self._called += [each.called for each in (*a.joint_forces, *a.body_forces)]
        self._called += [] if a.springs is None else a.springs.called
        self._functions: list[Table] = []  # that tables point to

    def begin_with(self, scan: Scans) -> None:
        """Have motions scanned over ranks first: before `plan` is asked for."""
        self._scan = scan

    def _table(self, compiled: bool) -> Table:
        """All arguments; functions are called in compiled code, if they are `compiled`, or in Python."""
        a, subchain = self._acting, self._acting.subchain
        of_springs = [] if a.springs is None else a.springs.tables(compiled)
        kinds = [[f.table(compiled) for f in a.joint_forces], [f.table(compiled) for f in a.body_forces], of_springs]
        self._functions += [table for kind in kinds for table in kind]
        joints, bodies, springs = (np.array([f.data.ctypes.data for f in kind], np.int64) for kind in kinds)
        given = a.wrenches.arrays
        boundary = np.tile(AT_REST, len(subchain.inboard)) if compiled else self._boundary
        return Table(
            ActingPlan(
                self.time, a.torques.rows, a.along, a.servos.rows, a.driven, a.bounded, joints, bodies, springs,
                subchain.structure, subchain.work, boundary_plan(subchain, self._scan), boundary,
                self._motion if self._moves or given.own.size else np.zeros(0), int(self._moves), 0, given,
                subchain.wrenches if self.on_bodies else np.zeros(0), a.fluid,
                np.array(subchain.system.gravity, np.float64), NO_SPRINGS if a.springs is None else a.springs.arrays,
                NO_TENDONS if a.tendons is None else a.tendons.arrays,
                self._power, self._wrong, *self._wrong_at,
            )
        )  # fmt: skip

    @functools.cached_property
    def _in_steps(self) -> Table:
        return self._table(True)

    @property
    def asks(self) -> bool:
        """Whether steps call functions of Python's, which may take any time."""
        return bool(self.by_python)

    @property
    def by_python(self) -> list[ByPython]:
        """The functions that Python calls."""
        a = self._acting
        asked = [each.by_python for each in self._over_time]
        asked += [each.by_python for each in (*a.joint_forces, *a.body_forces)]  # by kinds, for type checkers
        asked += [] if a.springs is None else [a.springs.by_python]
        return [each for each in asked if each is not None]

    @functools.cached_property
    def _from_python(self) -> Table:
        """For calls from Python, whose checks of what functions give are stricter."""
        return self._table(False)

    @property
    def on_bodies(self) -> bool:
        """Whether wrenches act."""
        return self._moves or bool(self._acting.wrenches)

    @functools.cached_property
    def _moves(self) -> bool:
        """Whether what acts depends on motions of bodies."""
        a = self._acting
        return bool(a.springs or a.body_forces or a.fluid.size or a.wrenches.in_world)

    @property
    def _motion(self) -> Floats:
        return self._acting.subchain.room_of_motions

    @property
    def plan(self) -> Integers:
        """What `act_at_once` is given."""
        return self._in_steps.data

    def compile(self) -> None:
        """Compile, or load from the cache, what calls from Python take; no function is called."""
        nothing = np.zeros(0)
        act_from_python.compile(
            tuple(numba.typeof(each) for each in (self._from_python.data, nothing, nothing, nothing, True))
        )

    def __call__(self, t: float, q: Floats, u: Floats, boundary: Floats, tau: Floats) -> Floats:
        """Act at a time `t` (s), as `ExternalLoads.apply`; gives the motions of the steps, where they are needed."""
        self._forget()  # whatever compiled steps have tried before
        self.time[0], self._boundary[:] = t, boundary.ravel()
        act_from_python(self._from_python.data, q, u, tau, False)
        self.tell(t)
        return self._motion

    def _forget(self) -> None:
        self._wrong[0] = 0.0
        for each in self._called:
            if each.error is not None:
                error, each.error = each.error, None
                if isinstance(error, HaltError):
                    raise error

    def find_power(self) -> Floats:
        """Have the power (W) found from now on; gives where it is then [1]."""
        self._in_steps.set("powered", 1)
        return self._power

    def tell(self, t: float) -> None:
        """Warn of springs without direction that were seen up to a time (s), and raise what was wrong.

        Raises
        ------
        SimulationError
            A function failed; `LoadNotFiniteError`: a load was not finite.
        """
        if self._acting.springs is not None:
            self._acting.springs.tell(t)
        if not self._wrong[0]:
            return
        if not any(each.error for each in self._called):
            self._act_again()
        self._wrong[0] = 0.0
        errors = [each.error for each in self._called if each.error is not None]
        for each in self._called:
            each.error = None
        if errors:
            raise next((error for error in errors if isinstance(error, HaltError)), errors[0])
        if self._acting.springs is not None:
            self._acting.springs.check(float(self._wrong[1]))

    def _act_again(self) -> None:
        """Act where something was wrong, by Python; nothing is asked of other ranks."""
        q, u, self._boundary[:], self._ends[:] = self._wrong_at
        self.time[0] = self._wrong[1]
        act_from_python(self._from_python.data, q, u, np.zeros(len(u)), True)
