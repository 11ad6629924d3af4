"""What is said to be open between ranks, and how often columns are moved, against the parts of a real run."""

import functools

import numpy as np
import pytest

from mpimbs.bench.predict.interval_times import _of_all, time_intervals
from mpimbs.bench.predict.open_values import KINDS, OpenValues, event_counts
from mpimbs.bench.predict.trace import Sweeps
from mpimbs.coupling import coupling_for
from mpimbs.loops.closing import CLOSE, END, FOLD, MOVE, SETTLE
from mpimbs.model import System, system_from
from mpimbs.model.order.arranged import arranged
from mpimbs.model.order.order import Order
from mpimbs.partition.division import Division
from mpimbs.partition.ownership import own_intervals
from mpimbs.sweep.structure import BOUNDARY
from mpimbs.values.joining import joined
from mpimbs.values.joins import join
from mpimbs.values.value import noise_at
from oracles.random_loops import random_mechanism

RANDOM = {f"random {seed}": (seed, reach) for seed, reach in ((1, None), (2, None), (3, 5), (4, 5))}
SYSTEMS = ("track:40", "four_bar:9", "boom:6", "four_bar_chain:12", "andrews", *RANDOM)
RANKS = 1, 2, 3, 5, 7


@functools.cache
def system_of(name: str) -> System:
    if name not in RANDOM:
        return system_from(name)
    seed, reach = RANDOM[name]
    return random_mechanism(seed, 24, 6, doubled=2, chain=bool(seed % 2), reach=reach)[0]


def divided(system: System, ranks: int) -> tuple[Division, OpenValues]:
    division = coupling_for(system, "dcae").divide(system, ranks)
    return division, OpenValues(system, division.order or Order.of(system), division.cuts)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("ranks", RANKS)
def test_pieces_are_those_of_the_parts(name: str, ranks: int) -> None:
    """Slots, groups, and events of every rank, in doubles; and the ends that lead to others."""
    system = system_of(name)
    division, values = divided(system, ranks)
    division = division._replace(width=1)
    numbered = arranged(system, division.order)
    for rank in range(ranks):
        part = own_intervals(numbered, division, rank)
        assert values.pieces[rank] == part.values[0] and values.doubles[rank] == part.blocks.size
        (loops,) = part.loops
        assert values.events[rank].tolist() == event_counts(loops.closings)
        assert rank not in values.exchanged[rank]
        assert sum(values.exchanged[rank].values()) == BOUNDARY * len(loops.far)
    assert not values.groups or values.groups[-1].whole[1:3] == ([-1], []), "all is closed in the end"


@pytest.mark.parametrize("name", SYSTEMS)
def test_made_up_values_join_as_described(name: str) -> None:
    """What a join that is timed is given, and what it makes of it: slots and groups as of the bodies themselves."""
    _, values = divided(system_of(name), 7)
    eliminated = 0.0
    for group in values.groups:
        both, room = joined(group.left, group.right), group.whole.room
        (rows, lists), out = both.tables(), np.zeros(room.size())
        work, kept, scratch = (np.full(size, np.nan) for size in (both.work, both.kept, both.scratch))
        given = map(values.value, (group.left, group.right))
        join(rows, 0, len(both.up), lists, *given, work, out, kept, scratch)
        assert both.value == group.whole and np.isfinite(out).all()
        eliminated += out[noise_at.py_func(room, room.open)]
    assert eliminated > 0, "nothing was found in any join"


def test_events_of_a_track() -> None:
    """The columns of the loop go along all bodies but the first; those of an open body along all of a rank's."""
    n, ranks = 40, 4
    division, values = divided(system_of("track:40"), ranks)
    bodies = np.diff(division.cuts)
    events = {kind: values.events[:, k].tolist() for k, kind in enumerate(KINDS)}
    assert bodies.sum() == n
    # Rank 0 has the loop's end at its first body, where its open one's columns come in; the last rank the other end.
    assert events[MOVE][1:] == bodies[1:].tolist() and events[MOVE][0] in (bodies[0], bodies[0] + 1)
    assert events[END] == [2, 1, 1, 1]
    assert events[CLOSE] == events[SETTLE] == [0] * ranks and sum(events[FOLD]) > 0
    _, alone = divided(system_of("track:40"), 1)
    assert alone.events[0, KINDS.index(CLOSE)] == 1 and alone.events[0, KINDS.index(MOVE)] == n - 1


def test_times_of_shares_that_are_not_timed() -> None:
    """They follow from bodies and events, whose times are found from the shares that are timed."""
    division, values = divided(system_of("four_bar:9"), 7)
    lanes = np.diff(division.cuts) + 0.5
    work = np.column_stack((lanes, values.events))
    seconds = work @ [1e-7, 2e-7, 3e-7, 0.0, 5e-7, 0.0]
    ends = np.array([sum(sizes.values()) / BOUNDARY for sizes in values.exchanged])
    every = [
        Sweeps(1e-6, 0.2 * t, 0.7 * t, 4e-7, 0.1 * t, 2e-6, 3e-6 + 6e-6 * count)
        for t, count in zip(seconds, ends, strict=True)
    ]
    every[1] = every[1]._replace(placing=0.0)  # that says nothing of the others
    left_out = 2, 4
    found = _of_all(work, values, {rank: times for rank, times in enumerate(every) if rank not in left_out})
    for rank, times in enumerate(every):
        same = ("call", "motion", "inward", "coupling", "outward", "placing")
        assert [getattr(found[rank], name) for name in same] == pytest.approx([getattr(times, name) for name in same])


def test_shares_that_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some from the cheapest to the dearest; what loops to other ranks ask for takes time where they end."""
    monkeypatch.setattr("mpimbs.bench.predict.interval_times.MOST_TIMED", 4)
    system = system_from("four_bar:60")
    times = time_intervals(system, coupling_for(system, "dcae").divide(system, 12), 0.002)
    assert len(times.sweeps) == 12 and 4 <= len(times.measured) <= 5
    assert all(min(sweeps) >= 0.0 and sweeps.inward > 0.0 and np.isfinite(sweeps).all() for sweeps in times.sweeps)
    placing = {bool(sizes): sweeps.placing for sizes, sweeps in zip(times.exchanged, times.sweeps, strict=True)}
    assert placing[True] > placing[False] > 0.0
