"""Files of schedules, in TOML: which leaves there are, who owns them, and who joins what.

order = "heaviest last"        # of the bodies, depth first: or "as listed"

[[leaf]]                       # in that order; those of a rank follow one another
rank = 0
bodies = 3                     # how many
first = "pelvis"
last = "head"

[[join]]                       # the leaves are parts 0, 1, ...; joins go on with the numbers
parts = [0, 1]                 # neighbours, the first comes before the second
ranks = [0]                    # one, or each that needs the result
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field

from mpimbs.base.arrays import Integers
from mpimbs.base.errors import InputError
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order, arranged
from mpimbs.model.text.table import CheckedTable
from mpimbs.model.text.toml import at, read_toml
from mpimbs.partition.schedule import Schedule, Scheduled

Count = Annotated[int, Field(strict=True, ge=1)]
Rank = Annotated[int, Field(strict=True, ge=0)]

HEAVIEST_LAST, AS_LISTED = "heaviest last", "as listed"


class Leaf(CheckedTable):
    """Bodies that follow one another, which a rank owns."""

    rank: Rank = Field(description="the rank that owns it")
    bodies: Count = Field(description="how many bodies it has")
    first: str = Field(description="the name of its first body")
    last: str = Field(description="the name of its last body")


class Joined(CheckedTable):
    """Two neighbours that are joined."""

    model_config = ConfigDict(title="join")

    parts: tuple[Rank, Rank] = Field(description="the numbers of two neighbours")
    ranks: tuple[Rank, ...] = Field(min_length=1, description="the ranks that do it")


class ScheduleTable(CheckedTable):
    """The table of a schedule's file."""

    model_config = ConfigDict(title="schedule")

    order: str = HEAVIEST_LAST
    leaf: tuple[Leaf, ...] = ()
    join: tuple[Joined, ...] = ()


class Laid(NamedTuple):
    """A schedule over the bodies of a system."""

    order: Order
    bounds: Integers  # [leaves + 1]: leaf k has the bodies at the places bounds[k] to bounds[k + 1] - 1 of the order
    schedule: Schedule


def schedule_text(system: Contents, laid: Laid) -> str:
    """A schedule as a file."""
    named, bounds = arranged(system, laid.order), laid.bounds.tolist()
    listed = laid.order.is_identity or np.array_equal(laid.order.bodies, np.arange(laid.order.n))
    lines = [f"order = {json.dumps(AS_LISTED if listed else HEAVIEST_LAST)}"]
    for leaf, rank in enumerate(laid.schedule.owners):
        first, last = (json.dumps(named.name_of(k), ensure_ascii=False) for k in (bounds[leaf], bounds[leaf + 1] - 1))
        count = bounds[leaf + 1] - bounds[leaf]
        lines += ["", "[[leaf]]", f"rank = {rank}", f"bodies = {count}", f"first = {first}", f"last = {last}"]
    for left, right, ranks in laid.schedule.joins:
        lines += ["", "[[join]]", f"parts = {[left, right]}", f"ranks = {list(ranks)}"]
    return "\n".join(lines) + "\n"


def read_schedule(path: Path, system: Contents, size: int) -> Laid:
    """Read a schedule for a system on so many ranks.

    Raises
    ------
    InputError
        The file can't be read, is no TOML, or no schedule of this system on these ranks; the message names file, table
        and remedy.
    """
    given = read_toml(path, ScheduleTable)
    with at(f"{path}: "):
        order = _order(given.order, system)
        bounds, owners = _bounds(given.leaf, system, order), _owners(given.leaf, size)
        return Laid(order, bounds, Schedule(owners, _joins(given.join, len(given.leaf), size)))


def _order(name: Any, system: Contents) -> Order:
    order = Order.of(system)
    if name == HEAVIEST_LAST:
        return order
    if name != AS_LISTED:
        raise InputError(f"order '{name}' is none; choose '{HEAVIEST_LAST}' or '{AS_LISTED}'")
    listed = order.as_listed()
    if listed is None:
        raise InputError(f"order '{name}': '{system.name}' is not listed depth first; choose '{HEAVIEST_LAST}'")
    return listed


def _bounds(leaves: Sequence[Leaf], system: Contents, order: Order) -> Integers:
    bounds = np.concatenate(([0], np.cumsum([leaf.bodies for leaf in leaves], dtype=np.int64)))
    named = arranged(system, order)
    for number, leaf in enumerate(leaves):
        first, last = int(bounds[number]), int(bounds[number + 1]) - 1
        for key, name, place in (("first", leaf.first, first), ("last", leaf.last, last)):
            if place >= system.n_bodies or named.name_of(place) != name:
                there = f"'{named.name_of(place)}'" if place < system.n_bodies else "behind all bodies"
                raise InputError(
                    f"leaf {number}: {key} is '{name}', but in the order of '{system.name}' there is {there}; make the "
                    "file for this model, with `mpimbs predict --find-schedule`"
                )
    if bounds[-1] != system.n_bodies:
        raise InputError(
            f"the leaves have {bounds[-1]} bodies, '{system.name}' has {system.n_bodies}; give every body a leaf"
        )
    return bounds


def _owners(leaves: Sequence[Leaf], size: int) -> list[int]:
    owners = [leaf.rank for leaf in leaves]
    if sorted(set(owners)) != list(range(size)):
        raise InputError(
            f"the leaves are those of ranks {', '.join(map(str, sorted(set(owners))))}, and {size} were started; "
            "start as many ranks as the schedule is for, each of which has a leaf"
        )
    if owners != sorted(owners):
        raise InputError("the ranks of the leaves must not fall: what a rank owns follows one another")
    return owners


def _joins(joins: Sequence[Joined], leaves: int, size: int) -> list[Scheduled]:
    spans = {leaf: (leaf, leaf + 1) for leaf in range(leaves)}  # of the nodes that are joined to nothing so far
    found: list[Scheduled] = []
    for number, join in enumerate(joins):
        with at(f"join {number}: "):
            left, right = join.parts
            for part in join.parts:
                if part not in spans:
                    known = "was joined before" if part < leaves + number else "is not made yet"
                    raise InputError(f"part {part} {known}; name leaves, or joins above, that nothing else joins")
            if left == right or spans[left][1] != spans[right][0]:
                raise InputError(f"parts {left} and {right} are no neighbours in that sequence; join neighbours")
            if max(join.ranks) >= size:
                raise InputError(f"rank {max(join.ranks)} is not there: {size} were started; name ranks from 0 on")
            spans[leaves + number] = (spans.pop(left)[0], spans.pop(right)[1])
            found.append(Scheduled(left, right, tuple(sorted(set(join.ranks)))))
    if len(spans) != 1:
        raise InputError(f"{len(spans)} parts are left over; join them too, to one whole")
    return found
