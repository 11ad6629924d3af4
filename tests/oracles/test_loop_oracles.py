"""The oracle of closed loops proven: against Pinocchio, closed forms, and differences of its own constraints."""

import numpy as np
import pinocchio as pin
import pytest

from mpimbs.model import Joint, System
from oracles import mechanisms
from oracles.dense import Array, Snapshot, coordinate_rates, dense_accelerations, joint_wrenches, kinematics
from oracles.loops import closed, closures, opened, position_violation, quaternion_of
from oracles.pinocchio_oracle import PinocchioOracle
from oracles.random_loops import LOOP_TYPES, planar_mechanism, random_mechanism
from oracles.random_systems import random_system
from tolerances import error

MOVABLE = ("spherical", "free", "planar", "helical", "universal")


def by_pinocchio(system: System, q: Array, u: Array, tau: Array) -> tuple[Array, Array]:
    """Accelerations [nu], and forces [loops, 3] on the second body in its frame, of ball or fixed loops."""
    tree = PinocchioOracle(opened(system))
    model, data = tree.model, tree.model.createData()
    at, speeds = tree.q_of(q), tree.u_of(u)
    contacts = pin.StdVec_RigidConstraintModel()
    for loop in system.loops:
        carried = []
        for name, place, turned in zip(loop.bodies, loop.positions, loop.rotations, strict=True):
            joint, placement = tree.carriers[system.index_of(name)] if name != "world" else (0, pin.SE3.Identity())
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
    for loop, contact, found in zip(system.loops, contacts, made, strict=True):
        on_first = contact.joint1_placement.rotation @ found.contact_force.linear  # in the frame of its joint
        world = data.oMi[contact.joint1_id].rotation @ on_first
        body = system.index_of(loop.bodies[1]) if loop.bodies[1] != "world" else None
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


def moved(system: System, q: Array, u: Array, udot: Array, time: float) -> Array:
    """Coordinates after a while with constant accelerations, by the rule of Runge and Kutta."""
    tree, h = opened(system), time / 10
    for k in range(10):
        begin, middle, end = (u + (k + part) * h * udot for part in (0.0, 0.5, 1.0))
        first = coordinate_rates(tree, q, begin)
        second = coordinate_rates(tree, q + h / 2 * first, middle)
        third = coordinate_rates(tree, q + h / 2 * second, middle)
        fourth = coordinate_rates(tree, q + h * third, end)
        q = q + h / 6 * (first + 2 * second + 2 * third + fourth)
    return q


@pytest.mark.parametrize("kind", LOOP_TYPES)
def test_accelerations_keep_loops_closed(kind: str) -> None:
    """With these speeds and accelerations, and no jerk, loops open with the third power of time."""
    system, q, u, tau = random_mechanism(2, 8, 2, MOVABLE, [kind], chain=True)
    found = closed(system, q, u, tau)
    assert 0 < found.rank < system.nu
    assert np.linalg.norm(u) > 0.5
    times = 0.02 / np.sqrt(np.abs(found.udot).max()) * np.array((1.0, 0.5))
    early, late = (position_violation(system, moved(system, q, u, found.udot, t)).max() for t in times[::-1])
    assert 1e-8 < late < 1e-2
    assert 7 * early < late


@pytest.mark.parametrize("seed", range(6))
def test_random_mechanisms_are_closed(seed: int) -> None:
    """Also redundant ones, where the rank is clear."""
    for system, q, u, tau in (random_mechanism(seed, 20, 4, doubled=2), planar_mechanism(seed, 12, 3)):
        found = closed(system, q, u, tau)
        assert position_violation(system, q).max() < 1e-13
        assert np.abs(found.jacobian @ u).max() < 1e-13
        assert found.residual < 1e-13 * np.abs(found.udot).max()
        assert found.gap < 1e-9
        assert found.redundant > 0
        null = np.linalg.svd(found.jacobian.T)[2][found.rank :]
        assert len(null) == found.redundant


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("driven", [False, True])
def test_loads_do_the_rest(seed: int, driven: bool) -> None:
    """The tree alone, with the loads of its loops as generalized forces, has the same accelerations."""
    system, q, u, tau = random_mechanism(seed, 15, 3, doubled=1, driven=driven)
    found = closed(system, q, u, tau)
    state = Snapshot(opened(system), q, u)
    pushed = np.zeros(system.nu)
    for loop, load in zip(closures(system, state), found.loads, strict=True):
        first, second = loop.bodies
        world = (second.rotation @ load.reshape(2, 3).T).T.ravel()
        pushed += ((second.velocities(loop.origin) - first.velocities(loop.origin)).T @ world).astype(float)
    assert error(dense_accelerations(opened(system), q, u, tau + pushed), found.udot) < 1e-10


