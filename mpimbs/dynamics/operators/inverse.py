"""Inverse dynamics over ranks: the forces that given accelerations need.

Each rank's part is the recursive Newton-Euler algorithm: of chains, and of trees on one rank, in lanes, of all others
as one piece. Between ranks an acceleration goes outward by A2 = X A1 + c, a load inward by f1 = X^T f2 + f, for every
body on which others hang, by a scan each.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numba.core.errors import NumbaError

from mpimbs.base.arrays import Floats, Integers
from mpimbs.dynamics.between_ranks import forces_of_part, prescribe, see_others
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.kernels.calling import address_of
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, assign, borrowed, read, schema, span
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.kernels.widths import by_width
from mpimbs.parallel.scan import Scan, scan, scanned
from mpimbs.partition.chain import chosen_width, cut_chain
from mpimbs.partition.lane_subtrees import choose_lane_subtrees
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.inverse_passes import TreePlan, hold, need, pass_to, tree_needs
from mpimbs.parts.lane_subtrees import LaneSubtrees
from mpimbs.parts.part import WrenchRooms
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.parts.tiles import PLAN, Tiles, subchain_tiles
from mpimbs.spatial.vectors import scale6
from mpimbs.sweep.build import NO_BODIES
from mpimbs.sweep.inverse import MOVED, PASSED, join_held, join_passed, motion_beyond
from mpimbs.sweep.structure import PLACE, Springs, Structure, Workspace, workspace


class InversePlan(NamedTuple):
    """Arguments of compiled inverse dynamics on a rank."""

    # of a chain `parts.tiles.TilePlan`, of a tree `parts.inverse_passes.TreePlan`, of one piece of several `PiecePlan`
    part: Integers
    moving: Integers  # scan of how ranks move [MOVED]; of a chain, as the following
    passed: Integers  # scan of what they are handed [PASSED], backward
    value: Floats  # [PASSED]: of this rank
    root: Floats  # [6]: acceleration of the root, -g
    rotors: Floats  # [nu]: kg m^2, kg; or empty
    alone: int  # whether there is no other rank
    nq: int
    nu: int


class PiecePlan(NamedTuple):
    """Arguments of inverse dynamics of one piece over ranks, in compiled code."""

    structure: Structure
    springs: Springs
    work: Workspace
    between: Integers  # `between_ranks.BetweenPlan`
    total: Floats  # [nu], room: joint forces
    loads: Floats  # [m * 6], room


INVERSE, _PIECE = schema(InversePlan), schema(PiecePlan)


@kernel(inline=True)
def _are_sized(p, q, u, udot, forces, tau):
    if q.size != p.nq or u.size != p.nu or udot.size != p.nu or tau.size != p.nu:
        return False
    return forces.size == 0 or forces.size == p.nu


@kernel(inline=True)
def _with_rotors(p, udot, tau):
    """Add what rotors need; gives whether all forces are finite."""
    for k in range(p.rotors.size):
        tau[k] += p.rotors[k] * udot[k]
    total = 0.0
    for k in range(tau.size):
        total += tau[k]
    return total - total == 0.0


@kernel(merge=True)
def _needed_by_chain(zero, plan, q, u, udot, forces, tau, acting):
    """Write the generalized forces [nu]; gives whether they are finite, and the arrays as large as the rank's are.

    Not `acting`: without weight, springs, dampers, torques and wrenches. Nothing is done of arrays of other sizes.
    """
    q, u, udot, forces, tau = borrowed(q), borrowed(u), borrowed(udot), borrowed(forces), borrowed(tau)
    p = read(plan, INVERSE)
    if not _are_sized(p, q, u, udot, forces, tau):
        return False
    o = 0.0
    omega, acceleration = (o, o, o), scale6(float(acting), load6(0.0, p.root, 0))
    hold(zero, p.part, q, u, udot, p.alone == 0)
    if p.alone == 0:
        own = read(p.part, PLAN.lane_room)
        assign(p.value, span(own, 0, PLACE))
        scan(p.moving, join_held, span(own, 0, MOVED))
        before = scanned(p.moving)
        r, at, twist = load9(0.0, before, 0), load3(0.0, before, 9), load6(0.0, before, 12)
        omega, acceleration = motion_beyond(omega, acceleration, r, at, twist, load6(0.0, before, 18))
    load1 = need(zero, p.part, q, u, udot, forces, tau, acting, omega, acceleration)
    if p.alone == 0:
        store_numbers(0.0, p.value, PLACE, load1)
        scan(p.passed, join_passed, p.value)
        pass_to(zero, p.part, q, tau, load6(0.0, scanned(p.passed), PLACE))
    return _with_rotors(p, udot, tau)


@kernel(merge=True)
def _needed_by_tree(zero, plan, q, u, udot, forces, tau, acting):
    """Find the forces of a tree on one rank, as `_needed_by_chain` does."""
    q, u, udot, forces, tau = borrowed(q), borrowed(u), borrowed(udot), borrowed(forces), borrowed(tau)
    p = read(plan, INVERSE)
    if not _are_sized(p, q, u, udot, forces, tau):
        return False
    tree_needs(zero, p.part, q, u, udot, forces, scale6(float(acting), load6(0.0, p.root, 0)), tau, acting)
    return _with_rotors(p, udot, tau)


@kernel(merge=True)
def _needed_by_piece(zero, plan, q, u, udot, forces, tau, acting):
    """Find the forces of one piece of several, as `_needed_by_chain` does."""
    q, u, udot, forces, tau = borrowed(q), borrowed(u), borrowed(udot), borrowed(forces), borrowed(tau)
    p = read(plan, INVERSE)
    if not _are_sized(p, q, u, udot, forces, tau):
        return False
    t = read(p.part, _PIECE)
    see_others(t.between, t.structure, t.work, q, u)
    root = scale6(float(acting), load6(0.0, p.root, 0))
    prescribe(t.structure, t.work, t.between, q, u, udot, root, acting == 0, t.loads)
    given = forces, acting != 0, t.loads, t.total, tau
    forces_of_part(t.structure, t.springs, t.work, t.between, q, u, udot, *given)
    return _with_rotors(p, udot, tau)


# By the number of lanes.
NEEDED_BY_CHAIN, NEEDED_BY_TREE = by_width(_needed_by_chain), by_width(_needed_by_tree)
NEEDED_BY_PIECE = by_width(_needed_by_piece)


def compile_needed_by_piece() -> None:
    """Compile, or load from the cache, what trees over several ranks take."""
    room = np.zeros(0)
    address_of(NEEDED_BY_PIECE[1], np.zeros(0, np.int64), room, room, room, room, room, 0)


NO_FORCES = np.zeros(0)
HELD_AT_REST = np.append(AT_REST, np.zeros(MOVED - len(AT_REST)))  # how nothing moves while it is held


def wrenched_by_loops(
    comm: MPI.Comm, subchain: Subchain, part: Intervals, count: int, tau: Floats
) -> tuple[Workspace, Floats, Floats]:
    """Give `Subchain.wrenched` of what all `count` loops do to this rank's steps, and `Intervals.by_loops`; all call.

    Some couplings find what a loop carries on the side of one of its ends alone: the other one's rank is told.
    """
    if count and comm.size > 1:
        carried = part.owned_loads(count)
        comm.Allreduce(MPI.IN_PLACE, carried)
        part.take_loads(carried)
    wrenches, forces = part.by_loops(tau)
    return subchain.wrenched(wrenches), wrenches, forces


class InverseSweeps:
    """Inverse dynamics in one call of compiled code, messages included.

    Chains, and trees on one rank, are swept in lanes, where evaluations are. All ranks make it, and call together.

    Parameters
    ----------
    root : array [6]
        Acceleration of the root, -g; read whenever it is called.
    apart : bool
        As `Contents.apart`, of a chain; rotors don't count then.
    structure : Structure, optional
        Of what is no chain: what is swept, not in lanes, in place of its own; rotors don't count then.

    Attributes
    ----------
    plan : int64 array
    needed : kernel
        Called with `plan`, q, u, udot, further forces [nu or 0], tau, which it writes, and `acting`, 1 or 0. It gives
        whether the arrays have the rank's sizes, and tau is finite.
    lanes : int
        Number of pieces that are swept side by side at the most.
    joints : list of (Structure, Springs)
        What is swept of a chain.
    """

    def __init__(
        self, divided: DividedSystem, root: Floats, apart: bool = False, structure: Structure | None = None
    ) -> None:
        subchain, comm = divided.subchain, divided.comm
        first, last = subchain.first, subchain.last
        self._subchain, self._scans = subchain, []
        wrenches, patterns = subchain.wrenches.size > 0, subchain.system.joint_patterns(first, last)
        self._tiles: Tiles | None = None
        self._subtrees: LaneSubtrees | None = None
        self._rooms: WrenchRooms | None = None
        self._work = subchain.work
        self.joints: list[tuple[Structure, Springs]] = []
        if subchain.system.is_chain:
            self._scans = [Scan(comm, HELD_AT_REST), Scan(comm, HELD_AT_REST[:PASSED].copy(), backward=True)]
            width = divided.division.width or chosen_width(last - first, None)
            cut = [tile._replace(first=first + tile.first) for tile in cut_chain(patterns, width)]
            system = copy.copy(subchain.system)
            system.apart = apart
            self._tiles = subchain_tiles(system, cut, subchain.tip, wrenches)
            part, self.lanes, by_width = self._tiles.plan, self._tiles.width, NEEDED_BY_CHAIN
            self.joints = self._tiles.kinds.joints
        elif comm.size == 1 and subchain.n_bodies == subchain.system.n_bodies:
            part, by_width = self._tree(patterns, divided.division.width, wrenches, structure), NEEDED_BY_TREE
            self.lanes = self._subtrees.width if self._subtrees else 1
        else:
            made, self.lanes, by_width = subchain.made, 1, NEEDED_BY_PIECE
            swept, between = structure or made.structure._replace(armature=np.zeros(0)), divided.between.plan
            rooms = np.zeros(subchain.nu), np.zeros(6 * len(swept.steps))
            self._table_of_part = Table(PiecePlan(swept, made.springs, self._work, between, *rooms))
            part = self._table_of_part.data
        rotors = subchain.with_rotors.armature
        no_scan = np.zeros(0, np.int64)
        plan = InversePlan(
            part=part,
            moving=self._scans[0].plan if self._scans else no_scan,
            passed=self._scans[1].plan if self._scans else no_scan,
            value=np.zeros(PASSED),
            root=root,
            rotors=rotors if rotors.any() and not apart and structure is None else np.zeros(0),
            alone=int(comm.size == 1),
            nq=subchain.nq,
            nu=subchain.nu,
        )
        self._table = Table(plan)
        self.plan, self.needed = self._table.data, by_width[self.lanes]
        self._set_wrenches()

    def _tree(self, patterns: Any, width: int, wrenches: bool, structure: Structure | None) -> Integers:
        """Make the table of a tree."""
        made = self._subchain.made
        if structure is not None:
            made = made._replace(structure=structure)
        elif (chosen := choose_lane_subtrees(made, patterns, NO_BODIES, width, width == 0)).any:
            self._subtrees = LaneSubtrees(made, 1, chosen, wrenches)
            made = self._subtrees.trunk
        if made is not self._subchain.made:
            s = made.structure
            self._work = workspace(len(s.steps), len(s.axes), made.junctions, wrenches=wrenches)
        if self._subtrees:
            self._rooms = WrenchRooms(self._subtrees.wrenches_taken(self._work.wrench))
        subtrees = self._subtrees.plan if self._subtrees else NO_BODIES
        total = np.zeros(len(made.structure.axes))
        self._table_of_part = Table(TreePlan(made.structure, made.springs, self._work, total, subtrees))
        return self._table_of_part.data

    def __call__(self, q: Floats, u: Floats, udot: Floats, forces: Floats, acting: bool = True) -> Floats:
        """Give the generalized forces [nu], beside `forces`, of arrays that were checked; all ranks call.

        Not `acting`: without weight, springs, wrenches, and of `u` and `forces` that are 0: what is linear in `udot`.
        """
        if acting:
            self._set_wrenches()
        tau = np.empty(self._subchain.nu)
        self.needed(self.plan, q, u, udot, forces, tau, int(acting))
        return tau

    def _set_wrenches(self) -> None:
        """Take the external wrenches that the subchain has."""
        wrenches = self._subchain.wrenches
        if self._tiles is not None:
            self._tiles.wrenches[:] = wrenches
        elif self._rooms is not None and wrenches.size:
            self._rooms(wrenches)

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        for turn in self._scans:
            turn.close()


class InverseDynamics:
    """Inverse dynamics of a system over the ranks, in one call of compiled code where there is one."""

    def __init__(self, divided: DividedSystem) -> None:
        self._divided, self._alone, self._nu = divided, divided.comm.size == 1, divided.subchain.nu

    @functools.cached_property
    def sweeps(self) -> InverseSweeps:
        """The sweeps; made when first asked for, by all ranks together."""
        return InverseSweeps(self._divided, self._divided.root)

    def at_once(self, q: Any, u: Any, udot: Any, acting: bool) -> Floats | None:
        """Give the generalized forces [nu] that accelerations need, of arrays that nobody has looked at, on one rank.

        None where these have to be looked at first, or there are several ranks. `acting` as of `InverseSweeps`.
        """
        sweeps, divided = self.sweeps, self._divided
        if not self._alone or divided.system.changes != divided.changes:
            return None
        tau = np.empty(self._nu)
        try:
            return tau if sweeps.needed(sweeps.plan, q, u, udot, NO_FORCES, tau, int(acting)) else None
        except (TypeError, NumbaError):
            return None

    def needed(self, q: Floats, u: Floats, udot: Floats, forces: Floats) -> Floats:
        """Give those beside `forces` [nu], of arrays that were checked: they are read by address; all ranks call."""
        return self.sweeps(q, u, udot, forces)

    def at_rest(self, q: Floats, v: Floats) -> Floats:
        """Give M v [nu], of arrays that were checked; all ranks call."""
        still = self._divided.still
        return self.sweeps(q, still, v, still, acting=False)

    def close(self) -> None:
        """Free what MPI holds."""
        if (made := self.__dict__.get("sweeps")) is not None:
            made.close()
