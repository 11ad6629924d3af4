"""Batches: copies of one system with different states or parameters, side by side in lanes and over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arguments import check_array, check_kinds, check_time, doubles
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError, SimulationError, not_copied
from mpimbs.dynamics.members import Members, Parameters, members_of_table
from mpimbs.dynamics.side_by_side import SideBySide, check_alike, facts_of, initial_states, why_apart
from mpimbs.kernels.lanes import native_width
from mpimbs.model import ModelLike, contents_from
from mpimbs.model.contents import Contents
from mpimbs.parallel.agreement import alike, communicator, first_on_node, read_once, together
from mpimbs.partition.chain import width_of

if TYPE_CHECKING:
    from mpimbs.run.result import EnsembleResult
    from mpimbs.stepping.settings import Checkpoints, SimulationSettings


class Batch:
    """Forward dynamics of many copies of a system, chain or tree, as many side by side as the processor has lanes.

    Copies that close loops or follow given motions can be simulated, one after the other, but not evaluated.

    Each rank owns a share of the copies; there is no communication. Vectors given and returned are the rank's own, one
    row a copy, in the model's order, contiguous.

    Parameters
    ----------
    systems : Contents or sequence of System
        Or names of models, as for `system_from`. One for all copies, or one for each: with the same bodies, parents and
        joint types, but any parameters and forces. Functions of time or state are called for one copy after another;
        lanes are copies in sequence of the same gravity.
    copies : int, optional
        How many, of one system.
    comm : MPI.Comm, optional
        The ranks that share the copies; all of the job by default.
    lanes : int, optional
        Copies side by side: 1, 2, 4 or 8; as many as the processor has by default. Of fewer copies than lanes one
        after the other is evaluated.
    wrenches : bool
        Whether wrenches on bodies will be given.

    Attributes
    ----------
    first, last : int
        This rank's copies.
    members : Members
        The copies of all ranks: their systems and names.
    q, u : array [copies, nq], array [copies, nu]
        The models' initial states (rad, m, unit quaternions; rad/s, m/s) of this rank's copies.

    Raises
    ------
    InputError
        On all ranks: systems that differ in joints, fewer copies than ranks, no such number of lanes.
    """

    def __init__(
        self,
        systems: ModelLike | Sequence[ModelLike],
        copies: int | None = None,
        comm: MPI.Comm | None = None,
        lanes: int | None = None,
        wrenches: bool = False,
    ) -> None:
        given = communicator(comm)
        settings = {"copies": copies, "lanes": lanes, "wrenches": wrenches}
        all_systems, number, width = together(given, lambda: _prepared(systems, given.size, settings))
        shared = len(all_systems) == 1
        alike(given, lambda: facts_of(all_systems) | {name: str(value) for name, value in settings.items()})
        self.members = Members(all_systems, tuple(map(str, range(number))))
        self._comm, self._lanes, self._apart = given, lanes, why_apart(all_systems)
        self.first, self.last = (number * rank // given.size for rank in (given.rank, given.rank + 1))
        mine = all_systems if shared else all_systems[self.first : self.last]
        self._make_own = partial(SideBySide, mine, self.copies, width, wrenches)
        self.n_bodies, self.nq, self.nu = mine[0].n_bodies, mine[0].nq, mine[0].nu
        self.q, self.u = initial_states(mine, self.copies)

    @classmethod
    def of_parameters(
        cls,
        system: ModelLike,
        parameters: Parameters,
        comm: MPI.Comm | None = None,
        lanes: int | None = None,
        wrenches: bool = False,
        forces: Sequence[str] = (),
    ) -> Self:
        """Make a batch of copies of a system that differ as a table says.

        Parameters
        ----------
        system : System, str or Path
            Or what names it; of a file, the parameters of its text may be columns.
        parameters : path or dict of arrays [copies]
            A file (.csv, .npz) or arrays by column; see `mpimbs.model.variants`.
        comm, lanes, wrenches
            See `Batch`.
        forces : sequence of str
            Functions of modules (module:function) that add forces to the system of each copy.

        Raises
        ------
        InputError
            On all ranks; names line and column of the table.
        """
        given = communicator(comm)
        read: Any = read_once(given, system)
        members = together(given, lambda: members_of_table(read, parameters, forces))
        batch = cls(members.systems, None, given, lanes, wrenches)
        batch.members = members
        return batch

    def __reduce__(self) -> NoReturn:
        not_copied("Batch", "make one where it is needed, from the same systems")

    @cached_property
    def _own(self) -> SideBySide:
        if self._apart is not None:
            raise InputError(
                f"{self._apart}, which lanes don't carry: evaluate it by `Dynamics`; `simulate` takes copies of it one "
                "after the other"
            )
        return self._make_own()

    @property
    def copies(self) -> int:
        """Number of this rank's copies."""
        return self.last - self.first

    @property
    def lanes(self) -> int:
        """Number of copies that are evaluated side by side."""
        return self._own.lanes if self._apart is None else 1

    def compile(self, comm: MPI.Comm) -> None:
        """Compile, or load from the cache, what evaluations call, first on one rank of every node; all ranks call."""
        first_on_node(comm, self._own.compile)

    def derivative(
        self,
        q: Floats,
        u: Floats,
        udot: Floats,
        rates: Floats,
        tau: Floats | None = None,
        wrench: Floats | None = None,
        t: float = 0.0,
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
            External wrench on each body at its origin, body frame components, moment first (N m, N), on top of the
            models'; the last given ones act on.
        t : float
            Time (s), for the models' functions.

        Raises
        ------
        InputError
            An array of another shape or type, or not contiguous; wrenches where the batch was made without; or systems
            that close loops or follow given motions.
        SimulationError
            On the rank where a function of a model failed; names the copy. The others' accelerations are there.
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
            check_array("wrench", wrench, (self.copies, self.n_bodies, 6))
            self._own.set_wrenches(wrench)
        given = None if tau is None else tau.reshape(-1)
        self._own.evaluate(t, q.reshape(-1), u.reshape(-1), udot.reshape(-1), rates.reshape(-1), given)
        for k, failure in self._own.forces.failures.items():
            raise SimulationError(f"copy {self.first + k}: {failure}")

    def accelerations(
        self,
        q: npt.ArrayLike,
        u: npt.ArrayLike,
        tau: npt.ArrayLike | None = None,
        wrench: npt.ArrayLike | None = None,
        t: float = 0.0,
    ) -> Floats:
        """Give the generalized accelerations [copies, nu]; arguments as in `derivative`, or what numpy makes arrays of.

        Raises as that; InputError also where a number is not finite.
        """
        copies, nq, nu = self.copies, self.nq, self.nu
        check_time(t)
        coordinates, speeds = doubles("q", q, (copies, nq)), doubles("u", u, (copies, nu))
        udot, rates = np.empty((copies, nu)), np.empty((copies, nq))
        forces = None if tau is None else doubles("tau", tau, (copies, nu))
        pushes = None if wrench is None else doubles("wrench", wrench, (copies, self.n_bodies, 6))
        self.derivative(coordinates, speeds, udot, rates, forces, pushes, t)
        return udot

    def make_unit(self, q: Floats) -> None:
        """Scale every quaternion in `q` [copies, nq] to unit length, as is due after a step of an integrator."""
        check_array("q", q, (self.copies, self.nq))
        self._own.make_quaternions_unit(q)

    def simulate(
        self,
        t_end: float | None = None,
        *,
        output: str | Path | None = None,
        progress: bool = False,
        checkpoints: Checkpoints | None = None,
        signals: bool = False,
        state: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        settings: SimulationSettings | None = None,
        **given: Any,
    ) -> EnsembleResult:
        """Simulate all copies; all ranks call together.

        Side by side, each rank takes one step for all of its copies, which the most demanding one sets: each has the
        tolerance that it would have alone. Where copies close loops, follow given motions or have events, where the
        integrator is implicit or PETSc's, or samples have `joint_work`, each takes steps of its own, one after the
        other on its rank. A copy that fails is left behind, with NaN from then on, and the others go on; the
        coordinates of a joint that an event cuts are NaN from then on, too.

        Parameters
        ----------
        t_end : float
            Simulated time (s); may stand in `settings` instead.
        output, progress, checkpoints, signals
            See `mpimbs.simulate`; signals are answered, and checkpoints written, at samples.
        state : (q, u), optional
            Coordinates and speeds to begin with, of the copies of all ranks: [copies, nq] and [copies, nu], or one row
            for all of them; those of the models by default.
        settings : SimulationSettings, optional
        **given
            Of `SimulationSettings` those of `OF_ENSEMBLES`.

        Returns
        -------
        EnsembleResult

        Raises
        ------
        InputError, SimulationError, InterruptionError
            As `mpimbs.simulate`.
        """
        from mpimbs.run.ensembles.ensemble import simulate_copies, states_of
        from mpimbs.run.state import state_given

        asked = given if t_end is None else {"t_end": t_end, **given}
        members = self.members

        def found() -> Members:
            if state is None:
                return members
            return replace(members, state=states_of(members.systems[0], *state_given(state), members.count))

        return simulate_copies(
            found, self._comm, output=output, progress=progress, checkpoints=checkpoints, signals=signals,
            settings=settings, given=asked if self._lanes is None else {"lanes": self._lanes, **asked},
        )  # fmt: skip


def _prepared(given: Any, ranks: int, settings: dict[str, Any]) -> tuple[list[Contents], int, int]:
    """Give the systems that were given, the number of copies, and that of lanes."""
    check_kinds(Batch.__init__, settings)
    one = isinstance(given, ModelLike) or not isinstance(given, Iterable)
    systems = [contents_from(system) for system in ([given] if one else given)]
    copies = settings["copies"]
    number = (1 if copies is None else copies) if one else len(systems)
    if not systems or number < ranks or (copies is not None and copies != number):
        raise InputError(
            f"a batch of {number if copies is None else copies} copies of {len(systems)} systems on {ranks} ranks: "
            "give one system and a number of copies, or one system for each; every rank needs one at least"
        )
    check_alike(systems)
    return systems, number, native_width() if settings["lanes"] is None else width_of(settings["lanes"])