@pytest.mark.parametrize("kind", LOOP_TYPES)
def test_what_acts_along_loops_does_so_as_along_joints(kind: str) -> None:
    """A joint of the tree, made a loop: its body hangs free, and what acted along the joint acts along the loop."""
    system, q, u, tau = random_system(5, 3, True, [kind], wrenches=True)  # angles within pi of rest
    poses, last = kinematics(system, q, u), system.body(2)
    freed = System("freed", system.gravity)
    for k in range(2):
        freed.add(system.body(k))
    freed.add(last, parent="world", joint=Joint(type="free"))
    names = ("stiffness", "cross_stiffness", "damping", "rest", "torque", "axis", "pitch")
    given = {name: getattr(last.joint, name) for name in names if name in last.joint.model_fields_set}
    position, rotation = last.joint.position, last.joint.rotation
    ends = {"positions": (position, (0, 0, 0)), "rotations": (rotation, (1, 0, 0, 0))}
    freed.add_loop(name="loop", type=kind, bodies=("b1", "b2"), **ends, **given)
    turned = poses.rotation[2]
    velocity = poses.com_velocity[2] - np.cross(poses.omega[2], turned @ last.center_of_mass)
    n_q, n_u = (int(offset[2]) for offset in system.offsets())
    at = np.concatenate((q[:n_q], quaternion_of(turned.astype(float)), poses.origin[2]))
    speeds = np.concatenate((u[:n_u], turned.T @ poses.omega[2], turned.T @ velocity))
    tau[n_u:] = 0.0
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
    c = system.columns()
    found = closed(system, c.q, c.u)
    assert position_violation(system, c.q).max() < 1e-15
    assert found.rank == 2 * n
    assert found.redundant == (3 * n if kind == "revolute" else n)
    cranks = [k for k in range(system.n_bodies) if system.name_of(k).startswith("crank")]
    parent = system.parents()
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


def test_four_bar_in_numbers() -> None:
    """Those of the benchmark library's solution, and of independent integrations."""
    found = mechanisms.four_bar_motion(40, np.array([2.0, 10.0, 20.0]))
    assert error(np.cos(found[:, 0]), (0.034466307300, 0.180512226681, 0.410901153739)) < 1e-9
    assert error(found[1:, 1], (-1.167622108739, -1.718569609985)) < 1e-9
    assert error(mechanisms.four_bar_motion(1, np.array([10.0])), [(-30.343944970933, -1.966934719410)]) < 1e-9
    energies = [mechanisms.four_bar_energy(40, *row) for row in found]
    assert np.ptp(energies) < 1e-9 * abs(energies[0])
    forces = mechanisms.four_bar_forces(2, 1.0, -2.0)
    assert error(forces, [(1.346152412927, 1.551508166455), (1.696092888611, 1.551508166455)]) < 1e-12


@pytest.mark.parametrize("n", [3, 7])
@pytest.mark.parametrize("kind", ["spherical", "revolute"])
def test_ring(n: int, kind: str) -> None:
    system = mechanisms.ring(n, 2.0, 0.3, 3.0, kind)
    c = system.columns()
    found = closed(system, c.q, c.u)
    assert position_violation(system, c.q).max() < 1e-15
    assert found.redundant == (3 if kind == "revolute" else 0)
    tension = mechanisms.ring_tension(n, 2.0, 0.3, 3.0)
    assert error(np.linalg.norm(found.loads[0, 3:]), tension) < 1e-12
    assert np.abs(found.udot[6:]).max() < 1e-12


def test_parallelogram() -> None:
    system = mechanisms.parallelogram(1.0, 3.0, 0.7, 1.1)
    c = system.columns()
    found = closed(system, c.q, c.u)
    assert error(found.udot[:3], np.full(3, mechanisms.parallelogram_acceleration(1.0, 3.0, 0.7))) < 1e-12
    assert (found.rank, found.redundant) == (3, 7)  # in space: 6 out of the plane, 1 in it
