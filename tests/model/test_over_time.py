"""Rows of a time and values: torques and wrenches that are linear between times."""

import signal
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from scipy.integrate import solve_ivp

import mpimbs
from mpimbs.base.errors import InputError, InterruptionError
from mpimbs.model import System, system_from, system_from_text, system_text
from mpimbs.model.over_time import OverTime, as_time_function, stacked, weighed
from run.interruptions import signalled
from tolerances import assert_close

ROWS = ((0.0, 1.0), (1.0, 3.0), (2.5, -3.0))
TIMES = np.linspace(-1.0, 3.0, 401)


def linear(t: float) -> float:
    return float(np.interp(t, [0.0, 1.0, 2.5], [1.0, 3.0, -3.0]))


@pytest.mark.parametrize("ends", [(-np.inf, np.inf), (-1.0, 2.0), (0.0, np.inf), (5.0, 6.0)])
def test_rows_and_what_is_made_of_them(ends: tuple[float, float]) -> None:
    given, other = OverTime(ROWS), OverTime(((0.3, -2.0), (0.9, 4.0)))
    within = given.within(ends)
    both, total = stacked([given, 0.5, other]), weighed(0.25, [(2.0, within), (-1.0, other)])
    for t in TIMES.tolist():
        assert given(t) == pytest.approx(linear(t), abs=1e-14)
        clipped = float(np.clip(linear(t), *ends))
        assert within(t) == pytest.approx(clipped, abs=1e-13)
        assert both(t) == pytest.approx((given(t), 0.5, other(t)), abs=1e-13)
        assert total(t) == pytest.approx(0.25 + 2 * clipped - other(t), abs=1e-13)


def test_a_torque_and_a_wrench_over_time(tmp_path: Path) -> None:
    """As functions of time that say the same; of a model file with units and expressions, too."""
    rows, functions = system_from("chain:3"), system_from("chain:3")
    rows.set_torque("link2", [[0, 1], [1, 3], [2.5, -3]])
    functions.set_torque("link2", linear)
    rows.add_wrench("link3", force=[[0, 0, 1, 0], [1, 0, 2, 3]], frame="world")
    functions.add_wrench("link3", force=lambda t: (0.0, 1 + min(t, 1), 3 * min(t, 1)), frame="world")
    text = system_text(rows)
    assert "torque = [[0.0, 1.0], [1.0, 3.0], [2.5, -3.0]]" in text
    again = system_from_text(text, "again")
    own = text.replace("[1.0, 3.0]", "['1e3', '3e-3 * one']")
    own = own.replace("[[0.0, 1.0]", "[[0.0, 1e-3]").replace("[2.5, -3.0]", "[2500, -3e-3]")
    own = own.replace("[[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 2.0, 3.0]]", "[[0, 0, 1e-3, 0], [1000, 0, 2e-3, 3e-3]]")
    own += "\n[parameters]\none = 1.0\n[units]\ntime = 'ms'\nforce = 'kN'\n"
    in_units = system_from_text(own, "units")
    ours = [mpimbs.simulate(system, 1.5, tol=1e-9, comm=MPI.COMM_SELF) for system in (rows, again, functions)]
    assert np.array_equal(ours[0].q, ours[1].q)
    assert_close("q", ours[0].q, ours[2].q, "runs", comm=MPI.COMM_SELF)  # of which one is compiled
    for system in (rows, in_units):
        torque, (wrench,) = system.contents.body(1).joint.torque, system.contents.body(2).wrench
        for t in TIMES.tolist():
            assert torque(t) == pytest.approx(linear(t), abs=1e-13)
            assert wrench.force(t) == pytest.approx((0.0, 1 + np.clip(t, 0, 1), 3 * np.clip(t, 0, 1)), abs=1e-13)


