"""The compiled sweeps against the same kernels, uncompiled, in 40 digits; these are consistent to their last digits."""

import numpy as np
import pytest
from mpmath import mp, mpf

from cases import accelerations, moving_state
from laboratory.extended import ExtendedSweeps
from mpimbs.kernels.compiler import interpreted
from mpimbs.kernels.lanes import absolute, sqrt
from mpimbs.kernels.lanes import largest as larger
from mpimbs.kernels.trigonometry import atan2, sincos
from mpimbs.model import System, system_from
from mpimbs.spatial.vectors import quaternion_matrix
from mpimbs.values.handles import SIZE
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
    sweeps = ExtendedSweeps(system, q, u)
    udot = sweeps.accelerations(tau)
    assert all(isinstance(x, mpf) for x in udot)
    assert_close("accelerations", accelerations(system, q, u, tau), udot, "extended")
    forces = sweeps.forces(tau)
    back = sweeps.inverse_dynamics(udot)
    assert_close("generalized forces", forces, dense.generalized_forces(system.columns(), q, u, tau), "dense")
    gap = largest(back - forces) / largest(forces)
    assert gap < mpf("1e-35"), f"inverse dynamics misses the forces by {mp.nstr(gap, 3)}"


@pytest.mark.parametrize("spec", ["spatial_chain:64", "rope:32"])
def test_rounding_of_long_chains(spec: str) -> None:
    system: System = system_from(spec)
    q, u, tau = moving_state(system)
    udot = ExtendedSweeps(system, q, u).accelerations(tau)
    assert_close("accelerations", accelerations(system, q, u, tau), udot, "extended")


def test_functions_of_numbers() -> None:
    """Outside of compiled code, the mathematical functions take doubles and registered numbers alike."""
    assert sincos(0.5) == (np.sin(0.5), np.cos(0.5)) and sqrt(2.0) == np.sqrt(2.0)
    assert atan2(1.0, -2.0) == np.arctan2(1.0, -2.0)
    ExtendedSweeps(system_from("chain:1"), np.zeros(1), np.zeros(1))
    third = mpf(1) / 3
    assert sincos(third) == (mp.sin(third), mp.cos(third))
    assert absolute(-third) == third == larger(third, -third)
    assert sqrt(third) == mp.sqrt(third) and atan2(third, -third) == mp.atan2(third, -third)


def test_interpreted_is_not_compiled() -> None:
    """The twin of a kernel calls the twins of what it calls, and leaves the kernel alone."""
    q = [mpf(x) / 7 for x in (1, 2, -3, 4)]
    got = interpreted(quaternion_matrix)(tuple(q))
    assert isinstance(got[1], mpf) and isinstance(quaternion_matrix((0.5, 0.5, 0.5, 0.5))[1], float)
    assert got[1] == 2 * (q[1] * q[2] - q[0] * q[3])
    assert SIZE == 144
