"""Batches: copies of one system with different states or parameters, evaluated side by side in SIMD lanes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.arguments import check_array, check_kinds
from mpimbs.errors import InputError
from mpimbs.model import System, facts, system_of
from mpimbs.model.facts import digest
from mpimbs.parallel.agreement import alike, communicator, first_on_node, together
from mpimbs.partition.lanes import width_of
from mpimbs.spatial.lanes import native_width
from mpimbs.sweep.build import Build, build
from mpimbs.sweep.entries import SYSTEMS_ALONE
from mpimbs.sweep.quaternions import make_quaternions_unit
from mpimbs.sweep.side_by_side import side_by_side
from mpimbs.sweep.tiles import ALONE, Kinds, Placed, Tiles

Floats = npt.NDArray[np.float64]


class Batch:
    """Forward dynamics of many copies of a system, chain or tree, as many side by side as the processor has lanes.

    Each rank owns a share of the copies; there is no communication. Vectors given and returned are the rank's own, one
    row a copy, in the model's order, contiguous.

    Parameters
    ----------
    systems : System or sequence of System
        Or names of models, as for `system_from`. One for all copies, or one for each: with the same bodies, parents and
        joint types, but any parameters.
    copies : int, optional
        How many, of one system.
    comm : MPI.Comm, optional
        The ranks that share the copies; this process alone by default.
    lanes : int, optional
        Copies side by side: 1, 2, 4 or 8; as many as the processor has by default. Of fewer copies than lanes one
        after the other is evaluated.
    wrenches : bool
        Whether wrenches on bodies will be given.

    Attributes
    ----------
    first, last : int
        This rank's copies.
    q, u : array [copies, nq], array [copies, nu]
        The models' initial states (rad, m, unit quaternions; rad/s, m/s) of this rank's copies.

    Raises
    ------
    InputError
        On all ranks: systems that differ in joints or close loops, wrenches, springs between bodies or functions of
        time or state in a model (give `tau` and `wrench` instead), fewer copies than ranks, no such number of lanes.
    """

    def __init__(
        self,
        systems: System | str | Path | Sequence[System | str | Path],
        copies: int | None = None,
        comm: MPI.Comm | None = None,
        lanes: int | None = None,
        wrenches: bool = False,
    ) -> None:
        given = communicator(comm)
        settings = {"copies": copies, "lanes": lanes, "wrenches": wrenches}
        all_systems, number, width = together(given, lambda: _prepared(systems, given.size, settings))
        shared = len(all_systems) == 1
        alike(given, lambda: _facts(all_systems) | {name: str(value) for name, value in settings.items()})
        self.first, self.last = (number * rank // given.size for rank in (given.rank, given.rank + 1))
        count = self.last - self.first
        mine = [all_systems[0]] if shared else all_systems[self.first : self.last]
        columns = [system.columns() for system in mine]
        self.n_bodies, self.nq, self.nu = mine[0].n_bodies, mine[0].nq, mine[0].nu
        self.q = np.broadcast_to([c.q for c in columns], (count, self.nq)).copy(order="C")
        self.u = np.broadcast_to([c.u for c in columns], (count, self.nu)).copy(order="C")
        self._made = [build(c) for c in columns]
        width = width if count >= width else 1
        self._tiles = self._make_tiles(count, width, wrenches)
        self._tiles.loads.reshape(-1, 12)[:, 3:6] = -np.asarray(all_systems[0].gravity)
        self._none = np.zeros(0)
        self._evaluate = SYSTEMS_ALONE[self._tiles.width]

    def _make_tiles(self, count: int, width: int, wrenches: bool) -> Tiles:
        kinds = Kinds()
        found: dict[int, int] = {}
        chosen = []
        for start in range(0, count, width):
            lane = min(start, count - width)  # the last tile may take copies a second time
            key = 0 if len(self._made) == 1 else lane
            if key not in found:
                pieces: list[Build] = self._made * width if len(self._made) == 1 else self._made[lane : lane + width]
                found[key] = kinds.add(side_by_side(pieces) if width > 1 else pieces[0], self.nq, width)
            chosen.append(Placed(found[key], width, lane))
        return Tiles(kinds, chosen, tip=True, wrenches=wrenches, lanes_are=ALONE)

    @property
    def copies(self) -> int:
        """Number of this rank's copies."""
        return self.last - self.first

    @property
    def lanes(self) -> int:
        """Number of copies that are evaluated side by side."""
        return self._tiles.width

    def compile(self, comm: MPI.Comm) -> None:
        """Compile, or load from the cache, what evaluations call, first on one rank of every node; all ranks call."""
        first_on_node(comm, lambda: self.derivative(self.q, self.u, np.empty_like(self.u), np.empty_like(self.q)))

    def derivative(
        self, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None = None, wrench: Floats | None = None
    ) -> None:
        """Evaluate the state derivative of every copy.

        Parameters
        ----------
        q, u : array [copies, nq], array [copies, nu]
            Coordinates (rad, m, quaternions) and generalized speeds (rad/s, m/s).
        udot, rates : array [copies, nu], array [copies, nq]
            Written: generalized accelerations and rates of the coordinates.
        tau : array [copies, nu], optional
            Generalized forces (N m, N) on top of the models'.
        wrench : array [copies, n_bodies, 6], optional
            External wrench on each body at its origin, body frame components, moment first (N m, N); the last given
            ones act on.

        Raises
        ------
        InputError
            An array of another shape, or not contiguous; or wrenches where the batch was made without.
        """
        for name, array, size in (
            ("q", q, self.nq),
            ("u", u, self.nu),
            ("udot", udot, self.nu),
            ("rates", rates, self.nq),
        ):
            check_array(name, array, (self.copies, size))
        if tau is not None:
            check_array("tau", tau, (self.copies, self.nu))
        if wrench is not None:
            self._set_wrenches(wrench)
        given = self._none if tau is None else tau.reshape(-1)
        self._evaluate(self._tiles.plan, q.reshape(-1), u.reshape(-1), given, udot.reshape(-1), rates.reshape(-1))

    def accelerations(self, q: Floats, u: Floats, tau: Floats | None = None, wrench: Floats | None = None) -> Floats:
        """Give the generalized accelerations [copies, nu]; arguments as in `derivative`."""
        udot, rates = np.empty((self.copies, self.nu)), np.empty((self.copies, self.nq))
        self.derivative(q, u, udot, rates, tau, wrench)
        return udot

    def make_unit(self, q: Floats) -> None:
        """Scale every quaternion in `q` [copies, nq] to unit length, as is due after a step of an integrator."""
        check_array("q", q, (self.copies, self.nq))
        for k in range(self.copies):
            make_quaternions_unit(0.0, self._made[0].structure, q[k])

    def _set_wrenches(self, wrench: Floats) -> None:
        if not self._tiles.wrenches.size:
            raise InputError("wrenches are given to a batch that was made without: make it with wrenches=True")
        check_array("wrench", wrench, (self.copies, self.n_bodies, 6))
        steps = self._tiles.wrenches.reshape(self.copies, -1, 2, 3)
        for k in range(self.copies):
            made = self._made[k % len(self._made)]
            steps[k, made.body_step] = wrench[k].reshape(-1, 2, 3) @ made.body_frame


