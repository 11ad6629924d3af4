"""The passes of an evaluation over bodies that are leaves of a tree: compiled, given one table."""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import borrowed, floats, integers
from mpimbs.spatial.vectors import load3
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.leaves import Tree, assemble_bodies, spread_bodies
from mpimbs.sweep.motion import coordinate_rates, joint_places, relative_turn, velocity_terms
from mpimbs.sweep.structure import Springs, Structure, Workspace

TREE_ITEMS = (*Structure._fields, *Springs._fields, *Workspace._fields, *Tree._fields, "turn", "assembly", "inboard")
_SPRINGS = 2 * len(Structure._fields)
_WORK = _SPRINGS + 2 * len(Springs._fields)
_TREE = _WORK + 2 * len(Workspace._fields)
TURN, ASSEMBLY, INBOARD = range(_TREE + 2 * len(Tree._fields), 2 * len(TREE_ITEMS), 2)


@kernel(inline=True)
def _structure(plan):
    steps = integers(plan, 0)
    return Structure(steps.reshape((steps.size // 8, 8)), integers(plan, 2), floats(plan, 4), floats(plan, 6))


@kernel(inline=True)
def _springs(plan):
    at = _SPRINGS
    return Springs(floats(plan, at), floats(plan, at + 2), floats(plan, at + 4), floats(plan, at + 6))


@kernel(inline=True)
def _work(plan):
    at = _WORK
    own = (floats(plan, at), floats(plan, at + 2), floats(plan, at + 4))
    return Workspace(own[0], own[1], own[2], floats(plan, at + 6), floats(plan, at + 8))


@kernel(inline=True)
def _tree(plan):
    at = _TREE
    joins = integers(plan, at)
    return Tree(
        joins.reshape((joins.size // 5, 5)),
        integers(plan, at + 2),
        floats(plan, at + 4),
        floats(plan, at + 6),
        floats(plan, at + 8),
        floats(plan, at + 10),
        floats(plan, at + 12),
        floats(plan, at + 14),
        floats(plan, at + 16),
        floats(plan, at + 18),
    )


@kernel
def tree_motion(plan, q, u):
    """Pass 1: the joint frames, and the boundary turn of all bodies."""
    structure, work = _structure(plan), _work(plan)
    joint_places(0.0, structure, borrowed(q), work.place)
    relative_turn(0.0, structure, work, borrowed(u), floats(plan, TURN))


@kernel
def tree_inward(plan, q, u, tau, turn, terminal):
    """Pass 2: velocity terms and joint forces, given the turn of handle 1, and the tree up to its root.

    `terminal` is as for `assemble_bodies`.
    """
    q, u, tau, turn, terminal = borrowed(q), borrowed(u), borrowed(tau), borrowed(turn), borrowed(terminal)
    structure, work, tree = _structure(plan), _work(plan), _tree(plan)
    velocity_terms(0.0, structure, work, u, load3(0.0, turn, 9))
    joint_forces(0.0, structure, _springs(plan), q, u, tau, tree.total)
    assemble_bodies(0.0, structure, work, tree, terminal, floats(plan, ASSEMBLY))


@kernel
def tree_outward(plan, q, u, loads, udot, rates):
    """Pass 3: accelerations [nu] and coordinate rates [nq], given A1 and f2 in `loads` [12]."""
    structure = _structure(plan)
    spread_bodies(structure, _tree(plan), borrowed(loads), borrowed(udot), floats(plan, INBOARD))
    coordinate_rates(0.0, structure, borrowed(q), borrowed(u), borrowed(rates))
