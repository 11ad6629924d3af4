"""Runs whose steps shrink towards nothing end with a reason; stiff ones, whose steps are small too, go on."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpimbs import Batch, Simulation, SimulationError, System, simulate
from mpimbs.stepping import crawling, stability

INERTIA = (0.1, 0.1, 0.1, 0, 0, 0)


def pendulums(count: int, **last: Any) -> System:
    """A chain of pendulums; more of the last one's joint is given."""
    system = System("pendulums", gravity=(0, -9.81, 0))
    for k in range(count):
        given = last if k == count - 1 else {}
        joint = {"type": "revolute", "position": (0, -1, 0) if k else (0, 0, 0), "q": 0.5, **given}
        system.add(name=f"p{k}", mass=1.0, center_of_mass=(0, -0.5, 0), inertia=INERTIA, joint=joint)
    return system


def driven(velocity: Callable[[float], float]) -> Callable[[float], tuple[float, float, float]]:
    return lambda t: (np.sin(t), velocity(t), -np.sin(t))


def rubbed(count: int) -> System:
    """With dry friction as a step of the last speed, strong enough to hold."""
    system = pendulums(count, q=0.1)
    system.add_joint_force(f"p{count - 1}", lambda t, q, u: -100.0 * np.sign(u))
    return system


def test_steps_that_shrink_towards_nothing_end_with_the_reason(comm: MPI.Comm) -> None:
    words = r"likely cause: a force that jumps, .* acceleration of body 'p\d+' changes by"
    with pytest.raises(
        SimulationError, match=rf"at t = \S+ s steps shrink towards nothing: the last 1000 took .*{words}"
    ):
        simulate(rubbed(comm.size + 1), 1000.0, comm)


@pytest.mark.parametrize(
    "wrong", [lambda t: 1.01 * np.cos(t), lambda t: 0.0, lambda t: np.sign(t - 0.3)], ids=["near", "none", "signs"]
)
def test_a_motion_that_does_not_fit_together_is_refused(comm: MPI.Comm, wrong: Callable[[float], float]) -> None:
    words = r"at t = 0 s the velocity that the motion of body 'p\d+' gives is not the derivative of its value"
    with pytest.raises(SimulationError, match=words):
        simulate(pendulums(comm.size + 1, motion=driven(wrong)), 1.0, comm)
    right = pendulums(comm.size + 1, motion=driven(np.cos))
    assert simulate(right, 0.1, comm).status == "complete"


def test_small_steps_for_stability_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it creeps, so that the state hardly changes."""
    monkeypatch.setattr(crawling, "SMALL", 1e-3)
    monkeypatch.setattr(stability, "FIRST", 20)
    monkeypatch.setattr(stability, "FEWEST", 10)
    with Simulation(pendulums(1, q=1e-3, damping=1e4), every=1.0) as simulation:
        for _ in range(3000):
            simulation.step()
        assert simulation.time < 3.0


def test_a_copy_that_is_rubbed_is_left_behind(comm: MPI.Comm) -> None:
    systems = [pendulums(2, q=0.1) for _ in range(comm.size)] + [rubbed(2)]
    for system in systems[:-1]:
        system.add_joint_force("p1", lambda t, q, u: -u)
    result = Batch(systems, None, comm).simulate(1000.0, every=500.0, rtol=1e-5, atol=1e-5)
    ((name, (t, reason)),) = result.failed.items()
    assert name == str(comm.size) and t < 500.0 and "steps shrink towards nothing" in reason
