"""What lies between bodies of a system: the loops that joints and gears close, and springs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.model.body import Loop
from mpimbs.model.gear import Constraint
from mpimbs.model.spring import Spring

Ends = tuple[int, int]


class Pairs:
    """Two bodies of each of several things."""

    def __init__(self, bodies: Iterable[Ends]) -> None:
        self.bodies = list(bodies)  # their numbers; -1 the world
        self._ends = np.empty((0, 2), np.int64)

    @property
    def ends(self) -> Integers:
        """`bodies` as an array [n, 2]."""
        if len(self._ends) != len(self.bodies):
            self._ends = np.array(self.bodies, np.int64)
        return self._ends


class SystemLoops(list[Constraint], Pairs):
    """The joints and gears that close loops, in sequence."""

    def __init__(
        self, held: Iterable[Constraint] = (), bodies: Iterable[Ends] = (), names: set[str] | None = None
    ) -> None:
        super().__init__(held)
        Pairs.__init__(self, bodies)
        self.idle: list[Constraint] = []  # those that hold nothing before an event connects them
        self.names = {loop.name for loop in self} if names is None else names  # the names of both

    @property
    def all(self) -> list[Constraint]:
        """Those that hold, and then those that are idle."""
        return [*self, *self.idle]

    @property
    def joints(self) -> list[tuple[Ends, Loop]]:
        """The joints among them, each with the numbers of its bodies."""
        return [(ends, loop) for ends, loop in zip(self.bodies, self, strict=True) if isinstance(loop, Loop)]

    def take(self, loop: Constraint, ends: Ends) -> None:
        """Take one between bodies of these numbers, from the begin on or for events."""
        self.names.add(loop.name)
        if loop.active:
            self.bodies.append(ends)
            self.append(loop)
        else:
            self.idle.append(loop)

    def holding(self, held: Iterable[Constraint], bodies: Iterable[Ends]) -> SystemLoops:
        """Give others of them that hold, between bodies of these numbers, and none that are idle."""
        return SystemLoops(held, bodies, self.names)


class SystemSprings(dict[str, Spring], Pairs):
    """The springs between points of bodies, by name."""

    def __init__(self, springs: Mapping[str, Spring] | None = None, bodies: Iterable[Ends] = ()) -> None:
        super().__init__(springs or {})
        Pairs.__init__(self, bodies)
