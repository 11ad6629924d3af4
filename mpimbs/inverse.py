"""Inverse dynamics over ranks: the forces that given accelerations need.

Each rank's part is the recursive Newton-Euler algorithm. Between ranks an acceleration goes outward by A2 = X A1 + c, a
load inward by f1 = X^T f2 + f, for every body on which others hang: every rank gets X, c and f of all, and goes through
those before, or behind it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.model import system_from
from mpimbs.parallel.scan import Scan
from mpimbs.pipeline import scan_motions
from mpimbs.sweep.structure import PLACE, TURNING, Structure
from mpimbs.sweep.subchain import AT_REST, Subchain, frame_change

Floats = npt.NDArray[np.float64]


def prescribed(
    comm: MPI.Comm,
    subchain: Subchain,
    q: Floats,
    u: Floats,
    udot: Floats,
    boundary: Floats,
    root: Floats,
    at_rest: bool = False,
) -> tuple[Floats, list[Any]]:
    """Give the accelerations [m, 6] of this rank's steps that move by `udot`, in their frames; all call.

    Arguments as of `required_forces`, to which the second of what is given says how the ranks hang together.
    """
    turns = np.concatenate((boundary[:, :9], boundary[:, PLACE : PLACE + TURNING - 9]), axis=1)
    inboard, outer = subchain.inboard.tolist(), subchain.outer.tolist()
    known = {-1: root}  # accelerations of bodies
    parts: list[Any] = []
    if comm.size > 1:
        still = np.zeros((len(inboard), 6))
        held = subchain.prescribe(q, u, udot, turns, still, at_rest)[subchain.outer_steps]
        changes = [frame_change(motion[:PLACE]) for motion in subchain.relative_motions(q, u)]
        parts = comm.allgather((inboard, outer, changes, held))
        for theirs, bodies, moves, fars in parts[: comm.rank]:
            before = known[theirs[0]]
            known |= {body: move @ before + far for body, move, far in zip(bodies, moves, fars, strict=True)}
    return subchain.prescribe(q, u, udot, turns, np.array([known[body] for body in inboard]), at_rest), parts


def required_forces(
    comm: MPI.Comm,
    subchain: Subchain,
    q: Floats,
    u: Floats,
    udot: Floats,
    forces: Floats,
    boundary: Floats,
    root: Floats,
    at_rest: bool = False,
    structure: Structure | None = None,
) -> Floats:
    """Give this rank's part of the generalized forces [nu] beside springs, dampers, torques and `forces`; all call.

    Parameters
    ----------
    comm : MPI.Comm
    subchain : Subchain
        This rank's bodies; its wrenches are set.
    q, u, udot, forces : array
        This rank's parts.
    boundary : array [k, BOUNDARY]
        Motions of the bodies that this rank's hang on.
    root : array [6]
        Acceleration of the root: -g.
    at_rest : bool
        Without speeds, springs, wrenches: what is linear in `udot` alone.
    structure : Structure, optional
        With the inertias that count, in place of those of the subchain.
    """
    accelerations, parts = prescribed(comm, subchain, q, u, udot, boundary, root, at_rest)
    outer = subchain.outer.tolist()
    given: dict[int, Floats] = {}  # loads that bodies give to those behind
    if comm.size > 1:
        nothing = np.zeros((len(outer), 6))
        _, received = subchain.required_forces(q, u, udot, forces, accelerations.copy(), nothing, at_rest, structure)
        all_received = comm.allgather(received)
        for rank in range(comm.size - 1, comm.rank, -1):
            theirs, bodies, moves, _ = parts[rank]
            passed = all_received[rank].copy()
            for body, move in zip(bodies, moves, strict=True):
                passed[0] += move.T @ given.get(body, np.zeros(6))
            for body, load in zip(theirs, passed, strict=True):
                given[body] = given.get(body, 0.0) + load
    behind = np.array([-given.get(body, np.zeros(6)) for body in outer]).reshape(-1, 6)
    return subchain.required_forces(q, u, udot, forces, accelerations, behind, at_rest, structure)[0]


@functools.cache
def compile_inverse() -> None:
    """Compile, or load from the cache, what `Dynamics.inverse_dynamics` calls; no communication."""
    system = system_from("chain:1")
    alone = Subchain(system)
    q, u = alone.q, alone.u
    boundary = Scan(MPI.COMM_SELF, AT_REST, scan_motions)
    boundary(alone.boundary_motion(q, u))
    boundary.close()
    required_forces(MPI.COMM_SELF, alone, q, u, np.zeros(1), np.zeros(1), AT_REST[None], np.zeros(6))
