"""One evaluation on a rank: the phases of the pipeline, and what Python has to do between them."""

from __future__ import annotations

import functools
import time
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import HaltError, SimulationError
from mpimbs.coupling import Coupling
from mpimbs.coupling.base import DirectCoupling
from mpimbs.dynamics.pipeline import (
    COUPLING,
    EVALUATE,
    INWARD,
    MEASURE,
    MOTION,
    OUTWARD,
    PHASES,
    RUN_PHASES,
    SCAN_MOTIONS,
    LoadedPlan,
    Rank,
    evaluate_loaded,
)
from mpimbs.dynamics.remote_ends import RemoteEnds, place_ends
from mpimbs.forces.at_once import ActingAtOnce
from mpimbs.forces.external import ExternalLoads
from mpimbs.kernels.calling import address_of
from mpimbs.kernels.memory import Table, addresses_of
from mpimbs.parallel.native import cycle_seconds
from mpimbs.parallel.scan import Scan
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.open_bodies import Scans
from mpimbs.parts.part import Part
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.sweep.structure import BOUNDARY, TURNING


class Acted(NamedTuple):
    """The loads on a rank's bodies in an evaluation, beside springs, dampers and constant torques of the model."""

    forces: Floats  # [nu]: generalized forces of functions, and those that were given (N m, N); empty for none
    boundary: Floats | None = None  # [k, BOUNDARY]: of what the bodies hang on, where body forces or springs act
    motions: Floats | None = None  # [m * BOUNDARY]: of the steps, where they act here; used again by the next one
    failure: SimulationError | None = None  # of a user function of this rank


NOTHING = Acted(np.zeros(0))


