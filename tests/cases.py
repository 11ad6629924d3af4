"""Systems and states that several tests share, and the sweeps run piece by piece in one process."""

import functools
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise

import numpy as np
from mpi4py import MPI

from mpimbs.coupling import LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.model import JOINT_TYPES, Joint, System
from mpimbs.model.contents import Contents
from mpimbs.model.order.segments import Integers
from mpimbs.model.system import contents_of
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.parts.subchains import Subchains
from mpimbs.sweep.motion import join_turn
from mpimbs.sweep.structure import TURNING
from mpimbs.values.handles import RESPONSE, SCRATCH, SIZE, between, join
from oracles.dense import Array
from oracles.random_systems import State, random_system
from oracles.trees import SHAPES, depth_first, scrambled
from swept import Swept

GENERATORS = ("chain", "spatial_chain", "rope", "free_chain")


def moving_state(system: System | Contents, seed: int = 0, size: float = 1.0) -> State:
    """A state (q, u, tau) around the initial one of a system: displaced, moving, driven."""
    c = contents_of(system).columns()
    rng = np.random.default_rng(seed)
    q = c.q + size * rng.uniform(-0.5, 0.5, system.nq)
    for k in np.flatnonzero([JOINT_TYPES[kind].quaternion for kind in c.joint_type]):
        where = slice(c.q_offset[k], c.q_offset[k] + 4)
        q[where] /= np.linalg.norm(q[where])
    torque = size * float(np.mean(c.inertia[:, :3]))  # of the order that gives the bodies 1 rad/s^2
    return q, c.u + size * rng.uniform(-1, 1, system.nu), torque * rng.uniform(-1, 1, system.nu)


@functools.cache
def mixed_chain(n: int, seed: int = 0) -> tuple[System, Array, Array, Array]:
    """A random chain of all nine joint types, with springs and wrenches, and a state; (system, q, u, tau)."""
    return random_system(seed, n, True, wrenches=True)


LISTINGS = {"depth first": depth_first, "scrambled": scrambled}


@functools.cache
def random_tree(
    shape: str, listing: str = "depth first", seed: int = 2, n: int = 30, types: tuple[str, ...] | None = None
) -> tuple[System, Array, Array, Array]:
    """A system of all or some joint types, sprung and with wrenches, whose bodies hang on one another in a shape; a
    state."""
    return tree_of(SHAPES[shape](n), listing, seed, types)


def tree_of(
    parents: Integers, listing: str, seed: int, types: tuple[str, ...] | None = None
) -> tuple[System, Array, Array, Array]:
    """Such a system whose bodies hang on one another as said, and a state."""
    whole, q, u, tau = random_system(seed, len(parents), True, types, springs=True, wrenches=True)
    order = LISTINGS[listing](parents)
    place = np.append(np.argsort(order), -1)
    system = System(name="tree", gravity=whole.gravity)
    for k, body in enumerate(order.tolist()):
        above = int(place[parents[body]])
        template = whole.contents.segments.template(k)
        system.add(template, parent=whole.contents.segments.template(above).name if above >= 0 else "world")
    return system, q, u, tau


def parts(dynamics: Dynamics, q: Array, u: Array, *more: Array) -> list[Array]:
    """This rank's parts of coordinates, speeds, and vectors like these."""
    mine = dynamics.gather_u.part
    return [q[dynamics.gather_q.part], u[mine], *(vector[mine] for vector in more)]


def separated(system: System | Contents, comm: MPI.Comm, cuts: int, solver: LoadSolver) -> Dynamics:
    """Dynamics by constraint loads with so many cuts, or the least that the ranks allow."""
    return Dynamics(system, comm, "pcg", cuts=max(cuts, comm.size - 1), solver=solver)


def typed_chain(types: tuple[str, ...], seed: int, **options: bool) -> System:
    """A random chain whose joints are of the given types in order."""
    system = System(gravity=(1.0, -9.0, 3.0))
    for k, name in enumerate(types):
        body = random_system(1000 * seed + k, 1, True, [name], **options)[0].contents.body(0)
        system.add(body.model_copy(update={"name": f"b{k}", "parent": None}))
    return system


