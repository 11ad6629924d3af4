"""A system as a Drake `MultibodyPlant` in continuous time."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
from pydrake.common.eigen_geometry import Quaternion
from pydrake.math import RigidTransform
from pydrake.multibody import tree
from pydrake.multibody.plant import MultibodyPlant

from laboratory.peer import (
    Floats,
    Peer,
    UnavailableError,
    check_model,
    check_need,
    plain_joint_forces,
    rotations,
    turned,
)
from mpimbs.model import JOINT_TYPES, Columns, System

# Of each type: the Drake joint from its name, the frames on parent and body, axis and pitch.
JOINTS: dict[str, Callable[..., Any]] = {
    "fixed": lambda name, frame, body, axis, pitch: tree.WeldJoint(name, frame, body, RigidTransform()),
    "revolute": lambda name, frame, body, axis, pitch: tree.RevoluteJoint(name, frame, body, axis),
    "prismatic": lambda name, frame, body, axis, pitch: tree.PrismaticJoint(name, frame, body, axis),
    # Drake's pitch is that of a whole turn.
    "helical": lambda name, frame, body, axis, pitch: tree.ScrewJoint(
        name, frame, body, axis, 2 * math.pi * pitch, damping=0.0
    ),
    "universal": lambda name, frame, body, axis, pitch: tree.UniversalJoint(name, frame, body),
    "spherical": lambda name, frame, body, axis, pitch: tree.BallRpyJoint(name, frame, body),
    "planar": lambda name, frame, body, axis, pitch: tree.PlanarJoint(name, frame, body),
    "free": lambda name, frame, body, axis, pitch: tree.QuaternionFloatingJoint(name, frame, body),
}
SPHERICAL = [kind.name for kind in JOINT_TYPES].index("spherical")


def build_plant(system: System, c: Columns) -> tuple[MultibodyPlant, list[Any]]:
    """Build the plant: bodies, joints, gravity; no loads. Also give the joint of each body."""
    plant = MultibodyPlant(time_step=0.0)
    plant.mutable_gravity_field().set_gravity_vector(np.asarray(system.gravity))
    bodies, joints = [], []
    for k in range(c.n):
        inertia = tree.RotationalInertia(*c.inertia[k])
        spatial = tree.SpatialInertia.MakeFromCentralInertia(c.mass[k], c.center_of_mass[k], inertia)
        bodies.append(plant.AddRigidBody(f"body{k}", spatial))
        parent = bodies[c.parent[k]] if c.parent[k] >= 0 else plant.world_body()
        frame = parent.body_frame()
        place = RigidTransform(Quaternion(c.rotation[k] / np.linalg.norm(c.rotation[k])), c.position[k])
        if not place.IsExactlyIdentity():
            frame = plant.AddFrame(tree.FixedOffsetFrame(f"frame{k}", frame, place))
        make = JOINTS[JOINT_TYPES[c.joint_type[k]].name]
        joint = make(f"joint{k}", frame, bodies[-1].body_frame(), c.axis[k], float(c.pitch[k]))
        joints.append(plant.AddJoint(joint))
    plant.Finalize()
    return plant, joints


class DrakeState:
    """The two ways between our coordinates and speeds and Drake's, at one state.

    Drake's joints stand in an order of its own. A spherical joint has space x-y-z angles in place of the quaternion,
    and the speeds of spherical and free joints are in the joint frame: with the rotation R they are R u, generalized
    forces R tau, and accelerations R udot, of a free joint's linear part R (udot + omega x v).
    """

    def __init__(self, c: Columns, joints: list[Any], q: Floats, u: Floats) -> None:
        n_q, n_u = np.diff(c.q_offset), np.diff(c.u_offset)
        at_q = np.array([joint.position_start() for joint in joints])
        at_u = np.array([joint.velocity_start() for joint in joints])
        self.u_index = np.repeat(at_u - c.u_offset[:-1], n_u) + np.arange(len(u))
        quaternion = turned(c)
        rotation = rotations(c, q)

        # Vectors of three among the speeds that R turns: angular ones, and linear ones of free joints.
        free = n_u[quaternion] == 6
        angular = c.u_offset[:-1][quaternion][:, None] + np.arange(3)
        self.linear = angular[free] + 3
        self.vectors = np.concatenate((angular, self.linear))
        self.matrices = np.concatenate((rotation.as_matrix(), rotation[free].as_matrix()))
        self.carried = np.cross(u[angular[free]], u[self.linear])

        # q: as ours, but for spherical joints.
        ball = c.joint_type == SPHERICAL
        same = np.repeat(~ball, n_q)
        self.q = np.zeros(int(np.where(ball, 3, n_q).sum()))
        self.q[(np.repeat(at_q - c.q_offset[:-1], n_q) + np.arange(len(q)))[same]] = q[same]
        if ball.any():
            self.q[at_q[ball][:, None] + np.arange(3)] = rotation[ball[quaternion]].as_euler("xyz")
        self.u = self.theirs(u)

    def theirs(self, ours: Floats) -> Floats:
        """Give our speeds or generalized forces [nu] as Drake's."""
        values = ours.copy()
        values[self.vectors] = np.einsum("kij,kj->ki", self.matrices, ours[self.vectors])
        placed = np.empty(len(ours))
        placed[self.u_index] = values
        return placed

    def accelerations(self, theirs: Floats) -> Floats:
        """Give Drake's accelerations as ours."""
        values = theirs[self.u_index]
        values[self.vectors] = np.einsum("kji,kj->ki", self.matrices, values[self.vectors])
        values[self.linear] -= self.carried
        return values


