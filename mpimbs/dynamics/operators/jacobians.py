"""Jacobians of points of bodies and of the centre of mass, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arguments import choose, doubles
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.dynamics.operators.inertia import InertiaMatrix
from mpimbs.parallel.agreement import together
from mpimbs.sweep.inertia.composite import FORCE_OF, POINT, SHIFT_OF, TURN_OF
from mpimbs.sweep.structure import BOUNDARY

PART, ALL, OWNER = PLACES = ("part", "all", "owner")
WORLD_FRAME, BODY_FRAME = FRAMES = ("world", "body")


class BodyPoint(NamedTuple):
    """A point of a body, as all ranks know it.

    Attributes
    ----------
    body : int
        By its place in the order of the ranks' bodies.
    owner : int
    position : array [3]
        In the world (m).
    rotation : array [3, 3]
        Body components to world components.
    """

    body: int
    owner: int
    position: Floats
    rotation: Floats


class Jacobians:
    """Gives Jacobians of a system, over the ranks; all ranks call together.

    Parameters
    ----------
    divided : DividedSystem
    inertia : InertiaMatrix
        Of the same system.
    """

    def __init__(self, divided: DividedSystem, inertia: InertiaMatrix) -> None:
        self._divided, self._inertia = divided, inertia

    def of_point(
        self, q: Floats, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME, on: str = PART
    ) -> Floats:
        """Give the Jacobian J of a point of a body [6, nu]: J u is its angular velocity and the point's velocity.

        Parameters
        ----------
        q : array [nq]
        body : str
        point : array [3]
            In the body's frame (m).
        frame : str
            Whose components: "world" or "body".
        on : str
            "part": each rank gets the columns of its own speeds. "all": every rank all columns, in the order of
            the parts; "owner": the rank that has the body, others none [6, 0].

        Raises
        ------
        InputError
            On all ranks: q as of `accelerations`; an unknown body, frame or place; a point that is none.
        """
        choose("on", on, PLACES)
        here, columns = self._columns(q, body, point, frame)
        if on == PART:
            return columns
        parts = self._divided.comm.allgather(columns) if on == ALL else self._divided.comm.gather(columns, here.owner)
        return np.zeros((6, 0)) if parts is None else np.concatenate(parts, axis=1)

    def product(
        self, q: Floats, u: Floats, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME
    ) -> Floats:
        """Give J u [6]: angular velocity (rad/s) of a body and velocity (m/s) of a point of it; on all ranks.

        Arguments as of `of_point`.
        """
        q, u = self._divided.pair(q, u, "u")
        found = self._columns(q, body, point, frame)[1] @ u
        self._divided.comm.Allreduce(MPI.IN_PLACE, found)
        return found

    def transpose(
        self, q: Floats, wrench: Any, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME
    ) -> Floats:
        """Give J^T w [nu]: this rank's generalized forces of a wrench, moment (N m) and force (N) at a point of a body.

        `wrench` [6] is the same on all ranks; other arguments as of `of_point`.
        """
        given = together(self._divided.comm, lambda: doubles("wrench", wrench, 6))
        found: Floats = self._columns(q, body, point, frame)[1].T @ given
        return found

    def bias(self, q: Floats, u: Floats, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME) -> Floats:
        """Give dJ/dt u [6]: what angular acceleration and acceleration of a point have beside J du/dt; on all ranks.

        Arguments as of `of_point`; the rate of J in world components, turned where the body's are asked for.
        """
        q, u = self._divided.pair(q, u, "u")
        here = self._point(q, body, point, frame)
        found = np.zeros(6)
        between = self._divided.between
        boundary = between.see(q, u)
        accelerations = between.prescribed(q, u, self._divided.still, np.zeros(6))
        if self._divided.comm.rank == here.owner:
            made = self._divided.subchain.made
            step = made.body_step[here.body - self._divided.subchain.first]
            motion = self._divided.subchain.motions(q, u, boundary).reshape(-1, BOUNDARY)[step]
            to_step = motion[:9].reshape(3, 3)
            arm, w = to_step @ (here.position - motion[9:12]), motion[12:15]
            a = accelerations[step]
            linear = a[3:] + np.cross(a[:3], arm) + np.cross(w, np.cross(w, arm))
            found[:] = (np.stack((a[:3], linear)) @ to_step).ravel()
        self._divided.comm.Allreduce(MPI.IN_PLACE, found)
        return _in_frame(found, here, frame)

    def center_of_mass(self, q: Floats) -> tuple[Floats, Floats]:
        """Give the centre of mass of all bodies [3] (m), on all ranks, and its Jacobian [3, nu]: this rank's columns.

        InputError as of `accelerations`.
        """
        q = self._divided.coordinates(q)
        lines = self._inertia.composites.at(q)
        columns = self._divided.subchain.columns
        rotations, positions = self._divided.subchain.poses_at(q, self._divided.boundary_motion(q, self._divided.still))
        centers = positions + np.einsum("nij,nj->ni", rotations, columns.center_of_mass)
        sums = np.array([*(columns.mass @ centers), columns.mass.sum()])
        self._divided.comm.Allreduce(MPI.IN_PLACE, sums)
        return sums[:3] / sums[3], lines[FORCE_OF : FORCE_OF + 3, self._inertia.composites.places] / sums[3]

    def operational_inertia(self, q: Floats, points: Any, frame: str = WORLD_FRAME) -> Floats:
        """Give J M^-1 J^T [6 k, 6 k] of points of bodies: its inverse is their operational-space inertia; on all ranks.

        `points`: names of bodies, or pairs of such a name and a point in the body's frame (m). Other arguments and
        InputError as of `of_point`.
        """
        asked = together(self._divided.comm, lambda: _bodies_and_points(points))
        rows = np.concatenate([self._columns(q, *point, frame)[1] for point in asked])
        q = self._divided.coordinates(q)
        factor = self._inertia.factored(q)
        found: Floats = rows @ np.array([factor.solve(row) for row in np.ascontiguousarray(rows)]).T
        self._divided.comm.Allreduce(MPI.IN_PLACE, found)
        return found

    def _columns(self, q: Floats, body: str, point: Any, frame: str) -> tuple[BodyPoint, Floats]:
        """A point, and this rank's columns of its Jacobian."""
        choose("frame", frame, FRAMES)
        q = self._divided.coordinates(q)
        here = self._point(q, body, point, frame)
        lines, moved = self._inertia.composites.twists(q), self._inertia.composites.moving(here.body)
        found = np.zeros((6, len(moved)))
        w, arms = lines[TURN_OF : TURN_OF + 3, moved], here.position[:, None] - lines[POINT : POINT + 3, moved]
        found[:3, moved], found[3:, moved] = w, lines[SHIFT_OF : SHIFT_OF + 3, moved] + np.cross(w, arms, axis=0)
        return here, _in_frame(found, here, frame)

    def _point(self, q: Floats, body: str, point: Any, frame: str) -> BodyPoint:
        subchain = self._divided.subchain

        def asked() -> tuple[int, Floats]:
            return int(subchain.system.index_of(body)), doubles("point", point, 3)

        place, local = together(self._divided.comm, asked)
        owner = int(np.searchsorted(self._divided.cuts, place, side="right")) - 1
        rotations, positions = subchain.poses_at(q, self._divided.boundary_motion(q, self._divided.still))
        found = np.zeros(12)
        if owner == self._divided.comm.rank:
            k = place - subchain.first
            found[:3], found[3:] = positions[k] + rotations[k] @ local, rotations[k].ravel()
        self._divided.comm.Bcast(found, owner)
        return BodyPoint(place, owner, found[:3], found[3:].reshape(3, 3))


def _bodies_and_points(given: Any) -> list[tuple[Any, Any]]:
    """Names of bodies, or pairs of such a name and a point, as pairs."""
    listed = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else []
    pairs = [(item, (0.0, 0.0, 0.0)) if isinstance(item, str) else item for item in listed]
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise InputError("points must be names of bodies, or pairs of a name and a point, one at least; give a list")
    return [(name, point) for name, point in pairs]


def _in_frame(found: Floats, here: BodyPoint, frame: str) -> Floats:
    """Numbers [6, ...] in world components, or in those of the body."""
    if frame == WORLD_FRAME:
        return found
    turned: Floats = np.einsum("ji,pj...->pi...", here.rotation, found.reshape(2, 3, *found.shape[1:]))
    return turned.reshape(found.shape)
