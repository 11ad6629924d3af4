"""Fits of the cost model: what was put in comes out."""

import numpy as np
import pytest

from mpimbs.bench.cost_fit import CostModel, Point, fit_cost_model, fit_power_law

CASES = [(k + 1, ranks) for k in (0, 1, 3, 7, 15, 31) for ranks in (1, 2, 4, 32) if ranks <= k + 1]


def test_a_power_law_is_found() -> None:
    x = np.array([5.0, 15.0, 35.0, 75.0])
    law = fit_power_law(x, 2.5 * x**0.739)
    assert law.exponent == pytest.approx(0.739, abs=1e-12) and law.factor == pytest.approx(2.5)
    assert law(10.0) == pytest.approx(2.5 * 10**0.739)


@pytest.mark.parametrize("model", [CostModel(0.739, 4e-8, 1e-9, 2e-7, 3e-6), CostModel(0.0, 1e-8, 0.0, 1e-6, 0.0)])
def test_a_cost_model_is_found(model: CostModel) -> None:
    points = [Point(n, 5 * (s - 1), s, r, model(n, 5 * (s - 1), s, r)) for n in (16, 128) for s, r in CASES]
    found = fit_cost_model(points, model.gamma)
    np.testing.assert_allclose(found, model, rtol=1e-9, atol=1e-15)


def test_equation_23() -> None:
    """With as many processors as subchains: C1 n / N + C2 n m / N^2 + m^gamma (C3 + C4 log2 N)."""
    model = CostModel(0.5, 1.0, 10.0, 100.0, 1000.0)
    assert model(64, 35, 8, 8) == pytest.approx(64 / 8 + 10 * 64 * 35 / 64 + 35**0.5 * (100 + 1000 * 3))
    assert model(64, 0, 1, 1) == pytest.approx(64.0)
