"""What a rank has of a system, as evaluations use it. No MPI."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.memory import hand_out
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.structure import Springs, Structure


class Block(NamedTuple):
    """The place of a matrix of six rows in the handle equations of a part, `Part.blocks` taken flat."""

    at: int  # -1: it is zero
    beside: int = -1  # where the vector beside it begins, its numbers `ROW` apart; -1: there is none
    noise: int = -1  # where the noise of its diagonal begins


NO_BLOCK = Block(-1)


class Ends(NamedTuple):
    """The place of one subchain's or interval's handle equations in those of a part, and its boundary values.

    Groups are bodies on which others hang from behind, and loops that are open.
    """

    # [r]: bodies that hang on others outside, ascending, and on which; -1: all that hangs on the world, the last
    roots: Integers
    outside_bodies: Integers  # [r]
    groups: list[tuple[int, int]]  # numbers of the open bodies, and 0; of loops, and how many loads each has
    acceleration: Integers  # [r]: where A1 of each root begins in `Part.loads`, taken flat
    load: int  # and where the loads of all groups do
    inertia: list[Block]  # [I | p] of each root
    transfer: list[list[Block]]  # E of each root and all groups; empty of one that moves none of them
    compliance: list[list[Block]]  # W of each group and all of them, with c beside those of a group and itself


Taken = list[tuple[Floats, Integers]]


class WrenchRooms:
    """Gives external wrenches to the sweeps of a part.

    Parameters
    ----------
    taken : list of (array, array of int)
        Where sweeps read them, and which numbers these are of those on all steps in sequence [m * 6].
    """

    def __init__(self, taken: Taken) -> None:
        self._kept = [room for room, _ in taken]
        # the same, as `kernels.memory.hand_out` takes it
        self.rooms = np.array([(room.ctypes.data, room.size) for room in self._kept], np.int64).ravel()
        self.numbers = np.concatenate([np.zeros(0, np.int64), *(numbers for _, numbers in taken)])

    def __call__(self, wrenches: Floats) -> None:
        """Set the wrenches on all steps in sequence [m * 6] (N m, N)."""
        hand_out(wrenches, self.rooms, self.numbers)


class Part(Protocol):
    """Consecutive bodies of a system in one or more subchains, each hanging on the one before: those of a rank.

    Vectors of coordinates and speeds are in the order of these. How it is swept, by which passes, is a matter of the
    coupling that it goes with (`mpimbs.dynamics.pipeline`), as is the form of its equations.

    Attributes
    ----------
    independent : bool
        Whether no rank's bodies hang on those of another: evaluations need no messages.
    """

    independent: bool

    @property
    def plan(self) -> Integers:
        """The plan of its passes: a table that begins with `sweep.structure.Handles`."""
        ...

    @property
    def width(self) -> int:
        """Lanes of the widest sweep."""
        ...

    @property
    def blocks(self) -> Floats:
        """Handle equations of each subchain, as the pass inward leaves them: `values.handles.SIZE` numbers, or
        `values.assembly.ASSEMBLY` in the acceleration form [count, numbers]."""
        ...

    @property
    def loads(self) -> Floats:
        """A1 and f2 of each subchain [count, 12] (rad/s^2, m/s^2; N m, N), or accelerations and loads of an interval:
        what the pass outward takes."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Subchain]: ...

    def __getitem__(self, number: int) -> Subchain: ...

    def handle_loads(self) -> tuple[Floats, Floats]:
        """Accelerations of the bodies that these hang on [k, 6], and loads on those on which others hang [h, 6], of
        `loads` as they stand: as `Subchain.inboard` and `Subchain.outer` name them."""
        ...

    def joint_loads(
        self, q: Floats, u: Floats, tau: Floats, turns: Floats, wrenches: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Loads that the bodies receive through their inboard joints [n, 6], of what an evaluation has found, and their
        components along the axes of the joints [nu]: as of `Subchain.joint_loads`."""
        ...

    @property
    def set_wrenches(self) -> WrenchRooms:
        """Called, sets the external wrenches on all steps in sequence [m * 6], as `Subchain.wrenches` of `whole`."""
        ...

    def wrenches_taken(self) -> Taken:
        """Where its sweeps read external wrenches: see `WrenchRooms`."""
        ...

    @property
    def whole(self) -> Subchain:
        """All bodies of the part as one piece."""
        ...


class SeparablePart(Part, Protocol):
    """A part whose pieces may be separated from those that they hang on."""

    def ends(self) -> list[Ends]:
        """Where the equations of each piece stand."""
        ...

    def joints(self) -> list[tuple[Structure, Springs]]:
        """The arrays that the sweeps read of all joints, each once; what is written there the next sweep takes."""
        ...


class PartByHandles:
    """The base of parts whose handle equations tell all that goes on within."""

    @functools.cached_property
    def set_wrenches(self: Part) -> WrenchRooms:
        """Called, sets the external wrenches on all steps, as of `Part`."""
        return WrenchRooms(self.wrenches_taken())

    def joint_loads(
        self: Part, q: Floats, u: Floats, tau: Floats, turns: Floats, wrenches: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Loads that the bodies receive through their inboard joints [n, 6], and their components along the axes of the
        joints [nu], as of `Part`."""
        return self.whole.joint_loads(q, u, tau, turns, *self.handle_loads(), wrenches)


class PartOfOne:
    """The base of parts of one subchain: a sequence of one.

    Parameters
    ----------
    whole : Subchain
        All bodies of the part.
    """

    independent = False

    def __init__(self, whole: Subchain) -> None:
        self._whole = whole

    @property
    def whole(self) -> Subchain:
        """All its bodies."""
        return self._whole

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Subchain]:
        return iter((self._whole,))

    def __getitem__(self, number: int) -> Subchain:
        return (self._whole,)[number]
