"""The oracle of closed loops proven: against Pinocchio, closed forms, and differences of its own constraints."""

import numpy as np
import pinocchio as pin
import pytest

from mpimbs.model import Joint, System
from oracles import mechanisms
from oracles.dense import Array, dense_accelerations, joint_wrenches, kinematics, pushes
from oracles.loops import closed, opened, position_violation, quaternion_of
from oracles.pinocchio_oracle import PinocchioOracle
from oracles.random_loops import LOOP_TYPES, random_mechanism
from oracles.random_systems import random_system
from tolerances import error

MOVABLE = ("spherical", "free", "planar", "helical", "universal")


def by_pinocchio(system: System, q: Array, u: Array, tau: Array) -> tuple[Array, Array]:
    """Accelerations [nu], and forces [loops, 3] on the second body in its frame, of ball or fixed loops."""
    tree = PinocchioOracle(opened(system))
    model, data = tree.model, tree.model.createData()
    at, speeds = tree.q_of(q), tree.u_of(u)
    contacts = pin.StdVec_RigidConstraintModel()
    for loop in system.contents.loops:
        carried = []
        for name, place, turned in zip(loop.bodies, loop.positions, loop.rotations, strict=True):
            joint, placement = (
                tree.carriers[system.contents.index_of(name)] if name != "world" else (0, pin.SE3.Identity())
            )
            carried += [joint, placement * pin.SE3(pin.Quaternion(*turned).matrix(), np.array(place))]
        kind = {"spherical": pin.ContactType.CONTACT_3D, "fixed": pin.ContactType.CONTACT_6D}[loop.type]
        contacts.append(pin.RigidConstraintModel(kind, model, *carried, pin.ReferenceFrame.LOCAL))
    made = pin.StdVec_RigidConstraintData()
    made.extend([contact.createData() for contact in contacts])
    # forces that give the accelerations of the tree, wrenches and springs among them
    force = pin.rnea(model, data, at, speeds, tree.u_of(tree.accelerations(q, u, tau)))
    pin.initConstraintDynamics(model, data, contacts, made)
    settings = pin.ProximalSettings(1e-14, 1e-14, 0.0, 1)
    udot = pin.constraintDynamics(model, data, at, speeds, force, contacts, made, settings)
    forces = []
    for loop, contact, found in zip(system.contents.loops, contacts, made, strict=True):
        on_first = contact.joint1_placement.rotation @ found.contact_force.linear  # in the frame of its joint
        world = data.oMi[contact.joint1_id].rotation @ on_first
        body = system.contents.index_of(loop.bodies[1]) if loop.bodies[1] != "world" else None
        carrier, placement = tree.carriers[body] if body is not None else (0, pin.SE3.Identity())
        forces.append(-(data.oMi[carrier] * placement).rotation.T @ world)
    return udot[tree.u_index], np.array(forces)


@pytest.mark.parametrize("kind", ["spherical", "fixed"])
@pytest.mark.parametrize("seed", [0, 1, 4, 6])
def test_as_pinocchio(seed: int, kind: str) -> None:
    system, q, u, tau = random_mechanism(seed, 9, 2, MOVABLE, [kind], chain=True)
    ours = closed(system, q, u, tau)
    assert not ours.redundant  # where Pinocchio gives no loads of least norm
    udot, forces = by_pinocchio(system, q, u, tau)
    assert error(ours.udot, udot) < 1e-9
    assert error(ours.loads[:, 3:], forces) < 1e-9


@pytest.mark.parametrize("kind", LOOP_TYPES)
def test_what_acts_along_loops_does_so_as_along_joints(kind: str) -> None:
    """A joint of the tree, made a loop: its body hangs free, and what acted along the joint acts along the loop."""
    system, q, u, tau = random_system(5, 3, True, [kind], wrenches=True)  # angles within pi of rest
    poses, last = kinematics(system, q, u), system.contents.body(2)
    freed = System("freed", system.gravity)
    for k in range(2):
        freed.add(system.contents.body(k))
    freed.add(last, parent="world", joint=Joint(type="free"))
    names = ("stiffness", "cross_stiffness", "damping", "rest", "torque", "axis", "pitch")
    given = {name: getattr(last.joint, name) for name in names if name in last.joint.model_fields_set}
    position, rotation = last.joint.position, last.joint.rotation
    ends = {"positions": (position, (0, 0, 0)), "rotations": (rotation, (1, 0, 0, 0))}
    freed.add_loop(name="loop", type=kind, bodies=("b1", "b2"), **ends, **given)
    turned = poses.rotation[2]
    velocity = poses.com_velocity[2] - np.cross(poses.omega[2], turned @ last.center_of_mass)
    n_q, n_u = (int(offset[2]) for offset in system.contents.offsets())
    at = np.concatenate((q[:n_q], quaternion_of(turned.astype(float)), poses.origin[2]))
    speeds = np.concatenate((u[:n_u], turned.T @ poses.omega[2], turned.T @ velocity))
    tau[n_u:] = 0.0
    for d, force in pushes(system.contents.columns(0, 3), q, u):  # loops have no stops
        tau[d] -= force if d >= n_u else 0.0
    ours = closed(freed, at, speeds, np.concatenate((tau[:n_u], np.zeros(6))))
    expected = dense_accelerations(system, q, u, tau)
    assert error(ours.udot[:n_u], expected[:n_u]) < 1e-9
    load = joint_wrenches(system, q, u, tau, frame="body")[2]
    assert error(ours.loads[0], load) < 1e-9


@pytest.mark.parametrize("kind", ["revolute", "spherical"])
@pytest.mark.parametrize("as_chain", [False, True])
@pytest.mark.parametrize("n", [1, 3, 8])
def test_four_bar(n: int, as_chain: bool, kind: str) -> None:
    theta, omega = 1.0, -2.0
    system = mechanisms.four_bar(n, theta, omega, as_chain, kind)
    c = system.contents.columns()
    found = closed(system, c.q, c.u)
    assert position_violation(system, c.q).max() < 1e-15
    assert found.rank == 2 * n
    assert found.redundant == (3 * n if kind == "revolute" else n)
    cranks = [k for k in range(system.n_bodies) if system.contents.name_of(k).startswith("crank")]
    parent = system.contents.parents()
    turned = np.zeros(system.n_bodies)  # of bodies in the plane
    for k in range(system.n_bodies):
        turned[k] = found.udot[k] + (turned[parent[k]] if parent[k] >= 0 else 0.0)
    expected = np.zeros(system.n_bodies)
    expected[cranks] = mechanisms.four_bar_acceleration(n, theta)
    assert error(turned, expected) < 1e-12
    if not as_chain:
        c, s = np.cos(theta), np.sin(theta)
        on_cranks = found.loads[:, 3:5] @ np.array([[c, s], [-s, c]])
        assert error(-on_cranks, mechanisms.four_bar_forces(n, theta, omega)) < 1e-12
        assert np.abs(found.loads[:, [0, 1, 2, 5]]).max() < 1e-12
