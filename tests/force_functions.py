"""Force functions and springs that tests share, and the loads that functions stand for, by the oracle's kinematics."""

from typing import Any

import numba
import numpy as np

from mpimbs.model import BodyMotion, System
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import State

HALF = np.array([0.3, -0.2, 0.5])  # m, body frame


def current(t: float, motion: BodyMotion) -> tuple[Array, Array]:
    """Drag in a current that grows with time and height, a moment against turning, and a load along a body's own axis;
    of one body or of many."""
    relative = motion.velocity - np.array([t, 0.0, 0.5]) * (1.0 + motion.position[..., 1:2])
    speed = np.sqrt(np.sum(relative**2, axis=-1, keepdims=True))
    along = motion.rotation[..., 0] * (1.0 + np.asarray(motion.body)[..., None] % 3)
    return -0.4 * motion.angular_velocity + 0.2 * along, -0.3 * speed * relative + along


def pull(t: float, motion: BodyMotion) -> tuple[float, Array]:
    """A spring to a point of the world, as a plain function with `if` and a number for no moment."""
    stretch = motion.position - np.array([1.0, t, -1.0])
    return 0.0, -3.0 * stretch if motion.body % 2 else -1.0 * stretch


def motor(t: float, q: Array, u: Array) -> Array:
    """A PD controller towards sin t, whose gain is that of the coordinate; of one joint or of many."""
    return -2.0 * (q[..., : u.shape[-1]] - np.sin(t)) - 0.7 * u


def wave(t: float) -> tuple[float, float, float]:
    """A motion of a joint, 0.3 rad sin 4 t."""
    return 0.3 * np.sin(4 * t), 1.2 * np.cos(4 * t), -4.8 * np.sin(4 * t)


def loaded(system: System) -> tuple[list[int], list[int]]:
    """Let the functions act on a system; gives the bodies of `pull`, and those of `motor`."""
    pulled = list(range(1, system.n_bodies, 3))
    movable = [k for k in range(system.n_bodies) if system.contents.body(k).joint.kind.nu]
    kind = system.contents.body(movable[-1]).joint.type
    alike = [k for k in movable if system.contents.body(k).joint.type == kind]
    others = [k for k in movable[::2] if k not in alike]
    system.add_body_force(None, current, point="center_of_mass", vectorized=True)
    system.add_body_force([system.contents.name_of(k) for k in pulled[::-1]], pull, point=HALF)
    system.add_joint_force([system.contents.name_of(k) for k in alike], motor, vectorized=True)
    if others:
        system.add_joint_force([system.contents.name_of(k) for k in others], motor)
    return pulled, alike + others


def as_constants(system: System, pulled: list[int], driven: list[int], state: State, t: float) -> State:
    """Give a system that has no functions the loads of `loaded` at one time and state, as wrenches and `tau`.

    Nothing is used of what tells the functions motions and brings their loads to bodies: kinematics are the oracle's.
    """
    q, u, tau = state
    c, motion = system.contents.columns(), dense.kinematics(system, q, u)
    for k in range(system.n_bodies):
        rotation, omega = motion.rotation[k], motion.omega[k]
        told = BodyMotion(np.int64(k), rotation, motion.com[k], omega, motion.com_velocity[k])
        moment, force = current(t, told)
        system.add_wrench(
            system.contents.name_of(k), moment=moment, force=force, point=c.center_of_mass[k], frame="world"
        )
        if k in pulled:
            position = motion.origin[k] + rotation @ HALF
            velocity = motion.com_velocity[k] + np.cross(omega, position - motion.com[k])
            moment, force = pull(t, BodyMotion(np.int64(k), rotation, position, omega, velocity))
            system.add_wrench(system.contents.name_of(k), force=force, point=HALF, frame="world")
    total = tau.copy()
    for k in driven:
        mine, ours = slice(*c.q_offset[k : k + 2]), slice(*c.u_offset[k : k + 2])
        total[ours] += motor(t, q[mine], u[ours])
    return q, u, total


@numba.njit
def compiled_drag(t, motion):
    factor = -0.3 * (1.0 + t * motion.body)
    w, v, r = motion.angular_velocity, motion.velocity, motion.rotation
    force = (factor * v[0] + r[0, 1], factor * v[1] + r[1, 1], factor * v[2] + r[2, 1])
    return (factor * w[0], factor * w[1], factor * w[2]), force


@numba.njit
def compiled_drag_of_all(t, motion):
    moment, force = np.empty_like(motion.velocity), np.empty_like(motion.velocity)
    for k in range(len(motion.body)):
        factor = -0.3 * (1.0 + t * motion.body[k])
        for i in range(3):
            moment[k, i] = factor * motion.angular_velocity[k, i]
            force[k, i] = factor * motion.velocity[k, i] + motion.rotation[k, i, 1]
    return moment, force


@numba.njit
def compiled_damper(t, q, u):
    out = np.empty(len(u))
    for i in range(len(u)):
        out[i] = -0.7 * u[i] + t * q[i]
    return out


@numba.njit
def muscle(length, speed):
    return 1.5 * np.exp(-0.1 * length) * (1.0 - 0.2 * speed)


LAWS: tuple[dict[str, Any], ...] = (
    {"stiffness": 3.0, "damping": 0.7, "rest": 0.8},
    {"stiffness": 2.0, "damping": 0.5, "rest": 0.3, "tension_only": True},
    {"stiffness": 2.0, "damping": 0.5, "rest": 50.0, "tension_only": True},
    {"stiffness": 0.5, "damping": 60.0, "rest": 0.2, "tension_only": True},
    {"damping": 0.9},
    {"stiffness": 4.0, "rest": 30.0},
)


def sprung(system: System, laws: tuple[dict[str, Any], ...], count: int, seed: int = 0, world: bool = True) -> System:
    """Add springs between all sorts of bodies of a system, near and far, and of the world."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        a, b = rng.choice(system.n_bodies, 2, replace=False)
        ends = [system.contents.name_of(int(a)), system.contents.name_of(int(b))]
        if world and k % 5 == 4:
            ends[k % 2] = "world"
        system.add_spring(name=f"s{k}", bodies=ends, positions=rng.uniform(-1, 1, (2, 3)), **laws[k % len(laws)])
    return system


def two_points(**law: Any) -> tuple[System, Array]:
    """A body of 2 kg on a slide along x, tied to the world's origin."""
    system = System(gravity=(0, 0, 0))
    joint = {"type": "prismatic", "axis": (1, 0, 0)}
    system.add(name="bead", parent="world", mass=2.0, inertia=(1, 1, 1, 0, 0, 0), joint=joint)
    system.add_spring(name="tie", bodies=("world", "bead"), positions=((0, 0, 0), (0, 0, 0)), **law)
    return system, np.array([[x, v] for x in (0.5, 1.0, 1.5, -1.5) for v in (-8.0, -0.1, 0.0, 0.1, 8.0)])
