"""A subchain (or, on one process, a whole tree): its arrays, its workspace, and its sweeps as methods."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.model import Columns, System
from mpimbs.spatial.handles import SIZE
from mpimbs.sweep import passes
from mpimbs.sweep.build import build
from mpimbs.sweep.forces import spring_energy
from mpimbs.sweep.inverse import inverse_dynamics
from mpimbs.sweep.motion import poses, relative_motion
from mpimbs.sweep.structure import BOUNDARY, PLACE, TURNING, workspace
from mpimbs.sweep.totals import totals

Floats = npt.NDArray[np.float64]

AT_REST = np.array([1.0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])  # the world's boundary motion


class Subchain:
    """The bodies first..last-1 of a system and the O(n) sweeps over them.

    Vectors of coordinates and speeds are in the model's order. One evaluation is, in this order, `start`, `inward`
    and `outward`; what lies between (the boundary motion and the handle loads) comes from the neighbours.

    Parameters
    ----------
    system : System
    first, last : int
        The bodies to own; all by default. A part of a system must be a piece of a chain.

    Attributes
    ----------
    columns : Columns
        The model's numbers for these bodies.
    tip : bool
        Nothing hangs outboard of these bodies.
    q, u : array [nq], [nu]
        The model's initial state.
    """

    def __init__(self, system: System, first: int = 0, last: int | None = None) -> None:
        last = system.n_bodies if last is None else last
        self.columns: Columns = system.columns(first, last)
        inboard = build(system.columns(first - 1, first)).body_frame[0] if first > 0 else None
        self.structure, self.springs, junctions, self._body_step, self._body_frame = build(self.columns, inboard)
        self.first, self.last = first, last
        self.tip = last == system.n_bodies
        self.nq, self.nu = int(self.columns.q_offset[-1]), int(self.columns.u_offset[-1])
        self.q, self.u = self.columns.q.copy(), self.columns.u.copy()
        self.work = workspace(len(self.structure.steps), self.nu, junctions)
        self._tau = np.zeros(self.nu)
        self._turn = AT_REST[:TURNING].copy()
        self._block = np.zeros(SIZE)
        self._inward = passes.inward_tip if self.tip else passes.inward_chain
        self._outward = passes.outward_tip if self.tip else passes.outward_chain

    @property
    def n_bodies(self) -> int:
        """Number of bodies owned."""
        return self.last - self.first

    def start(self, q: Floats, u: Floats) -> Floats:
        """Write the joint frames; give the boundary turn.

        Parameters
        ----------
        q, u : array [nq], [nu]
            Coordinates (rad, m, unit quaternions) and generalized speeds (rad/s, m/s).

        Returns
        -------
        array [TURNING]
            Rotation 9 from handle 1 to handle 2, and the angular velocity 3 of handle 2, in its frame, while handle
            1 is held. At the tip, where nobody asks, the identity.
        """
        if self.tip:
            passes.start(self.structure, self.work, q)
        else:
            passes.start_chain(self.structure, self.work, q, u, self._turn)
        return self._turn

    def inward(self, q: Floats, u: Floats, tau: Floats, turn: Floats) -> Floats:
        """Sweep inward: the handle equations, flat [SIZE], given the turn of handle 1 [TURNING].

        `tau` [nu] (N m, N) comes on top of the model's own joint forces.
        """
        self._inward(self.structure, self.springs, self.work, q, u, tau, self._tau, turn, self._block)
        return self._block

    def outward(self, q: Floats, u: Floats, loads: Floats, udot: Floats, rates: Floats) -> None:
        """Sweep outward with A1 and f2 in `loads` [12]; writes accelerations [nu] and coordinate rates [nq]."""
        self._outward(self.structure, self.work, q, u, loads, udot, rates)

    def set_wrench(self, body: int, wrench: Floats) -> None:
        """Set the external wrench (N m, N) on a body, at its origin, in body frame components [6]."""
        step, turn = self._body_step[body], self._body_frame[body]
        self.work.wrench[6 * step : 6 * step + 3] = wrench[:3] @ turn
        self.work.wrench[6 * step + 3 : 6 * step + 6] = wrench[3:] @ turn

    def boundary_motion(self, q: Floats, u: Floats) -> Floats:
        """Give the boundary motion [BOUNDARY], for output: rotation 9 and position 3 (m) from handle 1 to handle 2, and
        the twist 6 of handle 2, in its frame, while handle 1 is held."""
        passes.start(self.structure, self.work, q)
        motion = np.empty(BOUNDARY)
        relative_motion(0.0, self.structure, self.work, u, motion)
        return motion

    def _step_poses(self, boundary: Floats) -> Floats:
        pose = np.empty(len(self.structure.steps) * PLACE)
        poses(0.0, self.structure, self.work, boundary, pose)
        return pose

    def body_poses(self, q: Floats, boundary: Floats = AT_REST) -> tuple[Floats, Floats]:
        """Poses of the bodies.

        Parameters
        ----------
        q : array [nq]
        boundary : array [BOUNDARY]
            Motion of handle 1.

        Returns
        -------
        (rotations [n, 3, 3], positions [n, 3])
            Body components to inertial components; body origins in the inertial frame (m).
        """
        passes.start(self.structure, self.work, q)
        pose = self._step_poses(boundary).reshape(-1, PLACE)[self._body_step]
        to_step = pose[:, :9].reshape(-1, 3, 3)
        return np.swapaxes(to_step, 1, 2) @ np.swapaxes(self._body_frame, 1, 2), pose[:, 9:].copy()

    def energy_and_momentum(self, q: Floats, u: Floats, gravity: Floats, boundary: Floats = AT_REST) -> Floats:
        """Kinetic and potential energy (J), linear (N s) and angular (N m s) momentum: eight numbers.

        Potential energy is that of weight, zero at the inertial origin, and of the joint springs; momenta are in the
        inertial frame, the angular one about its origin.
        """
        passes.start(self.structure, self.work, q)
        pose = self._step_poses(boundary)
        twist = tuple(boundary[PLACE:BOUNDARY])
        kinetic, potential, linear, angular = totals(0.0, self.structure, self.work, u, tuple(gravity), twist, pose)
        potential += spring_energy(0.0, self.structure, self.springs, q)
        return np.array([kinetic, potential, *linear, *angular])

    def inverse_dynamics(self, q: Floats, u: Floats, udot: Floats, gravity: Floats) -> Floats:
        """Generalized forces [nu] (N m, N) that give the accelerations `udot` [nu]; for a whole system, not a part.

        Springs, dampers and constant torques of the model are not part of them; external wrenches are applied.
        """
        passes.start(self.structure, self.work, q)
        passes.move(self.structure, self.work, u, AT_REST[:TURNING])
        tau = np.empty(self.nu)
        loads = np.empty(len(self.structure.steps) * 6)
        root = (0.0, 0.0, 0.0, *(-float(g) for g in gravity))
        inverse_dynamics(0.0, self.structure, self.work, udot, root, loads, tau)
        return tau
