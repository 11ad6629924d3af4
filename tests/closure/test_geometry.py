"""Loops as positions see them, compared with the oracle's own constraints."""

import itertools
from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI
from scipy.spatial.transform import Rotation

import mpimbs
from mpimbs.base.errors import InputError
from mpimbs.closure.geometry import LoopJoints, body_motions
from mpimbs.closure.jacobian import LoopJacobian
from mpimbs.dynamics import Dynamics
from mpimbs.model import JOINT_TYPES, Body, Joint, System
from mpimbs.model.joints import joint_index
from mpimbs.parts.subchain import Subchain
from mpimbs.run.run import simulate
from oracles import dense
from oracles.dense import Array
from oracles.loops import closed, opened, position_violation
from oracles.random_loops import LOOP_TYPES, random_mechanism
from tolerances import assert_close

MOVABLE = ("spherical", "free", "planar", "helical", "universal")


def test_kinematics_of_several_states() -> None:
    """Each as alone, and as the oracle has it; at rest where no speeds are given."""
    system, q, u, _ = random_mechanism(1, 15, 2)
    other = Subchain(system.contents).displaced(q, 0.1 * np.sin(np.arange(system.nu)))
    several, still = mpimbs.kinematics(system, [q, other], [u, -u]), mpimbs.kinematics(system, other)
    for k, (a, b) in enumerate(((q, u), (other, -u))):
        theirs = dense.kinematics(opened(system), a, b)
        for name in ("rotation", "position", "angular_velocity", "velocity"):
            alone = getattr(mpimbs.kinematics(system, a, b), name)
            assert np.array_equal(getattr(several, name)[k], alone), name
        assert_close("positions", several.position[k], theirs.origin, "dense")
    assert np.array_equal(still.position, several.position[1]) and not still.velocity.any()
    with pytest.raises(InputError, match="give as many states of both"):
        mpimbs.kinematics(system, [q, other], u)
    with pytest.raises(InputError, match="q"):
        mpimbs.kinematics(system, q[1:])


@pytest.mark.parametrize("kind", LOOP_TYPES)
def test_constraints_of_each_type(kind: str) -> None:
    """They are as many as the oracle's and span the same; displacements open loops as far as the oracle sees."""
    system, q, u, _ = random_mechanism(2, 8, 3, MOVABLE, [kind])
    loops, expected = LoopJacobian(system.contents), closed(system, q, u)
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
    there = loops.bodies(Subchain(system.contents).displaced(q, move))
    assert_close(
        "linear", loops.joints.held(there).violation, matrix @ move, "difference", scale=10 * np.abs(move).max() / 1e-2
    )
    found = loops.joints.position_violation(there)
    assert_close(
        "violation", found, position_violation(system, Subchain(system.contents).displaced(q, move)), "long", scale=1.0
    )
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
    loops, subchain = LoopJoints(system.contents), Subchain(system.contents)
    return float(loops.position_violation(body_motions(subchain, q, np.zeros(6)))[0])


ANGLES = (0.0, 1e-12, 1e-7, 1e-3, 0.5, np.pi / 2, 2.0, np.pi - 1e-2, np.pi - 1e-6, np.pi - 1e-9, np.pi)


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


def axes() -> Array:
    """Unit vectors: along the axes, in their planes, and any."""
    drawn = np.random.default_rng(4).normal(size=(20, 3))
    given = np.concatenate((np.eye(3), -np.eye(3), [[1, 1, 0], [0, 1, -1], [-1, 0, 1], [1, -1, 1]], drawn))
    return given / np.linalg.norm(given, axis=1)[:, None]


@pytest.mark.cases(2)
@pytest.mark.parametrize("kind", LOOP_TYPES)
def test_both_measures_of_violation_are_one(kind: str) -> None:
    """What sweeps and what closing find of a loop whose frames are turned by any angle, half a turn among them."""
    given = {"axis": (0.6, 0.0, 0.8)} if JOINT_TYPES[joint_index(kind)].takes_axis else {}
    if JOINT_TYPES[joint_index(kind)].takes_pitch:
        given["pitch"] = 0.3
    system = hung(kind, **given)
    held = LoopJoints(system.contents)
    with closing(Dynamics(system, MPI.COMM_SELF)) as dynamics:
        loops = dynamics.loops
        assert loops is not None
        for angle, axis in itertools.product(ANGLES, axes()):
            q = np.array((*np.roll(Rotation.from_rotvec(angle * axis).as_quat(), 1), 0.0, 0.0, 0.0))
            swept = loops.violations(q, np.zeros(6))[0, 0]
            closed = held.position_violation(body_motions(dynamics.subchain, q, np.zeros(6)))[0]
            assert_close(f"violation at {angle} about {axis}", swept, closed, "measures", scale=1.0)
            if kind == "fixed":
                assert_close("angle", swept, angle, "measures", scale=1.0)


@pytest.mark.parametrize("kind", ["fixed", "prismatic", "revolute"])
def test_half_a_turn_is_not_closed(kind: str) -> None:
    """A loop whose frames are half a turn apart is pi rad from closed, and no run begins with it."""
    given = {} if kind == "fixed" else {"axis": (0.0, 0.0, 1.0)}
    system = hung(kind, **given)
    state = np.array((0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)), np.zeros(6)
    with closing(Dynamics(system, MPI.COMM_SELF)) as dynamics:
        assert dynamics.loops is not None
        assert_close("violation", dynamics.loops.violations(*state)[:, 0], [np.pi], "rounding")
    with pytest.raises(InputError, match=r"'hold' are 3\.14 apart"):
        simulate(system, 0.1, state=state, projection="none")
