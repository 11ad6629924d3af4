"""Forward dynamics of systems of any size the plainest way: the equations of `dense` and `loops`, as a sparse system.

The unknowns are, of every body, its angular acceleration and the acceleration of its center of mass, the generalized
accelerations of the tree's joints, the wrenches of these joints and the multipliers of all constraints, of loops and of
gears. Nothing is eliminated and no rank is decided on. Where constraints are redundant the matrix is singular, but all
solutions have the same accelerations: they are found by the method of multipliers, each step of which solves the
equations with constraints that give way a little, and takes the forces that it finds for the next one.

Factors are in doubles, residuals in the widest type that numpy has. How far a result may be off that some other
backward stable method finds is estimated as Skeel has it: by the solutions for residuals as large as the rounding of
all terms of the equations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.interpolate import CubicSpline
from scipy.sparse.linalg import splu

from mpimbs.model import Gear, System
from mpimbs.model.contents import Contents
from mpimbs.model.system import contents_of
from oracles.dense import O3, ONE, REAL, Array, Snapshot, cross_matrix, generalized_forces
from oracles.loops import Closure, closures, opened

GIVING = 1e-9  # how far constraints give way, of what two free bodies would
ROUNDS = 40  # of multipliers at the most
SETTLED = 1e-13  # of residuals, relative to the terms of their equation
FLOOR = 1e-10  # of accelerations that all loads on a body could give: terms of constraints that are less count as that
CONTRADICTION = 1e-9  # of the terms of a constraint, by which it is not met
ROUNDINGS = 1e4  # of every term, that a sweep may make of one
TINY = 1e-300
EPSILON = 2.0**-52


class Terms:
    """Entries of a sparse matrix of the widest type, row by row."""

    def __init__(self, rows: Array, columns: Array, values: Array, size: int) -> None:
        order = np.argsort(rows, kind="stable")
        self._rows, self._columns, self._values = rows[order], columns[order], values[order]
        self._begins = np.flatnonzero(np.diff(self._rows, prepend=-1))
        self.size = size
        self.doubles = sp.csc_array((values.astype(float), (rows, columns)), (size, size))

    def times(self, x: Array, absolute: bool = False) -> Array:
        """The product with a vector; `absolute`: of the absolute values of both."""
        terms = self._values * x[self._columns]
        found = np.zeros(self.size, REAL)
        found[self._rows[self._begins]] = np.add.reduceat(abs(terms) if absolute else terms, self._begins)
        return found


class Entries:
    """Blocks that are put into a sparse matrix."""

    def __init__(self) -> None:
        self._rows: list[Array] = []
        self._columns: list[Array] = []
        self._values: list[Array] = []

    def add(self, row: int, column: int, block: Array) -> None:
        block = np.atleast_2d(block)
        i, j = np.indices(block.shape)
        self._rows.append(row + i.ravel())
        self._columns.append(column + j.ravel())
        self._values.append(block.ravel().astype(REAL))

    def terms(self, size: int) -> Terms:
        return Terms(np.concatenate(self._rows), np.concatenate(self._columns), np.concatenate(self._values), size)


@dataclass
class Solution:
    """What a system does in one state."""

    udot: Array  # [nu]
    margin: Array  # [nu] how far off a method may be that rounds every term of the equations once
    bodies: Array  # [n, 6] angular accelerations, those of centers of mass
    wrenches: Array  # [n, 6] of the tree's joints on the bodies: world frame, about the bodies' origins
    apart: (
        float  # most that constraints contradict one another, of what roundings may do: above 1 in singular positions
    )


class Descriptor:
    """A system in one state: the matrix of its equations of motion, which depends on q alone, and what acts.

    Joints that follow given motions have the coordinates, speeds and accelerations of their splines at time `t`.
    """

    def __init__(self, system: System | Contents, q: Array, u: Array, t: float = 0.0) -> None:
        self.system, self.t = system, t
        self.q, self.u, self.given, self.held = (np.array(values) for values in followed(system, q, u, t))
        self.q, self.u = self.q.astype(REAL), self.u.astype(REAL)
        self.place()

    def place(self) -> None:
        """Find where all is and how it moves, after a change of q or u."""
        self.state = Snapshot(opened(self.system), self.q, self.u)
        joints = opened(self.system)
        bodies, held = (
            zip(*contents_of(self.system).loops.joints, strict=True)
            if contents_of(self.system).loops.joints
            else ((), ())
        )
        joints.loops = contents_of(self.system).loops.holding(held, bodies)
        self.loops = list(zip(joints.loops, joints.loops.bodies, closures(joints, self.state, True), strict=True))
        self.gears = [loop for loop in contents_of(self.system).loops if isinstance(loop, Gear)]

    @property
    def n(self) -> int:
        return self.state.n

    def constraints(self) -> Iterator[tuple[int, tuple[int, int], Closure]]:
        """Of every loop, its first row, the numbers of its bodies, itself."""
        row = 12 * self.n + len(self.u)
        for _, ends, closure in self.loops:
            yield row, ends, closure
            row += closure.constrained.shape[1]

    @cached_property
    def size(self) -> int:
        constraints = sum(closure.constrained.shape[1] for _, _, closure in self.loops)
        return 12 * self.n + len(self.u) + constraints + len(self.gears)

    @cached_property
    def first_gear(self) -> int:
        return self.size - len(self.gears)

    def inertia(self, k: int) -> Array:
        """What body k resists with, about its center of mass [6, 6]."""
        found = np.zeros((6, 6), REAL)
        found[:3, :3], found[3:, 3:] = self.state.inertia(k), self.state.columns.mass[k] * ONE
        if (fluid := self.state.fluid(k)) is not None:
            to_origin = self.carried(k, self.state.kinematics.origin[k])
            found += to_origin.T @ fluid.inertia @ to_origin
        return found

    def carried(self, k: int, place: Array) -> Array:
        """Accelerations of body k to those of its point at a place [6, 6]."""
        found = np.eye(6, dtype=REAL)
        found[3:, :3] = -cross_matrix(place - self.state.kinematics.com[k])
        return found

    def centripetal(self, k: int, place: Array) -> Array:
        """Acceleration [6] of a body's point beside those of the body; of the world for k = -1."""
        if k < 0:
            return np.zeros(6, REAL)
        w, m = self.state.kinematics.omega[k], self.state.kinematics
        return np.concatenate((O3, np.cross(w, np.cross(w, place - m.com[k]))))

    @cached_property
    def matrix(self) -> Terms:
        """The equations of motion, joints, forces along joints, constraints; in this order, as their unknowns:
        accelerations and, in place of joint relations, wrenches stand at columns of bodies."""
        c, m, n, entries = self.state.columns, self.state.kinematics, self.n, Entries()
        for k in range(n):
            joint, p, here = self.state.joints[k], int(c.parent[k]), m.origin[k]
            axes = self.axes(k)
            speed = 12 * n + c.u_offset[k]
            relation = 6 * n + 6 * k
            # M a - X^T wrench + ... = loads;  X a - X_p a_p - S udot = bias;  S^T wrench + armature udot = forces
            entries.add(6 * k, 6 * k, self.inertia(k))
            for body, sign in ((k, 1.0), (p, -1.0)):
                if body >= 0:
                    carried = self.carried(body, here)
                    entries.add(6 * body, relation, -sign * carried.T)
                    entries.add(relation, 6 * body, sign * carried)
            if joint.turns.shape[1]:
                entries.add(relation, speed, -axes)
                own = self.state.u_of(k)
                if self.held[own].any():
                    entries.add(speed, speed, np.eye(axes.shape[1]))
                else:
                    entries.add(speed, relation, axes.T)
                    entries.add(speed, speed, np.diag(c.armature[own]))
        for row, ends, closure in self.constraints():
            for body, sign in zip(ends, (-1.0, 1.0), strict=True):
                if body >= 0 and closure.constrained.shape[1]:
                    carried = sign * closure.constrained.T @ self.carried(body, closure.origin)
                    entries.add(row, 6 * body, carried)
                    entries.add(6 * body, row, -carried.T)
        for row, gear in enumerate(self.gears, self.first_gear):
            for name, share in ((gear.joint, 1.0), (gear.of, -gear.ratio)):
                speed = int(c.u_offset[contents_of(self.system).index_of(name)])
                entries.add(row, 12 * n + speed, np.array(share))
                if not self.held[speed]:
                    entries.add(12 * n + speed, row, np.array(-share))
        return entries.terms(self.size)

    def axes(self, k: int) -> Array:
        """What the joint of body k frees, in the world frame [6, nu of k]."""
        joint, frame = self.state.joints[k], self.state.joint_frame[k]
        return np.vstack((frame @ joint.turns, frame @ joint.slides))

    @cached_property
    def _resisting(self) -> Array:
        """What each acceleration of a body has to move [6 n]."""
        diagonals = np.array([np.diag(self.inertia(k)) for k in range(self.n)]).astype(float)
        return np.maximum(diagonals, 1e-12 * diagonals.max(axis=1, keepdims=True) + TINY).ravel()

    @cached_property
    def _constraint_sizes(self) -> Array:
        """Sums of the absolute values of each constraint's row."""
        rows = abs(sp.csr_array(self.matrix.doubles)[12 * self.n + len(self.u) :])
        return rows @ np.ones(self.size)

    @cached_property
    def _giving(self) -> Array:
        """How far each constraint gives way under a unit load [size]: nothing but loops and gears does."""
        matrix, first = self.matrix.doubles, 12 * self.n + len(self.u)
        found = np.zeros(self.size)
        rows = sp.csr_array(matrix)[first:]
        sizes = np.ones(self.size)
        sizes[: 6 * self.n] = np.where(self._resisting > TINY, self._resisting, np.inf)
        speeds = slice(12 * self.n, first)
        masses = self.state.columns.mass.astype(float)
        sizes[speeds] = np.maximum(self.state.columns.armature.astype(float), masses[masses > 0].mean())
        found[first:] = GIVING * (rows.power(2) @ (1.0 / sizes))
        return np.where((found == 0) & (np.arange(self.size) >= first), GIVING, found)

    @cached_property
    def _factor(self) -> object:
        """Factors of the equations with constraints that give way, rows and columns scaled."""
        matrix = self.matrix.doubles - sp.diags_array(self._giving, format="csc")
        rows = 1.0 / np.sqrt(np.maximum(abs(matrix).max(axis=1).toarray().ravel(), 1e-300))
        columns = 1.0 / np.maximum(abs(sp.diags_array(rows) @ matrix).max(axis=0).toarray().ravel(), 1e-300)
        factor = splu(sp.csc_array(sp.diags_array(rows) @ matrix @ sp.diags_array(columns)))
        return lambda right: columns * factor.solve(rows * right)

    def solve(self, right: Array) -> tuple[Array, float]:
        """Unknowns [size], and the largest residual of constraints relative to their terms."""
        x = np.zeros(self.size, REAL)
        first, last = 12 * self.n + len(self.u), np.inf
        for _ in range(ROUNDS):
            left = right - self.matrix.times(x)
            terms = self.matrix.times(x, absolute=True) + abs(right)
            free = (terms[: 6 * self.n] / self._resisting).max()  # accelerations that all loads could give
            least = np.maximum(FLOOR * free * self._constraint_sizes, TINY)
            large = float((abs(left[:first]) / np.maximum(terms[:first], TINY)).max())
            apart = float((abs(left[first:]) / np.maximum(terms[first:], least)).max(initial=0.0))
            if (large < SETTLED and apart < SETTLED) or (apart > 0.9 * last and large < SETTLED):
                break
            last = min(apart or np.inf, last)
            x = x + self._factor(left.astype(float))
        return x, apart

    def right_side(self, tau: Array | None, along_loops: bool = True) -> Array:
        """What the equations have to be; `along_loops`: with springs, dampers and torques of loops."""
        c, m, n, s = self.state.columns, self.state.kinematics, self.n, self.state
        right = np.zeros(self.size, REAL)
        acting = s.body_loads(self.t)
        for k in range(n):
            joint, p, frame, w = s.joints[k], int(c.parent[k]), s.joint_frame[k], m.omega[k]
            u, w_parent = s.u[s.u_of(k)], m.omega[p] if p >= 0 else O3
            right[6 * k : 6 * k + 6] += acting[k]
            right[6 * k : 6 * k + 3] -= np.cross(w, s.inertia(k) @ w)
            if (fluid := s.fluid(k)) is not None:
                right[6 * k : 6 * k + 6] -= self.carried(k, m.origin[k]).T @ fluid.bias
            turned = frame @ joint.turn_bias + np.cross(w_parent, frame @ joint.turns @ u)
            moved = frame @ joint.slide_bias + 2 * np.cross(w_parent, frame @ joint.slides @ u)
            relation = np.concatenate((turned, moved))
            relation += self.centripetal(p, m.origin[k]) - self.centripetal(k, m.origin[k])
            right[6 * n + 6 * k : 6 * n + 6 * k + 6] = relation
        for (loop, _, _), (row, ends, closure) in zip(self.loops, self.constraints(), strict=True):
            asked = closure.right_side()  # with what bodies have at udot = 0, in place of which stands what points have
            for body, carrier, sign in zip(ends, closure.bodies, (1.0, -1.0), strict=True):
                without = sign * (self.centripetal(body, closure.origin) - carrier.accelerations(closure.origin))
                asked = asked + closure.constrained.T @ without
            right[row : row + len(asked)] = asked
            if along_loops:
                load = np.array(closure.active_load(loop, self.t), REAL)
                for body, sign in zip(ends, (-1.0, 1.0), strict=True):
                    if body >= 0:
                        right[6 * body : 6 * body + 6] += sign * self.carried(body, closure.origin).T @ load
        forces = generalized_forces(c, s.q, s.u, tau, self.t, self.system)
        right[12 * n : 12 * n + len(s.u)] = np.where(self.held, self.given, forces)
        return right

    def solution(self, tau: Array | None = None, draws: int = 3) -> Solution:
        """Accelerations, with the margin from so many draws of roundings."""
        n, nu = self.n, len(self.u)
        right = self.right_side(tau)
        x, _ = self.solve(right)
        rounding = (EPSILON * (self.matrix.times(x, absolute=True) + abs(right))).astype(float)
        rng, margin = np.random.default_rng(0), np.zeros(self.size)
        for _ in range(draws):
            margin = np.maximum(margin, abs(self._factor(rounding * rng.choice((-1.0, 1.0), self.size))))
        first, speeds = 12 * n + nu, slice(12 * n, 12 * n + nu)
        left, terms = abs(right - self.matrix.times(x)), self.matrix.times(x, absolute=True) + abs(right)
        moved = np.append(margin[:first], np.zeros(self.size - first))
        rounded = CONTRADICTION * terms + ROUNDINGS * self.matrix.times(moved, absolute=True) + TINY
        apart = float((left / rounded)[first:].max(initial=0.0))
        bodies, wrenches = x[: 6 * n].reshape(n, 6), x[6 * n : 12 * n].reshape(n, 6)
        return Solution(x[speeds].astype(float), margin[speeds], bodies, wrenches, apart)

    def allow(self) -> float:
        """Make u the nearest speeds that the constraints allow, by kinetic energy; gives by how much these then are
        not met, relative to their terms."""
        n, nu, m = self.n, len(self.u), self.state.kinematics
        right = np.zeros(self.size, REAL)
        for k in range(n):
            right[6 * k : 6 * k + 6] = self.inertia(k) @ np.concatenate((m.omega[k], m.com_velocity[k]))
        armature = self.state.columns.armature
        right[12 * n : 12 * n + nu] = np.where(self.held, self.u, armature * self.u)
        x, apart = self.solve(right)
        self.u = x[12 * n : 12 * n + nu]
        self.place()
        return apart

    # --- forces that accelerations need ---

    def needed(self, udot: Array, velocities: bool = True) -> tuple[Array, Array]:
        """Forces [nu] along the joints of the tree, with all that acts taken off, that accelerations need, without
        loops; or without `velocities` and all that acts, the product of the inertia matrix; and their margin."""
        n, nu, c = self.n, len(self.u), self.state.columns
        tree = sp.csc_array(self.matrix.doubles[6 * n : 12 * n, : 6 * n])
        factor = splu(tree)
        axes = sp.block_diag([self.axes(k).astype(float) for k in range(n)], format="csr")
        inertia = sp.block_diag([self.inertia(k).astype(float) for k in range(n)], format="csr")
        right = self.right_side(None).astype(float) if velocities else np.zeros(self.size)
        armature = c.armature.astype(float)
        wanted = np.asarray(udot, float)

        def forces(udot: Array, relation: Array, acting: Array, along: Array, rounded: Array) -> tuple[Array, Array]:
            bodies = factor.solve(axes @ udot + relation)
            wrenches = factor.solve((inertia @ bodies - acting) * rounded, trans="T")
            return axes.T @ wrenches + armature * udot - along, wrenches

        acting, relation, along = np.split(right[: 12 * n + nu], (6 * n, 12 * n))
        if velocities:
            along = generalized_forces(c, self.state.q, self.state.u, None, self.t, self.system).astype(float)
        one = np.ones(6 * n)
        found, wrenches = forces(wanted, relation, acting, along, one)
        rng, margin = np.random.default_rng(0), abs(axes).T @ (EPSILON * abs(wrenches))
        for _ in range(3):
            signs = [1 + EPSILON * rng.choice((-1.0, 1.0), size) for size in (nu, 6 * n, 6 * n, nu, 6 * n)]
            parts = (wanted, relation, acting, along, one)
            other, _ = forces(*(part * sign for part, sign in zip(parts, signs, strict=True)))
            margin = np.maximum(margin, abs(other - found))
        return found, margin


def followed(system: System | Contents, q: Array, u: Array, t: float) -> tuple[Array, Array, Array, Array]:
    """Coordinates and speeds with those of joints that follow given motions; the accelerations of these [nu], 0 of
    others; and which speeds these are."""
    q, u = np.array(q), np.array(u)
    udot, held, (at_q, at_u) = np.zeros(len(u)), np.zeros(len(u), bool), contents_of(system).offsets()
    for k, rows in contents_of(system).columns().motions:
        own = slice(*at_u[k : k + 2])
        q[slice(*at_q[k : k + 2])], u[own], udot[own] = on_spline(rows, t)
        held[own] = True
    return q, u, udot, held


def on_spline(rows: object, t: float) -> tuple[Array, Array, Array]:
    """Coordinates, speeds and accelerations at a time of the cubic through rows of times and coordinates."""
    values = np.array(rows, float)
    spline = CubicSpline(values[:, 0], values[:, 1:])
    return spline(t), spline(t, 1), spline(t, 2)
