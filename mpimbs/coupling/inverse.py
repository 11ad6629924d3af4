"""Inverse dynamics over the ranks: how they move scanned outward, what they are handed scanned inward."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Floats, Integers, assign, borrowed, read, schema, span
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.kernels.widths import by_width
from mpimbs.parallel.scan import scan, scanned
from mpimbs.parts.inverse_passes import hold, need, pass_to, tree_needs
from mpimbs.parts.tiles import PLAN
from mpimbs.spatial.vectors import scale6
from mpimbs.sweep.inverse import MOVED, carried_on, join_held, join_passed
from mpimbs.sweep.structure import PLACE


class InversePlan(NamedTuple):
    """What a rank needs forces for."""

    part: Integers  # of a chain `parts.tiles.TilePlan`, of a tree `parts.inverse_passes.TreePlan`
    moving: Integers  # scan of how ranks move [MOVED]; of a chain, as the following
    passed: Integers  # scan of what they are handed [PASSED], backward
    value: Floats  # [PASSED]: of this rank
    root: Floats  # [6]: acceleration of the root, -g
    rotors: Floats  # [nu]: kg m^2, kg; or empty
    alone: int  # whether there is no other rank
    nq: int
    nu: int


INVERSE = schema(InversePlan)


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
        omega, acceleration = carried_on(omega, acceleration, r, at, twist, load6(0.0, before, 18))
    load1 = need(zero, p.part, q, u, udot, forces, tau, acting, omega, acceleration)
    if p.alone == 0:
        store_numbers(0.0, p.value, PLACE, load1)
        scan(p.passed, join_passed, p.value)
        pass_to(zero, p.part, q, tau, load6(0.0, scanned(p.passed), PLACE))
    return _with_rotors(p, udot, tau)


@kernel(merge=True)
def _needed_by_tree(zero, plan, q, u, udot, forces, tau, acting):
    """As `_needed_by_chain`, of a tree on one rank."""
    q, u, udot, forces, tau = borrowed(q), borrowed(u), borrowed(udot), borrowed(forces), borrowed(tau)
    p = read(plan, INVERSE)
    if not _are_sized(p, q, u, udot, forces, tau):
        return False
    tree_needs(zero, p.part, q, u, udot, forces, scale6(float(acting), load6(0.0, p.root, 0)), tau, acting)
    return _with_rotors(p, udot, tau)


# By the number of lanes.
NEEDED_BY_CHAIN, NEEDED_BY_TREE = by_width(_needed_by_chain), by_width(_needed_by_tree)
