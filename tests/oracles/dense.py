"""Forward dynamics the plainest way: one dense linear system in maximal coordinates in the world frame.

Nothing of the package is used but its description of a model (`System.gravity`, `System.columns()`, the names
of the joint types, springs between bodies). The unknowns are, of every body, its angular acceleration, the
acceleration of its center of mass, its joint's generalized accelerations and the six components of its joint's
wrench; the equations are Newton's and Euler's, the kinematic relation of every joint, and S^T wrench =
generalized force. Trees with children in any order; no loops.

Numbers are of the widest type that numpy has and the solution is refined in it, so results are exact to the
rounding of a double, also for light and slender bodies, where one solution in doubles loses eight digits.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lu_factor, lu_solve

from mpimbs.model import JOINT_TYPES, Columns, Spring, System
from mpimbs.model.contents import Contents
from mpimbs.model.over_time import Lagged, OverTime
from mpimbs.model.system import contents_of

Array = NDArray[np.floating]
REAL = np.longdouble
ONE = np.eye(3, dtype=REAL)
X, Y, Z = ONE
O3, O33 = np.zeros(3, dtype=REAL), np.zeros((3, 3), dtype=REAL)


def cross_matrix(v: Array) -> Array:
    """The matrix [v x] with [v x] a = v x a."""
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


def turn(axis: Array, angle: float) -> Array:
    """Rotation matrix by Rodrigues' formula; `axis` is a unit vector."""
    k = cross_matrix(axis)
    return ONE + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k


def rotation_of(quaternion: Array) -> Array:
    """Rotation matrix of a unit quaternion w x y z."""
    w, k = quaternion[0], cross_matrix(quaternion[1:])
    return ONE + 2 * w * k + 2 * k @ k


def quaternion_product(a: Array, b: Array) -> Array:
    """The Hamilton product a b of quaternions w x y z."""
    return np.concatenate(([a[0] * b[0] - a[1:] @ b[1:]], a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])))


def rotation_vector(quaternion: Array) -> Array:
    """Axis times angle (at most pi) of a unit quaternion w x y z."""
    w, v = (quaternion[0], quaternion[1:]) if quaternion[0] >= 0 else (-quaternion[0], -quaternion[1:])
    s = np.linalg.norm(v)
    return 2 * np.arctan2(s, w) / s * v if s > 0 else O3


@dataclass
class JointMotion:
    """How a body moves in the joint frame that is fixed in its parent; all components in the joint frame.

    With w the relative angular velocity, w' = turns @ udot + turn_bias, and likewise for the displacement t:
    t' = slides @ u, t'' = slides @ udot + slide_bias.
    """

    rotation: Array  # [3, 3] body components into joint-frame components
    displacement: Array  # [3] body origin, m
    turns: Array  # [3, nu]
    slides: Array  # [3, nu]
    turn_bias: Array  # [3] rad/s^2
    slide_bias: Array  # [3] m/s^2
    q_rate: Array  # [nq]


def columns_of(*vectors: Array) -> Array:
    return np.array(vectors, dtype=REAL).reshape(-1, 3).T


JointFormula = Callable[[Array, Array, Array, np.floating], JointMotion]


def fixed(q: Array, u: Array, axis: Array, pitch: np.floating) -> JointMotion:
    return JointMotion(ONE, O3, columns_of(), columns_of(), O3, O3, u)


def revolute(q: Array, u: Array, axis: Array, pitch: np.floating) -> JointMotion:
    return JointMotion(turn(axis, q[0]), O3, columns_of(axis), columns_of(O3), O3, O3, u)


def prismatic(q: Array, u: Array, axis: Array, pitch: np.floating) -> JointMotion:
    return JointMotion(ONE, q[0] * axis, columns_of(O3), columns_of(axis), O3, O3, u)


def helical(q: Array, u: Array, axis: Array, pitch: np.floating) -> JointMotion:
    return JointMotion(turn(axis, q[0]), pitch * q[0] * axis, columns_of(axis), columns_of(pitch * axis), O3, O3, u)


def cylindrical(q: Array, u: Array, axis: Array, pitch: np.floating) -> JointMotion:
    return JointMotion(turn(axis, q[0]), q[1] * axis, columns_of(axis, O3), columns_of(O3, axis), O3, O3, u)


