"""Force functions of a system made: what the user gave is checked, and the bodies are found on which it acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpimbs.base.errors import InputError
from mpimbs.model.contents import Contents
from mpimbs.model.force_functions import CENTER_OF_MASS, BodyForce, JointForce, Selection
from mpimbs.model.joints import JointType
from mpimbs.model.order.segments import Integers
from mpimbs.model.text import table


def joint_force(system: Contents, names: Selection, function: Callable[..., Any], vectorized: bool) -> JointForce:
    """Make a joint force of a system; see `System.add_joint_force`."""
    force = JointForce(*_acting(system, JointForce.kind, names, function), vectorized)
    kinds = _joint_types(system, force.bodies)
    for kind, k in kinds.items():
        if not kind.nu and names is not None:
            raise InputError(
                f"body {system.name_of(k)!r}: {force.kind} {force.name!r} has nothing to act on in a fixed joint; "
                "leave it out"
            )
    movable = [kind.name for kind in kinds if kind.nu]
    if vectorized and len(movable) > 1:
        raise InputError(
            f"{force.kind} {force.name!r}: vectorized, it needs joints of one type, got {', '.join(movable)}; "
            "add it for each type apart"
        )
    return force


def body_force(
    system: Contents, names: Selection, function: Callable[..., Any], vectorized: bool, point: Any
) -> BodyForce:
    """Make a body force of a system; see `System.add_body_force`."""
    return BodyForce(*_acting(system, BodyForce.kind, names, function), vectorized, _point(point))


def _acting(
    system: Contents, kind: str, names: Selection, function: Callable[..., Any]
) -> tuple[Callable[..., Any], range | Integers]:
    """Check a function and the names of the bodies on which it acts; give it with their numbers, rising."""
    if not callable(function):
        raise InputError(f"{kind}: needs a function, got {function!r}")
    if names is None:
        if not system.n_bodies:
            raise InputError(f"{kind}: there are no bodies yet; add it after them")
        return function, range(system.n_bodies)
    given = [names] if isinstance(names, str) else list(names)
    if not given:
        raise InputError(f"{kind}: names no body; give names, or None for all")
    bodies = np.array([system.index_of(name) for name in given], np.int64)
    different, count = np.unique(bodies, return_counts=True)
    if len(different) < len(bodies):
        raise InputError(f"{kind}: names body {system.name_of(int(different[np.argmax(count)]))!r} twice; name it once")
    return function, different


def _joint_types(system: Contents, bodies: range | Integers) -> dict[JointType, int]:
    """Types of the inboard joints of bodies, and a body of each."""
    if isinstance(bodies, range):
        examples = [k for segment in system.segments for k in segment.examples]
    else:
        examples = bodies.tolist()
    return {system.segments.template(k).joint.kind: k for k in examples}


def _point(value: Any) -> tuple[float, ...] | str:
    if isinstance(value, str) and value == CENTER_OF_MASS:
        return value
    try:
        return table.vector(value)
    except ValueError as error:
        raise InputError(f"{BodyForce.kind}: point {error}; or give '{CENTER_OF_MASS}'") from None
