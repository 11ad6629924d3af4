"""What a rank owns, made ready for its sweeps. No MPI."""

from __future__ import annotations

import itertools

from mpimbs.model.contents import Contents
from mpimbs.partition.division import Division
from mpimbs.partition.intervals import NOTHING_OUTSIDE, outside_of
from mpimbs.partition.lanes import cut_tiles
from mpimbs.partition.limbs import choose_limbs
from mpimbs.sweep.build import Build
from mpimbs.sweep.halved_bodies import HalvedBodies
from mpimbs.sweep.interval import IntervalPart
from mpimbs.sweep.limbs import Chosen
from mpimbs.sweep.subchain import Subchain
from mpimbs.sweep.subchains import Subchains


def own_subchains(system: Contents, division: Division, rank: int) -> Subchains:
    """Make the subchains of a rank, with their tiles."""
    mine = division.bounds[division.owners[rank] : division.owners[rank + 1] + 1].tolist()
    return Subchains([_subchain(system, first, last, division.width) for first, last in itertools.pairwise(mine)])


def own_interval(system: Contents, division: Division, rank: int) -> IntervalPart:
    """Make the interval of a tree's bodies that is a rank's."""
    first, last = division.cuts[rank : rank + 2].tolist()
    outside = NOTHING_OUTSIDE if division.order is None else outside_of(division.order, first, last, division.cuts)

    def choose(made: Build) -> Chosen:
        return choose_limbs(made, system.joint_patterns(first, last), outside.open - first, division.width)

    return IntervalPart(system, first, last, outside, choose)


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
    tiles = cut_tiles(system.joint_patterns(first, last), width) if system.is_chain else None
    return Subchain(system, first, last, tiles)
