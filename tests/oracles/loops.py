"""Forward dynamics with closed loops the plainest way: the dense oracle of the tree, and all constraints at once.

Of a loop, F_a is the joint frame on the first body and F_b that on the second; F_b moves relative to F_a as a child's
frame does relative to the joint frame on its parent. A loop asks C^T (V_b - V_a) = 0 of the velocities (angular;
linear, of the points at F_b's origin), C the directions that the joint does not free: orthonormal, world components,
moments in N m beside forces in N; for loads of least norm, beside forces times the size of the loop. Its load acts on
the second body at F_b's origin, reversed on the first: C lambda, and of its springs, dampers and torques a load in the
directions S that it frees, which are orthogonal to C.

Numbers are of the widest type that numpy has. Only the rank of the constraints is found in doubles; it leaves the
combinations of constraints that are independent, which are solved with the inertia matrix and refined. So accelerations
and loads of least norm are right to the rounding of a double, times the condition of those combinations.
"""

import copy
from dataclasses import dataclass

import numpy as np

from mpimbs.model import Loop, System, joint_type
from mpimbs.model.between import SystemLoops
from mpimbs.model.contents import Contents
from mpimbs.model.system import contents_of
from oracles.dense import (
    FORMULAS,
    O3,
    ONE,
    REAL,
    Array,
    JointMotion,
    Snapshot,
    at_time,
    cross_matrix,
    dense_accelerations,
    refined_solution,
    rotation_of,
    spring,
)

PI = 4 * np.arctan(REAL(1))
DEPENDENT = 1e-9  # singular values, of the largest, of combinations of constraints that say nothing new


def opened(system: System | Contents) -> Contents:
    """The same system without its loops."""
    tree = copy.copy(contents_of(system))
    tree.loops = SystemLoops()
    return tree


def complement(columns: Array) -> Array:
    """An orthonormal basis [n, n - k] of what is orthogonal to independent columns [n, k]."""
    n, k = columns.shape
    basis = np.zeros((n, 0), REAL)
    for step in range(n):
        left = columns[:, step:] if step < k else np.eye(n, dtype=REAL)
        for _ in range(2):  # once more, against rounding
            left = left - basis @ (basis.T @ left)
        best = left[:, 0] if step < k else left[:, np.argmax(np.linalg.norm(left.astype(float), axis=0))]
        basis = np.column_stack((basis, best / np.sqrt(best @ best)))
    return basis[:, k:]


def rotation_angle(rotation: Array, axis: Array) -> float:
    """Angle of the turn about a unit axis that is nearest to a rotation."""
    sine = axis @ [rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]]
    return np.arctan2(sine, np.trace(rotation) - axis @ rotation @ axis)


def quaternion_of(rotation: Array) -> Array:
    """Unit quaternion w x y z of a rotation matrix."""
    t = np.trace(rotation)
    off = np.array([rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]])
    # 4 q q^T, of which the row of the largest component is taken
    table = np.zeros((4, 4), REAL)
    table[0, 0], table[0, 1:], table[1:, 0] = 1 + t, off, off
    table[1:, 1:] = rotation + rotation.T + (1 - t) * ONE
    row = table[np.argmax(np.diag(table))]
    return row / np.sqrt(row @ row)


def coordinates_of(name: str, rotation: Array, displacement: Array, axis: Array) -> Array:
    """Coordinates of a joint of that type whose frame on the child lies so in that on the parent.

    Where no coordinates give the place, those of one near it.
    """
    slide, angle = axis @ displacement, rotation_angle(rotation, axis)
    first = np.arctan2(rotation[2, 1], rotation[1, 1])  # of turn(X, first) @ turn(Y, second)
    values = {
        "fixed": [],
        "revolute": [angle],
        "prismatic": [slide],
        "helical": [angle],
        "cylindrical": [angle, slide],
        "universal": [first, np.arctan2(rotation[0, 2], rotation[0, 0])],
        "spherical": quaternion_of(rotation),
        "planar": [displacement[0], displacement[1], rotation_angle(rotation, axis=np.eye(3)[2])],
    }[name]
    return np.array(values, REAL)


def near_rest(name: str, at: Array, rest: Array, slide: Array, pitch: Array) -> Array:
    """The coordinates at which springs act: angles within pi of those at rest, that of a screw by its displacement."""
    if name == "helical" and pitch:
        return np.array([slide / pitch])
    angles = [unit == "rad" for unit in joint_type(name).q_units]
    return np.where(angles, at - 2 * PI * np.round((at - rest) / (2 * PI)), at)


