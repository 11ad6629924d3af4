"""Loops as positions see them, compared with the oracle's own constraints."""

import numpy as np
import pytest

from mpimbs.closure.geometry import LoopJoints, body_motions
from mpimbs.closure.jacobian import LoopJacobian
from mpimbs.model import JOINT_TYPES, Body, Joint, System
from mpimbs.sweep.subchain import Subchain
from oracles import dense
from oracles.loops import closed, opened, position_violation
from oracles.random_loops import LOOP_TYPES, random_mechanism
from tolerances import assert_close

MOVABLE = ("spherical", "free", "planar", "helical", "universal")


def test_motions_of_bodies() -> None:
    system, q, u, _ = random_mechanism(1, 15, 2)
    ours = body_motions(Subchain(system), q, u)
    theirs = dense.kinematics(opened(system), q, u)
    com = np.einsum("nij,nj->ni", theirs.rotation, system.columns().center_of_mass)
    assert_close("rotations", ours.rotation[:-1], theirs.rotation, "dense")
    assert_close("origins", ours.origin[:-1], theirs.origin, "dense")
    assert_close("angular velocities", ours.omega[:-1], theirs.omega, "dense")
    assert_close("velocities", ours.velocity[:-1], theirs.com_velocity - np.cross(theirs.omega, com), "dense")
    assert not ours.omega[-1].any()


@pytest.mark.parametrize("kind", LOOP_TYPES)
def test_constraints_of_each_type(kind: str) -> None:
    """They are as many as the oracle's and span the same; displacements open loops as far as the oracle sees."""
    system, q, u, _ = random_mechanism(2, 8, 3, MOVABLE, [kind])
    loops, expected = LoopJacobian(system), closed(system, q, u)
    here = loops.at(q)
    matrix = here.matrix.toarray() / here.rows[:, None] / here.columns
    assert matrix.shape == expected.jacobian.shape
    independent = np.linalg.svd(expected.jacobian)[2][: expected.rank]
    assert_close("rows", matrix @ independent.T @ independent, matrix, "dense")
    assert_close("norms", np.linalg.norm(matrix), np.linalg.norm(expected.jacobian), "dense")
    bodies = loops.bodies(q, u)
    assert loops.joints.position_violation(bodies).max() < 1e-13
    assert loops.joints.velocity_violation(bodies).max() < 1e-12

    move = 1e-5 * np.sin(np.arange(system.nu))
    there = loops.bodies(Subchain(system).displaced(q, move))
    assert_close(
        "linear", loops.joints.held(there).violation, matrix @ move, "difference", scale=10 * np.abs(move).max() / 1e-2
    )
    found = loops.joints.position_violation(there)
    assert_close("violation", found, position_violation(system, Subchain(system).displaced(q, move)), "long", scale=1.0)
    rates = loops.joints.velocity_violation(loops.bodies(q, move))
    assert_close("rates", rates, loops.joints.norms(matrix @ move), "dense", scale=1.0)


def hung(kind: str, **fields: object) -> System:
    """A free body whose frame is held in the world's by a loop."""
    system = System("hung")
    system.add(Body(name="b", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=Joint(type="free")))
    system.add_loop(name="hold", type=kind, bodies=("world", "b"), positions=((0, 0, 0), (0, 0, 0)), **fields)
    return system


def violation(system: System, turn: float = 0.0, axis: int = 2, shift: tuple[float, ...] = (0, 0, 0)) -> float:
    """How far its loop is from closed, with the body turned about an axis, then shifted."""
    q = np.array([np.cos(turn / 2), 0, 0, 0, *shift])
    q[1 + axis] = np.sin(turn / 2)
    loops, subchain = LoopJoints(system), Subchain(system)
    return float(loops.position_violation(body_motions(subchain, q, np.zeros(6)))[0])


def test_how_far_loops_are_from_closed() -> None:
    assert violation(hung("fixed"), 0.4, 0, (0.3, 0, 0)) == pytest.approx(0.5)
    assert violation(hung("revolute"), 2.5) == pytest.approx(0)
    assert violation(hung("revolute"), 0.2, 0) == pytest.approx(0.2)
    assert violation(hung("revolute", axis=(0, 1, 0)), -3.0, 1, (0, 0.1, 0)) == pytest.approx(0.1)
    assert violation(hung("cylindrical"), 1.0, 2, (0.1, 0, 5)) == pytest.approx(0.1)
    assert violation(hung("prismatic"), 0.1, 2, (0, 0, -5)) == pytest.approx(0.1)
    assert violation(hung("planar"), 1.0, 2, (3, 4, 0.2)) == pytest.approx(0.2)
    assert violation(hung("planar"), 0.3, 0, (3, 4, 0)) == pytest.approx(0.3)
    assert violation(hung("spherical"), 3.0, 1, (0, 0.6, 0.8)) == pytest.approx(1.0)
    assert violation(hung("universal"), 1.5, 0) == pytest.approx(0)
    assert violation(hung("universal"), -2.5, 1) == pytest.approx(0)
    assert violation(hung("universal"), 0.3, 2) == pytest.approx(0.3)


def test_a_screw_may_have_turned_several_times() -> None:
    pitch, turned = 0.1, 1.0 + 6 * np.pi
    assert violation(hung("helical", pitch=pitch), turned, 2, (0, 0, pitch * turned)) == pytest.approx(0, abs=1e-14)
    off = 0.01 * np.hypot(1, pitch)  # along the axis; by that much less where the turn may give way, too
    found = violation(hung("helical", pitch=pitch), turned, 2, (0, 0, pitch * turned + off))
    assert found == pytest.approx(off / np.hypot(1, pitch))


def test_all_types_have_their_constraints() -> None:
    for kind in JOINT_TYPES:
        if kind.name != "free":
            fields = {"pitch": 0.3} if kind.takes_pitch else {}
            assert len(LoopJoints(hung(kind.name, **fields)).axis) == 6 - kind.nu
