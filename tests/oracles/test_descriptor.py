"""The sparse oracle agrees with the dense ones; and what is drawn for it is as the seed says."""

import numpy as np
import pytest

from mpimbs.model import system_text
from oracles import dense
from oracles.descriptor import Descriptor
from oracles.loops import closed
from oracles.random_loops import random_mechanism
from oracles.random_systems import random_system
from oracles.structured_systems import TIME, case_of
from tolerances import assert_close


@pytest.mark.cases(3)
@pytest.mark.parametrize("seed", range(6))
def test_trees(seed: int) -> None:
    system, q, u, tau = random_system(seed, 12, seed % 2 == 0, wrenches=True)
    oracle, udot = Descriptor(system, q, u), np.random.default_rng(seed).normal(size=system.nu)
    assert_close("accelerations", oracle.solution(tau).udot, dense.dense_accelerations(system, q, u, tau), "dense")
    assert_close("inverse dynamics", oracle.needed(udot)[0], dense.inverse_dynamics(system, q, u, udot), "dense")
    assert_close("M v", oracle.needed(udot, False)[0], dense.mass_matrix(system, q) @ udot, "dense")


@pytest.mark.cases(3)
@pytest.mark.parametrize("seed", range(6))
def test_mechanisms(seed: int) -> None:
    """With constraints that are redundant; speeds that loops allow are found as well."""
    system, q, u, tau = random_mechanism(seed, 12, 3, doubled=2, driven=True)
    other = Descriptor(system, q, u + 0 * tau)
    assert_close("accelerations", other.solution(tau).udot, closed(system, q, u, tau).udot, "loops", scale=1.0)
    other.allow()
    assert_close("speeds", other.u.astype(float), u, "dense", scale=max(1.0, float(abs(u).max())))


@pytest.mark.cases(3)
@pytest.mark.parametrize("seed", range(12))
def test_a_seed_is_a_system(seed: int) -> None:
    """The same each time, in a state that its loops allow."""
    case, again = (case_of(seed, most=30) for _ in range(2))
    assert system_text(case.system) == system_text(again.system)
    assert np.array_equal(case.q, again.q) and np.array_equal(case.u, again.u)
    oracle = Descriptor(case.system, case.q, case.u, TIME)
    before = oracle.u.astype(float)
    oracle.allow()
    assert_close("speeds", oracle.u.astype(float), before, "dense", scale=max(1.0, float(abs(before).max(initial=0.0))))