@dataclass
class Carrier:
    """A body, or the world: its pose, its velocity per speed of the tree, its accelerations at udot = 0.

    Or its velocity per column of some other basis of the speeds.
    """

    rotation: Array  # [3, 3]
    origin: Array  # [3] m
    omega: Array  # [3] rad/s
    turning: Array  # [3, columns] angular velocity
    moving: Array  # [3, columns] velocity of the origin
    alpha: Array  # [3] rad/s^2
    acceleration: Array  # [3] m/s^2, of the origin

    def velocities(self, place: Array) -> Array:
        """Per speed of the tree, angular velocity and velocity of the body's point at a place [6, nu]."""
        return np.vstack((self.turning, self.moving - cross_matrix(place - self.origin) @ self.turning))

    def accelerations(self, place: Array) -> Array:
        """Angular acceleration and that of the body's point at a place, at udot = 0 [6]."""
        arm = place - self.origin
        turned = np.cross(self.alpha, arm) + np.cross(self.omega, np.cross(self.omega, arm))
        return np.concatenate((self.alpha, self.acceleration + turned))


@dataclass
class Closure:
    """A loop in one state: its bodies, its joint frames in the world frame, how F_b moves in F_a."""

    bodies: tuple[Carrier, Carrier]
    frame: Array  # [3, 3] components in F_a into world components
    origin: Array  # [3] m, of F_b
    motion: JointMotion
    coordinates: Array  # of the joint, at which springs act
    speeds: Array
    freed: Array  # S [6, 6 - m]
    constrained: Array  # C [6, m]

    def relative(self) -> Array:
        """V_b - V_a per speed of the tree [6, nu]."""
        first, second = self.bodies
        return second.velocities(self.origin) - first.velocities(self.origin)

    def rows(self) -> Array:
        """Constraints on the speeds of the tree [m, nu]."""
        return self.constrained.T @ self.relative()

    def active_load(self, loop: Loop, t: float) -> Array:
        """The load of springs, dampers and torques [6]: S^T load = their forces along the free axes."""
        if not loop.kind.nu:
            return np.zeros(6)
        stiffness, rest = np.array(loop.stiffness), np.array(loop.rest)
        _, forces = spring(loop.type, self.coordinates, rest, stiffness, loop.cross_stiffness)
        forces = forces + at_time(loop.torque, t) - np.array(loop.damping) * self.speeds
        return self.freed @ refined_solution(self.freed.T @ self.freed, forces)

    def right_side(self) -> Array:
        """What the rows times udot have to be [m]: the acceleration of F_b in F_a that its motion there brings with
        it, less that which the bodies have at udot = 0."""
        (first, second), j = self.bodies, self.motion
        turned = self.frame @ j.turn_bias + np.cross(first.omega, self.frame @ j.turns @ self.speeds)
        moved = self.frame @ j.slide_bias + 2 * np.cross(first.omega, self.frame @ j.slides @ self.speeds)
        found = second.accelerations(self.origin) - first.accelerations(self.origin)
        return self.constrained.T @ (np.concatenate((turned, moved)) - found)


def carriers(state: Snapshot, basis: Array | None = None) -> list[Carrier]:
    """All bodies, and at last the world; velocities per column of `basis` [nu, columns], of each speed without it."""
    m, c = state.kinematics, state.columns
    basis = np.eye(len(state.u), dtype=REAL) if basis is None else basis
    still = np.zeros((3, basis.shape[1]), REAL)
    found = [Carrier(ONE, O3, O3, still, still, O3, O3)] * (state.n + 1)
    for k in range(state.n):
        j, frame, own = state.joints[k], state.joint_frame[k], state.u_of(k)
        parent, here = found[c.parent[k]], m.origin[k]
        velocities, accelerations = parent.velocities(here), parent.accelerations(here)
        turns, slides = frame @ j.turns, frame @ j.slides
        velocities += np.vstack((turns, slides)) @ basis[own]
        accelerations[:3] += frame @ j.turn_bias + np.cross(parent.omega, turns @ state.u[own])
        accelerations[3:] += frame @ j.slide_bias + 2 * np.cross(parent.omega, slides @ state.u[own])
        parts = *np.split(velocities, 2), *np.split(accelerations, 2)
        found[k] = Carrier(m.rotation[k], here, m.omega[k], *parts)
    return found