def universal(q: Array, u: Array, axis: Array, pitch: np.floating) -> JointMotion:
    second = turn(X, q[0]) @ Y  # the second axis turns about the first: its rate is u0 x-axis x second
    return JointMotion(
        rotation=turn(X, q[0]) @ turn(Y, q[1]),
        displacement=O3,
        turns=columns_of(X, second),
        slides=columns_of(O3, O3),
        turn_bias=np.cross(u[0] * X, u[1] * second),
        slide_bias=O3,
        q_rate=u,
    )


def spherical(q: Array, u: Array, axis: Array, pitch: np.floating) -> JointMotion:
    r = rotation_of(q)  # w = R u and R' u = w x w = 0
    return JointMotion(r, O3, r, O33, O3, O3, 0.5 * quaternion_product(q, np.array([0, *u])))


def planar(q: Array, u: Array, axis: Array, pitch: np.floating) -> JointMotion:
    return JointMotion(turn(Z, q[2]), q[0] * X + q[1] * Y, columns_of(O3, O3, Z), columns_of(X, Y, O3), O3, O3, u)


def free(q: Array, u: Array, axis: Array, pitch: np.floating) -> JointMotion:
    r = rotation_of(q[:4])
    velocity = r @ u[3:]  # t' = R v, so t'' = R v' + w x R v
    return JointMotion(
        rotation=r,
        displacement=q[4:],
        turns=np.hstack((r, O33)),
        slides=np.hstack((O33, r)),
        turn_bias=O3,
        slide_bias=np.cross(r @ u[:3], velocity),
        q_rate=np.concatenate((0.5 * quaternion_product(q[:4], np.array([0, *u[:3]])), velocity)),
    )


FORMULAS: dict[str, JointFormula] = {
    f.__name__: f for f in (fixed, revolute, prismatic, helical, cylindrical, universal, spherical, planar, free)
}


def spring(name: str, q: Array, rest: Array, stiffness: Array, cross: Sequence[float] = ()) -> tuple[float, Array]:
    """Potential (J) and generalized force [nu] of the springs of one joint.

    Angles and displacements: k (q - rest)^2 / 2. Quaternions: x . K x / 2 of the rotation vector x of rest^-1 q, whose
    force in body components is minus its gradient. Position of a free joint: along the joint frame's axes.
    """
    if name not in ("spherical", "free"):
        return 0.5 * float(stiffness @ (q - rest) ** 2), -stiffness * (q - rest)
    vector = rotation_vector(quaternion_product(rest[:4] * [1, -1, -1, -1], q[:4]))
    stretch, k_turn, k_slide = q[4:] - rest[4:], stiffness[:3], stiffness[3:]
    force = (-k_slide * stretch) @ rotation_of(q[:4]) if name == "free" else O3[:0]
    k = np.diag(k_turn)
    if len(cross):
        k[[0, 0, 1], [1, 2, 2]] = k[[1, 2, 2], [0, 0, 1]] = cross
    pull = k @ vector
    potential = 0.5 * (vector @ pull + k_slide @ stretch**2)
    back, square = pull - np.cross(vector, pull) / 2, float(vector @ vector)
    if square > 0:
        angle = np.sqrt(square)
        term = np.cross(vector, np.cross(vector, pull))
        back = back + term * (2 - angle * np.cos(angle / 2) / np.sin(angle / 2)) / (2 * square)
    return float(potential), np.concatenate((-back, force))


def spring_energy(c: Columns, q: Array) -> float:
    """Potential energy of all joint springs, J."""
    return sum(spring(*joint)[0] for joint, _ in springs_of(c, q))


def pushes(c: Columns, q: Array, u: Array) -> Iterator[tuple[int, float]]:
    """Along which speeds stops push, and by which generalized force."""
    for d, side, x in pressed(c, q):
        k, push = c.stop_stiffness[d], c.stop_stiffness[d] * x + c.stop_damping[d] * side * u[d]
        yield d, -side * (0.0 if push < 0 else min(push, 10 * k * x))


def resistance(c: Columns, q: Array) -> tuple[Array, Array]:
    """Stiffness and damping along each speed [nu] (balls: of the diagonal), of pressed stops too."""
    stiffness, damping = c.stiffness.copy(), c.damping.copy()
    for d, _, _ in pressed(c, q):
        stiffness[d] += c.stop_stiffness[d]
        damping[d] += c.stop_damping[d]
    return stiffness, damping


