"""Inverse dynamics over ranks: the forces that given accelerations need.

Each rank's part is the recursive Newton-Euler algorithm. Between ranks an acceleration goes outward by A2 = X A1 + c, a
load inward by f1 = X^T f2 + f: every rank gets X, c and f of all, and goes through those before, or behind it.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.model import system_from
from mpimbs.parallel.scan import Scan
from mpimbs.pipeline import scan_motions
from mpimbs.sweep.structure import PLACE, TURNING
from mpimbs.sweep.subchain import AT_REST, Subchain, frame_change

Floats = npt.NDArray[np.float64]


def required_forces(
    comm: MPI.Comm,
    subchain: Subchain,
    q: Floats,
    u: Floats,
    udot: Floats,
    forces: Floats,
    boundary: Floats,
    root: Floats,
) -> Floats:
    """Give this rank's part of the generalized forces [nu] beside springs, dampers, torques and `forces`; all call.

    Parameters
    ----------
    comm : MPI.Comm
    subchain : Subchain
        This rank's part of a chain, or on one rank a tree; its wrenches are set.
    q, u, udot, forces : array
        This rank's parts.
    boundary : array [BOUNDARY]
        Motion of this rank's handle 1.
    root : array [6]
        Acceleration of the root: -g.
    """
    turn = np.concatenate((boundary[:9], boundary[PLACE : PLACE + TURNING - 9]))
    acceleration, load2 = root, np.zeros(6)
    if comm.size > 1:
        _held, far = subchain.prescribe(q, u, udot, turn, np.zeros(6))
        change = frame_change(subchain.boundary_motion(q, u)[:PLACE])
        changes, fars = _of_all(comm, change), _of_all(comm, far)
        for rank in range(comm.rank):
            acceleration = changes[rank] @ acceleration + fars[rank]
    accelerations, _ = subchain.prescribe(q, u, udot, turn, acceleration)
    if comm.size > 1:
        _, load1 = subchain.required_forces(q, u, forces, accelerations.copy(), load2)
        received = _of_all(comm, load1)
        for rank in range(comm.size - 1, comm.rank, -1):
            load2 = changes[rank].T @ load2 + received[rank]
        load2 = -load2  # what the next rank receives, this one gives
    return subchain.required_forces(q, u, forces, accelerations, load2)[0]


@functools.cache
def compile_inverse() -> None:
    """Compile, or load from the cache, what `Dynamics.inverse_dynamics` calls; no communication."""
    system = system_from("chain:1")
    alone = Subchain(system)
    q, u = alone.q, alone.u
    boundary = Scan(MPI.COMM_SELF, AT_REST, scan_motions)
    boundary(alone.boundary_motion(q, u))
    boundary.close()
    required_forces(MPI.COMM_SELF, alone, q, u, np.zeros(1), np.zeros(1), AT_REST, np.zeros(6))


def _of_all(comm: MPI.Comm, mine: Floats) -> Floats:
    """The arrays of all ranks, one after the other."""
    all_of_them = np.empty((comm.size, *mine.shape))
    comm.Allgather(np.ascontiguousarray(mine), all_of_them)
    return all_of_them
