"""Functions of time that are called together: the same as each by itself; what they give wrongly is told."""

from __future__ import annotations

import numpy as np
import pytest

from mpimbs.base.errors import SimulationError
from mpimbs.forces.calls import TimeFunctions
from mpimbs.model.over_time import as_time_function
from tolerances import assert_close


def test_as_each_by_itself() -> None:
    """Before, at, between and behind the times of rows, of one and of several numbers, with a lag and without."""
    random = np.random.default_rng(3)
    functions = []
    for k in range(12):
        count, knots = int(random.integers(1, 4)), int(random.integers(1, 6))
        times = np.sort(random.uniform(-1, 3, knots))
        rows = np.column_stack([times, random.uniform(-5, 5, (knots, count))]).tolist()
        begin = random.uniform(-1, 1, count).tolist()
        given = [rows, {"rows": rows, "lag": float(random.uniform(0.01, 1)), "begin": begin}, np.sin][k % 3]
        functions.append((f"function {k}", as_time_function(given, count, "numbers"), count))
    together = TimeFunctions(functions)
    at = [row[0] for _, function, _ in functions[::3] for row in function]
    for t in (*at, 0.0, -2.0, 5.0, *random.uniform(-1, 4, 20)):
        expected = np.concatenate([np.full(count, function(t)) for _, function, count in functions])
        assert_close(f"at {t:g}", together.at(t), expected, "rounding", scale=10.0)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (lambda t: np.nan, "the torque of 'a' is not finite at t = 2 s"),
        (lambda t: [1.0, 2.0], "the torque function of 'a' gave 2 numbers at t = 2 s, needs 1"),
        (lambda t: 1 / 0, "the torque function of 'a' failed at t = 2 s: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_is_told(value: object, told: str) -> None:
    with pytest.raises(SimulationError, match=told):
        TimeFunctions([("the torque function of 'a'", value, 1)]).at(2.0)
