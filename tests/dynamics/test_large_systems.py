"""Systems of many bodies: made ready by arrays, without a loop in Python or an object for each body."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.model.facts import facts
from mpimbs.model.summary import validate


def lines_run(action: Callable[[], object]) -> int:
    """How many lines of Python are run, those of loops as often as they come."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def make_ready(spec: str) -> None:
    """All that is done with a system before the first evaluation, and what `check` says of it."""
    system = system_from(spec)
    validate(system.contents)
    facts(system.contents)
    Dynamics(system, lanes=1).close()
    system.summary()


@pytest.mark.cases(1)
@pytest.mark.parametrize(("small", "large"), [("tree:8:2", "tree:13:2"), ("spatial_chain:500", "spatial_chain:20000")])
def test_no_loop_over_bodies(small: str, large: str) -> None:
    """Of a tree there are a few lines more for each level, and rounds that double what is known."""
    make_ready(small)  # imports and caches
    few, many = (lines_run(lambda spec=spec: make_ready(spec)) for spec in (small, large))
    assert many < 1.3 * few, f"{few} lines of {small}, {many} of {large}"


def objects_kept(spec: str) -> int:
    gc.collect()
    before = sys.getallocatedblocks()
    system: System = system_from(spec)
    dynamics = Dynamics(system, MPI.COMM_SELF, lanes=1)
    kept = sys.getallocatedblocks() - before
    dynamics.close()
    return kept


@pytest.mark.cases(1)
@pytest.mark.parametrize("large", ["tree:13:2", "tree:8:3", "spatial_chain:20000"])
def test_no_object_for_each_body(large: str) -> None:
    objects_kept(large)
    kept, n = objects_kept(large), system_from(large).n_bodies
    assert kept < 0.3 * n, f"{kept} objects for {n} bodies"
    assert len(list(system_from(large).contents.segments)) <= 3
