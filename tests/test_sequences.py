"""Runs that are stopped, killed and continued at random, beside the same course undisturbed: a few, and those that were
wrong once."""

import tomllib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from courses import course_of
from mpi_helpers import parallel_assert
from mpimbs.dynamics import Dynamics
from mpimbs.run.run_memory import RunMemory, RunState
from sequences import check_sequence

CORPUS = Path(__file__).parent / "corpus" / "courses" / "sequences.toml"
WRONG_ONCE = tomllib.loads(CORPUS.read_text())["sequence"]
SEED = 24  # of a course with functions of time and state, by 5dp with adaptive steps


@pytest.mark.cases(2)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("given", WRONG_ONCE, ids=lambda given: f"seed{given['seed']}")
def test_what_was_wrong_is_right(comm: MPI.Comm, given: dict[str, Any]) -> None:
    """The courses are other ones on other numbers of ranks."""
    verdict, _ = check_sequence(course_of(given["seed"], comm.size, given["plain"]), comm)
    found = verdict.wrong + verdict.told + (verdict.refused if "refused" in given["wrong"] else [])
    parallel_assert(not found, "\n".join(found), comm)


@pytest.mark.ranks(2, 3)
def test_motions_that_acted_outlive_a_refinement(comm: MPI.Comm) -> None:
    """The first evaluation refines what the loops leave, by motions of other speeds: work was off by a first stage."""
    case = course_of(956580760, 4, True).case
    case.system.contents.events.clear()
    with closing(Dynamics(case.system, comm)) as dynamics:
        q, u = case.q[dynamics.gather_q.part].copy(), case.u[dynamics.gather_u.part].copy()
        udot, rates, found = np.empty(len(u)), np.empty(len(q)), []
        for _ in range(2):
            acted = dynamics.derivative.evaluate(0.0, q, u, udot, rates, None)
            assert acted.motions is not None
            found.append(acted.motions.copy())
        parallel_assert(np.array_equal(*found), f"{found}", comm)


@pytest.mark.cases(2)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("lost", [None, "state", "step", "stage"])
def test_what_a_checkpoint_loses_is_seen(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, lost: str | None) -> None:
    """The last digits of a state, the size of the next step, the stage that it takes from the one before."""
    course = course_of(SEED, comm.size, plain=True)
    acts = [("signal", comm.size, 0), ("kill", comm.size, 0)]
    course = replace(course, acts=acts, ranks=comm.size)
    recall = RunMemory.recall

    def forgetful(self: RunMemory) -> RunState:
        state = recall(self)
        if lost == "state":
            state.u *= 1 + 1e-9
        if lost == "step":
            state.steps = state.steps._replace(step=1.01 * state.steps.step)
        if lost == "stage":
            state.steps = state.steps._replace(vectors={})
        return state

    monkeypatch.setattr(RunMemory, "recall", forgetful)
    verdict, counts = check_sequence(course, comm)
    assert counts["restarts"] == 2 and counts["same ranks"] == 1
    parallel_assert(comm.rank or bool(verdict.wrong) == (lost is not None), f"{verdict.wrong}", comm)
