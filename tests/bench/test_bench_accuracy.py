"""What couplings lose to rounding: the DCA does in long folded chains, and users are told."""

import numpy as np
import pytest

from mpimbs.base.errors import InputError
from mpimbs.bench.accuracy import SHAPES, UNFIT, fitness, shaped_state
from mpimbs.model import system_from


def test_shapes_of_a_chain() -> None:
    system = system_from("spatial_chain:6")
    states = {shape: shaped_state(system.contents, shape) for shape in SHAPES}
    assert not states["straight"].q.any() and np.all(np.diff(np.sign(states["folded"].q)) != 0)
    assert np.abs(states["folded"].q).min() > 3.1 and np.array_equal(states["folded"].q, states["resting"].q)
    assert 0 < np.abs(states["bent"].q - system.contents.initial_state(0, 6)[0]).max() < 0.3
    for shape in SHAPES:
        moves = shape != "resting"
        assert bool(states[shape].u.any()) == bool(states[shape].tau.any()) == moves
    with pytest.raises(InputError, match="choose one of: straight"):
        shaped_state(system.contents, "crooked")


def test_quaternions_keep_their_length() -> None:
    system = system_from("free_chain:4")
    for shape in SHAPES:
        q = shaped_state(system.contents, shape).q
        assert np.linalg.norm(q[:4]) == pytest.approx(1.0, abs=1e-15) and q.shape == (system.nq,)


def test_the_divide_and_conquer_loses_digits_in_a_long_folded_chain() -> None:
    """Errors grow with the square of n: from n = 1024 on a user hears of it; sweeps keep their digits."""
    worst = {}
    for n in (64, 2100):
        for row in fitness(system_from(f"spatial_chain:{n}").contents, ("dcae", "dca")):
            worst[row.coupling, n] = max(worst.get((row.coupling, n), 0.0), row.error)
            assert row.fit == (row.error < UNFIT)
    assert worst["dca", 64] < 1e-11 < worst["dca", 2100] > 50 * worst["dca", 64]
    assert worst["dca", 2100] > UNFIT and worst["dcae", 2100] < UNFIT / 100
