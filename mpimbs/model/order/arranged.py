"""A system as solvers see it: its bodies renumbered, depth first with the heaviest child last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.model.between import SystemSprings
from mpimbs.model.contents import Contents
from mpimbs.model.force_functions import ForceFunctionT
from mpimbs.model.order.order import Order


class Arranged(Contents):
    """A system whose bodies are numbered by their places in its depth-first order.

    What it is asked for, columns and all else, is as of a system to which the bodies were added in that order; only
    `numbers_in_model` tells of another. Names are the model's. It is as the model was when it was made.

    Parameters
    ----------
    system : Contents
        The model.
    order : Order
        Its depth-first order.
    """

    def __init__(self, system: Contents, order: Order) -> None:
        super().__init__(system.name, system.gravity)
        self._system, self._order = system, order
        bodies, rows = system.segments.rows(0, system.n_bodies)
        self.segments.append_branches(tuple(bodies), rows[order.bodies], order.parents)
        self.names, self.changes, self.apart = system.names, system.changes, system.apart
        places = np.append(order.places, -1)  # of the world, -1, the last: -1 again
        self.loops = system.loops.holding(system.loops, map(tuple, places[system.loops.ends].tolist()))
        self.springs = SystemSprings(system.springs, map(tuple, places[system.springs.ends].tolist()))
        shifted = order.places[system.shifted]
        by_place = np.argsort(shifted)
        self.shifted, self.shifts = shifted[by_place], system.shifts[by_place]
        given = system.loads
        self.loads = replace(
            given,
            torques={int(order.places[k]): torque for k, torque in given.torques.items()},
            wrenches={int(order.places[k]): own for k, own in given.wrenches.items()},
            joint_forces=[self._moved(force) for force in given.joint_forces],
            body_forces=[self._moved(force) for force in given.body_forces],
        )

    def _moved(self, force: ForceFunctionT) -> ForceFunctionT:
        """Give the same force function on the same bodies."""
        if isinstance(force.bodies, range) and len(force.bodies) == self.n_bodies:
            return force
        return replace(force, bodies=np.sort(self._order.places[np.asarray(force.bodies, np.int64)]))

    def name_of(self, k: int) -> str:
        return self._system.name_of(int(self._order.bodies[k]))

    def index_of(self, name: str) -> int:
        return int(self._order.places[self._system.index_of(name)])

    def numbers_in_model(self, bodies: Integers) -> Integers:
        return self._order.bodies[bodies]


def arranged(system: Contents, order: Order | None) -> Contents:
    """Give a system as solvers number it: itself if it has that order, as every chain has, or none is given."""
    return system if order is None or order.is_identity else Arranged(system, order)
