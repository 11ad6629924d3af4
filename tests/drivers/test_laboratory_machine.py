"""Peak and bandwidth, by their relations to each other; the table of limits."""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from laboratory import machine as loops
from laboratory.counting import Counted, CountedArray, Counts, counting
from laboratory.machine import (
    CHAINS,
    COPY,
    LEVELS,
    TRIAD,
    Machine,
    Rate,
    aligned,
    cache_sizes,
    measure_core,
    of_all_ranks,
    working_sets,
)
from laboratory.phase_costs import counts_of_tile, time_phases
from laboratory.phases import TILE_PHASES, TIP
from limits import as_numbers, describe, limits, told, total
from mpi_helpers import measured
from mpimbs.kernels.lanes import native_width
from mpimbs.model import system_from
from mpimbs.parallel.agreement import first_on_node


@pytest.fixture(scope="module")
def machine(comm: MPI.Comm) -> Machine:
    first_on_node(comm, lambda: measure_core(runs=1))
    return measure_core(comm)


def as_machines_are(machine: Machine) -> bool:
    """Whether registers do more than single doubles, side by side more than in sequence, and caches more than memory.

    Side by side are one to four units of 3 to 6 cycles each.
    """
    faster = machine.lanes.maximum > 1.2 * machine.doubles.maximum
    return faster and 2 < machine.in_flight < 50 and machine.triad["L1"].maximum > 1.2 * machine.triad["DRAM"].maximum


def test_figures_of_the_machine(machine: Machine, comm: MPI.Comm) -> None:
    rates = [machine.lanes, machine.doubles, machine.dependent, *machine.copy.values(), *machine.triad.values()]
    assert all(0 < rate.minimum <= rate.median <= rate.maximum < np.inf for rate in rates)
    assert tuple(machine.sizes) == tuple(machine.copy) == tuple(machine.triad) == LEVELS
    assert machine.ranks == 1 and machine.width == native_width()
    measured(comm, lambda: measure_core(comm), as_machines_are)
    assert machine.frequency(8) == pytest.approx(2 * machine.frequency())
    whole = of_all_ranks(machine, comm)
    assert whole.ranks == comm.size and whole.sizes == machine.sizes
    assert whole.lanes.minimum == pytest.approx(sum(comm.allgather(machine.lanes.minimum)))
    assert whole.copy["L2"].median == pytest.approx(sum(comm.allgather(machine.copy["L2"].median)))
    for m in (machine, whole):
        assert f"{m.lanes.maximum:.1f} GFLOP/s" in describe(m) and all(level in describe(m) for level in LEVELS)


def test_work_of_the_loops() -> None:
    """What is measured is what the loops do: operations and bytes per repetition."""
    for independent in (loops._independent, loops._dependent):
        done = []
        for times in (2, 7):
            counts = Counts()
            counting(independent)(Counted(0.0, counts, True), times, CountedArray(np.ones(CHAINS + 2), counts))
            done.append(counts)
        each = (done[1] - done[0]) / 5
        assert each == Counts(additions=CHAINS, multiplications=CHAINS)
    n = 256
    for loop, arrays, moved, operations in ((loops._copy, 2, COPY, 0), (loops._triad, 3, TRIAD, 2)):
        counts = Counts()
        a = [CountedArray(np.full(n, float(k)), counts) for k in range(arrays)]
        counting(loop)(Counted(0.0, counts, True), 1, *a)
        assert counts.bytes_moved() == moved * n and counts.operations == operations * n
        assert np.all(a[0].values == (1.0 if arrays == 2 else 2.0))


@pytest.mark.parametrize("triad", [False, True])
def test_streams_go_over_all_of_an_array(triad: bool) -> None:
    w = native_width()
    n = 12 * w
    a, b, c = aligned(np.zeros(n)), aligned(np.arange(n) + 1.0), aligned(np.arange(n) ** 2.0)
    loops._STREAM[w](triad, 1, a, b, c)
    np.testing.assert_array_equal(a, b + 0.5 * c if triad else b)
    assert all(array.ctypes.data % 64 == 0 for array in (a, b, c))


@pytest.mark.parametrize("lanes", [1, native_width()])
def test_multiply_adds_are_done(lanes: int) -> None:
    """Sixteen numbers, or one sixteen times as often, by x <- x / 2 + 1."""
    starts = np.arange(CHAINS * lanes) * 1.0
    for chained, times in ((False, 3), (True, 1)):
        numbers = aligned(np.concatenate([starts, np.full(lanes, 0.5), np.full(lanes, 1.0)]))
        loops._MULTIPLY_ADD[lanes](chained, times, numbers)
        first = starts.reshape(CHAINS, lanes)
        halvings = times * (CHAINS if chained else 1)
        after = 2 + (first - 2) * 0.5**halvings
        np.testing.assert_allclose(numbers[:lanes], after[0] if chained else after.sum(axis=0), rtol=1e-14)


