"""The stiffness that tension gives to lines: against the rotation of bodies that loads hold straight.

A body that carries a tension T over a length l resists a small turn d with the torque T l (1 - t t^T) d, t its
direction: what makes a string sound. Pushed bodies resist with less than nothing; that is left out, so that what is
added to an inertia stays positive.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.sweep.subchain import Subchain

Floats = npt.NDArray[np.float64]

_UPPER = np.triu_indices(3)


def levers(subchain: Subchain) -> Floats:
    """Where loads act on bodies, from their inboard joints, in body frames [n, 3] (m).

    The mean place of the joints of those that hang on a body, among these or the one behind; of the last bodies the
    center of mass.
    """
    columns, system = subchain.columns, subchain.system
    parents, places = columns.parent - subchain.first, columns.position
    if not subchain.tip:
        behind = system.columns(subchain.last, subchain.last + 1)
        parents = np.append(parents, behind.parent - subchain.first)
        places = np.append(places, behind.position, axis=0)
    inside = parents >= 0
    count = np.bincount(parents[inside], minlength=subchain.n_bodies)
    found = np.zeros((subchain.n_bodies, 3))
    np.add.at(found, parents[inside], places[inside])
    return np.where(count[:, None] > 0, found / np.maximum(count, 1)[:, None], columns.center_of_mass)


def tension_stiffness(levers: Floats, forces: Floats) -> Floats:
    """Stiffness of bodies against their rotation, xx xy xz yy yz zz [n, 6] (N m/rad), body frames.

    Parameters
    ----------
    levers : array [n, 3]
    forces : array [n, 3]
        What the bodies receive through their inboard joints (N).
    """
    square = np.einsum("ni,ni->n", levers, levers)
    pulled = np.maximum(-np.einsum("ni,ni->n", levers, forces), 0.0)  # T l
    along = pulled / np.where(square > 0.0, square, 1.0)
    found: Floats = -along[:, None] * levers[:, _UPPER[0]] * levers[:, _UPPER[1]]
    found[:, [0, 3, 5]] += pulled[:, None]
    return found


def turned(symmetric: Floats, frames: Floats) -> Floats:
    """Symmetric matrices xx xy xz yy yz zz [n, 6] in other components, F^T S F of rotations F [n, 3, 3]."""
    whole = np.empty((len(symmetric), 3, 3))
    whole[:, _UPPER[0], _UPPER[1]] = whole[:, _UPPER[1], _UPPER[0]] = symmetric
    found: Floats = (np.swapaxes(frames, 1, 2) @ whole @ frames)[:, _UPPER[0], _UPPER[1]]
    return found
