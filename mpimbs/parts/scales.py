"""What is large in a system: its length, mass and time, beside which a number is much or nothing in any units.

A threshold is a share of one of these, or of what it is compared with: never a number of metres, kilograms or seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.model import JOINT_TYPES
from mpimbs.parts.subchain import Subchain

IN_METRES = [np.array([unit == "m" for unit in kind.q_units], bool) for kind in JOINT_TYPES]
PER_SECOND = [np.array([unit == "m/s" for unit in kind.u_units], bool) for kind in JOINT_TYPES]


class Scales(NamedTuple):
    """The size of a system, from its model alone: wherever it stands, however it is turned, and in whatever units."""

    # mean reach of a body's mass (m): about its inboard joint, and of that about the joint before. 1 where nothing has
    # any extent.
    length: float
    mass: float  # of all bodies (kg); 1 where none has any


def scales_of(comm: MPI.Comm, subchain: Subchain) -> Scales:
    """Give the size of a system, of each rank's bodies; the same on all ranks, which all call."""
    c = subchain.columns
    carried = np.where(c.parent >= 0, (c.position**2).sum(axis=1), 0.0)  # not where the world's joints are
    about = 0.5 * c.inertia[:, :3].sum(axis=1) + c.mass * ((c.center_of_mass**2).sum(axis=1) + carried)
    total = np.array([about.sum(), c.mass.sum(), carried.sum(), len(carried)])
    comm.Allreduce(MPI.IN_PLACE, total)
    squares = total[0] / total[1] if total[:2].all() else total[2] / max(total[3], 1.0)
    return Scales(float(np.sqrt(squares)) or 1.0, float(total[1]) or 1.0)


def joint_units(subchain: Subchain, length: float) -> tuple[Floats, Floats]:
    """Give the units of this rank's coordinates [nq] and of its speeds times a time [nu]: 1 of angles, or a length."""
    kinds = subchain.columns.joint_type.tolist()
    parts = (np.concatenate([table[kind] for kind in kinds]) for table in (IN_METRES, PER_SECOND))
    q, u = (np.where(part, length, 1.0) for part in parts)
    q.flags.writeable = u.flags.writeable = False
    return q, u