def pressed(c: Columns, q: Array) -> Iterator[tuple[int, int, float]]:
    """The speeds of coordinates that are beyond an end of their way, which one (1, -1), and how far."""
    for k in np.flatnonzero(np.diff(c.q_offset) == np.diff(c.u_offset)):
        for d, x in zip(range(*c.u_offset[k : k + 2]), q[slice(*c.q_offset[k : k + 2])], strict=True):
            for side, end in ((1, c.upper[d]), (-1, c.lower[d])):
                if side * (x - end) > 0:
                    yield d, side, side * (x - end)


def servos(c: Columns, q: Array, u: Array, t: float = 0.0) -> Array:
    """Forces of servos and friction [nu]."""
    asked, total = np.array(c.servo_torque, REAL), np.zeros(len(u), REAL)
    for k, function in c.servo_functions:
        asked[c.u_offset[k] : c.u_offset[k + 1]] = at_time(function, t)
    for k in range(c.n):
        for d, i in zip(range(*c.u_offset[k : k + 2]), range(*c.q_offset[k : k + 2]), strict=False):
            push = asked[d] - c.servo_stiffness[d] * q[i] - c.servo_damping[d] * u[d]
            total[d] = min(max(push, c.servo_least[d]), c.servo_most[d])
            if c.friction[d]:
                total[d] -= c.friction[d] * min(max(u[d] / c.friction_speed[d], -1.0), 1.0)
    return total


def tendons(system: System | Contents, q: Array, u: Array, t: float = 0.0) -> Array:
    """Forces of tendons over joints [nu]."""
    total, (of_q, of_u) = np.zeros(system.nu, REAL), contents_of(system).offsets()
    for tendon in contents_of(system).loads.tendons.values():
        bodies = map(contents_of(system).index_of, tendon.joints)
        over = [(of_q[k], of_u[k], ratio) for k, ratio in zip(bodies, tendon.ratios, strict=True)]
        length, rate = sum(c * q[i] for i, _, c in over), sum(c * u[d] for _, d, c in over)
        force = np.ravel(at_time(tendon.force, t))[0] if callable(tendon.force) else tendon.force
        force = force - tendon.stiffness * (length - tendon.rest) - tendon.damping * rate
        force, k = min(max(force, tendon.least), tendon.most), tendon.stop_stiffness
        for side, beyond in ((1, length - tendon.upper), (-1, tendon.lower - length)):
            if beyond > 0:
                force -= side * min(max(k * beyond + tendon.stop_damping * side * rate, 0), 10 * k * beyond)
        for _, d, ratio in over:
            total[d] += ratio * force
    return total


def generalized_forces(
    c: Columns, q: Array, u: Array, tau: Array | None = None, t: float = 0.0, system: System | None = None
) -> Array:
    """Springs, dampers, constant and time-dependent joint torques, the tendons of a `system`, the extra `tau`; [nu]."""
    total = c.torque - c.damping * u + (0 if tau is None else np.asarray(tau))
    total = total if system is None else total + tendons(system, q, u, t)
    for joint, speeds in springs_of(c, q):
        total[speeds] += spring(*joint)[1]
    for d, force in pushes(c, q, u):
        total[d] += force
    total += servos(c, q, u, t)
    for k, function in c.torque_functions:
        total[c.u_offset[k] : c.u_offset[k + 1]] += at_time(function, t)
    return total


def springs_of(c: Columns, q: Array) -> Iterator[tuple[tuple[str, Array, Array, Array, Array], slice]]:
    """Per joint, the arguments of `spring` and where its speeds are."""
    for k, joint_type in enumerate(c.joint_type):
        i, s = slice(*c.q_offset[k : k + 2]), slice(*c.u_offset[k : k + 2])
        yield (JOINT_TYPES[joint_type].name, q[i], c.rest[i], c.stiffness[s], c.cross_stiffness[s][:3]), s


@dataclass
class Kinematics:
    """Poses and velocities of every body in the world frame."""

    rotation: Array  # [n, 3, 3] body components into world components
    origin: Array  # [n, 3] m
    com: Array  # [n, 3] m, centers of mass
    omega: Array  # [n, 3] rad/s
    com_velocity: Array  # [n, 3] m/s


