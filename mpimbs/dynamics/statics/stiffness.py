"""The stiffness of a system at rest: how generalized forces change along displacements, exactly, from what acts.

With S_i the motion subspace of a speed and W_i all that acts on the bodies beyond it, both about one point of the
world, the generalized force is Q_i = S_i . W_i. A displacement along j, which comes before i, turns S_i as a rigid
body; so with V_k the displacement of body k as a twist, and dW_k what that changes of the loads on it,

    - K_ij = dQ_i / dq_j = (S_j x S_i) . W_i  [j before i]  +  S_i . sum of dW_k over the bodies k beyond i

[Featherstone 2008, chapter 5, for the motions; the loads' part is theirs by the same rule]. Weight, wrenches, springs
and the loads of loops differ in dW alone, a matrix of one body or of two. Turns of a ball, which act at once, count
half before each other: K is symmetric where forces balance that have an energy.

Functions of the user are differentiated by differences, with an estimate of the error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.linalg import splu
from scipy.spatial.transform import Rotation

from mpimbs.base.arrays import Floats, Integers, cross_matrix
from mpimbs.closure.geometry import FORCE, LoopJoints, body_motions
from mpimbs.closure.jacobian import axes_of_speeds, steps_of_speeds
from mpimbs.dynamics.statics.changes import ball_stiffness, moved_about, of_ball, of_force, velocity, wrench_of
from mpimbs.forces.acting import ActingBodyForce, ActingJointForce
from mpimbs.forces.calls import called, checked_values, servos_of_time, shaped, torques_over_time
from mpimbs.forces.tendons import tendons_alone
from mpimbs.model import JOINT_TYPES, Loop
from mpimbs.model.columns import numbers_of
from mpimbs.model.contents import Contents
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.along_joints import Bounded, Stops, resist_along
from mpimbs.sweep.structure import PLACE

COLUMNS = 256  # displacements at a time
SLACK = 1e-9  # of its length, a rope is nearer to its rest
STEP = 2e-3  # rad, and of lengths, of differences of functions of the user's


class Differentiated(NamedTuple):
    """The error of derivatives by differences: how far they may be wrong, of the largest, and of which function."""

    error: float = 0.0
    function: str = ""


class Stiffness:
    """The stiffness of a whole system in a state at rest, as an operator on displacements; on one process.

    Parameters
    ----------
    q : array [nq]
        In the model's order, loops closed.
    loop_loads : array [loops, 6], optional
        What loops carry there, as `ClosedLoops.loads`.
    size : float
        Of the system (m): steps of differences are a small part of it.

    Raises
    ------
    SimulationError
        A function of the model failed.
    """

    def __init__(self, system: Contents, q: Floats, loop_loads: Floats | None = None, size: float = 1.0) -> None:
        self._system, self._q, self._size = system, q, size
        self._part = part = Subchain(system)
        bodies = body_motions(part, q, np.zeros(system.nu))
        self._about = bodies.origin.mean(
            axis=0
        )  # the point of twists and moments: among the bodies, wherever these are
        self._rotation, self._origin, self._bodies = bodies.rotation, bodies.origin - self._about, bodies
        columns, n = part.columns, part.n_bodies
        self._parent = columns.parent
        self._body = np.repeat(np.arange(n), np.diff(columns.u_offset))
        inner = np.flatnonzero(self._parent >= 0)
        tree = csc_array((np.ones(len(inner)), (inner, self._parent[inner])), shape=(n, n))
        self._tree: Any = splu(csc_array(eye_array(n) - tree), permc_spec="NATURAL", diag_pivot_thresh=0.0)
        at_once = np.ones(system.nu), (self._body, np.arange(system.nu))
        self._of_body = csr_array(at_once, shape=(n, system.nu))
        self._twists, self._before = self._subspace()

        self._loads = np.zeros((n + 1, 6))
        self._ends: list[tuple[int, int]] = []
        self._changes: list[Floats] = []
        # springs of tension alone that are at their rest length, where stiffness differs by side
        self.slack: list[str] = []
        self.doubt = Differentiated()  # the least certain of the functions
        self._weight = columns.mass[:, None] * np.asarray(system.gravity)
        self._centers = self._points(np.arange(n), columns.center_of_mass)
        self._loads[:-1] += wrench_of(self._centers, self._weight)
        self._joints, driving = self._along_joints()
        self._add_wrenches()
        self._add_springs()
        self._add_functions()
        if loop_loads is not None:
            self._add_loops(loop_loads)
        ends, m = np.array(self._ends, np.int64).reshape(-1), len(self._ends)
        self._acting = np.array(self._changes).reshape(m, 12, 12)
        self._pairs = ends
        self._on = csr_array((np.ones(2 * m), (ends % (n + 1), np.arange(2 * m))), shape=(n + 1, 2 * m))

        beyond = self._beyond(self._loads[:-1])[self._body]
        w, v = self._twists[:, :3], self._twists[:, 3:]
        turned = np.cross(w, beyond[:, :3]) + np.cross(v, beyond[:, 3:])
        self._turning = np.hstack((turned, np.cross(w, beyond[:, 3:])))
        # [nu]: generalized forces of all that acts, loads of loops too (N m, N)
        self.forces: Floats = driving + np.einsum("ni,ni->n", self._twists, beyond)

    def __matmul__(self, z: Floats) -> Floats:
        """Give K z of displacements along the speeds [nu] or [nu, any] (rad, m)."""
        if z.ndim == 1:
            return self._product(z[:, None])[:, 0]
        parts = [self._product(z[:, k : k + COLUMNS]) for k in range(0, z.shape[1], COLUMNS)]
        return np.concatenate(parts, axis=1) if parts else np.zeros_like(z)

    def _product(self, z: Floats) -> Floats:
        n, count = self._part.n_bodies, z.shape[1]

        def spread(matrix: Any, values: Floats) -> Floats:
            found: Floats = matrix @ values.reshape(len(values), -1)
            return found.reshape(len(found), 6, count)

        along = self._twists[:, :, None] * z[:, None]
        moved = np.zeros((n + 1, 6, count))
        moved[:-1] = self._tree.solve(spread(self._of_body, along).reshape(n, -1)).reshape(n, 6, count)
        before = moved[self._parent[self._body]] + spread(self._before, along)
        at = moved[:-1, 3:] + np.cross(moved[:-1, :3], self._centers[:, :, None], axis=1)
        changes = np.zeros_like(moved)
        changes[:-1, :3] = np.cross(at, self._weight[:, :, None], axis=1)
        if len(self._acting):
            changed = self._acting @ moved[self._pairs].reshape(-1, 12, count)
            changes += spread(self._on, changed.reshape(-1, 6, count))
        beyond = self._beyond(changes[:-1].reshape(n, -1)).reshape(n, 6, count)[self._body]
        found = np.einsum("ni,nic->nc", self._twists, beyond) + np.einsum("ni,nic->nc", self._turning, before)
        return np.asarray(self._joints @ z - found)

    def _beyond(self, values: Floats) -> Floats:
        """Sums [n, any] over all bodies that hang on each, and itself."""
        found: Floats = self._tree.solve(values, "T")
        return found

    def _points(self, bodies: Integers, points: Floats) -> Floats:
        """Where points of bodies are [n, 3] (m), from the point that twists are about."""
        found: Floats = self._origin[bodies] + np.einsum("nij,nj->ni", self._rotation[bodies], points)
        return found

    def _subspace(self) -> tuple[Floats, csr_array]:
        """The motion subspace of each speed [nu, 6], world components; and which speeds of a joint come before others
        of it [nu, nu], those that act at once by half."""
        structure, nu = self._part.structure, self._system.nu
        rows = self._bodies.steps[steps_of_speeds(structure)]
        w, v = axes_of_speeds(structure, rows)
        at = rows[:, 9:PLACE] - self._about
        twists = np.hstack((w, v + np.cross(at, w)))
        pairs: list[tuple[int, int, float]] = []
        offset = self._part.columns.u_offset
        kinds = self._part.columns.joint_type
        several = np.flatnonzero(np.diff(offset) > 1)
        orders = {int(k): _orders(int(k)) for k in np.unique(kinds[several])}
        for body in several.tolist():
            first = int(offset[body])
            pairs += [(first + later, first + sooner, share) for later, sooner, share in orders[int(kinds[body])]]
        row, column, value = zip(*pairs, strict=True) if pairs else ((), (), ())
        return twists, csr_array((np.array(value, float), (row, column)), shape=(nu, nu))

    # --- what acts

    def _act(self, first: int, second: int, change: Floats) -> None:
        """Have loads on two bodies, -1 the world, change by their twists [12, 12]."""
        self._ends.append((first, second))
        self._changes.append(change)

    def _along_joints(self) -> tuple[csr_array, Floats]:
        """Stiffness of the springs of joints [nu, nu], and what acts along joints at rest [nu]."""
        part, columns, nu = self._part, self._part.columns, self._system.nu
        offset, q_offset = columns.u_offset, columns.q_offset
        forces, stiff = columns.torque.copy(), columns.stiffness
        torques, driven = torques_over_time(part)
        forces[driven] += torques.at(0.0)
        given, changes = np.zeros(nu), []
        for joint_force in self._system.loads.joint_forces:
            if acting := ActingJointForce(joint_force, part):
                changes.append(self._of_joint_force(acting, joint_force.name))
                acting.add(0.0, self._q, np.zeros(nu), given)
        forces += given
        changes += self._of_tendons(forces)
        balls = np.array([kind.quaternion for kind in JOINT_TYPES])[columns.joint_type]
        plain = np.flatnonzero(~balls)
        speed, coordinate = numbers_of(offset, plain)[0], numbers_of(q_offset, plain)[0]
        forces[speed] -= stiff[speed] * (self._q[coordinate] - columns.rest[coordinate])
        rows, columns_, values = [speed], [speed], [stiff[speed]]
        stops, bounded, still = Stops.of(columns), Bounded.of(columns), np.zeros(nu)
        forces[stops.speeds] += stops.forces(self._q, still)
        servos, at = servos_of_time(part, bounded)
        bounded.torque[at] = servos.at(0.0)
        np.add.at(forces, bounded.speeds, bounded.forces(self._q, still))
        if columns.stopped or columns.bounded:
            along = np.zeros(nu)
            resist_along(stops, bounded, self._q, still, along, np.zeros(nu))
            held = np.flatnonzero(along)
            rows, columns_, values = [*rows, held], [*columns_, held], [*values, along[held]]
        for body in np.flatnonzero(balls).tolist():  # what drives them is given along axes that turn with the body
            i, j = np.indices((3, 3)).reshape(2, -1) + offset[body]
            for first, share in zip(range(offset[body], offset[body + 1], 3), (0.5, 1.0), strict=False):
                rows, columns_ = [*rows, i + first - offset[body]], [*columns_, j]
                values = [*values, share * cross_matrix(forces[first : first + 3]).ravel()]
        for body in np.flatnonzero(balls & (self._of_body @ stiff > 0.0)).tolist():
            first, item = int(offset[body]), int(q_offset[body])
            rest, here = (Rotation.from_quat(x[item : item + 4], scalar_first=True) for x in (columns.rest, self._q))
            matrix = ball_stiffness(stiff[first : first + 3], columns.cross_stiffness[first : first + 3])
            moment, change = of_ball((rest.inv() * here).as_rotvec(), matrix)
            forces[first : first + 3] -= moment
            blocks = [(first, 0.5 * (change + change.T))]
            if offset[body + 1] - first == 6:
                r = here.as_matrix()
                sprung = stiff[first + 3 : first + 6]
                shift = self._q[item + 4 : item + 7] - columns.rest[item + 4 : item + 7]
                forces[first + 3 : first + 6] -= r.T @ (sprung * shift)
                blocks.append((first + 3, r.T @ (sprung[:, None] * r)))
            for begin, block in blocks:
                i, j = np.indices((3, 3)).reshape(2, -1) + begin
                rows, columns_, values = [*rows, i], [*columns_, j], [*values, block.ravel()]
        entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns_))
        return sum(changes, csr_array(entries, shape=(nu, nu))), forces

    def _of_tendons(self, forces: Floats) -> list[csr_array]:
        """Add what tendons do at rest to forces [nu], and give their stiffness."""
        if not self._system.loads.tendons:
            return []
        tendons = tendons_alone(self._part)
        tendons.find(self._q, np.zeros_like(forces))
        tendons.add(0.0, forces)
        held = tendons.resistance()[0]
        over = tendons.arrays
        along = csr_array((over.ratios, (over.of, over.speeds)), shape=(len(held), len(forces)))
        return [csr_array(along.T @ along.multiply(held[:, None]))]

    def _of_joint_force(self, acting: ActingJointForce, name: str) -> csr_array:
        """Stiffness by differences, of one speed of all joints at a time."""
        nu, offset = self._system.nu, self._part.columns.u_offset
        still, structure = np.zeros(nu), self._part.structure
        units = np.where(structure.axes < FORCE, 1.0, self._size)
        number = np.arange(nu) - offset[self._body]
        rows: list[Integers] = []
        columns: list[Integers] = []
        values: list[Floats] = []

        def force(steps: float, which: Floats) -> Floats:
            found = np.zeros(nu)
            acting.add(0.0, self._part.displaced(self._q, steps * STEP * which), still, found)
            return found

        for k in range(int(number.max(initial=-1)) + 1):
            which = np.where(number == k, units, 0.0)
            change = self._differences(lambda steps, which=which: force(steps, which), name) / STEP
            here = np.flatnonzero(change)
            speed = offset[self._body[here]] + k
            rows, columns, values = [*rows, here], [*columns, speed], [*values, -change[here] / units[speed]]
        if not rows:
            return csr_array((nu, nu))
        return csr_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(nu, nu))

    def _differences(self, of: Any, name: str) -> Floats:
        """Derivative of a function by steps, of order four; beside half the step the error is seen."""
        half, one, two = ((of(k) - of(-k)) / (2 * k) for k in (0.5, 1.0, 2.0))
        found = (4.0 * half - one) / 3.0
        coarse = (4.0 * one - two) / 3.0
        largest = float(np.abs(found).max(initial=0.0))
        error = float(np.abs(found - coarse).max(initial=0.0)) / largest if largest > 0.0 else 0.0
        if error > self.doubt.error:
            self.doubt = Differentiated(error, name)
        return np.asarray(found)

    def _add_wrenches(self) -> None:
        for body, wrench in self._part.columns.wrenches:
            title = f"the wrench function of body '{self._part.name_of(body)}'"
            moment, force = (checked_values(title, 0.0, given, 3, False) for given in (wrench.moment, wrench.force))
            at = self._points(np.array([body]), np.array([wrench.point]))[0]
            if wrench.frame == "body":
                moment, force = self._rotation[body] @ moment, self._rotation[body] @ force
            self._loads[body, :3] += moment
            self._loads[body] += wrench_of(at, force)
            change = of_force(at, force)
            if wrench.frame == "body":  # the components turn
                turned = np.vstack((-cross_matrix(moment), -cross_matrix(force)))
                change[:, :3] += moved_about(at, turned)
            self._act(body, -1, np.pad(change, (0, 6)))

    def _add_springs(self) -> None:
        springs = list(self._system.springs.values())
        for spring, (first, second) in zip(springs, self._system.springs.ends.tolist(), strict=True):
            p = self._points(np.array([first, second]), np.asarray(spring.positions))
            across = p[1] - p[0]
            length = float(np.linalg.norm(across))
            direction = across / length if length > 0.0 else np.zeros(3)
            tension, stiffness = self._law(spring, length)
            self._loads[first] += wrench_of(p[0], tension * direction)
            self._loads[second] -= wrench_of(p[1], tension * direction)
            along = np.outer(direction, direction)
            drawn = stiffness * along
            if length > 0.0:
                drawn += tension / length * (np.eye(3) - along)
            elif not spring.has_force_at_zero:
                drawn = stiffness * np.eye(3)
            change, apart = np.zeros((12, 12)), np.hstack((-velocity(p[0]), velocity(p[1])))
            change[:6] = moved_about(p[0], np.vstack((np.zeros((3, 12)), drawn @ apart)))
            change[6:] = -moved_about(p[1], np.vstack((np.zeros((3, 12)), drawn @ apart)))
            change[:6, :6] += of_force(p[0], tension * direction)
            change[6:, 6:] -= of_force(p[1], tension * direction)
            self._act(first, second, change)

    def _law(self, spring: Any, length: float) -> tuple[float, float]:
        """Tension (N) and stiffness (N/m) of a spring."""
        if spring.force is not None:
            title = f"the spring '{spring.name}'"

            def tension(steps: float) -> Floats:
                given = called(lambda: title, 0.0, spring.force, length * (1.0 + STEP * steps), 0.0, of_time=False)
                return shaped(lambda: title, 0.0, given, ())

            return float(tension(0.0)), float(self._differences(tension, title)) / (STEP * length or 1.0)
        stretched = length - (spring.rest or 0.0)
        if spring.tension_only and abs(stretched) <= SLACK * length:
            self.slack.append(spring.name)
        if spring.tension_only and stretched <= 0.0:
            return 0.0, 0.0
        return spring.stiffness * stretched, spring.stiffness

    def _add_functions(self) -> None:
        """Body forces, by differences: of each body's own motion alone."""
        part, n = self._part, self._part.n_bodies
        if not self._system.loads.body_forces:
            return
        steps = part.made.body_step
        motion = self._bodies.steps
        place = motion[steps, 9:PLACE] - self._about
        for body_force in self._system.loads.body_forces:
            acting = ActingBodyForce(body_force, part)
            if not acting:
                continue

            def wrench(moved: Floats, acting: ActingBodyForce = acting) -> Floats:
                """Moment about, and force at, where the step was, world components [n, 6]."""
                found = np.zeros((len(moved), 6))
                acting.add(0.0, moved.reshape(-1), found.reshape(-1))
                turned = moved[steps, :9].reshape(-1, 3, 3)
                own = np.einsum("nji,npj->npi", turned, found[steps].reshape(-1, 2, 3))
                away = moved[steps, 9:PLACE] - motion[steps, 9:PLACE]
                own[:, 0] += np.cross(away, own[:, 1])
                return own.reshape(-1, 6)

            def displaced(steps_: float, axis: int, wrench: Any = wrench) -> Floats:
                moved, unit = motion.copy(), np.eye(3)[axis % 3]
                if axis < FORCE:
                    moved[:, :9] = (
                        motion[:, :9].reshape(-1, 3, 3) @ Rotation.from_rotvec(-steps_ * STEP * unit).as_matrix()
                    ).reshape(-1, 9)
                else:
                    moved[:, 9:PLACE] += steps_ * STEP * self._size * unit
                return wrench(moved)

            here = wrench(motion)
            changes = np.zeros((n, 6, 6))
            for axis in range(6):
                unit = STEP * (1.0 if axis < FORCE else self._size)
                changes[:, :, axis] = self._differences(lambda k, axis=axis: displaced(k, axis), body_force.name) / unit
            for body in body_force.on(0, n).tolist():
                at = place[body]
                self._loads[body, :3] += here[body, :3]
                self._loads[body] += wrench_of(at, here[body, 3:])
                twist = np.vstack((np.eye(3, 6), velocity(at)))
                self._act(body, -1, np.pad(moved_about(at, changes[body] @ twist), (0, 6)))

    def _add_loops(self, loads: Floats) -> None:
        """Add the loads of loops, and of springs along their joints, which stand still in the frame of `LoopFrames`."""
        joints = LoopJoints(self._system)
        here = joints.frames(self._bodies)
        for k, (first, second) in enumerate(self._system.loops.ends.tolist()):
            if k in joints.gears.loop:  # along joints alone, and constant
                continue
            at = here.origin[k] - self._about
            moment, force = (self._rotation[second] @ part for part in (loads[k, :3], loads[k, 3:]))
            load = wrench_of(at, force)
            load[:3] += moment
            self._loads[second] += load
            self._loads[first] -= load
            apart = np.hstack((-np.eye(6), np.eye(6)))  # of twists
            turning = np.hstack((np.eye(3, 6), np.zeros((3, 6)))) + here.turning[k] @ apart[:3]
            sliding = velocity(at) @ apart
            changed = np.vstack((-cross_matrix(moment) @ turning, -cross_matrix(force) @ turning))
            angular, linear = self._sprung(joints, here, k)
            changed[:3] -= angular @ apart[:3]
            changed[3:] -= linear @ sliding
            change = moved_about(at, changed)
            change[:3, 6:] += -cross_matrix(force) @ velocity(at)  # its point moves with the second body
            self._act(first, second, np.vstack((-change, change)))

    def _sprung(self, joints: LoopJoints, here: Any, k: int) -> tuple[Floats, Floats]:
        """Stiffness of a loop joint's springs against turns and shifts [3, 3], world components."""
        loop, angular, linear = self._system.loops[k], np.zeros((3, 3)), np.zeros((3, 3))
        if not isinstance(loop, Loop) or not any(loop.stiffness):
            return angular, linear
        given, frame = loop.stiffness, here.frame[k]
        if loop.kind.quaternion:
            rest = Rotation.from_quat(loop.rest, scalar_first=True)
            turned = (rest.inv() * Rotation.from_matrix(here.first[k].T @ frame)).as_rotvec()
            _, own = of_ball(turned, ball_stiffness(given, loop.cross_stiffness))
            return frame @ own @ frame.T, linear
        for axis, value in zip(joints.freedoms(k), given, strict=True):
            (angular if axis < FORCE else linear)[:] += value * np.outer(frame[:, axis % 3], frame[:, axis % 3])
        return angular, linear


def _orders(kind: int) -> list[tuple[int, int, float]]:
    """Give the order of the speeds of a type of joint: which come before which, and by half those that act at once."""
    steps = [(k, axis < FORCE) for k, step in enumerate(JOINT_TYPES[kind].steps) for axis in step.axes]
    found = []
    for later, (step, turns) in enumerate(steps):
        for sooner, (step_before, turns_before) in enumerate(steps):
            if later == sooner:
                continue
            if step_before < step or (step_before == step and turns and not turns_before):
                found.append((later, sooner, 1.0))
            elif step_before == step and turns == turns_before:
                found.append((later, sooner, 0.5))
    return found
