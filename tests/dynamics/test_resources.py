"""What a system takes of memory: as estimated, and refused where it is too much."""

import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

import mpimbs.dynamics.resources
from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.resources import EVALUATION, EVALUATION_OF_BODIES, SIMULATION, Need, free_memory
from mpimbs.model import system_from
from mpimbs.run.run import simulate

N = 100_000
CASES: dict[str, tuple[str, str, Need]] = {
    "hinges": ("spatial_chain", "dcae", EVALUATION),
    "balls": ("rope", "dcae", EVALUATION),
    "a tree": ("tree", "dcae", EVALUATION),
    "single bodies": ("spatial_chain", "dca", EVALUATION_OF_BODIES),
    "a simulation": ("spatial_chain", "run", SIMULATION),
}


@pytest.mark.parametrize("case", CASES)
def test_the_estimate(case: str) -> None:
    """Peak of what numpy and Python allocate; PETSc's vectors of a simulation are not seen by it."""
    name, coupling, need = CASES[case]
    for n in (10, N):  # the first one compiles
        system = system_from(f"{name}:{n}" if name != "tree" else f"tree:{n.bit_length() - 2}:2")
        tracemalloc.start()
        if coupling == "run":
            simulate(system, 1e-5, dt=1e-5, every=1e-5)
        else:
            with closing(Dynamics(system, coupling=coupling)) as dynamics:
                dynamics.accelerations(dynamics.subchain.q, dynamics.subchain.u)
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    least = 0.6 if coupling == "run" else 0.7  # in lanes of 4 it is 0.78, of what wider registers take
    assert least < taken / need.of(system.contents, 1) < 1.2, f"{taken / N} bytes for a body"


def test_free_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No more than there is, without swap; of a control group its limit, less what it takes but for files."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        total = 1024 * int(next(iter(lines)).split()[1])
    assert 1e6 < free_memory(swap=False) <= total
    monkeypatch.setattr(mpimbs.dynamics.resources, "_GROUP", tmp_path)
    for name, text in (("max", "900000"), ("current", "500000"), ("stat", "anon 1\ninactive_file 200000\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert free_memory() == 600000
    (tmp_path / "memory.max").write_text("max")
    assert 1e6 < free_memory(swap=False) <= total


def test_what_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    system = system_from(f"chain:{N}")
    assert 1e7 < free_memory() < 1e15
    monkeypatch.setattr(mpimbs.dynamics.resources, "free_memory", lambda: 0.9 * EVALUATION.of(system.contents, 1))
    with pytest.raises(InputError, match=r"its 100000 bodies take about 0.011 GB of memory on 1 rank"):
        Dynamics(system)
    monkeypatch.setattr(mpimbs.dynamics.resources, "free_memory", lambda: 1.1 * EVALUATION.of(system.contents, 1))
    Dynamics(system).close()
    with pytest.raises(InputError, match=r"0.14 GB of memory .* 0.012 GB left; take fewer bodies"):
        simulate(system, 1.0)
