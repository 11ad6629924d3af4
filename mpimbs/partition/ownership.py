"""What a rank owns, made ready for its sweeps. No MPI."""

from __future__ import annotations

import itertools

import numpy as np

from mpimbs.loops.loop_table import loops_of
from mpimbs.model.contents import Contents
from mpimbs.partition.division import Division
from mpimbs.partition.intervals import NOTHING_OUTSIDE, open_handles, outside_of
from mpimbs.partition.lanes import cut_chain
from mpimbs.partition.limbs import choose_limbs
from mpimbs.partition.strips import choose_strips
from mpimbs.parts.bodies.absolute import AbsoluteBodies
from mpimbs.parts.bodies.halved import HalvedBodies
from mpimbs.parts.interval import IntervalPart, IntervalSubchain, Outside
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.limbs import NO_LIMBS, Chosen
from mpimbs.parts.subchain import Subchain
from mpimbs.parts.subchains import Subchains
from mpimbs.sweep.build import Build


def own_subchains(system: Contents, division: Division, rank: int) -> Subchains:
    """Make the subchains of a rank, with their tiles."""
    mine = division.bounds[division.owners[rank] : division.owners[rank + 1] + 1].tolist()
    return Subchains([_subchain(system, first, last, division.width) for first, last in itertools.pairwise(mine)])


def own_intervals(system: Contents, division: Division, rank: int, apart: bool = False) -> Intervals:
    """Make the intervals of a tree's bodies that are a rank's.

    `apart`: all that hangs on one body has equations of its own, to be separated.
    """
    order, bounds, owners = division.order, division.bounds, division.owners
    loops = loops_of(system) if system.loops else None

    def part(first: int, last: int, outside: Outside, width: int) -> IntervalPart:
        table = loops.within(first, last) if loops is not None else None

        def choose(made: Build) -> Chosen:
            patterns = system.joint_patterns(first, last)
            looped = np.unique(table.bodies[table.bodies >= 0]) if table is not None else None
            opened, strips = outside.open - first, []
            if table is not None:
                strips = choose_strips(made, patterns, opened, table, outside.inboard, width)
            lanes = strips[0].width if strips else width
            return choose_limbs(made, patterns, opened, lanes, division.width == 0, looped, strips)

        return IntervalPart(system, first, last, outside, choose, table)

    if order is None:  # one interval
        only = part(0, system.n_bodies, NOTHING_OUTSIDE, division.width)
        return Intervals([only], only.whole)
    handles = open_handles(order)[bounds]
    most = max(1, int(handles.max()))
    hangs = bool(handles.any())
    alone = not apart and not hangs
    independent = alone and (loops is None or not len(loops.between(division.cuts)))
    pieces = list(itertools.pairwise(bounds[owners[rank] : owners[rank + 1] + 1].tolist()))
    found: dict[tuple[int, int], IntervalPart] = {}
    width = division.width
    for piece in sorted(pieces, key=lambda ends: ends[0] - ends[1]):  # all have as many lanes as the largest with any
        found[piece] = part(*piece, outside_of(order, *piece, most, apart), width)
        width = width or (found[piece].width if found[piece].width > 1 else 0)
    parts = [found[piece] for piece in pieces]
    if len(parts) == 1:
        return Intervals(parts, parts[0].whole, independent, hangs)
    first, last = division.cuts[rank : rank + 2].tolist()
    whole = IntervalSubchain(system, first, last, outside_of(order, first, last, most))
    return Intervals(parts, whole, independent, hangs)


def own_cut_intervals(system: Contents, division: Division, rank: int) -> Intervals:
    """Make the intervals of a rank, whose joints are to be separated."""
    return own_intervals(system, division, rank, apart=True)


def own_joined_intervals(system: Contents, division: Division, rank: int) -> Intervals:
    """Make the intervals of a rank, which are joined to those of others whatever hangs on what: a schedule says so."""
    found = own_intervals(system, division, rank)
    found.independent = False
    return found


def own_absolute_bodies(system: Contents, division: Division, rank: int) -> AbsoluteBodies:
    """Make the bodies of a rank, none of which is swept."""
    order, (first, last) = division.order, division.cuts[rank : rank + 2].tolist()
    handles = np.zeros(1) if order is None else open_handles(order)[division.bounds]
    outside = NOTHING_OUTSIDE if order is None else outside_of(order, first, last, max(1, int(handles.max())))
    loops = loops_of(system).within(first, last) if system.loops else None
    return AbsoluteBodies(IntervalPart(system, first, last, outside, lambda _: NO_LIMBS, loops), bool(handles.any()))


def own_bodies(system: Contents, division: Division, rank: int) -> HalvedBodies:
    """Halve the bodies of a rank down to single ones.

    Raises
    ------
    InputError
        A body has no inverse inertia.
    """
    first, last = division.cuts[rank : rank + 2].tolist()
    return HalvedBodies(system, first, last)


def own_bodies_and_terminal(system: Contents, division: Division, rank: int) -> HalvedBodies:
    """Halve the bodies of a rank; at the tip only the first is a leaf, on which the rest hangs as a subchain.

    Raises
    ------
    InputError
        A leaf has no inverse inertia.
    """
    first, last = division.cuts[rank : rank + 2].tolist()
    if last < system.n_bodies or last - first < 2:
        return HalvedBodies(system, first, last)
    return HalvedBodies(system, first, last, _subchain(system, first + 1, last, division.width))


def _subchain(system: Contents, first: int, last: int, width: int) -> Subchain:
    tiles = cut_chain(system.joint_patterns(first, last), width) if system.is_chain else None
    return Subchain(system, first, last, tiles)
