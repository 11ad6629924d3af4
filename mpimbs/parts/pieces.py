"""Subchains or intervals in sequence, and what hangs on them: where of each the plan of its passes is, and what of a
rank's vectors are its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import IntegerItem, columns, span


class PieceRow(NamedTuple):
    """Columns of the rows of subchains or intervals; behind them is room for two more."""

    plan: int  # address and size of its plan
    size: int
    q: int  # where its coordinates and speeds begin, and how many they are
    u: int
    nq: int
    nu: int


PIECE = columns(PieceRow)
SUBCHAIN = IntegerItem(PIECE.plan)


def sequence_rows(pieces: Sequence[tuple[Integers, int, int]]) -> Integers:
    """Give the rows of pieces in sequence, from the plan, nq and nu of each."""
    rows = np.zeros((len(pieces), 8), np.int64)
    at_q = at_u = 0
    for row, (plan, nq, nu) in zip(rows, pieces, strict=True):
        row[:6] = PieceRow(plan.ctypes.data, plan.size, at_q, at_u, nq, nu)
        at_q, at_u = at_q + nq, at_u + nu
    return rows


@kernel(inline=True)
def coordinates_of(row, q):
    """A subchain's part of a vector of coordinates."""
    return span(q, row[PIECE.q], row[PIECE.nq])


@kernel(inline=True)
def speeds_of(row, u):
    """A subchain's part of a vector of speeds, or of an empty one."""
    if u.size == 0:
        return span(u, 0, 0)
    return span(u, row[PIECE.u], row[PIECE.nu])