def closures(system: System | Contents, state: Snapshot, moving: bool = False) -> list[Closure]:
    """The loops of a system in a state; `moving`: velocities per column are those of the state alone, in one column."""
    bodies = carriers(state, state.u[:, None] if moving else None)
    speeds_of_columns = np.ones(1, REAL) if moving else state.u
    found = []
    for loop in contents_of(system).loops:
        pair = [bodies[-1 if name == "world" else contents_of(system).index_of(name)] for name in loop.bodies]
        first, second = pair
        (frame, start), (turned, origin) = (
            (body.rotation @ rotation_of(np.array(r, REAL)), body.origin + body.rotation @ np.array(p, REAL))
            for body, p, r in zip(pair, loop.positions, loop.rotations, strict=True)
        )
        axis, pitch = np.array(loop.axis, REAL), REAL(loop.pitch)
        at = coordinates_of(loop.type, frame.T @ turned, frame.T @ (origin - start), axis)
        formula = FORMULAS[loop.type]
        still = formula(at, np.zeros(loop.kind.nu, REAL), axis, pitch)
        freed = np.vstack((frame @ still.turns, frame @ still.slides))
        relative = (second.velocities(origin) - first.velocities(origin)) @ speeds_of_columns
        speeds = refined_solution(freed.T @ freed, freed.T @ relative) if loop.kind.nu else np.zeros(0)
        motion = formula(at, speeds.astype(REAL), axis, pitch)
        near = near_rest(loop.type, at, np.array(loop.rest), axis @ frame.T @ (origin - start), pitch)
        found.append(Closure((first, second), frame, origin, motion, near, speeds, freed, complement(freed)))
    return found


@dataclass
class Closed:
    """What a system with loops does in one state; constraints stand loop by loop."""

    udot: Array  # [nu]
    loads: Array  # [loops, 6] moment about and force at F_b's origin, on the second body, in its frame
    jacobian: Array  # [constraints, nu]
    rank: int
    gap: float  # the largest singular value left out over the least one counted
    residual: float  # largest of J udot - right side: how far redundant constraints contradict one another

    @property
    def redundant(self) -> int:
        """Constraints that say nothing new."""
        return len(self.jacobian) - self.rank


def joint_inertia(state: Snapshot, bodies: list[Carrier]) -> Array:
    """Joint-space inertia matrix [nu, nu]."""
    c, m = state.columns, state.kinematics
    matrix = np.diag(c.armature)
    for k in range(state.n):
        turning, moving = np.split(bodies[k].velocities(m.com[k]), 2)
        matrix = matrix + turning.T @ state.inertia(k) @ turning + c.mass[k] * moving.T @ moving
        if (fluid := state.fluid(k)) is not None:
            twist = np.concatenate((turning, moving - cross_matrix(m.origin[k] - m.com[k]) @ turning))
            matrix = matrix + twist.T @ fluid.inertia @ twist
    return matrix


def independent(jacobian: Array) -> tuple[Array, float]:
    """Combinations [constraints, rank] of constraints that are independent, orthonormal; the gap as in `Closed`."""
    left, values, _ = np.linalg.svd(jacobian.astype(float), full_matrices=False)
    rank = int(np.sum(values > DEPENDENT * values.max(initial=0.0)))
    gap = float(values[rank] / values[rank - 1]) if 0 < rank < len(values) else 0.0
    return left[:, :rank], gap


def with_multipliers(inertia: Array, rows: Array, forces: Array, right: Array) -> tuple[Array, Array]:
    """x [nu] and multipliers [rows] of inertia x - rows^T multipliers = forces, rows x = right."""
    nu, m = len(inertia), len(rows)
    if not nu:
        return np.zeros(0), np.zeros(m)
    scale = np.sqrt(np.diag(inertia))  # unknowns of like sizes
    scaled, rows = inertia / np.outer(scale, scale), rows / scale
    matrix = np.block([[scaled, -rows.T], [rows, np.zeros((m, m), REAL)]])
    solution = refined_solution(matrix, np.concatenate((forces / scale, right)))
    return (solution[:nu] / scale).astype(float), solution[nu:]


def loop_sizes(system: System | Contents, state: Snapshot, loops: list[Closure]) -> Array:
    """Of each loop, the largest distance of a joint that moves its ends apart from the one that closes it [loops]."""
    parents, found = [int(parent) for parent in state.columns.parent], []

    def inboard(name: str) -> set[int]:
        body, on_way = -1 if name == "world" else contents_of(system).index_of(name), set()
        while body >= 0:
            on_way.add(body)
            body = parents[body]
        return on_way

    for loop, closure in zip(contents_of(system).loops, loops, strict=True):
        a, b = (inboard(name) for name in loop.bodies)
        around = [k for k in a ^ b if contents_of(system).body(k).joint.type != "fixed"]
        far = (float(np.linalg.norm(state.kinematics.origin[k] - closure.origin)) for k in around)
        found.append(max(far, default=0.0) or 1.0)
    return np.array(found)


