"""Forward and inverse dynamics by the package's own kernels, uncompiled, in numbers of many digits (mpmath).

What it shows is not the equations but the rounding: the same recursions, whose error in doubles is to be known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpmath import mp, mpf
from numpy.typing import NDArray

from mpimbs.base.arrays import Floats
from mpimbs.kernels.compiler import interpreted
from mpimbs.kernels.lanes import square_root
from mpimbs.kernels.trigonometry import arc_tangent, sine_cosine
from mpimbs.model.contents import Contents
from mpimbs.sweep.build import build
from mpimbs.sweep.inverse import inverse_dynamics
from mpimbs.sweep.inward import inward, outward
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import joint_places, velocity_terms
from mpimbs.sweep.structure import Springs, workspace
from mpimbs.values.handles import SIZE

Numbers = NDArray[np.object_]  # of mpf

sine_cosine.register(mpf, lambda angle: (mp.sin(angle), mp.cos(angle)))
square_root.register(mpf, mp.sqrt)
arc_tangent.register(mpf, mp.atan2)


def extended(values: Floats) -> Any:
    """Give the same numbers as mpf, exactly: an array that stands where the sweeps have doubles."""
    return np.array([mpf(float(x)) for x in np.ravel(values)], dtype=object)


class ExtendedSweeps:
    """The sweeps over a whole system in one state, in extended precision.

    The system's numbers, made ready for the sweeps in doubles, and q, u, tau are taken as exact.

    Parameters
    ----------
    system : Contents
        Without loops, wrenches and functions of time or state.
    q, u : array [nq], [nu]
        The state (rad, m, quaternions; rad/s, m/s).
    digits : int
        Decimal digits of the numbers.

    Raises
    ------
    ValueError
        The system has loops, wrenches, springs between bodies or functions of time or state.
    """

    def __init__(self, system: Contents, q: Floats, u: Floats, digits: int = 40) -> None:
        mp.dps = digits
        c = system.columns()
        if c.wrenches or c.torque_functions or system.loads.functions or system.springs or system.loops:
            raise ValueError(
                "the extended sweeps have no wrenches, no springs between bodies, no functions and no loops"
            )
        made = build(c)
        s = made.structure
        self.structure = s._replace(fixed=extended(s.fixed), pitch=extended(s.pitch), armature=extended(s.armature))
        self.springs = Springs(*(extended(values) for values in made.springs))
        self.work = workspace(len(s.steps), system.nu, made.junctions, dtype=object)
        for array in self.work:
            array[:] = mpf(0)
        self.q, self.u, self.nu = extended(q), extended(u), system.nu
        self.zero = mpf(0)
        self.still = (self.zero,) * 6
        self.root = (self.zero,) * 3 + tuple(mpf(-g) for g in system.gravity)
        interpreted(joint_places)(self.zero, self.structure, self.q, self.work.place)
        interpreted(velocity_terms)(self.zero, self.structure, self.work, self.u, self.still[:3])

    def forces(self, tau: Floats) -> Numbers:
        """Give the generalized forces [nu] (N m, N): tau with springs, dampers and constant torques."""
        total = np.empty(self.nu, dtype=object)
        interpreted(joint_forces)(self.zero, self.structure, self.springs, self.q, self.u, extended(tau), total)
        return total

    def accelerations(self, tau: Floats) -> Numbers:
        """Give the generalized accelerations [nu] (rad/s^2, m/s^2) under the generalized forces `tau` [nu] (N m, N)."""
        udot = np.empty(self.nu, dtype=object)
        block = np.full(SIZE, self.zero, dtype=object)
        interpreted(inward)(self.zero, self.structure, self.work, self.forces(tau), block, False)
        interpreted(outward)(self.zero, self.structure, self.work, self.root, self.still, False, udot)
        return udot

    def inverse_dynamics(self, udot: Numbers) -> Numbers:
        """Give the generalized forces [nu] (N m, N) that `udot` [nu] needs, those of springs and dampers among them."""
        tau = np.empty(self.nu, dtype=object)
        loads = np.empty(6 * len(self.structure.steps), dtype=object)
        interpreted(inverse_dynamics)(self.zero, self.structure, self.work, udot, self.root, loads, tau)
        return tau
