"""Runs that must stop: every rank raises the same SimulationError, which names time, body and likely cause."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.evaluation import Acted
from mpimbs.model import Joint, System, system_from
from mpimbs.run.run import simulate
from mpimbs.stepping.integrators import make_integrator
from mpimbs.stepping.schemes import Accuracy

FIRST, LAST = "link1", "link6"
SETTINGS: list[dict[str, Any]] = [{"every": 0.05}, {"dt": 0.02, "every": 0.04, "integrator": "petsc:euler"}]


def stopped(comm: MPI.Comm, action: Callable[[], object]) -> str:
    """The message with which an action stops, the same on every rank."""
    with pytest.raises(SimulationError) as stop:
        action()
    message = str(stop.value)
    everyone = comm.allgather(message)
    assert everyone == [message] * comm.size
    assert "\n" not in message
    return message


def time_in(message: str) -> float:
    match = re.search(r"t = ([-+.e\d]+) s", message)
    assert match, message
    return float(match.group(1))


def breaks(kind: str, t: float) -> Any:
    """What a bad function of time gives from 0.1 s on."""
    if t <= 0.1:
        return 0.0
    if kind == "raises":
        raise KeyError("no such row")
    return {
        "is nan": np.nan,
        "is infinite": np.inf,
        "has a wrong shape": (1.0, 2.0),
        "is text": "much",
        "is None": None,
    }[kind]


@pytest.mark.parametrize("settings", SETTINGS, ids=["adaptive", "fixed"])
@pytest.mark.parametrize("body", [FIRST, LAST])
@pytest.mark.parametrize("kind", ["raises", "is nan", "is infinite", "has a wrong shape", "is text", "is None"])
def test_a_bad_torque_function(comm: MPI.Comm, kind: str, body: str, settings: dict[str, Any]) -> None:
    system = system_from("chain:6")
    system.set_torque(body, lambda t: breaks(kind, t))
    message = stopped(comm, lambda: simulate(system, 1.0, comm, **settings))
    assert f"body '{body}'" in message and "torque" in message
    assert 0.1 < time_in(message) < 0.3
    assert kind != "raises" or "no such row" in message
    assert kind != "is None" or "gave None" in message


@pytest.mark.parametrize("body", [FIRST, LAST])
def test_a_load_without_bound_underflows_the_step(comm: MPI.Comm, body: str) -> None:
    system = system_from("chain:6")
    system.set_torque(body, lambda t: 1 / (0.2 - t) ** 2 if t < 0.2 else np.copysign(1e300, t - 0.2))
    message = stopped(comm, lambda: simulate(system, 1.0, comm, every=0.1))
    assert "underflows" in message and f"body '{body}' is accelerated most" in message and "likely cause" in message
    assert time_in(message) == pytest.approx(0.2, rel=1e-3)


@pytest.mark.parametrize("scheme", ["petsc:euler", "rk4", "dopri5"])
def test_a_fixed_step_that_is_too_large(comm: MPI.Comm, scheme: str) -> None:
    system = System("stiff", gravity=(0, -9.81, 0))
    for k in range(6):
        joint = Joint(type="prismatic", axis=(0, 1, 0), stiffness=1e10 if k == 3 else 1.0, q=0.01)
        system.add(name=f"mass{k}", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=joint)
    message = stopped(comm, lambda: simulate(system, 100.0, comm, integrator=scheme, dt=0.1, every=1.0))
    assert "no longer finite" in message and "body 'mass" in message and "likely cause: too large a step" in message
    assert 0 < time_in(message) < 100


def test_a_trial_step_that_overflows_is_repeated_with_a_smaller_one(comm: MPI.Comm) -> None:
    """A load that only too large a step meets: the run goes on, and counts the rejection."""
    system = system_from("chain:6")
    dynamics = Dynamics(system, comm)
    dynamics.derivative.in_phases = True  # so that Python is asked
    original = dynamics.derivative.evaluate
    broken = []

    def once_not_finite(t: float, q: Any, u: Any, udot: Any, rates: Any, tau: Any = None) -> Acted:
        acted = original(t, q, u, udot, rates, tau)
        if t > 0.05 and not broken:
            broken.append(t)
            udot[:] = np.inf
        return acted

    dynamics.derivative.evaluate = once_not_finite  # type: ignore[method-assign]
    stepper = make_integrator(dynamics, dynamics.subchain.q, dynamics.subchain.u, "dopri5", Accuracy())
    while not stepper.step_towards(0.2):
        pass
    found = np.concatenate([stepper.q, stepper.u])
    assert stepper.rejected >= 1 and broken
    stepper.close()
    dynamics.derivative.evaluate = original  # type: ignore[method-assign]
    again = make_integrator(dynamics, dynamics.subchain.q, dynamics.subchain.u, "dopri5", Accuracy())
    while not again.step_towards(0.2):
        pass
    assert np.allclose(found, np.concatenate([again.q, again.u]), rtol=1e-6, atol=1e-7)
    again.close()
    dynamics.close()