@dataclass
class Fluid:
    """What added mass takes from a body, about its origin in world components: inertia @ (alpha, a) + bias, the rate of
    its impulse, with a = a_com - alpha x (com - origin), the acceleration of the origin less its velocity terms."""

    inertia: Array  # [6, 6]
    bias: Array  # [6]
    twist: Array  # [6]: angular velocity, velocity of the origin
    impulse: Array  # [6]


class Snapshot:
    """A system in one state: its columns, the motion of every joint and body, and the equations of motion."""

    def __init__(self, system: System | Contents, q: Array, u: Array) -> None:
        if len(contents_of(system).loops):
            raise ValueError("the dense oracle has no loops")
        self.gravity = np.asarray(system.gravity, dtype=REAL)
        self.springs = [
            (spring, [-1 if name == "world" else contents_of(system).index_of(name) for name in spring.bodies])
            for spring in contents_of(system).springs.values()
        ]
        self.system = system
        self.columns = c = widened(contents_of(system).columns())
        self.q, self.u = np.asarray(q, dtype=REAL), np.asarray(u, dtype=REAL)
        if self.q.shape != (c.q_offset[-1],) or self.u.shape != (c.u_offset[-1],):
            raise ValueError(f"q {self.q.shape} and u {self.u.shape} do not fit the model")
        self.n = n = len(c.parent)
        self.joints = [
            FORMULAS[JOINT_TYPES[c.joint_type[k]].name](
                self.q[slice(*c.q_offset[k : k + 2])], self.u[self.u_of(k)], c.axis[k], c.pitch[k]
            )
            for k in range(n)
        ]
        self.joint_frame = np.zeros((n, 3, 3), dtype=REAL)  # joint-frame components into world components
        self.kinematics = Kinematics(np.zeros((n, 3, 3), dtype=REAL), *(np.zeros((n, 3), dtype=REAL) for _ in range(4)))
        for k in range(n):
            self._place(k)

    def u_of(self, k: int) -> slice:
        return slice(*self.columns.u_offset[k : k + 2])

    def _place(self, k: int) -> None:
        """Pose and velocity of body k from its parent's."""
        c, m, j, p = self.columns, self.kinematics, self.joints[k], int(self.columns.parent[k])
        r_parent = m.rotation[p] if p >= 0 else ONE
        o_parent = m.origin[p] if p >= 0 else O3
        w_parent = m.omega[p] if p >= 0 else O3
        frame = self.joint_frame[k] = r_parent @ rotation_of(c.rotation[k])
        m.rotation[k] = frame @ j.rotation
        m.origin[k] = o_parent + r_parent @ c.position[k] + frame @ j.displacement
        m.com[k] = m.origin[k] + m.rotation[k] @ c.center_of_mass[k]
        m.omega[k] = w_parent + frame @ j.turns @ self.u[self.u_of(k)]
        # velocity of the parent's point that coincides with the body's origin
        carried = m.com_velocity[p] + np.cross(w_parent, m.origin[k] - m.com[p]) if p >= 0 else O3
        v_origin = carried + frame @ j.slides @ self.u[self.u_of(k)]
        m.com_velocity[k] = v_origin + np.cross(m.omega[k], m.com[k] - m.origin[k])

    def inertia(self, k: int) -> Array:
        """Inertia of body k about its center of mass in world components, kg m^2."""
        xx, yy, zz, xy, xz, yz = self.columns.inertia[k]
        r = self.kinematics.rotation[k]
        return r @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ r.T

    def fluid(self, k: int) -> Fluid | None:
        """What the fluid around body k takes from it."""
        if self.columns.added_mass is None:
            return None
        m = self.kinematics
        w, r = m.omega[k], m.origin[k] - m.com[k]
        v = m.com_velocity[k] + np.cross(w, r)
        turn = np.kron(np.eye(2), m.rotation[k])
        inertia = turn @ self.columns.added_mass[k] @ turn.T
        rate = np.kron(np.eye(2), cross_matrix(w)) @ inertia
        twist = np.concatenate((w, v))
        impulse = inertia @ twist
        turning = np.concatenate((np.cross(v, impulse[3:]), O3))
        carried = np.concatenate((O3, np.cross(w, np.cross(w, r))))
        return Fluid(inertia, (rate + rate.T) @ twist + turning + inertia @ carried, twist, impulse)

    def point(self, k: int, position: tuple[float, ...]) -> tuple[Array, Array]:
        """Place and velocity of a point of body k in the world frame; of the world for k = -1."""
        m, here = self.kinematics, np.asarray(position, dtype=REAL)
        if k < 0:
            return here, O3
        place = m.origin[k] + m.rotation[k] @ here
        return place, m.com_velocity[k] + np.cross(m.omega[k], place - m.com[k])

    def fluids(self) -> Iterator[tuple[int, Fluid]]:
        """`fluid` of all bodies that have added mass."""
        for k in range(self.n):
            if (fluid := self.fluid(k)) is not None:
                yield k, fluid

    def pulled(self) -> Iterator[tuple[Spring, list[int], list[Array], float, Array]]:
        """Springs between bodies: the bodies, the places of their points, the length, the pull on the first [3]."""
        for spring, bodies in self.springs:
            (a, va), (b, vb) = (self.point(k, p) for k, p in zip(bodies, spring.positions, strict=True))
            length = np.linalg.norm(b - a)
            rate = (b - a) @ (vb - va) / length
            if spring.force is not None:
                tension = getattr(spring.force, "py_func", spring.force)(length, rate)
            else:
                tension = spring.damping * rate + spring.stiffness * (length - (spring.rest or 0.0))
                if spring.tension_only and (length <= spring.rest or tension < 0):
                    tension = 0.0
            yield spring, bodies, [a, b], length, tension * (b - a) / length

    def stretch_energy(self) -> float:
        """Potential energy of springs between bodies, J."""
        total = 0.0
        for spring, _, _, length, _ in self.pulled():
            if spring.stiffness and not (spring.tension_only and length < spring.rest):
                total += 0.5 * spring.stiffness * (length - spring.rest) ** 2
        return float(total)

    def body_loads(self, t: float) -> Array:
        """Gravity, wrenches, springs between bodies: moment about the center of mass, force; world frame, [n, 6]."""
        loads = np.zeros((self.n, 6), dtype=REAL)
        loads[:, 3:] = self.columns.mass[:, None] * self.gravity
        for k, wrench in self.columns.wrenches:
            turned = self.kinematics.rotation[k] if wrench.frame == "body" else ONE
            moment, force = (turned @ at_time(value, t) for value in (wrench.moment, wrench.force))
            arm = self.kinematics.rotation[k] @ (np.asarray(wrench.point) - self.columns.center_of_mass[k])
            loads[k] += np.concatenate((moment + np.cross(arm, force), force))
        for _, bodies, places, _, pull in self.pulled():
            for k, place, force in zip(bodies, places, (pull, -pull), strict=True):
                if k >= 0:
                    loads[k] += np.concatenate((np.cross(place - self.kinematics.com[k], force), force))
        return loads

    def solve(self, tau: Array | None, t: float) -> tuple[Array, Array]:
        """Generalized accelerations [nu] and joint wrenches [n, 6] (world frame, about body origins)."""
        c, m, n, nu = self.columns, self.kinematics, self.n, len(self.u)
        a = np.zeros((12 * n + nu, 12 * n + nu), dtype=REAL)
        b = np.zeros(12 * n + nu, dtype=REAL)
        loads = self.body_loads(t)

        def three(k: int, part: int) -> slice:
            """Of body k, angular (0) or linear (1) acceleration, moment (2) or force (3) of its joint."""
            return slice(12 * k + 3 * part, 12 * k + 3 * part + 3)

        for k in range(n):
            j, p, frame = self.joints[k], int(c.parent[k]), self.joint_frame[k]
            speeds = slice(12 * n + c.u_offset[k], 12 * n + c.u_offset[k + 1])
            u, w = self.u[self.u_of(k)], m.omega[k]
            alpha, acc, moment, force = (three(k, part) for part in range(4))
            # Euler, Newton: I alpha + w x I w = joint + loads,  m a = joint + loads
            # where the joint of a child acts reversed
            a[alpha, alpha] = self.inertia(k)
            a[acc, acc] = c.mass[k] * ONE
            b[alpha] = loads[k, :3] - np.cross(w, self.inertia(k) @ w)
            b[acc] = loads[k, 3:]
            for body, sign in ((k, -1.0), (p, 1.0)):
                if body >= 0:
                    a[three(body, 0), moment] += sign * ONE
                    a[three(body, 0), force] += sign * cross_matrix(m.origin[k] - m.com[body])
                    a[three(body, 1), force] += sign * ONE
            if (fluid := self.fluid(k)) is not None:
                to_origin = np.block([[ONE, O33], [-cross_matrix(m.origin[k] - m.com[k]), ONE]])
                both = slice(12 * k, 12 * k + 6)
                a[both, both] += to_origin.T @ fluid.inertia @ to_origin
                b[both] -= to_origin.T @ fluid.bias
            # alpha_k - alpha_p = turns udot + bias + w_p x w_rel
            # a_k,origin - a_p,carried = slides udot + bias + 2 w_p x v_rel
            w_parent = m.omega[p] if p >= 0 else O3
            a[moment, speeds] = -frame @ j.turns
            a[force, speeds] = -frame @ j.slides
            b[moment] = frame @ j.turn_bias + np.cross(w_parent, frame @ j.turns @ u)
            b[force] = frame @ j.slide_bias + 2 * np.cross(w_parent, frame @ j.slides @ u)
            # the body's origin as a point of either body: a_com - [r x] alpha + w x (w x r)
            for body, sign in ((k, 1.0), (p, -1.0)):
                if body >= 0:
                    r, w_body = m.origin[k] - m.com[body], m.omega[body]
                    a[moment, three(body, 0)] += sign * ONE
                    a[force, three(body, 1)] += sign * ONE
                    a[force, three(body, 0)] -= sign * cross_matrix(r)
                    b[force] -= sign * np.cross(w_body, np.cross(w_body, r))
            # S^T wrench + armature udot = generalized force
            a[speeds, moment] = (frame @ j.turns).T
            a[speeds, force] = (frame @ j.slides).T
            a[speeds, speeds] = np.diag(c.armature[self.u_of(k)])
        b[12 * n :] = generalized_forces(c, self.q, self.u, tau, t, self.system)
        x = refined_solution(a, b)
        return x[12 * n :], x[: 12 * n].reshape(n, 12)[:, 6:]