def memory_needed(n: int, nu: int) -> float:
    """Memory of a plant and its context (bytes).

    Both hold a cache of the system Jacobian, 6 n x nv doubles for each tree of bodies (`BlockSystemJacobianCache`),
    filled or not: 2 * 48 n nv bytes. What comes on top is measured, not derived. With the wheel of 1.51 the most while
    they are built, above the 100 MB of the program, is 1.83 GB at n = nv = 4096 and 7.20 GB at 8192; this formula gives
    1.85 and 7.38. It takes all bodies for one tree.
    """
    return 110.0 * n * nu


def _version() -> str:
    try:
        return metadata.version("drake")
    except metadata.PackageNotFoundError:  # not from a wheel: Drake doesn't tell
        return "unknown"


def drake_peer(system: System, q: Floats, u: Floats, tau: Floats | None = None, memory: float | None = None) -> Peer:
    """Build a system in Drake at a state; arguments as for `peers.PEERS`.

    What is timed is setting the state, q and v in Drake's order, and then the time derivatives of the plant, rates of
    the coordinates among them. Drake keeps what it has computed until its arguments change; to set the state, be it to
    the same numbers, makes all that depends on it out of date, as in each stage of an integrator, so that each call
    does all the work (`DisableCaching` would do more than that: shared parts would be computed again for each use).
    Copying the derivatives to numpy is not timed.

    Raises
    ------
    UnavailableError
    """
    columns = check_model(system, set(JOINTS), "Drake")
    if columns.armature.any():
        raise UnavailableError("not comparable: the rotors of joints are not handed to Drake")
    check_need(memory_needed(system.n_bodies, system.nu), "n^2", memory)
    plant, joints = build_plant(system, columns)
    context = plant.CreateDefaultContext()
    state = DrakeState(columns, joints, q, u)
    loads = state.theirs(plain_joint_forces(columns, q, u, tau))
    plant.get_applied_generalized_force_input_port().FixValue(context, loads)
    both = np.concatenate((state.q, state.u))

    def evaluate() -> Any:
        context.SetContinuousState(both)
        return plant.EvalTimeDerivatives(context)

    return Peer(
        version=_version(),
        ways={"EvalTimeDerivatives": evaluate},
        in_our_order=lambda rates: state.accelerations(rates.get_generalized_velocity().CopyToVector()),
    )
