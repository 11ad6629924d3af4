"""What is asked of a model in one call: vectors of the whole system, in the model's order, the same on every rank.

Each call divides the system among the ranks and lets go of that again: where many follow, a `Dynamics` is kept, whose
vectors are the ranks' parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arguments import check_time
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_evaluations, compile_implicit, compile_inverse, compile_joint_space
from mpimbs.dynamics.resources import EVALUATION, check_memory, ranks_on_node
from mpimbs.dynamics.statics.modes import Modes
from mpimbs.dynamics.statics.modes import modes as modes_of
from mpimbs.model import ModelLike
from mpimbs.model.contents import Contents
from mpimbs.model.facts import digest
from mpimbs.parallel.agreement import communicator, first_on_node, same_system
from mpimbs.run.state import State, StateArrays, checked_state, own_part
from mpimbs.stepping.projection import closed

OF_QUESTIONS = StateArrays(("q", "u"), ("tau", "udot"))


@contextlib.contextmanager
def _asked(
    model: ModelLike, comm: MPI.Comm | None, t: float, given: dict[str, Any], **settings: Any
) -> Iterator[tuple[Dynamics, State]]:
    """Divide a model among the ranks, and give each its parts of a state, the model's own where there is none."""
    world = communicator(comm)
    here = ranks_on_node(world)

    def prepared(system: Contents) -> tuple[tuple[State, EvaluationSettings], dict[str, Any]]:
        check_time(t)
        check_memory(system, EVALUATION, world.size, here)
        chosen = EvaluationSettings.asked(settings)
        own = dict(zip(("q", "u"), system.initial_state(0, system.n_bodies), strict=True))
        arrays = own | {name: value for name, value in given.items() if value is not None}
        state = checked_state("state", system, arrays, OF_QUESTIONS)
        told = digest(tuple(b"" if part is None else part.tobytes() for part in state))
        return (state, chosen), {**chosen.described(), "state": told, "t": float(t)}

    system, (whole, chosen) = same_system(world, model, prepared)
    dynamics = Dynamics(system, world, **chosen.part(EvaluationSettings))
    try:
        yield dynamics, own_part(dynamics, whole)
    finally:
        dynamics.close()


def accelerations(
    model: ModelLike,
    q: npt.ArrayLike | None = None,
    u: npt.ArrayLike | None = None,
    tau: npt.ArrayLike | None = None,
    *,
    t: float = 0.0,
    comm: MPI.Comm | None = None,
    **settings: Any,
) -> Floats:
    """Give the generalized accelerations of a model: forward dynamics, once; all ranks call.

    Parameters
    ----------
    model : System, str or Path
        The same on every rank; or what names it, as for `read`.
    q, u : array [nq], array [nu], optional
        Coordinates (rad, m, quaternions w x y z) and generalized speeds (rad/s, m/s); the model's own by default.
    tau : array [nu], optional
        Generalized forces (N m, N) on top of the model's.
    t : float
        Time (s), for the model's functions.
    comm : MPI.Comm, optional
        All ranks by default.
    **settings
        Any of `EvaluationSettings`, such as `coupling`.

    Returns
    -------
    array [nu]
        rad/s^2, m/s^2.

    Raises
    ------
    InputError, SimulationError
        On all ranks; see `Dynamics.accelerations`.
    """
    with _asked(model, comm, t, {"q": q, "u": u, "tau": tau}, **settings) as (dynamics, state):
        compile_evaluations(dynamics)
        return dynamics.gather_u.everywhere(dynamics.accelerations(state.q, state.u, state.tau, t))


def inverse_dynamics(
    model: ModelLike,
    q: npt.ArrayLike | None = None,
    u: npt.ArrayLike | None = None,
    udot: npt.ArrayLike | None = None,
    *,
    t: float = 0.0,
    actuated: Sequence[str] | None = None,
    comm: MPI.Comm | None = None,
) -> Floats:
    """Give the generalized forces [nu], on top of the model's, that accelerations need (N m, N); all ranks call.

    Parameters
    ----------
    model, q, u, t, comm
        See `accelerations`.
    udot : array [nu], optional
        Accelerations (rad/s^2, m/s^2); none by default: what holds the model.
    actuated : sequence of str, optional
        With loops, the bodies whose joints alone give forces.

    Raises
    ------
    InputError, SimulationError
        On all ranks; see `Dynamics.inverse_dynamics`.
    """
    given = {"q": q, "u": u, "udot": udot}
    with _asked(model, comm, t, given) as (dynamics, state):
        first_on_node(dynamics.comm, lambda: compile_inverse(dynamics.divided.lanes))
        wanted = np.zeros(dynamics.subchain.nu) if state.udot is None else state.udot
        return dynamics.gather_u.everywhere(dynamics.inverse_dynamics(state.q, state.u, wanted, t, actuated))