def widened(columns: Columns) -> Columns:
    """The same columns with their doubles as REAL."""
    wide = copy.copy(columns)
    for name in (name for name, value in vars(Columns).items() if isinstance(value, cached_property)):
        values = getattr(columns, name)
        if getattr(values, "dtype", None) == np.float64:
            setattr(wide, name, values.astype(REAL))
    return wide


# Corrections end at the condition of the equations times the rounding of REAL, 1e-19, whatever the BLAS. This bound,
# below the tolerances, is kept by conditions up to 1e6, and by some 1e8 as roundings are not the worst possible: the
# worst of the tests' systems, 2e6, end at 3e-15.
CORRECTED = 1e-13


def refined_solution(a: Array, b: Array) -> Array:
    """The solution of a x = b as doubles: factors in doubles, residuals in REAL."""
    factors = lu_factor(a.astype(float))
    x = np.zeros_like(b)
    for _ in range(6):
        x += (step := lu_solve(factors, (b - a @ x).astype(float)))
    if np.linalg.norm(step) > CORRECTED * np.linalg.norm(x):
        raise np.linalg.LinAlgError("the equations of motion are too near to singular for the dense oracle")
    return x.astype(float)


def at_time(value: object, t: float) -> Array:
    """A constant, rows over time, also with a lag, or a function of time as an array."""
    if isinstance(value, Lagged):
        ends = np.unique(np.clip([0.0, t, *(row[0] for row in value.rows)], 0.0, max(t, 0.0)))
        found = np.array(value.begin) * np.exp(-ends[-1] / value.lag)
        nodes, weights = np.polynomial.legendre.leggauss(80)
        for start, half in zip(ends[:-1], np.diff(ends) / 2, strict=True):
            times = start + half * (1 + nodes)
            parts = weights * half / value.lag * np.exp((times - t) / value.lag)
            found = found + parts @ np.array([np.ravel(at_time(value.rows, s)) for s in times])
        return found if len(found) > 1 else found[0]
    if isinstance(value, OverTime):
        times, *columns = np.array(value, float).T
        found = [np.interp(t, times, column) for column in columns]
        return np.array(found if len(found) > 1 else found[0])
    return np.asarray(value(t) if callable(value) else value, dtype=float)


