"""The drivers of stiff systems, on small cases: against what is known of them in closed form, or published."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from mpi4py import MPI

from driver_modules import driver
from tolerances import assert_close

pytestmark = [pytest.mark.long, pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="these drivers run alone")]


def solved(name: str, case: str, folder: Path, **options: object) -> list[dict[str, float]]:
    kind = name.split("_")[0]
    rows = driver("stiff_systems").solve(kind, driver(name).CASES, case, folder, **options)
    stem = f"{kind}_{case.replace('-', '_')}"
    assert image.imread(folder / f"{stem}.png")[..., :3].std() > 0.02, "the picture is blank"
    lines = (folder / f"{stem}.tsv").read_text().splitlines()
    assert lines[0] == "\t".join(rows[0]) and len(lines) == 1 + len(rows)
    return rows


def test_a_cantilever_becomes_a_circle(tmp_path: Path) -> None:
    (row,) = solved("stiff_systems", "circle", tmp_path, integrators=("rosenbrock2",))
    assert row["steps"] == 1300 and row["m to the root"] < 1.19e-7


def test_the_centre_of_mass_of_a_free_rod(tmp_path: Path) -> None:
    """PyElastica's TumblingUnconstrainedRod has the numbers; momentum is the impulse."""
    published = (1.06667, 3.56667, 6.73040, 9.52880, 12.5, 22.5)
    found = driver("stiff_systems").pushed(np.array([2, 3, 3.8, 4.4, 5, 7]))
    assert_close("way of the centre of mass", found, published, "five decimals", scale=1.0)
    exact, adaptive, coarse, fine = solved("stiff_systems", "spaghetti", tmp_path, links=6, t_end=5.5)
    for name in ("centre of mass, m", "momentum, N s", "angular momentum, N m s"):
        # The load's kinks fall into steps: how well depends on the processor.
        assert exact[name] < 1e-7 and adaptive[name] < 1e-2 and fine[name] < 0.2 * coarse[name], name


def test_a_folded_chain_falls_faster_than_freely(tmp_path: Path) -> None:
    explicit, implicit, continuum = solved("stiff_systems", "folded-chain", tmp_path, links=(32,))
    for x in (0.1, 0.25, 0.5, 0.75):
        key = f"t at {x:g} L"
        assert abs(implicit[key] - explicit[key]) < 1e-4 and abs(explicit[key] / continuum[key] - 1) < 0.12
    assert explicit["t at 0.75 L"] < np.sqrt(2 * 0.75)


def test_a_beam_after_a_blow(tmp_path: Path) -> None:
    """Steps are as long with many links as with few; errors are theirs, and the square of the links' length."""
    rows = solved("stiff_systems", "beam", tmp_path, links=(16, 64), steps=(5e-5,), t_end=0.01)
    amplitude = 0.71677e-3  # m, of the first mode of an ideal beam
    assert rows[0]["error, m"] < 0.05 * amplitude and rows[1]["error, m"] < 0.01 * amplitude
    assert rows[1]["omega h"] > 90


def test_the_frequency_of_the_beam(tmp_path: Path) -> None:
    _, second = solved("stiff_systems", "frequency", tmp_path, links=(16, 32))
    assert abs(second["order"] - 2.0) < 0.01
    assert second["error, Hz"] < 0.02


def test_orders(tmp_path: Path) -> None:
    rows = solved("implicit_orders", "order", tmp_path, steps=(0.01, 0.005), t_end=0.05)
    orders = {row["integrator"]: np.log2(row["10 ms"] / row["5 ms"]) for row in rows if row["rod"] == "not stiff"}
    for name, least in (("rosenbrock", 2.7), ("rosenbrock2", 1.8)):
        assert orders[name] > least, orders


def test_stability_functions(tmp_path: Path) -> None:
    """(1 + (1 - 2 g) z) / (1 - g z)^2 with g = 1 - 1 / sqrt 2, of two stages [Verwer et al. 1999]."""
    made, g = driver("implicit_orders"), 1 - 0.5**0.5
    for omega in (0.5, 30.0, 2000.0):
        factors = np.abs(np.linalg.eigvals(made.step_matrix("rosenbrock2", omega)))
        z = 1j * omega
        expected = abs((1 + (1 - 2 * g) * z) / (1 - g * z) ** 2)
        assert_close(f"at {omega:g}", factors, [expected] * 2, "statics")
    rows = solved("implicit_orders", "stability", tmp_path, integrators=("rosenbrock", "rk4"), points=6)
    assert [row["stable to omega h"] < 2000 for row in rows] == [False, True]


def test_energy(tmp_path: Path) -> None:
    coarse, fine = solved(
        "implicit_orders", "energy", tmp_path, integrators=("rosenbrock",), steps=(0.025, 0.0125), t_end=1.0
    )
    assert fine["largest change"] < 0.5 * coarse["largest change"] < 0.01