def test_caches_as_the_system_tells_them(tmp_path: Path) -> None:
    usual = cache_sizes(tmp_path)
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "24K"), ("1", "Instruction", "96K"), ("2", "Unified", "2M"), ("3", "Unified", "99999K")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    (tmp_path / "index9").mkdir()
    told = cache_sizes(tmp_path)
    assert told == {"L1": 24 << 10, "L2": 2 << 20, "L3": 99999 << 10}
    for caches in (usual, told):
        sizes = list(working_sets(caches).values())
        assert sizes == sorted(sizes) and len(set(sizes)) == 4
        assert sizes[0] < caches["L1"] < sizes[1] < caches["L2"] < sizes[2] < caches["L3"] < sizes[3]


def an_example() -> Machine:
    """100 GFLOP/s; 400, 200, 100, 50 GB/s."""
    triad = {level: Rate(1.0, 2.0, 400 / 2**k) for k, level in enumerate(LEVELS)}
    caches = {"L1": 1000, "L2": 10_000, "L3": 100_000}
    rates = (Rate(1.0, 2.0, 100.0), Rate(1.0, 2.0, 20.0), Rate(1.0, 2.0, 10.0))
    return Machine(1, 4, *rates, caches, dict.fromkeys(LEVELS, 1), triad, triad)


def test_levels_deliver_what_they_hold() -> None:
    """Bytes over and over: each level its share, at 400, 200, 100 and 50 GB/s."""
    machine = an_example()
    assert [machine.level(size) for size in (1000, 1001, 20_000, 100_001)] == ["L1", "L2", "L3", "DRAM"]
    assert machine.least_time(0, 0) == 0.0 and machine.least_time(800, 500) == 2.0
    assert machine.least_time(4000, 4000) == pytest.approx(1000 / 400 + 3000 / 200)
    share = np.array([1, 9, 90, 100]) / 200
    assert machine.least_time(1000, 200_000) == pytest.approx(1000 * np.sum(share / [400, 200, 100, 50]))


def test_limits_by_hand() -> None:
    machine = an_example()
    work = Counts(additions=100, multiplications=200, fetched=20, written=4, integers=4, touched=50)
    counts = {"inward": work, "joins": work / 100}
    measured = {"lanes": {"inward": 8.0}, "doubles": {"inward": 40.0, "joins": 40.0}}
    inward, joins = rows = limits(counts, machine, measured, bodies=10)
    # 200 fused multiply-adds; 24 numbers, and 4 integers between 4 lanes; 400 bytes of 10 bodies, 1000 in L1
    assert (inward.bytes_moved, inward.level, inward.at_peak) == (200, "L2", 4.0)
    assert inward.at_bandwidth == pytest.approx(0.25 * 200 / 400 + 0.75 * 200 / 200)
    assert inward.least == 4.0 and inward.share("lanes") == 0.5 and inward.share("doubles") == 0.1
    assert (joins.level, joins.at_bandwidth, joins.measured) == ("L1", 0.005, {"doubles": 40.0})
    whole = total("sum", rows, {"lanes": 16.0})
    assert (whole.least, whole.counts.multiplications) == (4.04, 202) and whole.share("lanes") == 4.04 / 16
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in told([*rows, whole], "lanes", "doubles").splitlines()
    ]
    assert lines[0] == ["phase", "operations", "bytes", "limit, ns", "lanes, ns", "share", "doubles, ns"]
    assert lines[2:] == [
        ["inward", "300", "200", "4.00", "8.00", "50 %", "40.0"],
        ["joins", "3", "2", "0.04", "", "", "40.0"],
        ["sum", "303", "202", "4.04", "16.0", "25 %", ""],
    ]
    assert as_numbers([inward])[0]["share_of_limit"] == {"lanes": 0.5, "doubles": 0.1}


@pytest.mark.time_limit(400)  # the first to use a width compiles for it
@pytest.mark.ranks()  # of one alone: two on a machine that is shared take from one another what is measured
def test_no_kernel_is_faster_than_the_machine(comm: MPI.Comm) -> None:
    w = native_width()
    system = system_from(f"spatial_chain:{72 * w}")
    first_on_node(comm, lambda: [time_phases(system, lanes, 0.0) for lanes in (1, w)])
    counts = counts_of_tile(*(system_from(f"spatial_chain:{n}") for n in (68, 72)), 72, w)

    def times() -> tuple[dict[int, dict[str, float]], float]:
        return {lanes: time_phases(system, lanes, 0.005) for lanes in (1, w)}, measure_core(comm).lanes.maximum

    def slower(found: tuple[dict[int, dict[str, float]], float]) -> bool:
        phases, peak = found
        rates = [
            counts[name].operations / us for each in phases.values() for name, us in each.items() if name in counts
        ]
        return max(rates) < peak and sum(phases[w][name] for name in TIP) < sum(phases[1][name] for name in TIP)

    phases, _ = measured(comm, times, slower)
    assert set(phases[w]) == {*TILE_PHASES, *TIP} and set(phases[1]) == {*TIP, *TILE_PHASES[1:-1]}
    assert all(us > 0 for each in phases.values() for us in each.values())
    with pytest.raises(ValueError, match="width 3"):
        time_phases(system, 3)
