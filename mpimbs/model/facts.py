"""What a system is, as a few short facts: ranks compare them before they work on one system together."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Iterator
from typing import Any

from mpimbs.model.body import Body
from mpimbs.model.contents import Contents
from mpimbs.model.force_functions import name_of_function
from mpimbs.model.order.segments import Branches, Copies
from mpimbs.model.text.table import CheckedTable

Fact = int | str | bytes
"""A value that a message shows, or the digest of one that is too long for it."""


def digest(value: Any) -> bytes:
    """Give a few bytes that differ where plain values (numbers, texts, tuples of them) do, in all processes alike."""
    return hashlib.blake2b(marshal.dumps(value, 2), digest_size=8).digest()


def facts(system: Contents) -> dict[str, Fact]:
    """Give what the motion of a system depends on, by what a message calls it.

    Repeated bodies are told of once, so that ten million take no time. Of a function the name counts.
    """
    found: dict[str, Fact] = {"the number of bodies": system.n_bodies, "gravity": str(system.gravity)}
    for what, value in _named(system):
        found[what] = digest((found[what], value)) if what in found else value
    return found


def _named(system: Contents) -> Iterator[tuple[str, Fact]]:
    known: dict[int, bytes] = {}

    def template(body: Body) -> bytes:
        if id(body) not in known:
            known[id(body)] = digest(_plain(body.model_copy(update={"geometry": ()})))  # which moves nothing
        return known[id(body)]

    for segment in system.segments:
        bodies = tuple(template(body) for body in segment.bodies)
        value = digest((bodies, segment.count, segment.numbered, segment.parent))
        if isinstance(segment, Branches):
            value = digest((value, segment.row_of_each.tobytes(), segment.parent_of_each.tobytes()))
        if isinstance(segment, Copies):
            value = digest((value, segment.within.tobytes(), segment.roots_on.tobytes()))
        yield f"body '{system.name_of(segment.first)}'", value
    if len(system.shifted):
        yield "where repeated bodies lie", digest((system.shifted.tobytes(), system.shifts.tobytes()))
    for loop in system.loops.all:
        yield f"{type(loop).__name__.lower()} '{loop.name}'", digest(_plain(loop))
    for name, spring in system.springs.items():
        yield f"spring '{name}'", digest(_plain(spring))
    for name, tendon in system.loads.tendons.items():
        yield f"tendon '{name}'", digest(_plain(tendon))
    for event in system.events:
        yield f"an event ({event.told})", digest(_plain(event))
    for k, torque in sorted(system.loads.torques.items()):
        yield f"the torque of body '{system.name_of(k)}'", _name_or_value(torque)
    for k, wrenches in sorted(system.loads.wrenches.items()):
        for wrench in wrenches:
            yield f"a wrench on body '{system.name_of(k)}'", digest(_plain(wrench))
    for force in system.loads.functions:
        on = repr(force.bodies) if isinstance(force.bodies, range) else force.bodies.tobytes()
        details = digest((on, bool(force.vectorized), getattr(force, "point", None)))
        yield f"the {force.kind} '{force.name}' on {force.whom(system.name_of)}", details


def _name_or_value(value: Callable[..., Any] | tuple[float, ...]) -> str:
    return str(value) if isinstance(value, tuple) else name_of_function(value)


def _plain(value: Any) -> Any:
    """Give a table as tuples of numbers and texts."""
    if isinstance(value, CheckedTable):
        return tuple(_plain(item) for item in value.__dict__.values())
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    return name_of_function(value) if callable(value) else value