def inertia_matrix(model: ModelLike, q: npt.ArrayLike | None = None, *, comm: MPI.Comm | None = None) -> Floats:
    """Give the joint-space inertia matrix M [nu, nu] of a model, of loops that of the spanning tree; all ranks call.

    Parameters
    ----------
    model, q, comm
        See `accelerations`.

    Raises
    ------
    InputError
        On all ranks; see `Dynamics.inertia_matrix`, which gives each rank its rows.
    """
    with _asked(model, comm, 0.0, {"q": q}) as (dynamics, state):
        first_on_node(dynamics.comm, compile_joint_space)
        whole, n = dynamics.inertia.gather_rows(dynamics.inertia_matrix(state.q)), dynamics.system.nu
        found = np.empty((n, n)) if whole is None else np.ascontiguousarray(whole).reshape(n, n)
        dynamics.comm.Bcast(found)
        return found


def assemble(
    model: ModelLike,
    q: npt.ArrayLike | None = None,
    u: npt.ArrayLike | None = None,
    *,
    comm: MPI.Comm | None = None,
    **settings: Any,
) -> State:
    """Give a state near one that is given in which all loops are closed, positions and speeds; all ranks call.

    Parameters
    ----------
    model, q, u, comm, **settings
        See `accelerations`.

    Returns
    -------
    State
        `q` [nq] and `u` [nu].

    Raises
    ------
    InputError
        On all ranks: there are no loops, or they can't be closed.
    """
    with _asked(model, comm, 0.0, {"q": q, "u": u}, **settings) as (dynamics, state):
        if dynamics.loops is None:
            raise InputError(f"'{dynamics.system.name}' has no loops: there is nothing to close")
        compile_evaluations(dynamics)
        found = closed(dynamics, *dynamics.divided.followed(0.0, state.q, state.u))
        return State(dynamics.gather_q.everywhere(found[0]), dynamics.gather_u.everywhere(found[1]))


def settle(model: ModelLike, q: npt.ArrayLike | None = None, *, t: float = 0.0, comm: MPI.Comm | None = None) -> Floats:
    """Give the coordinates [nq] of a static equilibrium of a model near some; all ranks call.

    Parameters
    ----------
    model, q, t, comm
        See `accelerations`.

    Raises
    ------
    InputError
        On all ranks: nothing can move.
    SimulationError
        On all ranks: none is found, or a function of the model failed.
    """
    with _asked(model, comm, t, {"q": q}) as (dynamics, state):
        from mpimbs.dynamics.statics.equilibrium import settle as settled  # needs petsc4py

        compile_evaluations(dynamics, loads=True)
        compile_implicit(dynamics)
        return dynamics.gather_q.everywhere(settled(dynamics, state.q, t).q)


def modes(model: ModelLike, q: npt.ArrayLike | None = None, count: int = 10, *, comm: MPI.Comm | None = None) -> Modes:
    """Give the lowest natural frequencies of a model about an equilibrium, and their shapes; all ranks call.

    Parameters
    ----------
    model, q, comm
        See `accelerations`; the coordinates are those of an equilibrium, as `settle` finds one.
    count : int
        How many, at the most.

    Returns
    -------
    Modes
        `frequencies` (Hz), `squares`, `shapes` and `residuals`.

    Raises
    ------
    InputError, SimulationError
        On all ranks: the state is no equilibrium, nothing can move, or an iteration does not converge.
    """
    with _asked(model, comm, 0.0, {"q": q}) as (dynamics, state):
        compile_evaluations(dynamics, loads=bool(dynamics.system.loops))
        first_on_node(dynamics.comm, compile_joint_space)
        return modes_of(dynamics, state.q, count)
