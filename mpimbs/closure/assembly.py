"""Loops closed: coordinates moved the least, until every loop is closed; then speeds likewise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, eye_array, hstack, vstack
from scipy.sparse.linalg import splu

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.closure.jacobian import ROOM_OF_ROUNDING, Constraints, LoopJacobian, TooLargeError, displacements
from mpimbs.model.contents import Contents

CLOSED = 1e-11  # rad, and m in units of a loop's size: what a violation may be, beside rounding
_ROUNDING = 1e-14  # nearer to closed no step leads, nor than that rounding
_ROUNDS = 100
_ASIDE = (1e-2, 1e-1)  # rad, and m in units of a loop's size
_WEAKEST, _STRONGEST = 1e-3, 1e8  # damping, in squares of the violation
_LEAST = 1e-13  # damping: redundant rows have no other pivot
MOST_PRODUCTS = 500_000_000  # of two numbers of a column: 2000 constraints on the same joints


class ClosedState(NamedTuple):
    """Coordinates near to given ones in which loops are closed, as far as they can be."""

    q: Floats  # [nq]
    violation: Floats  # [rows]: what is left, rad and m
    reached: bool


class Assembled(NamedTuple):
    """A state whose loops are closed, with speeds that they allow, and how far it is from the one it was made of."""

    q: Floats  # [nq]
    u: Floats  # [nu]
    moved: Floats  # [bodies]: by how much their joints were moved, norm over rad and m


class _LeastNorm:
    """The least x with J x = r, J scaled: with a damping, x + J^T y = 0 and J x - damping y = r.

    Both are solved at once: products J J^T would lose the digits that long chains of bodies need.
    """

    def __init__(self, jacobian: csr_array, damping: float) -> None:
        rows, self._columns = jacobian.shape
        in_columns = np.diff(jacobian.tocsc().indptr).astype(np.float64)
        if in_columns @ in_columns > MOST_PRODUCTS:  # what elimination may leave
            raise TooLargeError
        one, damped = eye_array(self._columns, format="csr"), eye_array(rows, format="csr")
        above, below = hstack([one, jacobian.T]), hstack([jacobian, -damping * damped])
        self._solver = splu(vstack([above, below], format="csc"))

    def __call__(self, wanted: Floats) -> Floats:
        """Give x [columns] for r [rows]."""
        return self._solver.solve(np.concatenate((np.zeros(self._columns), wanted)))[: self._columns]


def close_loops(loops: LoopJacobian, q: Floats) -> ClosedState:
    """Move coordinates until loops are closed; from beside them, where a start that is stretched flat leads nowhere.

    Raises
    ------
    TooLargeError
        Too many loops act on the same joints.
    """
    draw, columns = np.random.default_rng(1), loops.at(q).columns
    best = _closed_from(loops, q)
    for aside in _ASIDE:
        if best.reached:
            break
        start = loops.subchain.displaced(q, aside * columns * loops.moves * draw.uniform(-1, 1, loops.system.nu))
        best = min(best, _closed_from(loops, start), key=lambda found: np.linalg.norm(found.violation))
    return best


def _closed_from(loops: LoopJacobian, q: Floats) -> ClosedState:
    """Close loops by Gauss-Newton steps of least norm, damped as Levenberg and Marquardt do.

    The damping falls with the square of the violation, so that convergence is fast where constraints are redundant or
    the position is singular, too.
    """
    here, strength = loops.at(q), 1.0
    for _ in range(_ROUNDS):
        left = float(np.linalg.norm(here.violation))
        if left < max(_ROUNDING, float(np.linalg.norm(here.rounding))) or strength > _STRONGEST:
            break
        least = _LeastNorm(here.matrix, max(strength * min(left, 1.0) ** 2, _LEAST))
        there = loops.subchain.displaced(q, here.columns * least(-here.violation))
        found = loops.at(there)
        if np.linalg.norm(found.violation) < left:
            q, here, strength = there, found, max(strength / 10.0, _WEAKEST)
        elif _is_closed(here):
            break
        else:
            strength *= 10.0
    return ClosedState(q, here.violation / here.rows, _is_closed(here))


def _is_closed(here: Constraints) -> bool:
    """Whether all loops are, to rounding."""
    return bool((np.abs(here.violation) < CLOSED + ROOM_OF_ROUNDING * here.rounding).all())


def allowed_by(loops: LoopJacobian, q: Floats, u: Floats) -> Floats:
    """The speeds nearest to given ones that closed loops allow [nu], slides in units of the loops' sizes.

    Raises
    ------
    TooLargeError
        As `close_loops`.
    """
    here = loops.at(q)
    least, speeds = _LeastNorm(here.matrix, _LEAST), u / here.columns
    for _ in range(3):  # for the damping, and for the rounding of redundant rows
        speeds = speeds - least(here.whole @ speeds)
    return here.columns * speeds


def assemble(system: Contents, q: Floats, u: Floats) -> Assembled:
    """Close all loops of a system, moving its joints the least, rad and m in units of the loops' sizes; on one process.

    Raises
    ------
    InputError
        There are no loops; or one can't be closed near the given state: the message names it and its distance.
    """
    if not system.loops:
        raise InputError(f"system '{system.name}' has no loops to close; give them as [[loop]] tables")
    try:
        loops = LoopJacobian(system)
        closed = close_loops(loops, q)
        if not closed.reached:
            worst, left = loops.joints.worst(closed.violation)
            raise InputError(
                f"loop '{worst}' can't be closed: it stays open by {left}, wherever the bodies move from where they "
                "begin; begin nearer to a closed state, or look at the positions, rotations and type of the loop"
            )
        speeds = allowed_by(loops, closed.q, u)
    except TooLargeError:
        raise InputError(
            f"system '{system.name}': too many loops act on the same joints to close them all at once; begin with "
            "closed loops"
        ) from None
    body = np.repeat(np.arange(system.n_bodies), np.diff(system.offsets()[1]))
    moves = displacements(system.columns(), q, closed.q)
    return Assembled(closed.q, speeds, np.sqrt(np.bincount(body, moves**2, system.n_bodies)))
