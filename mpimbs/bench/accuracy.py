"""How many digits a coupling keeps: accelerations in chosen states against a better solution, and what to warn of."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.coupling import COUPLINGS, LOOPED, TREES, UNCOMPARED, unavailable
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.resources import EVALUATION, EVALUATION_OF_BODIES, check_memory
from mpimbs.model.contents import Contents
from mpimbs.model.summary import refuse_loops
from mpimbs.partition.division import check_solved

SHAPES = ("straight", "bent", "folded", "resting")
FOLD = np.pi - 0.02  # rad: every joint, to either side in turn; the links lie beside each other
ASSEMBLED = ("dca", "dca-terminal")  # what joins single bodies in the acceleration form ...
LONG = 1000  # ... which is known to lose digits in chains of more bodies than these
UNFIT = 1e-10  # relative error of which a user should hear: a hundredth of the default tolerance of a run

_MEASURED = "spatial chains folded at rest, of the largest acceleration: 9e-11 at 1024 bodies, 1e-9 at 4096"


class ShapedState(NamedTuple):
    """Coordinates [nq] (rad, m, quaternions), generalized speeds [nu] (rad/s, m/s) and forces [nu] (N m, N)."""

    q: Floats
    u: Floats
    tau: Floats


def shaped_state(system: Contents, shape: str) -> ShapedState:
    """Make a state of a system in a shape of `SHAPES`, speeds and forces drawn at random.

    Parameters
    ----------
    shape : str
        "straight": all joints of one coordinate at zero; "bent": those of the model, turned by up to 0.3 rad;
        "folded": by `FOLD`, to either side in turn; "resting": folded, at rest, without forces. Quaternions are those
        of the model.

    Raises
    ------
    InputError
        There is no such shape.
    """
    if shape not in SHAPES:
        raise InputError(f"unknown shape '{shape}'; choose one of: {', '.join(SHAPES)}")
    draw = np.random.default_rng(16)
    offsets = system.offsets()[0]
    single = offsets[:-1][np.diff(offsets) == 1]
    q = system.initial_state(0, system.n_bodies)[0].copy()
    if shape == "bent":
        q[single] += draw.uniform(-0.3, 0.3, len(single))
    else:
        q[single] = 0.0 if shape == "straight" else FOLD * np.where(np.arange(len(single)) % 2, -1.0, 1.0)
    if shape == "resting":
        return ShapedState(q, np.zeros(system.nu), np.zeros(system.nu))
    return ShapedState(q, draw.normal(size=system.nu), draw.normal(size=system.nu))


def accelerations(
    system: Contents, state: ShapedState, comm: MPI.Comm, coupling: str, **settings: int | None
) -> Floats:
    """Give the accelerations [nu] of a state by a coupling, on rank 0; elsewhere an empty array. All ranks call.

    The settings are those of `Dynamics`.
    """
    with closing(Dynamics(system, comm, coupling, **settings)) as dynamics:
        mine = dynamics.gather_u.part
        udot = dynamics.accelerations(state.q[dynamics.gather_q.part], state.u[mine], state.tau[mine])
        whole = dynamics.gather_u(udot)
        return np.zeros(0) if whole is None else whole.copy()


def relative_error(ours: Floats, reference: Floats) -> float:
    """Largest difference over the largest acceleration of the reference; 0 where both are zero, or there is none."""
    return float(np.abs(ours - reference).max(initial=0.0) / np.abs(reference).max(initial=1e-300))


class Fitness(NamedTuple):
    """Relative error of a coupling against the serial sweep, in a shape of the system."""

    coupling: str
    shape: str
    error: float

    @property
    def fit(self) -> bool:
        """Whether a user need not care."""
        return self.error < UNFIT


def fitness(system: Contents, couplings: Sequence[str] | None = None) -> list[Fitness]:
    """Compare couplings with the serial sweep on this process: in the model's own state, straight and folded.

    The constraint loads of `pcg` are solved for with one cut in the middle.

    Parameters
    ----------
    system : Contents
        A chain or tree.
    couplings : sequence of str, optional
        By default all that this installation has and that solve it.

    Raises
    ------
    InputError
        A loop, or a coupling that does not solve the system.
    """
    check_solved(system)
    refuse_loops(
        system, "couplings are compared in poses, straight and folded, that loops don't allow; leave `accuracy` out"
    )
    if couplings is None:
        possible = COUPLINGS if system.is_chain else TREES
        couplings = [name for name in possible if not unavailable(name) and name not in UNCOMPARED]
    check_memory(system, EVALUATION_OF_BODIES if set(couplings) & set(ASSEMBLED) else EVALUATION)
    rows = []
    own = ShapedState(*system.initial_state(0, system.n_bodies), np.zeros(system.nu))
    states = {"as given": own} | {shape: shaped_state(system, shape) for shape in ("straight", "resting")}
    for shape, state in states.items():
        reference = accelerations(system, state, MPI.COMM_SELF, "dcae", lanes=1)
        for name in couplings:
            rows.append(Fitness(name, shape, relative_error(_alone(system, state, name), reference)))
    return rows


def _alone(system: Contents, state: ShapedState, coupling: str) -> Floats:
    cuts = 1 if coupling == "pcg" and system.n_bodies > 1 else None
    return accelerations(system, state, MPI.COMM_SELF, coupling, cuts=cuts)


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def notes(system: Contents) -> list[str]:
    """Say for which couplings a system is unfit, by what is known of it without an evaluation."""
    found = []
    if system.loops:
        found.append(f"closed loops: --coupling {_listed(LOOPED)} close them; the others solve systems without")
    elif not system.is_chain:
        found.append(f"a tree: --coupling {_listed(tuple(TREES))} solve it; the others solve chains")
    elif system.n_bodies > LONG:
        found.append(
            f"{system.n_bodies} bodies: --coupling dca, and dca-terminal on several ranks, lose digits in chains of "
            f"more than {LONG} ({_MEASURED}); dcae and pcg don't; --accuracy measures it here"
        )
    return found