def dense_accelerations(
    system: System | Contents, q: Array, u: Array, tau: Array | None = None, t: float = 0.0
) -> Array:
    """Generalized accelerations [nu] in the model's order; `tau` [nu] adds to the joints' own forces."""
    return Snapshot(system, q, u).solve(tau, t)[0]


def joint_wrenches(
    system: System | Contents, q: Array, u: Array, tau: Array | None = None, t: float = 0.0, frame: str = "world"
) -> Array:
    """Wrench of each joint on its body (moment about the body's origin, force), active part included; [n, 6].

    Components in the "world" frame or in the "body" frame.
    """
    state = Snapshot(system, q, u)
    wrenches = state.solve(tau, t)[1].reshape(-1, 2, 3)
    if frame == "body":
        wrenches = np.einsum("nij,nai->naj", state.kinematics.rotation, wrenches)
    return wrenches.reshape(-1, 6).astype(float)


def kinematics(system: System | Contents, q: Array, u: Array) -> Kinematics:
    """Poses and velocities of every body in the world frame."""
    motion = Snapshot(system, q, u).kinematics
    return Kinematics(*(values.astype(float) for values in vars(motion).values()))


def energy(system: System | Contents, q: Array, u: Array) -> tuple[float, float]:
    """Kinetic and potential energy (gravity, zero at the world's origin, and springs), J."""
    state = Snapshot(system, q, u)
    c, m = state.columns, state.kinematics
    kinetic = 0.5 * c.mass @ np.sum(m.com_velocity**2, axis=1)
    kinetic += 0.5 * c.armature @ state.u**2
    kinetic += 0.5 * sum(m.omega[k] @ state.inertia(k) @ m.omega[k] for k in range(state.n))
    kinetic += 0.5 * sum(fluid.twist @ fluid.impulse for _, fluid in state.fluids())
    potential = spring_energy(c, state.q) + state.stretch_energy() - c.mass @ (m.com @ state.gravity)
    return float(kinetic), float(potential)


