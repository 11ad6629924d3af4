"""Traces of evaluations against the plans of a real run, and their time by hand."""

import contextlib
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs.bench.predict.calibration import Calibration
from mpimbs.bench.predict.interval_times import IntervalTimes
from mpimbs.bench.predict.predict import TRACED, write_traces
from mpimbs.bench.predict.trace import COMPUTE, RECEIVE, SEND, Sweeps, Trace
from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.parallel.butterfly import ALSO_TO, FROM, TO, Butterfly
from mpimbs.parallel.native import PROC_NULL
from mpimbs.partition import schedule as step
from mpimbs.partition.schedule import balanced
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.open_bodies import HEAD
from mpimbs.sweep.structure import TURNING
from mpimbs.values.value import Room

US = 1e-6
TURNS = HEAD + 2 + TURNING  # doubles of a turn in a scan over intervals of a chain


class Known(Calibration):
    """Made-up times: 20 ns a body, the tip's a tenth faster."""

    def __init__(self, system: System) -> None:
        super().__init__(system.contents)
        self._joins = {"dcae": 0.4 * US, "dca": 0.6 * US, "dca-terminal": 0.6 * US}

    def sweeps(self, ranks: int, coupling: str) -> list[Sweeps]:
        each = 20e-9 * np.diff(self.division(ranks, coupling).cuts) * np.where(np.arange(ranks) == ranks - 1, 0.9, 1.0)
        return [Sweeps(0.4 * US, 0.1 * t, 0.7 * t, 0.1 * US, 0.2 * t) for t in each]

    def of_tree(self, ranks: int, coupling: str = "dcae") -> IntervalTimes:
        schedule = balanced([1] * ranks)
        rooms = [Room(1, 1, 1, 0) if last < ranks else Room(1, 0, 0, 0) for _, last in schedule.spans]
        doubles = [room.size() for room in rooms]
        return IntervalTimes([], {}, schedule, [0.4 * US] * (ranks - 1), doubles, TURNS, 0, [{}] * ranks, False)


def traces_of(coupling: str, ranks: int, bodies: int = 2048) -> list[Trace]:
    return write_traces(Known(system_from(f"spatial_chain:{bodies}")), ranks, coupling)


def messages(trace: Trace, base: int, levels: int) -> list[tuple[int, int, float]]:
    """Kind, rank and bytes of the messages of `levels` tags, in the order of the trace."""
    return [(e.kind, e.other, e.amount) for e in trace.events if e.kind > COMPUTE and base <= e.tag < base + levels]


def planned(butterfly: Butterfly) -> list[tuple[int, int, float]]:
    """The same of a real plan."""
    size, found = butterfly.mine.itemsize * butterfly.mine.shape[1], []
    for row in butterfly.schedule.tolist():
        found += [(SEND, int(row[k]), float(size)) for k in (TO, ALSO_TO) if row[k] != PROC_NULL]
        found += [(RECEIVE, int(row[FROM]), float(size))] if row[FROM] != PROC_NULL else []
    return found


def in_bytes(coupling: Any) -> list[tuple[int, int, float]]:
    """The same of an assembly."""
    kinds = {step.SEND_VALUE: SEND, step.RECEIVE_VALUE: RECEIVE}
    return [(kinds[kind], other, 8.0 * doubles) for kind, other, doubles in coupling.messages]


@pytest.mark.parametrize("coupling", TRACED)
def test_messages_are_those_of_the_plans(comm: MPI.Comm, coupling: str) -> None:
    """Who sends how many bytes to whom in which order, against the plans of `Dynamics` on these ranks."""
    trace = traces_of(coupling, comm.size, 64)[comm.rank]
    levels = (comm.size - 1).bit_length()
    with contextlib.closing(Dynamics(system_from("spatial_chain:64"), comm, coupling)) as dynamics:
        scan = planned(dynamics.divided.evaluation._turns._butterfly)
        parallel_assert(messages(trace, 0, levels) == scan, f"scan {trace.events}, planned {scan}", comm)
        joins = (
            in_bytes(dynamics.divided.coupling)
            if coupling == "assembly"
            else planned(dynamics.divided.coupling._butterfly)
        )  # type: ignore[attr-defined]
        parallel_assert(messages(trace, levels, trace._tag) == joins, f"joins {trace.events}, planned {joins}", comm)
        whole = sum(e.kind > COMPUTE for e in trace.events)
        parallel_assert(whole == len(scan) + len(joins), f"{whole} messages", comm)


@pytest.mark.parametrize("spec", ["tree:6:2", "caterpillar:40", "random_tree:100"])
def test_messages_of_trees_are_those_of_the_plans(comm: MPI.Comm, spec: str) -> None:
    """Sizes follow from the bodies that are open; every join at its level."""
    system = system_from(spec)
    calibration = Calibration(system.contents, 0.001)
    trace = write_traces(calibration, comm.size)[comm.rank]
    levels = (comm.size - 1).bit_length()
    with contextlib.closing(Dynamics(system, comm)) as dynamics:
        found, expected = messages(trace, 0, levels), planned(dynamics.divided.evaluation._turns._butterfly)
        parallel_assert(found == expected, f"{found}, planned {expected}", comm)
        found, expected = messages(trace, levels, trace._tag), in_bytes(dynamics.divided.coupling)
        parallel_assert(found == expected, f"{found}, planned {expected}", comm)
        joins = calibration.of_tree(comm.size).joins
        parallel_assert(len(joins) == comm.size - 1 and all(join > 0.0 for join in joins), f"{joins}", comm)


@pytest.mark.parametrize("spec", ["track:30", "four_bar:9", "boom:6", "four_bar_chain:8", "coupled_loops"])
def test_messages_of_loops_are_those_of_the_plans(comm: MPI.Comm, spec: str) -> None:
    """Values have room for what is open anywhere; motions of what bodies hang on and of ends elsewhere go before."""
    system = system_from(spec)
    calibration = Calibration(system.contents, 0.001)
    trace = write_traces(calibration, comm.size)[comm.rank]
    with contextlib.closing(Dynamics(system, comm)) as dynamics:
        evaluation, part = dynamics.divided.evaluation, dynamics.divided.subchains
        assert isinstance(part, Intervals) and evaluation._remote_ends is not None
        others = {rank: 8.0 * size for rank, size in evaluation._remote_ends.sizes.items()}
        doubles = evaluation._remote_ends.exchange.to_others.size
        parallel_assert(sum(others.values()) == 8.0 * doubles, f"{others}, {doubles} doubles", comm)
        far = [(kind, rank, others[rank]) for kind in (SEND, RECEIVE) for rank in sorted(others)]
        scans = [evaluation._turns] + [evaluation._motions] * (comm.size > 1 and part.hangs)
        expected = [message for scan in scans for message in planned(scan._butterfly)]
        expected += far + in_bytes(dynamics.divided.coupling)
        found = messages(trace, 0, trace._tag)
        parallel_assert(found == expected, f"{found}, planned {expected}", comm)
        joins = calibration.of_tree(comm.size).joins
        parallel_assert(len(joins) < comm.size and all(join > 0.0 for join in joins), f"{joins}", comm)


# --- the time of traces by hand --------------------------------------------------------------------------------------
