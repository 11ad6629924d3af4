"""The compiled sweeps against the same kernels, uncompiled, in 40 digits; these are consistent to their last digits."""

import pytest
from mpmath import mp, mpf

from cases import accelerations, moving_state
from laboratory.extended import ExtendedSweeps
from mpimbs.model import System, system_from
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import random_system
from tolerances import assert_close


def largest(values: Array) -> mpf:
    return max(abs(x) for x in values)


@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_compiled_and_extended(seed: int, chain: bool) -> None:
    """Forward dynamics in doubles is right to its last digits, and inverse dynamics gives the forces back."""
    system, q, u, tau = random_system(seed, 5, chain)
    sweeps = ExtendedSweeps(system.contents, q, u)
    udot = sweeps.accelerations(tau)
    assert all(isinstance(x, mpf) for x in udot)
    assert_close("accelerations", accelerations(system, q, u, tau), udot, "extended")
    forces = sweeps.forces(tau)
    back = sweeps.inverse_dynamics(udot)
    assert_close("generalized forces", forces, dense.generalized_forces(system.contents.columns(), q, u, tau), "dense")
    gap = largest(back - forces) / largest(forces)
    assert gap < mpf("1e-35"), f"inverse dynamics misses the forces by {mp.nstr(gap, 3)}"


@pytest.mark.parametrize("spec", ["spatial_chain:64", "rope:32"])
def test_rounding_of_long_chains(spec: str) -> None:
    system: System = system_from(spec)
    q, u, tau = moving_state(system)
    udot = ExtendedSweeps(system.contents, q, u).accelerations(tau)
    assert_close("accelerations", accelerations(system, q, u, tau), udot, "extended")