def momentum(system: System | Contents, q: Array, u: Array) -> tuple[Array, Array]:
    """Linear momentum [3] and angular momentum about the world's origin [3]."""
    state = Snapshot(system, q, u)
    m = state.kinematics
    linear = state.columns.mass[:, None] * m.com_velocity
    spin = sum((state.inertia(k) @ m.omega[k] for k in range(state.n)), start=O3)
    angular, linear = np.cross(m.com, linear).sum(axis=0) + spin, linear.sum(axis=0)
    for k, fluid in state.fluids():
        linear = linear + fluid.impulse[3:]
        angular = angular + fluid.impulse[:3] + np.cross(m.origin[k], fluid.impulse[3:])
    return linear.astype(float), angular.astype(float)


def coordinate_rates(system: System | Contents, q: Array, u: Array) -> Array:
    """Time derivative of q; [nq]."""
    return np.concatenate([joint.q_rate for joint in Snapshot(system, q, u).joints]).astype(float)


def mass_matrix(system: System | Contents, q: Array) -> Array:
    """Joint-space inertia matrix [nu, nu] from the bodies' velocities under unit speeds, and the rotors of the axes."""
    c = contents_of(system).columns()
    if not (nu := int(c.u_offset[-1])):
        return np.zeros((0, 0))
    states = [Snapshot(system, q, unit) for unit in np.eye(nu)]
    turning = np.array([state.kinematics.omega for state in states])  # [nu, n, 3]
    moving = np.array([state.kinematics.com_velocity for state in states])
    inertia = np.array([states[0].inertia(k) for k in range(states[0].n)])
    rotational = np.einsum("ink,nkj->inj", turning, inertia)
    matrix = np.tensordot(rotational, turning, ((1, 2), (1, 2)))
    matrix += np.tensordot(c.mass[:, None] * moving, moving, ((1, 2), (1, 2)))
    matrix += np.diag(c.armature)
    fluids = [dict(state.fluids()) for state in states]
    for k in fluids[0]:
        twists = np.array([fluid[k].twist for fluid in fluids])
        matrix += twists @ fluids[0][k].inertia @ twists.T
    return matrix.astype(float)


def inverse_dynamics(system: System | Contents, q: Array, u: Array, udot: Array, t: float = 0.0) -> Array:
    """The extra `tau` [nu] under which dense_accelerations gives `udot`: M (udot - udot at tau = 0)."""
    return mass_matrix(system, q) @ (np.asarray(udot) - dense_accelerations(system, q, u, t=t))