def measured_by(size: float, constrained: Array) -> Array:
    """The same loads [6, m], orthonormal where forces count times a size beside moments."""
    units = np.array([1.0] * 3 + [size] * 3)[:, None]
    upper = np.linalg.qr((units * constrained).astype(float), mode="r")
    return constrained @ np.linalg.inv(upper)  # in the widest type


def closed(system: System | Contents, q: Array, u: Array, tau: Array | None = None, t: float = 0.0) -> Closed:
    """Accelerations and loads of a system whose loops are closed in a state whose velocities they allow."""
    state = Snapshot(opened(system), q, u)
    loops, inertia = closures(system, state), joint_inertia(state, carriers(state))
    plain = np.vstack([np.zeros((0, len(state.u)), REAL), *(loop.rows() for loop in loops)])
    for closure, size in zip(loops, loop_sizes(system, state, loops), strict=True):
        closure.constrained = measured_by(size, closure.constrained)
    jacobian = np.vstack([np.zeros((0, len(state.u)), REAL), *(loop.rows() for loop in loops)])
    right = np.concatenate([np.zeros(0, REAL), *(loop.right_side() for loop in loops)])
    combined, gap = independent(jacobian)
    active = [closure.active_load(loop, t) for loop, closure in zip(contents_of(system).loops, loops, strict=True)]
    pushed = np.zeros(len(state.u)) if tau is None else np.array(tau, REAL)
    for closure, load in zip(loops, active, strict=True):
        pushed = pushed + closure.relative().T @ load
    free = dense_accelerations(opened(system), q, u, pushed, t)
    udot, part = with_multipliers(inertia, combined.T @ jacobian, inertia @ free, combined.T @ right)
    multipliers = combined @ part  # without what is redundant: of least norm
    loads, begin = np.zeros((len(loops), 2, 3)), 0
    for k, loop in enumerate(loops):
        end = begin + loop.constrained.shape[1]
        load = active[k] + loop.constrained @ multipliers[begin:end]
        loads[k] = load.reshape(2, 3) @ loop.bodies[1].rotation
        begin = end
    residual = float(np.abs(jacobian @ udot - right).max(initial=0.0))
    return Closed(udot, loads.reshape(-1, 6), plain.astype(float), combined.shape[1], gap, residual)


def allowed_speeds(system: System | Contents, q: Array, u: Array) -> Array:
    """The speeds [nu] nearest to given ones, by the inertia matrix, that the loops of a system allow."""
    state = Snapshot(opened(system), q, np.asarray(u, float))
    inertia = joint_inertia(state, carriers(state))
    jacobian = np.vstack([np.zeros((0, len(state.u)), REAL), *(loop.rows() for loop in closures(system, state))])
    combined, _ = independent(jacobian)
    return with_multipliers(inertia, combined.T @ jacobian, inertia @ state.u, np.zeros(combined.shape[1]))[0]


def position_violation(system: System | Contents, q: Array) -> Array:
    """How far the joint of each loop is from the nearest place that its type allows [loops]: norm over m and rad."""
    state = Snapshot(opened(system), q, np.zeros(system.nu))
    found = []
    for loop, closure in zip(contents_of(system).loops, closures(system, state), strict=True):
        first, second = closure.bodies
        turned = second.rotation @ rotation_of(np.array(loop.rotations[1], REAL))
        start = first.origin + first.rotation @ np.array(loop.positions[0], REAL)
        reached = closure.frame @ closure.motion.rotation
        apart = turned @ reached.T
        lever = np.array([apart[2, 1] - apart[1, 2], apart[0, 2] - apart[2, 0], apart[1, 0] - apart[0, 1]]) / 2
        away = closure.origin - start - closure.frame @ closure.motion.displacement
        if loop.type == "helical" and loop.pitch:  # after any number of turns
            along, lead = closure.frame @ np.array(loop.axis, REAL), 2 * np.pi * loop.pitch
            away = away - np.rint(along @ away / lead) * lead * along
        found.append(np.linalg.norm((closure.constrained.T @ np.concatenate((lever, away))).astype(float)))
    return np.array(found)