def isolated(system: System | Contents) -> System:
    """The same system set free: no gravity, no wrenches, the first joint free, without spring, damper and torque.

    Of a tree, the other bodies on the world are moved to the first.
    """
    free = System(gravity=(0, 0, 0))
    for body in contents_of(system).bodies():
        changes: dict[str, object] = {"wrench": ()}
        if not free.n_bodies:
            changes["joint"] = Joint(type="free")
        elif body.parent == "world":
            changes["parent"] = contents_of(system).name_of(0)
        free.add(body.model_copy(update=changes))
    return free


def with_rotors(system: System | Contents, largest: float = 0.5) -> System:
    """The same bodies, with rotors of all sizes up to one on the axes of most joints, and on some axes of others."""
    driven = System(system.name, system.gravity)
    for k, body in enumerate(contents_of(system).bodies()):
        nu = body.joint.kind.nu
        armature = tuple(largest * abs(np.sin(k + d)) * ((k + d) % 3 > 0) for d in range(nu))
        joint = body.joint.model_copy(update={"armature": armature})
        driven.add(body.model_copy(update={"joint": joint}))
    return driven


def accelerations(system: System | Contents, q: Array, u: Array, tau: Array | None = None, t: float = 0.0) -> Array:
    """Accelerations by the sweeps on this process alone."""
    with closing(Dynamics(system, comm=MPI.COMM_SELF)) as dynamics:
        return dynamics.accelerations(q, u, tau, t)


def along_motion(function: Callable[[Array, Array], Array], rates: Array, udot: Array, q: Array, u: Array) -> Array:
    """Rate of a function of (q, u) along the motion: central difference, exact to about 1e-9 relative."""
    h = 1e-5
    ahead, behind = (np.asarray(function(q + s * rates, u + s * udot)) for s in (h, -h))
    return (ahead - behind) / (2 * h)


def joined(left: Array, right: Array) -> tuple[Array, Array]:
    """Handle equations of two neighbours together, and the response of what they share."""
    total, response = np.zeros(SIZE), np.zeros(RESPONSE)
    join(left, right, total, response, np.empty(SCRATCH))
    return total, response


def in_pieces(system: System | Contents, cuts: list[int], q: Array, u: Array, tau: Array) -> Array:
    """Accelerations [nu] by pieces of a chain one after the other in this process, joined from the right.

    The plainest use of the handle equations: what a coupling over ranks has to agree with.
    """
    q_at, u_at = contents_of(system).offsets()
    bounds = list(pairwise(cuts))
    pieces = [Swept(Subchains([Subchain(contents_of(system), a, b)])) for a, b in bounds]
    parts = [(slice(q_at[a], q_at[b]), slice(u_at[a], u_at[b])) for a, b in bounds]
    turn, blocks = AT_REST[:TURNING].copy(), []
    for piece, (mine, ours) in zip(pieces, parts, strict=True):
        relative = piece.start(q[mine], u[ours])
        blocks.append(piece.inward(q[mine], u[ours], tau[ours], turn)[0].copy())
        join_turn(0.0, turn, relative, turn)
    outboard, responses = [blocks[-1]], []
    for block in blocks[-2::-1]:
        total, response = joined(block, outboard[0])
        outboard.insert(0, total)
        responses.insert(0, response)
    udot = np.empty(system.nu)
    loads = np.zeros(12)
    loads[3:6] = [-g for g in system.gravity]
    for i, (piece, (mine, ours)) in enumerate(zip(pieces, parts, strict=True)):
        shared = np.zeros(6)
        if i + 1 < len(pieces):
            between(outboard[i + 1], responses[i], loads[:6], np.zeros(6), shared, loads[6:])
        piece.outward(q[mine], u[ours], loads, udot[ours], np.empty(mine.stop - mine.start))
        loads[:6], loads[6:] = shared, 0.0
    return udot
