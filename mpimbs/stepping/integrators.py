"""The integrator of a name: own explicit steps, or PETSc's, and what the latter are asked before."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from mpimbs.base.arrays import Floats
from mpimbs.dynamics import Dynamics
from mpimbs.stepping.integrator import Asked, Integrator
from mpimbs.stepping.projection import Projection
from mpimbs.stepping.runge_kutta import RungeKutta
from mpimbs.stepping.schemes import IF_IT_MATTERS, Accuracy, scheme_of
from mpimbs.stepping.step_sizes import StepMemory


def make_integrator(
    dynamics: Dynamics,
    q: Floats,
    u: Floats,
    name: str,
    accuracy: Accuracy,
    time: float = 0.0,
    memory: StepMemory | None = None,
    asked: Callable[[], int] = lambda: 0,
    probed: bool = False,
    projection: Projection | None = None,
    tension: str = IF_IT_MATTERS,
    held: Floats | None = None,
) -> Integrator:
    """Make what steps a system through time; the state is distributed as the system is. All ranks call together.

    Parameters
    ----------
    q, u : array [nq], [nu]
        This rank's part of the initial state.
    name : str
        Of an integrator; see `schemes`.
    time : float
        Initial time (s).
    memory : StepMemory, optional
        Go on from that of another integrator, whose state `q` and `u` are: with the same bits on the same ranks.
    asked : callable, optional
        What this rank asks of all of them, in bits; called once a step, or for several that are taken at once.
    probed : bool
        Whether to see now and then what the largest stable step is; evaluations must not depend on each other.
    projection : Projection, optional
        What keeps loops closed.
    tension : str
        See `Stages`.
    held : array [nu], optional
        Forces (N m, N) on this rank's joints on top of the model's; `restart` after a change of them.
    """
    given = Asked(accuracy, asked, probed, projection, tension, held)
    if scheme_of(name).own:
        return RungeKutta(dynamics, q, u, name, given, time, memory)
    from mpimbs.stepping.petsc_integrator import PetscIntegrator

    return PetscIntegrator(dynamics, q, u, name, given, time, memory)


def check_petsc_options(name: str, accuracy: Accuracy, solves: bool) -> str | None:
    """Refuse options of PETSc's that have no effect or can't work, where PETSc has a part in a run, or they are given.

    See `petsc_schemes.check_options`.
    """
    if scheme_of(name).own and not solves and not os.environ.get("PETSC_OPTIONS") and not sys.modules.get("petsc4py"):
        return None
    from mpimbs.stepping.petsc_schemes import check_options  # needs petsc4py

    return check_options(name, accuracy, solves)


def begins_anew(name: str) -> bool:
    """Whether an integrator keeps more of its steps than a checkpoint has: of PETSc's some do."""
    if scheme_of(name).own:
        return False
    from mpimbs.stepping.petsc_schemes import keeps_more  # needs petsc4py

    return keeps_more(name)
