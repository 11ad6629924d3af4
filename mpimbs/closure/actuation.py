"""Which forces along joints make a system with loops move as it shall: those of its actuators, or of least norm.

A motion needs the forces f along the joints of the spanning tree. Loads m of loops give J^T m of them, tau the rest:
f = tau + J^T m. Of all pairs that with the least tau is given, lengths in units of the system's size. Where joints are
named that have actuators, others give nothing; of several ways to share the work that of least norm is given.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from mpimbs.base.errors import InputError
from mpimbs.closure.geometry import FORCE
from mpimbs.closure.jacobian import LoopJacobian
from mpimbs.closure.redundant_loads import of_constraints

Floats = npt.NDArray[np.float64]

INDEPENDENT = 1e-10  # of the largest, singular values that count
LEFT = 1e-7  # of the largest force, what actuators that can do the work leave by rounding
MOST = 4000  # speeds, and constraints, whose matrices are formed


class Actuation(NamedTuple):
    """Forces that make a motion."""

    tau: Floats  # [nu]: N m, N
    loads: Floats  # [loops, 6]: what loops carry beside, as `ClosedLoops.loads`
    unique: bool  # whether no other forces of these joints do the same


def actuation(
    constraints: LoopJacobian, q: Floats, needed: Floats, acting: npt.NDArray[np.bool_] | None = None
) -> Actuation:
    """Give the forces that a motion needs, in a state of a whole system with loops.

    Parameters
    ----------
    constraints : LoopJacobian
    q : array [nq]
        In the model's order.
    needed : array [nu]
        Forces along the joints of the spanning tree that the motion needs, beside what acts.
    acting : bool array [nu], optional
        Which speeds have actuators; all by default.

    Raises
    ------
    InputError
        Those joints can't make the motion; or the system is too large.
    """
    here, nu = constraints.at(q), len(needed)
    if max(here.whole.shape) > MOST:
        raise InputError(f"inverse dynamics through loops is for up to {MOST} speeds and as many constraints of loops")
    bodies = constraints.bodies(q)
    size = float(np.ptp(bodies.origin, axis=0).max()) or 1.0
    units = np.where(constraints.subchain.structure.axes >= FORCE, size, 1.0)
    rows = here.whole.toarray() * (units / here.columns)  # constraints by speeds, in these units
    force, idle = needed * units, np.zeros(nu, bool) if acting is None else ~acting
    multipliers, least = np.zeros(len(rows)), INDEPENDENT * float(np.linalg.norm(rows, 2))
    free = np.eye(len(rows))  # combinations of loads that are left
    if idle.any():
        passive = rows[:, idle].T
        multipliers = _least(passive, force[idle], least)
        left, largest = force[idle] - passive @ multipliers, np.abs(force).max(initial=0.0)
        if np.abs(left).max(initial=0.0) > LEFT * largest:
            k = int(np.flatnonzero(idle)[int(np.argmax(np.abs(left)))])
            body = int(np.searchsorted(constraints.system.offsets()[1], k, side="right")) - 1
            name, lacking = constraints.system.name_of(body), left[int(np.argmax(np.abs(left)))] / units[k]
            raise InputError(
                f"the joints that are actuated can't make this motion: that of body '{name}' lacks a force of "
                f"{lacking:.4g} (N m or N); name more joints"
            )
        free = scipy.linalg.null_space(passive, rcond=INDEPENDENT)
    given = rows[:, ~idle].T @ free
    shared = bool(given.size) and float(np.linalg.norm(given, 2)) > least
    if shared:
        multipliers = multipliers + free @ _least(given, (force - rows.T @ multipliers)[~idle], least)
    tau = (force - rows.T @ multipliers) / units
    tau[idle] = 0.0
    joints = constraints.joints
    world = of_constraints(joints.loop, here.held, here.rows * multipliers).reshape(-1, 2, 3)
    loads = np.einsum("nji,npj->npi", bodies.rotation[joints.bodies[:, 1]], world).reshape(-1, 6)
    return Actuation(tau, loads, not shared)


def _least(matrix: Floats, right: Floats, least: float) -> Floats:
    """The solution of least squares and norm, without singular values up to the least that counts."""
    largest = float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0
    if largest <= least:
        return np.zeros(matrix.shape[1])
    found: Floats = scipy.linalg.lstsq(matrix, right, cond=least / largest, lapack_driver="gelsd")[0]
    return found
