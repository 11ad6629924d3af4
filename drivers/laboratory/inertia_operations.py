"""Operations of the inertia matrix of a chain of hinges: of the forms of Amin-Javaheri & Orin 1989, and of ours.

The paper's tables are written down here as they stand, and counted: composites and diagonal one link after the other
(table 1) or by doubling (table 2), and an off-diagonal number for each pair of joints by a resolved load, in either.
Ours has all twists and loads in one frame, where a number is a product of six; its sweeps are counted from the kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from laboratory.counting import Counts
from laboratory.sweeps import count
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.model import system_from
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.spatial.inertia import rigid_inward
from mpimbs.spatial.vectors import add3, cross, multiply, rotate, scale3, sub3
from mpimbs.sweep.inertia.composite import COMPOSITE, FRAME, LINE, NOT_OPEN, composites, twists
from mpimbs.sweep.inertia.inertia_rows import BLOCK_ROWS
from mpimbs.sweep.motion import joint_places

_PLACED = 12  # rotation and position of a link in the one before


class InertiaOperations(NamedTuple):
    """Operations of the inertia matrix, its upper half, by form."""

    recursive: Counts  # table 1
    doubling: Counts  # table 2
    here: Counts


def _steiner(m, d):
    """m (d . d 1 - d d^T), as 00 01 02 11 12 22."""
    x, y, z = m * d[0], m * d[1], m * d[2]
    xx, yy, zz = x * d[0], y * d[1], z * d[2]
    return (yy + zz, -(x * d[1]), -(x * d[2]), xx + zz, -(y * d[2]), xx + yy)


def _sum6(a, b):
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4], a[5] + b[5])


def _composite(left, right, placed, out):
    """Composite of two bodies, both E 6, c 3, M 1, the right one in a frame that lies so in the left one's."""
    u = load9(0.0, placed, 0)
    far = add3(rotate(u, load3(0.0, right, 6)), load3(0.0, placed, 9))
    total = left[9] + right[9]
    near = load3(0.0, left, 6)
    c = scale3(1.0 / total, add3(scale3(left[9], near), scale3(right[9], far)))
    o = (0.0, 0.0, 0.0)
    e = _sum6(rigid_inward(u, o, load6(0.0, right, 0), o, 0.0)[0:6], load6(0.0, left, 0))
    e = _sum6(_sum6(e, _steiner(right[9], sub3(far, c))), _steiner(left[9], sub3(near, c)))
    store_numbers(0.0, out, 0, e + c + (total,))


def _placed_further(first, second, out):
    """Where a frame lies in the one before the last."""
    u, v = load9(0.0, first, 0), load9(0.0, second, 0)
    p = add3(load3(0.0, first, 9), rotate(u, load3(0.0, second, 9)))
    store_numbers(0.0, out, 0, multiply(u, v) + p)


def _diagonal(body, out):
    """Force and moment at a hinge about z, of a unit acceleration: F = z x M c, n = E z + c x F, of which H is n_z."""
    c, m = load3(0.0, body, 6), body[9]
    f = (-(m * c[1]), m * c[0], 0.0)
    store_numbers(0.0, out, 0, f + add3((body[2], body[4], body[5]), cross(c, f)))


def _resolved(load, placed, out):
    """Force and moment at another joint: f = U f, n = U n + p x f; the number of the matrix is n_z."""
    u = load9(0.0, placed, 0)
    f = rotate(u, load3(0.0, load, 0))
    n = add3(rotate(u, load3(0.0, load, 3)), cross(load3(0.0, placed, 9), f))
    store_numbers(0.0, out, 0, f + n)


def inertia_operations(n: int) -> InertiaOperations:
    """Count the operations of the upper half of the inertia matrix of a chain of n hinges with any frames.

    Sines, cosines and the frames made of them are left out of all: each form has them once.
    """
    body, placed, load = np.linspace(1.0, 2.0, COMPOSITE), np.linspace(1.0, 2.0, _PLACED), np.ones(6)
    composite = count(kernel(_composite), body, body, placed, np.zeros(COMPOSITE), useful=True)
    further = count(kernel(_placed_further), placed, placed, np.zeros(_PLACED))
    diagonal = count(kernel(_diagonal), body, np.zeros(6)) * n
    resolved = count(kernel(_resolved), load, placed, np.zeros(6)) * (n * (n - 1) / 2)
    joins = _joins(n)
    return InertiaOperations(
        recursive=composite * (n - 1) + diagonal + resolved,
        doubling=(composite + further) * joins + diagonal + resolved,
        here=_here(n),
    )


def _joins(n: int) -> int:
    """Sets of links that doubling joins: at every level, each link of a left half with all of the right half."""
    found, half = 0, 1
    while half < n:
        found += half * -(-(n - half) // (2 * half))
        half *= 2
    return found


def _here(n: int) -> Counts:
    few, many = (_sweeps(k) for k in (3, 5))
    return few + (many - few) * ((n - 3) / 2) + _numbers(n)


def _sweeps(n: int) -> Counts:
    """Twists and composites of a chain of n links."""
    subchain = Subchain(system_from(f"spatial_chain:{n}").contents)
    structure, work, lines = subchain.made.structure, subchain.work, (np.zeros(LINE * n), n, np.arange(n))
    frames = np.zeros(n * FRAME)
    placed = count(joint_places, 0.0, structure, subchain.q, work.place)
    moved = count(twists, structure, work, subchain.q, AT_REST, frames, *lines) - placed
    return moved + count(composites, structure, work, frames, np.full(n, NOT_OPEN), np.zeros(COMPOSITE), *lines)


def _numbers(n: int) -> Counts:
    """Numbers as `inertia_rows` makes them, each a product of six; twists and loads are moved to a point a block."""
    moved = sum(min(first + BLOCK_ROWS, n) for first in range(0, n, BLOCK_ROWS)) + n
    pairs = n * (n + 1) / 2
    return Counts(multiplications=6 * pairs + 6 * moved, additions=5 * pairs + 9 * moved)
