"""The state derivative of a system over ranks: evaluated by a call, in compiled code where Python has no say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
from numba.core.errors import NumbaError

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import HaltError, InputError, SimulationError, as_meant
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.dynamics.evaluation import NOTHING, Acted
from mpimbs.dynamics.loops import ClosedLoops
from mpimbs.parallel.agreement import together


class StateDerivative:
    """The state derivative of a divided system, with its loops' refinement; called, it evaluates; all ranks call.

    Parameters
    ----------
    divided : DividedSystem
    loops : ClosedLoops or None
        Of the same system.

    Attributes
    ----------
    evaluations : int
        Evaluations so far.
    """

    def __init__(self, divided: DividedSystem, loops: ClosedLoops | None) -> None:
        self._divided, self._loops, self._evaluation = divided, loops, divided.evaluation
        self._system, self._changes = divided.system, divided.changes
        self.evaluations = 0
        self._acted = NOTHING  # in the last evaluation that was given forces

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Let the evaluations of a block neither count, nor decide whether others are refined."""
        counted, loops = self.evaluations, self._loops
        refining = None if loops is None else loops.refining
        try:
            yield
        finally:
            self.evaluations = counted
            if loops is not None:
                loops.refining = refining

    def __call__(self, t: float, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None = None) -> None:
        """Evaluate the state derivative [design, section 2].

        Parameters
        ----------
        t : float
            Time (s), for the model's functions.
        q, u : array [nq], [nu]
            Coordinates (rad, m, quaternions) and generalized speeds (rad/s, m/s).
        udot, rates : array [nu], [nq]
            Written: generalized accelerations and rates of the coordinates.
        tau : array [nu], optional
            Generalized forces (N m, N) on top of the model's.

        Raises
        ------
        InputError
            On the rank that gave an array of another shape or type, or one that is not contiguous or read-only; the
            others find accelerations that are not finite.
        SimulationError
            On the rank whose user function failed.
        """
        evaluation = self._evaluation
        try:
            if not evaluation.in_phases and tau is None and self._system.changes == self._changes:
                # One call of compiled code takes no other type of array, and refuses other sizes: all that is asked
                # of small systems, whose sweeps take no longer than a few questions of Python.
                self.evaluations += 1
                if evaluation.whole(evaluation.rank, q, u, evaluation.no_tau, udot, rates):
                    if self._loops is not None and self._loops.refining is not False:
                        self._refine(t, q, u, udot)
                    return
            self._divided.check(q, u, udot, rates, tau)
            failure = self.evaluate(t, q, u, udot, rates, tau).failure
        except (InputError, TypeError, NumbaError) as error:
            self._refuse(error, t, q, u, udot, rates, tau)
        if failure is not None:
            raise as_meant(failure)

    def _refuse(self, error: Exception, t: float, *arrays: Any) -> NoReturn:
        """Say what is wrong with arrays, after this rank's part in the evaluation: the others wait for it."""
        try:
            self._divided.check(*arrays)
        except InputError as wrong:
            if self._divided.comm.size > 1:
                nq, nu = self._divided.subchain.nq, self._divided.subchain.nu
                nothing = np.full(nq, np.nan), np.full(nu, np.nan), np.empty(nu), np.empty(nq)
                self.evaluate(t, *nothing)
            raise wrong from None
        raise error

    def evaluate(self, t: float, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None = None) -> Acted:
        """Evaluate the state derivative as `derivative` does, of arrays that were checked: they are read by address.

        Gives what acted; among it the failure of a user function, which is not raised.
        """
        self.evaluations += 1
        evaluation, acted = self._evaluation, NOTHING
        if evaluation.in_phases:
            acted = evaluation.in_turn(t, q, u, udot, rates, tau)
        else:
            evaluation.whole(evaluation.rank, q, u, evaluation.no_tau if tau is None else tau, udot, rates)
            if tau is not None:
                acted = self._acted = self._acted if self._acted.forces is tau else Acted(tau)
        if self._loops is not None and self._loops.refining is not False:
            acted = self._refine(t, q, u, udot, acted)
        return acted

    def _refine(self, t: float, q: Floats, u: Floats, udot: Floats, acted: Acted = NOTHING) -> Acted:
        """Refine an evaluation by what it leaves of the loops' equations (`ClosedLoops.refine`); all ranks call.

        Gives what acted, with what halts the program meanwhile.
        """
        assert self._loops is not None
        try:
            q, u = self._divided.external.motions.follow(t, q, u)
        except HaltError as halt:
            acted = acted._replace(failure=halt)
        except SimulationError:  # found in the evaluation, which has no numbers then
            pass
        self._loops.refine(q, u, udot)
        return acted

    def accelerations(self, q: Floats, u: Floats, tau: Floats | None, t: float) -> tuple[Floats, Acted]:
        """Give the generalized accelerations [nu] of arrays that were checked, and what acted; all ranks call.

        Raises
        ------
        SimulationError
            On all ranks: a user function failed.
        """
        udot, rates = np.empty(self._divided.subchain.nu), np.empty(self._divided.subchain.nq)

        def action() -> Acted:
            acted = self.evaluate(t, q, u, udot, rates, tau)
            if self._loops is not None and not self._loops.refining:
                acted = self._refine(t, q, u, udot, acted)
            if acted.failure is not None:
                raise acted.failure
            return acted

        return udot, together(self._divided.comm, action) if self._divided.may_fail else action()

    @property
    def compiled(self) -> tuple[int, Integers] | None:
        """Where the compiled evaluation is (`kernels.calling`), without refinement of loops, and the table that it is
        given; None where Python has a say in evaluations."""
        found = self._evaluation.compiled
        return None if found is None else (found[0], found[1].data)

    @property
    def timed(self) -> bool:
        """Whether evaluations are timed phase by phase, which takes about 0.1 us each."""
        return self._evaluation.timed

    @timed.setter
    def timed(self, wanted: bool) -> None:
        self._evaluation.timed = wanted

    @property
    def in_phases(self) -> bool:
        """Whether Python calls the phases of evaluations, as it must for functions; may be set, not cleared."""
        return self._evaluation.in_phases

    @in_phases.setter
    def in_phases(self, wanted: bool) -> None:
        self._evaluation.in_phases = self._evaluation.in_phases or wanted

    def seconds(self) -> dict[str, float]:
        """Wall time spent so far, by phase (s): sweep, coupling, communication (messages of both)."""
        return self._evaluation.seconds()

    @property
    def spent(self) -> float:
        """Wall time spent so far (s): the sum of `seconds`."""
        return float(self.laps.sum())

    @property
    def laps(self) -> Floats:
        """Time spent so far in the phases of evaluations (s): motion, inward, coupling, outward."""
        return self._evaluation.laps
