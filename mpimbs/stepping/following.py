"""Joints that follow given motions, after a step: put where they have to be, if their speeds have not jumped."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.parallel.agreement import together

Floats = npt.NDArray[np.float64]


def follow(dynamics: Dynamics, begin: float, end: float, q: Floats, u: Floats) -> tuple[Floats, Floats]:
    """Give the state after a step between two times (s) as it has to be; all ranks call.

    Raises
    ------
    SimulationError
        On all ranks: a motion jumps in the step, or can't be found at its end.
    """
    motions = dynamics.external.motions

    def followed() -> tuple[Floats, Floats]:
        if (name := motions.jump(begin, end, u)) is not None:
            raise SimulationError(
                f"the motion of body '{name}' jumps, or changes more in this step than its accelerations say; give one "
                "with continuous speeds, or smaller steps"
            )
        return motions.follow(end, q, u)

    return together(dynamics.comm, followed)