class Evaluation:
    """Evaluates the state derivative on a rank; all ranks make it and call together.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator, of the ranks whose bodies hang together; it must outlive this.
    name : str
        Of the kernels that evaluate (`pipeline.EVALUATE`).
    part : Part
        What this rank sweeps.
    subchain : Subchain
        All of the part as one piece, which `external` acts on.
    root : array [6]
        Acceleration of the root, -g (m/s^2).
    overlap : bool
        See `Dynamics`.

    Attributes
    ----------
    in_phases : bool
        Whether Python has a say between the phases: `in_turn` evaluates then, else
        `whole(rank, q, u, tau, udot, rates)`, where `no_tau` stands for none; it is False where an array has another
        size, and did nothing.
    laps : array [PHASES]
        Time spent in each so far (s).
    placed : bool
        Whether the motions of what loops need of elsewhere are to be found first (`remote_ends.place_ends`).
    """

    def __init__(
        self,
        comm: MPI.Comm,
        name: str,
        part: Part,
        coupling: Coupling,
        subchain: Subchain,
        external: ExternalLoads,
        root: Floats,
        overlap: bool,
    ) -> None:
        self.comm, self._alone = comm, comm.size == 1
        self._part, self._coupling, self._subchain, self._external = part, coupling, subchain, external
        self._turns = Scan(comm, subchain.nothing_before(TURNING))
        self._motions = Scan(comm, subchain.nothing_before(BOUNDARY), SCAN_MOTIONS[name])
        self._messages = np.zeros(1)  # s: of the scan of motions, of springs and loops between ranks, in evaluations
        self._solve = coupling.solve
        self._root, self.laps = root, np.zeros(PHASES)
        rank = Rank(
            part=part.plan,
            scan=self._turns.plan,
            coupling=np.zeros(0, np.int64) if coupling.plan is None else coupling.plan,
            root=root,
            laps=self.laps,
            cycle=np.full(1, cycle_seconds()),
            alone=int(self._alone),
            timed=1,
            overlap=int(overlap),
            nq=subchain.nq,
            nu=subchain.nu,
        )
        self._table = Table(rank)
        self._phases, self._measure = RUN_PHASES[name][part.width], MEASURE[part.width]
        self._remote_ends = RemoteEnds(comm, part) if isinstance(part, Intervals) and part.has_loops else None
        # Where loops end elsewhere, or bodies hang on others elsewhere, the motions of these are needed.
        hangs = isinstance(part, Intervals) and part.hangs
        self.placed = self._remote_ends is not None and (self._remote_ends.any or hangs)
        self.in_phases = external.any or self._solve is not None
        self.no_tau = np.zeros(0)
        self._name = name

    @functools.cached_property
    def whole(self) -> Any:
        return evaluate_loaded if self.placed else EVALUATE[self._name][self._part.width]

    @functools.cached_property
    def _whole_table(self) -> Table:
        return self._loaded(None) if self.placed else self._table

    @functools.cached_property
    def rank(self) -> Integers:
        """The first argument of `whole`."""
        return self._whole_table.data

    def _loaded(self, acting: ActingAtOnce | None) -> Table:
        """Give what `evaluate_loaded` is given, to have something act at once, or nothing."""
        q, u, none = np.empty(self._subchain.nq), np.empty(self._subchain.nu), np.zeros(0, np.int64)
        phases = address_of(self._phases, self._table.data, MOTION, INWARD, q, u, self.no_tau, u, q)
        wrenches, rooms, numbers = np.zeros(0), none, none
        if acting is not None and self._external.wrenches:
            taken, wrenches = self._part.set_wrenches, self._subchain.wrenches
            rooms, numbers = taken.rooms, taken.numbers
        return Table(
            LoadedPlan(
                self._table.data, phases, none if self._placing is None else self._placing.data,
                none if acting is None else acting.plan, self.no_tau if acting is None else self.acted,
                wrenches, rooms, numbers, addresses_of(self._clocks), self._messages,
            )
        )  # fmt: skip

    @functools.cached_property
    def acted(self) -> Floats:
        """Forces on joints [nu] in the last evaluation that was one call (`compiled`), those that were given with what
        functions and tendons added; empty where nothing is added."""
        return np.zeros(self._subchain.nu if self._external.any else 0)

    @functools.cached_property
    def _clocks(self) -> list[Floats]:
        """Where time in messages between the phases is counted (s)."""
        remote = [] if self._remote_ends is None else [self._remote_ends.exchange.clock]
        return [self._motions.clock, *remote, *self._external.clocks]

    @functools.cached_property
    def scan_of_motions(self) -> Scans:
        """The scan over ranks of the motions of what bodies hang on."""
        value = self._subchain.boundary_layout().value
        entry = address_of(SCAN_MOTIONS[self._name], self._motions.plan, value)
        return entry, self._motions.plan, self._motions.result

    @functools.cached_property
    def _placing(self) -> Table | None:
        """What `place_ends` is given, where motions of elsewhere are needed."""
        if not self.placed:
            return None
        assert self._remote_ends is not None
        return self._remote_ends.table(self.scan_of_motions, self._measure)

    @functools.cached_property
    def compiled(self) -> tuple[int, Table] | None:
        """Where one call of compiled code evaluates (`kernels.calling`), and the table that it is given; None where
        Python has a say."""
        entry, table, acting = self.whole, self._whole_table, self._external.at_once
        if self.in_phases:
            if acting is None or self._solve is not None:
                return None
            if self._external.moved and not self._alone:
                acting.begin_with(self.scan_of_motions)
            entry, table = evaluate_loaded, self._loaded(acting)
        q, u = np.empty(self._subchain.nq), np.empty(self._subchain.nu)
        return address_of(entry, table.data, q, u, self.no_tau, u, q), table

    @functools.cached_property
    def unforced(self) -> dict[str, Any] | None:
        """Where compiled code measures loops, and evaluates, with the wrenches as they stand: fields of
        `closing.CompiledClosing`; None where Python has a say."""
        if self._solve is not None:
            return None
        assert isinstance(self._coupling, DirectCoupling)
        part, q, u = self._part.plan, np.empty(self._subchain.nq), np.empty(self._subchain.nu)
        return {
            "part": part, "measure": address_of(self._measure, part, q, u, 0),
            "rank": self.rank, "evaluation": address_of(self.whole, self.rank, q, u, self.no_tau, u, q),
            "structure": self._subchain.structure, "nothing": self.no_tau, "laps": self.laps,
            "move": np.empty_like(u), "rates": np.empty_like(q), "alone": int(self._alone),
            "remote": np.zeros(0, np.int64) if self._placing is None else self._placing.data,
            "scan_clocks": addresses_of([self._turns.clock, self._messages]),
            "coupling_clocks": addresses_of([self._coupling.clock]),
        }  # fmt: skip

    @property
    def timed(self) -> bool:
        """Whether the phases are timed, which takes about 0.1 us."""
        return bool(self._table.number("timed"))

    @timed.setter
    def timed(self, wanted: bool) -> None:
        self._table.set("timed", int(wanted))

    def in_turn(
        self, t: float, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None, unforced: bool = False
    ) -> Acted:
        """Evaluate phase by phase, as `StateDerivative.evaluate`: of arrays that were checked, read by address.

        `unforced`: no function is called, and joints that follow a given motion don't move; see `without_forces`.

        The `failure` of a user function is given, not raised: the other ranks know nothing of it.
        """
        run, rank = self._phases, self._table.data
        halt: HaltError | None = None
        if self._external.motions and not unforced:
            try:
                q, u = self._external.motions.follow(t, q, u)
            except HaltError as error:
                halt = error
            except SimulationError:  # which is found again, where the others are not left waiting
                pass
        acted = NOTHING if tau is None else Acted(tau)
        run(rank, MOTION, INWARD, q, u, acted.forces, udot, rates)
        began, before = time.perf_counter(), self._between
        self.place_loops(q, u)
        if self._external.any and not unforced:
            acted = self._act(t, q, u, tau)
        self.laps[MOTION] += time.perf_counter() - began
        self._messages += self._between - before
        if self._solve is None:
            run(rank, INWARD, PHASES, q, u, acted.forces, udot, rates)
        else:
            run(rank, INWARD, COUPLING, q, u, acted.forces, udot, rates)
            began = time.perf_counter()
            self._part.loads[:] = self._solve(t, q, self._part.blocks, self._root)
            self.laps[COUPLING] += time.perf_counter() - began
            run(rank, OUTWARD, PHASES, q, u, acted.forces, udot, rates)
        return acted if halt is None else acted._replace(failure=halt)

    def without_forces(self, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None) -> None:
        """Evaluate as `in_turn`, at no time: nothing acts on bodies but weight, and no function is called.

        The wrenches of the evaluation before stay for who asks what it found.
        """
        acting = self._subchain.wrenches if self._external.wrenches else np.zeros(0)
        kept = acting.copy()
        self._let_act(acting, 0.0)
        try:
            self.in_turn(np.nan, q, u, udot, rates, tau, unforced=True)
        finally:
            self._let_act(acting, kept)

    def _let_act(self, acting: Floats, wrenches: Floats | float) -> None:
        if acting.size:
            acting[:] = wrenches
            self._part.set_wrenches(acting)

    def measure(self, q: Floats, u: Floats) -> None:
        """Measure how far this rank's loops are from closed (`loops.loops.Loops.violations`); all ranks call."""
        self.place_loops(q, u)
        self._measure(self._part.plan, q, u, 0)

    def place_loops(self, q: Floats, u: Floats) -> None:
        """Bring the motions of what this rank's bodies hang on, and of the ends elsewhere of their loops."""
        if self._placing is not None:
            place_ends(self._placing.data, q, u)

    @property
    def _between(self) -> float:
        """Time spent so far in messages between the phases, and of the same kinds beside (s)."""
        return sum(float(clock[0]) for clock in self._clocks)

    def _act(self, t: float, q: Floats, u: Floats, tau: Floats | None) -> Acted:
        """Call the functions; where one fails, the forces are NaN.

        The error must wait: the other ranks are on their way to the coupling, and this one has to be there.
        """
        external = self._external
        forces = np.zeros(self._subchain.nu) if tau is None else tau.copy()
        if external.moved:
            boundary = self.boundary_motion(q, u)
        else:
            boundary = np.tile(AT_REST, (len(self._subchain.inboard), 1))
            boundary[:, :9] = self.turns[:, :9]
        given = boundary.copy() if external.moved else None
        try:
            motions = external.apply(t, q, u, boundary, forces)
        except SimulationError as error:
            return Acted(np.full(self._subchain.nu, np.nan), given, failure=error)
        if external.wrenches:
            self._part.set_wrenches(self._subchain.wrenches)
        return Acted(forces, given, motions)

    @property
    def scanned_turns(self) -> Floats:
        """What a scan over ranks has found of turns, as `Subchain.boundaries` takes it; used again."""
        return self._turns.result

    @property
    def turns(self) -> Floats:
        """Turns of the bodies that this rank's hang on [k, TURNING], in the evaluation just made."""
        return self._subchain.boundaries(self._turns.result, TURNING)

    def boundary_motion(self, q: Floats, u: Floats) -> Floats:
        """Motions of the bodies that this rank's hang on [k, BOUNDARY]; all ranks call."""
        scan, subchain = self._motions, self._subchain
        return subchain.boundaries(scan.result if self._alone else scan(subchain.boundary_motion(q, u)), BOUNDARY)

    def step_motions(self, q: Floats, u: Floats, acted: Acted) -> Floats:
        """Motions of the steps [m * BOUNDARY] in the state of an evaluation that gave `acted`; all ranks call.

        A scan and a sweep, unless body forces have had them. Used again.
        """
        if acted.motions is not None:
            return acted.motions
        boundary = self.boundary_motion(q, u) if acted.boundary is None else acted.boundary
        return self._subchain.motions(q, u, boundary)

    def seconds(self) -> dict[str, float]:
        """Wall time spent so far, by phase (s): sweep, coupling, communication (messages of both)."""
        motion, inward, coupling, outward = self.laps.tolist()
        scan = self._turns.seconds + float(self._messages[0])
        return {
            "sweep": motion - scan + inward + outward,
            "coupling": coupling - self._coupling.seconds,
            "communication": scan + self._coupling.seconds,
        }

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        self._turns.close()
        self._motions.close()
        if self._remote_ends is not None:
            self._remote_ends.exchange.close()
        self._coupling.close()
