"""The matrix of linearly implicit steps, solved with by the sweep itself [design, section 14].

With M udot = f - K q - D u, where joints alone are stiff, K and D are diagonal in relative coordinates. A stage of a
linearly implicit method solves (1 - h J) x = r with J = [[0, G], [-M^-1 K G^+, -M^-1 D]], G the rates of the
coordinates by the speeds. That is, for x_u = r_u + z and x_q = r_q + h G x_u,

    (M + h D + h^2 K) z = -h (D + h K) r_u - h K G^+ r_q,

whose left side is the inertia matrix of a system with heavier rotors: an evaluation at rest, by any sweep, in lanes,
over any ranks and through loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mpimbs.model.resting import resting
from mpimbs.sweep.motion import coordinate_rates, speeds_of_rates

if TYPE_CHECKING:
    from mpimbs.dynamics import Dynamics

Floats = npt.NDArray[np.float64]


class ImplicitMatrix:
    """1 - h J of a system in a state, J by the springs and dampers of its joints; all ranks call together.

    Of a quaternion's spring J has the one for small turns; of what acts between bodies, through functions, loops or
    weight, nothing: it is for methods whose order does not depend on J.

    Parameters
    ----------
    dynamics : Dynamics

    Attributes
    ----------
    resting : Dynamics
        Of the same bodies on the same ranks, with the heavier rotors, where nothing acts.
    """

    def __init__(self, dynamics: Dynamics) -> None:
        self._subchain = dynamics.subchain
        columns = self._subchain.columns
        self._stiffness, self._damping = columns.stiffness, columns.damping
        self.resting = dynamics.beside(resting(dynamics.system))
        self._joints = []
        for structure, springs in self.resting.subchains.joints():
            kept = [array.copy() for array in (springs.stiffness, springs.damping)]
            for array in (springs.stiffness, springs.damping):
                array[:] = 0.0  # nothing is to act
            if structure.armature.size:
                rotors = structure.armature - sum(array for array in kept if array.size)
                self._joints.append((structure.armature, rotors, *kept))
        nq, nu = self._subchain.nq, self._subchain.nu
        self._q, self._step = np.zeros(nq), 0.0
        self._still, self._rates, self._speeds, self._z = np.zeros(nu), np.empty(nq), np.empty(nu), np.empty(nu)

    def at(self, q: Floats, step: float) -> None:
        """Take it in a state q [nq], for a step h (s)."""
        self._q[:] = q
        if step == self._step:
            return
        self._step = step
        for armature, rotors, stiffness, damping in self._joints:
            armature[:] = rotors
            if stiffness.size:
                armature += step**2 * stiffness
            if damping.size:
                armature += step * damping

    def solve(self, r: Floats, x: Floats) -> None:
        """Write x [nq + nu] of (1 - h J) x = r [nq + nu]."""
        h, structure, nq = self._step, self._subchain.structure, len(self._q)
        speeds_of_rates(0.0, structure, self._q, r[:nq], self._speeds)
        tau = -h * ((self._damping + h * self._stiffness) * r[nq:] + self._stiffness * self._speeds)
        self.resting.evaluate_unforced(self._q, self._still, self._z, self._rates, tau)
        np.add(r[nq:], self._z, out=self._speeds)
        coordinate_rates(0.0, structure, self._q, self._speeds, self._rates)
        x[nq:] = self._speeds
        np.add(r[:nq], h * self._rates, out=x[:nq])

    def close(self) -> None:
        """Free what MPI holds; all ranks call."""
        self.resting.close()
