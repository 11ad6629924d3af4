"""Bodies without inertia in some direction stay with what lies on them: no system is cut there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.base.errors import InputError
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order
from mpimbs.model.resistance import Resistance, check_resistance, thin_bodies

Integers = npt.NDArray[np.int64]


def kept_together(system: Contents, bounds: Integers, order: Order | None = None, free_roots: bool = False) -> Integers:
    """Move cuts of a system to the nearest places where they leave no thin body without what resists its joint.

    Parameters
    ----------
    system : Contents
    bounds : array [pieces + 1]
        Piece k has the bodies, or places of the order, bounds[k] to bounds[k + 1] - 1.
    order : Order, optional
        Of a tree.
    free_roots : bool
        The joints between pieces are left out at first, so that no thin body may be apart from what it lies on, either.

    Returns
    -------
    array [pieces + 1]

    Raises
    ------
    InputError
        There are not as many such places, or one piece has not all that resists a joint; names the body.
    """
    thin = thin_bodies(system)
    if not len(thin) or len(bounds) == 2:
        return bounds
    apart = np.ones(system.n_bodies + 1, bool)
    apart[[0, -1]] = False
    above = system.parents()[thin]
    if order is not None:
        above = np.where(above < 0, -1, order.places[above])
    for body, parent, place in zip(thin.tolist(), above.tolist(), _placed(order, thin).tolist(), strict=True):
        begin = parent if free_roots and parent >= 0 else place
        apart[begin + 1 : _needed(system, order, body) + 1] = False
    allowed, wanted = np.flatnonzero(apart), len(bounds) - 2
    if len(allowed) < wanted:
        raise InputError(
            f"{wanted + 1} pieces of system {system.name!r}: bodies without inertia, such as "
            f"{system.name_of(int(thin[0]))!r}, stay with what resists their joints, which leaves {len(allowed) + 1}; "
            f"start at most {len(allowed) + 1} ranks, or make fewer cuts"
        )
    right = np.searchsorted(allowed, bounds[1:-1]).clip(max=len(allowed) - 1)
    left = (right - 1).clip(min=0)
    chosen = np.where(bounds[1:-1] - allowed[left] < allowed[right] - bounds[1:-1], left, right)
    numbers = np.arange(wanted)
    chosen = np.maximum.accumulate(chosen - numbers) + numbers
    moved = bounds.copy()
    moved[1:-1] = allowed[np.minimum(chosen, len(allowed) - wanted + numbers)]
    check_pieces(system, moved, order, thin)
    return moved


def _placed(order: Order | None, bodies: Integers) -> Integers:
    return bodies if order is None else order.places[bodies]


def _needed(system: Contents, order: Order | None, body: int) -> int:
    """The place up to which there are children enough to resist the joint of a thin body."""
    if order is None or order.is_chain:
        return body + 1
    resistance = Resistance(system)
    children = resistance.children_of(body)
    children = children[np.argsort(order.places[children])]
    if not len(children):  # fixed, as a mark: it moves nothing by itself
        return int(order.places[body])
    enough = next((k for k in range(len(children)) if resistance.suffices(body, children[: k + 1])), -1)
    return int(order.places[children[enough]])


def check_pieces(system: Contents, bounds: Integers, order: Order | None, thin: Integers | None = None) -> None:
    """Refuse pieces without all that resists the joint of a thin body in them; arguments as of `kept_together`."""
    thin = thin_bodies(system) if thin is None else thin
    if not len(thin) or len(bounds) == 2:
        return

    def piece_of(bodies: Integers) -> Integers:
        return np.searchsorted(bounds, _placed(order, bodies), "right")

    parents = system.parents()
    carried = np.flatnonzero(np.isin(parents, thin))
    left = np.unique(parents[carried[piece_of(carried) != piece_of(parents[carried])]])
    while not np.isin(above := np.intersect1d(parents[left], thin), left).all():  # whose resistance goes through these
        left = np.union1d(left, above)

    def together(children: Integers) -> Integers:
        return children[piece_of(children) == piece_of(parents[children])]

    where = f", of what is on the same of {len(bounds) - 1} pieces"
    check_resistance(system, left, together, where)


def refuse_thin(system: Contents, coupling: str) -> None:
    """Refuse a coupling that joins single bodies where one of them is thin."""
    thin = thin_bodies(system)
    if len(thin):
        raise InputError(
            f"the coupling {coupling} joins single bodies, and {system.name_of(int(thin[0]))!r} has no inertia in some "
            "direction; choose `coupling='dcae'` or `coupling='pcg'`, or give it mass and inertia"
        )
