"""Copies of a group of bodies as `System.repeat` is given them: what its words mean, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.model.body import Body


def place_within(bodies: tuple[Body, ...], place: int) -> int:
    """Return the place in a repeated group of the parent of its body at a place."""
    name, parent = bodies[place].name, bodies[place].parent
    names = [body.name for body in bodies]
    if parent is None:
        return place - 1
    if parent == name:
        raise InputError(f"body {name!r}: is its own parent; name a body before it in the repeat")
    if parent not in names[:place]:
        late = "comes below it in the repeat; move it up" if parent in names else "is none of this repeat"
        raise InputError(
            f"body {name!r}: parent {parent!r} {late}; name a body before it there, or leave it out for the last one"
        )
    return names.index(parent)


def shifts_of_copies(given: Any, count: int) -> Floats:
    """Return where copies lie, checked: float [count, 3]."""
    try:
        shifts = np.array(given, np.float64)
    except (TypeError, ValueError):
        shifts = np.empty(0)
    if shifts.shape != (count, 3) or not np.isfinite(shifts).all():
        raise InputError(f"repeat: shifts must be {count} vectors of 3 finite numbers (m), one for each copy")
    return shifts