def _facts(systems: list[System]) -> dict[str, Any]:
    """What the ranks of a batch have to have in common."""
    if len(systems) == 1:
        return facts(systems[0])
    digests: dict[str, Any] = {f"system {k}": digest(tuple(facts(system).items())) for k, system in enumerate(systems)}
    return {"the number of systems": len(systems)} | digests


def _prepared(given: Any, ranks: int, settings: dict[str, Any]) -> tuple[list[System], int, int]:
    """Give the systems that were given, the number of copies, and that of lanes."""
    check_kinds(Batch.__init__, settings)
    one = isinstance(given, System | str | Path) or not isinstance(given, Iterable)
    systems = [system_of(system) for system in ([given] if one else given)]
    copies = settings["copies"]
    number = (1 if copies is None else copies) if one else len(systems)
    return systems, number, _checked(systems, copies, number, ranks, settings["lanes"])


def _checked(systems: list[System], copies: int | None, number: int, ranks: int, lanes: int | None) -> int:
    """Check what is known before the systems are made ready; give the number of lanes."""
    if not systems or number < ranks or (copies is not None and copies != number):
        raise InputError(
            f"a batch of {number if copies is None else copies} copies of {len(systems)} systems on {ranks} ranks: "
            "give one system and a number of copies, or one system for each; every rank needs one at least"
        )
    types, parents = systems[0].joint_types(), systems[0].parents()
    for k, system in enumerate(systems):
        system.validate()
        if not (np.array_equal(system.joint_types(), types) and np.array_equal(system.parents(), parents)):
            raise InputError(
                f"system {k} of the batch has other joints or parents than the first: a batch takes copies that "
                "differ in numbers only"
            )
        if system.loops:
            raise InputError(f"system {k} of the batch ('{system.name}') closes a loop: batches take chains and trees")
        if system.springs:
            raise InputError(
                f"system {k} of the batch ('{system.name}') has springs between bodies, which batches don't evaluate: "
                "leave them out, and give their forces to each evaluation as wrench"
            )
        if system.has_loads_of_time():
            raise InputError(
                f"system {k} of the batch ('{system.name}') has wrenches, added mass or functions of time or state: "
                "give them to each evaluation, as tau and wrench"
            )
        if system.gravity != systems[0].gravity:
            raise InputError(f"system {k} of the batch has another gravity than the first: make a batch of each")
    return native_width() if lanes is None else width_of(lanes)