def test_a_run_goes_on_without_being_told(comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = comm.bcast(tmp_path)
    system = system_from("chain:5")
    system.set_torque("link2", [[0, 1], [0.1, 3], [0.25, -3]])
    expected = mpimbs.simulate(system, 0.3, comm, every=0.01)
    stop = signalled(comm, monkeypatch, 6, signal.SIGTERM)
    with stop, pytest.raises(InterruptionError):
        mpimbs.simulate(system, 0.3, comm, every=0.01, output=folder / "out.h5", signals=True)
    result = mpimbs.restart(folder / "out.checkpoint.h5", comm)
    assert result.status == "complete"
    if comm.rank == 0:
        assert np.array_equal(mpimbs.load(folder / "out.h5").q, expected.q)


BAD = {
    "order": ([[0, 1], [0, 2]], "must be in order of time: row 2 is at 0 s, after 0 s"),
    "width": ([[0, 1, 2]], "needs 2 numbers .a time in s, and N m along a revolute joint"),
    "no time": ([[0, 1], 2], "needs a list of 2 numbers"),
    "not finite": ([[0, np.nan]], "must be a finite number"),
}


@pytest.mark.parametrize("case", BAD)
def test_rows_that_are_refused(case: str) -> None:
    rows, message = BAD[case]
    with pytest.raises(InputError, match=f"body 'link1': torque {message}"):
        system_from("chain:3").set_torque("link1", rows)


@pytest.mark.parametrize("begin", [0.0, -2.0])
def test_what_follows_rows_with_a_lag(begin: float) -> None:
    """As scipy integrates it, before, between and behind the rows; in model files, in other units, with expressions."""
    rows = [[-1.0, 3.0], [0.5, -1.0], [0.7, 4.0], [2.0, 4.0], [2.5, 0.0]]
    follow = as_time_function({"rows": rows, "lag": 0.3, "begin": begin}, 1, "a number")
    times = [0.0, 0.2, 0.5, 0.6, 1.3, 2.2, 4.0]
    straight = OverTime(map(tuple, rows))
    found = solve_ivp(
        lambda t, y: (straight(t) - y) / 0.3, (0.0, 4.0), [begin], t_eval=times, rtol=1e-10, atol=1e-12, max_step=0.05
    )
    np.testing.assert_allclose([follow(t) for t in times], found.y[0], atol=1e-8)
    assert follow(-0.1) == begin
    text = """name = "s"
[units]
time = "ms"
[parameters]
most = 4.0
[[body]]
name = "a"
mass = 1
inertia = [1, 1, 1, 0, 0, 0]
joint = { type = "revolute", axis = [0, 0, 1], torque = { rows = [[0, 0], [100, "most"]], lag = "3 * 10", begin = 2 } }
"""
    system = system_from_text(text, "text")
    torque = system.contents.body(0).joint.torque
    assert torque == ((((0.0, 0.0), (0.1, 4.0))), 0.03, (2.0,))
    again = system_from_text(system_text(system), "again")
    assert again.contents.body(0) == system.contents.body(0)


def test_a_lag_that_makes_no_sense() -> None:
    system = System()
    system.add(name="a", mass=1.0, inertia=(1, 1, 1, 0, 0, 0), joint={"type": "revolute", "axis": (0, 0, 1)})
    for torque, message in (
        ({"rows": [[0, 1]], "lag": 0}, "lag must be positive, got 0"),
        ({"rows": [[0, 1]]}, "needs rows and a lag in s"),
        ({"rows": [[0, 1]], "lag": 1, "later": 2}, "needs rows and a lag in s"),
        ({"rows": [[0, 1], [0, 2]], "lag": 1}, "must be in order of time"),
    ):
        with pytest.raises(InputError, match=f"body 'a': torque: {message}|body 'a': .*{message}"):
            system.set_torque("a", torque)


def test_a_single_row_is_read_again() -> None:
    """As rows, not as the numbers in it."""
    system = System()
    joint = {"type": "revolute", "axis": (0, 0, 1), "torque": [[0.0, 5.0]]}
    system.add(name="a", mass=1.0, inertia=(1, 1, 1, 0, 0, 0), joint=joint)
    assert system_from_text(system_text(system), "text").contents.body(0) == system.contents.body(0)
