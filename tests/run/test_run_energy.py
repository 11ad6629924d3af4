"""The balance of energy: the work of dampers, torques, wrenches and functions against references and orders."""

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy.integrate import solve_ivp

from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.run.run import Result, simulate
from mpimbs.stepping import work as work_module
from run.motions import motion, tumbler
from tolerances import assert_close

BODY: dict[str, Any] = {"mass": 1.3, "inertia": (0.2, 0.1, 0.3, 0, 0, 0)}
TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-11}


def works(system: System, t_end: float, comm: MPI.Comm, **settings: Any) -> np.ndarray:
    """Work at the samples, on all ranks."""
    return comm.bcast(simulate(system, t_end, comm, **settings).work)


def falling(**joint: Any) -> System:
    """A body on a vertical slide."""
    system = System("falling", gravity=(0, -9.81, 0))
    system.add(name="stone", parent="world", joint={"type": "prismatic", "axis": (0, 1, 0), **joint}, **BODY)
    return system


def driven_pendulum() -> tuple[System, np.ndarray]:
    """A pendulum with damper, spring, constant torque, and another by a function of the state; its work by scipy."""
    system = System("pendulum", gravity=(0, -9.81, 0))
    joint = {"type": "revolute", "axis": (0, 0, 1), "q": 0.4, "u": 1.0}
    joint |= {"damping": 0.7, "stiffness": 2.0, "rest": 0.1, "torque": 1.5}
    system.add(name="bob", parent="world", center_of_mass=(0, -1, 0), joint=joint, **BODY)
    system.add_joint_force("bob", lambda t, q, u: 2.0 * np.sin(3.0 * t) - 0.05 * u**3)

    def rate(t: float, y: np.ndarray) -> list[float]:
        q, u, _ = y
        outside = 1.5 - 0.7 * u + 2.0 * np.sin(3.0 * t) - 0.05 * u**3
        return [u, (outside - 2.0 * (q - 0.1) - 1.3 * 9.81 * np.sin(q)) / (0.3 + 1.3), outside * u]

    times = np.linspace(0.0, 2.0, 11)
    return system, solve_ivp(rate, (0.0, 2.0), [0.4, 1.0, 0.0], "DOP853", times, rtol=1e-12, atol=1e-13).y[2]


def test_work_on_a_pendulum() -> None:
    system, reference = driven_pendulum()
    found = works(system, 2.0, MPI.COMM_SELF, every=0.2, **TIGHT)
    assert np.ptp(reference) > 1.0
    assert_close("work", found, reference, "conserved")


@pytest.mark.parametrize("drag", ["damper", "body force", "wrench"])
def test_work_of_drag_and_of_weight_given_as_a_wrench(drag: str) -> None:
    """v = v1 (1 - e^(-t / T)) with T = m / c and v1 = g T, and the work -c times the integral of v^2, or m g y."""
    c, m, g, t = 0.8, BODY["mass"], 9.81, np.linspace(0.0, 2.0, 11)
    system = falling(damping=c) if drag == "damper" else falling()
    if drag == "body force":
        system.add_body_force(None, lambda t, motion: (0.0, -c * motion.velocity), point=(0.3, 0.2, 0.1))
    decay, e = m / c, np.exp(-c / m * t)
    reference = -c * (g * decay) ** 2 * (t - 2.0 * decay * (1.0 - e) + 0.5 * decay * (1.0 - e * e))
    if drag == "wrench":
        system.gravity = (0.0, 0.0, 0.0)
        system.add_wrench("stone", force=(0.0, -m * g, 0.0), point=(0.5, 0, 0), frame="world")
        reference = 0.5 * m * (g * t) ** 2
    assert_close("work", works(system, 2.0, MPI.COMM_SELF, every=0.2, **TIGHT), reference, "conserved")


def test_energy_and_work_balance(comm: MPI.Comm) -> None:
    """Of joints of every kind, with wrenches and torques that are functions of time; and the same on one rank."""
    runs = [simulate(tumbler(damping=0.3), 1.0, c, every=0.1, **TIGHT) for c in (comm, MPI.COMM_SELF)]
    assert runs[0].energy_error < 1e-8 < 1.0 < abs(runs[1].work[-1])
    assert runs[0].energy_change == pytest.approx(runs[0].energy_error / moved(runs[1]))
    ours, alone = (comm.bcast(run.work) for run in runs)
    assert_close("work", ours, alone, "runs on ranks", comm=comm)


def moved(result: Result) -> float:
    energy, work = result.energy, result.work
    return max(energy[:, 0].max(), np.abs(energy[:, 1] - energy[0, 1]).max(), np.abs(work).max())


@pytest.mark.parametrize("spec", ["tumbler", "rope:9"])
def test_the_work_has_no_part_in_the_steps(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    """Neither in the choice of steps, were it a million times as large, nor in the motion."""
    system, end = (tumbler(), 0.5) if spec == "tumbler" else (system_from(spec), 0.05)
    whole = motion(system, end, comm, every=end)
    power = work_module.Power.__call__
    monkeypatch.setattr(work_module.Power, "__call__", lambda self, q, u, acted: 1e6 * power(self, q, u, acted))
    larger = motion(system, end, comm, every=end)
    assert np.array_equal(larger[0].q, whole[0].q)
    with monkeypatch.context() as patch:
        made = work_module.Power.__init__

        def without(self: work_module.Power, dynamics: Dynamics, driven: bool = False) -> None:
            made(self, dynamics)
            self.any = False

        patch.setattr(work_module.Power, "__init__", without)
        alone = motion(system, end, comm, every=end)
    assert (alone[1].steps, alone[1].rejected) == (whole[1].steps, whole[1].rejected)
    assert_close("motion", whole[0].state, alone[0].state, "runs on ranks", comm=comm)
