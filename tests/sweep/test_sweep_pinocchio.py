"""The sweeps of one process against Pinocchio, which shares nothing with the package: up to a dozen bodies."""

from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpimbs.dynamics import Dynamics
from mpimbs.model import System
from oracles import dense
from oracles.dense import Array
from oracles.pinocchio_oracle import PinocchioOracle
from oracles.random_systems import ALL, SETTINGS, random_system, states, systems
from tolerances import assert_close


def assert_as_pinocchio(system: System, q: Array, u: Array, tau: Array) -> None:
    """Forward and inverse dynamics, the round trip of both, and energies."""
    oracle = PinocchioOracle(system)
    own = dense.generalized_forces(system.contents.columns(), q, u)  # springs, dampers, constant torques
    wanted = np.cos(np.arange(system.nu))
    with closing(Dynamics(system)) as dynamics:
        udot = dynamics.accelerations(q, u, tau)
        there = dynamics.inverse_dynamics(q, u, udot)
        forces = dynamics.inverse_dynamics(q, u, wanted)
        kinetic, potential = dynamics.energy_and_momentum(q, u)[:2]
    assert_close("accelerations", udot, oracle.accelerations(q, u, tau), "pinocchio")
    reference = oracle.inverse_dynamics(q, u, wanted)
    size = np.abs(forces + own).max(initial=1.0)
    assert_close("inverse dynamics", forces, reference, "pinocchio", scale=size)
    assert_close("forces of the accelerations", there, tau, "round trip", scale=np.abs(there + own).max(initial=1.0))
    assert_close("kinetic energy", kinetic, oracle.kinetic_energy(q, u), "pinocchio")
    assert_close("potential energy", potential, oracle.potential_energy(q), "pinocchio", scale=1e3 + abs(potential))


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("name", [name for name in ALL if name != "fixed"])
def test_one_type(name: str, n: int) -> None:
    assert_as_pinocchio(*random_system(n, n, True, [name], wrenches=True))


@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_mixed(seed: int, chain: bool) -> None:
    assert_as_pinocchio(*random_system(seed, 12, chain, wrenches=True))


@SETTINGS
@given(st.data())
def test_any_system(data: st.DataObject) -> None:
    system = data.draw(systems(8, wrenches=True))
    assert_as_pinocchio(system, *data.draw(states(system)))
