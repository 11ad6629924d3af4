"""The matrix of linearly implicit steps, solved with by the sweep itself [design, section 14].

With M udot = f - K q - D u, where joints alone are stiff, K and D are diagonal in relative coordinates. A stage of a
linearly implicit method solves (1 - h J) x = r with J = [[0, G], [-M^-1 K G^+, -M^-1 D]], G the rates of the
coordinates by the speeds. That is, for x_u = r_u + z and x_q = r_q + h G x_u,

    (M + h D + h^2 K) z = -h (D + h K) r_u - h K G^+ r_q,

whose left side is the inertia matrix of a system with heavier rotors: factored once a step, and solved with by load
sweeps; or by evaluations at rest, by any sweep, over any ranks and through loops. The tension of a line adds to K what
is diagonal in the rotations of its bodies, not in those of its joints: T l (1 - t t^T) for a body of length l along t,
an inertia of rotation more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.factor import load_sweeps
from mpimbs.model.resting import resting
from mpimbs.sweep.intervals import Intervals
from mpimbs.sweep.stages import stage_changes, stage_forces
from mpimbs.sweep.structure import BODY, FIXED, Structure
from mpimbs.sweep.subchains import Subchains
from mpimbs.tension import levers, tension_stiffness, turned

if TYPE_CHECKING:
    from mpimbs.dynamics import Dynamics

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

INERTIA, MASS = 12, 21  # where these begin in a row of `Structure.fixed`


class _Joints(NamedTuple):
    """The rotors of some joints, as they are and as sweeps see them, and what acts along their axes."""

    seen: Floats
    rotors: Floats
    stiffness: Floats
    damping: Floats

    def take(self, step: float) -> None:
        """Let the sweeps see what an implicit step (s) adds."""
        seen = self.seen
        seen[:] = self.rotors
        if self.stiffness.size:
            seen += step**2 * self.stiffness
        if self.damping.size:
            seen += step * self.damping


class _Bodies(NamedTuple):
    """Where the inertias of bodies stand that are told apart (`Contents.apart`)."""

    table: Floats  # [rows, FIXED, lanes]
    rows: Integers
    lanes: Integers
    numbers: Integers  # of this rank's bodies

    @classmethod
    def of(cls, structure: Structure, first: int) -> _Bodies:
        lanes = structure.pitch.size // max(len(structure.axes), 1) or structure.fixed.size // FIXED
        table = structure.fixed.reshape(-1, FIXED, lanes)
        rows, at = np.nonzero(table[:, MASS] > 0.0)
        return cls(table, rows, at, table[rows, MASS, at].astype(np.int64) - 1 - first)


class ImplicitMatrix:
    """1 - h J of a system in a state, J by the springs and dampers of its joints; all ranks call together.

    Of a quaternion's spring J has the one for small turns; of what acts between bodies, through functions, loops or
    weight, nothing, but for the tension of lines where that is asked for: it is for methods whose order does not depend
    on J.

    Parameters
    ----------
    dynamics : Dynamics
    tense : bool
        Whether the tension of lines counts too, of which `at` is given the loads then.

    Attributes
    ----------
    resting : Dynamics or None
        Of the same bodies on the same ranks, with the heavier rotors, where nothing acts; none where load sweeps do.
    """

    def __init__(self, dynamics: Dynamics, tense: bool = False) -> None:
        self._subchain = dynamics.subchain
        columns = self._subchain.columns
        self._stiffness, self._damping = columns.stiffness, columns.damping
        self._factor = None if tense or dynamics.system.loops else load_sweeps(dynamics)
        self.resting: Dynamics | None = None
        self._joints: list[_Joints] = []
        self._bodies: list[_Bodies] = []
        if self._factor is None:
            self.resting = dynamics.alike(resting(dynamics.system, tense))
            self._take_apart(self.resting, tense)
        if tense:
            made = self._subchain.made
            own = made.structure.fixed.reshape(-1, FIXED)[made.structure.steps[made.body_step, BODY]]
            self._inertias, self._frames = own[:, INERTIA : INERTIA + 6], made.body_frame
            self._levers = levers(self._subchain)
            for table, rows, lanes, numbers in self._bodies:
                table[rows, INERTIA:, lanes] = own[numbers, INERTIA:]
        nq, nu = self._subchain.nq, self._subchain.nu
        self._q, self._step = np.zeros(nq), 0.0
        self._coefficients = np.zeros(nu), np.zeros(nu)
        self._still, self._rates, self._tau, self._z = np.zeros(nu), np.empty(nq), np.empty(nu), np.empty(nu)

    def _take_apart(self, resting: Dynamics, tense: bool) -> None:
        """Keep the coefficients of the springs and dampers, which are not to act, and where inertias stand."""
        parts = resting.subchains
        assert isinstance(parts, Subchains | Intervals)  # as those of dcae are
        for structure, springs in parts.joints():
            if structure.armature.size:
                kept = springs.stiffness.copy(), springs.damping.copy()
                rotors = structure.armature - sum(array for array in kept if array.size)
                self._joints.append(_Joints(structure.armature, rotors, *kept))
            for acting in (springs.stiffness, springs.cross, springs.damping):
                acting[:] = 0.0
            if tense:
                self._bodies.append(_Bodies.of(structure, resting.subchain.first))

    def at(self, q: Floats, step: float, loads: Floats | None = None) -> None:
        """Take it in a state, for a step.

        Parameters
        ----------
        q : array [nq]
        step : float
            h (s).
        loads : array [n, 6], optional
            What the bodies receive through their inboard joints (`Dynamics.joint_loads`), where tension counts.
        """
        self._q[:] = q
        if step != self._step:
            self._step = step
            added = step * (self._damping + step * self._stiffness)
            self._coefficients = -added, -step * self._stiffness
            for joints in self._joints:
                joints.take(step)
        if self._factor is not None:
            self._factor.take(self._q, -self._coefficients[0])
        elif loads is not None:
            heavier = self._inertias + step**2 * turned(tension_stiffness(self._levers, loads[:, 3:]), self._frames)
            for table, rows, lanes, numbers in self._bodies:
                table[rows, INERTIA : INERTIA + 6, lanes] = heavier[numbers]

    def solve(self, r: Floats, x: Floats) -> None:
        """Write x [nq + nu] of (1 - h J) x = r [nq + nu]; contiguous arrays, not the same."""
        structure = self._subchain.structure
        stage_forces(structure, self._q, r, *self._coefficients, self._tau)
        self.heavier(self._tau, self._z)
        stage_changes(structure, self._q, r, self._z, self._step, x)

    def heavier(self, tau: Floats, z: Floats) -> None:
        """Write z [nu] of (M + h D + h^2 K) z = tau [nu]."""
        if self._factor is not None:
            self._factor.solve(tau, z)
        elif self.resting is not None:
            self.resting.evaluate_unforced(self._q, self._still, z, self._rates, tau)

    def close(self) -> None:
        """Free what MPI holds; all ranks call."""
        for made in (self._factor, self.resting):
            if made is not None:
                made.close()
