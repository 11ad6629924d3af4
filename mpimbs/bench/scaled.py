"""Chains of the same kind with another number of bodies, for studies against n."""

from __future__ import annotations

from mpimbs.base.errors import InputError
from mpimbs.model import Body, System


def scaled(system: System, bodies: int) -> System:
    """Give a chain of the same kind with about so many bodies: its longest repetition comes as often as that takes.

    Functions of time or state and wrenches given by `System.add_wrench` are left out.

    Parameters
    ----------
    system : System
        A chain with a `[[repeat]]`, or a single body.
    bodies : int

    Raises
    ------
    InputError
        It is no chain, or nothing in it is repeated.
    """
    segments = list(system.segments)
    longest = max(segments, key=lambda segment: segment.size)
    if not system.is_chain or system.loops or (not longest.numbered and system.n_bodies > 1):
        raise InputError(
            f"system '{system.name}' has no other lengths: to study it against the number of bodies it must be a chain "
            "with a [[repeat]]"
        )
    if system.springs:
        raise InputError(f"system '{system.name}' has no other lengths: its springs name bodies; leave them out")
    count = max(1, round((bodies - system.n_bodies + longest.size) / len(longest.bodies)))
    made = System(f"{system.name}, scaled to {bodies}", system.gravity)
    for segment in segments:
        first = _on_the_last(segment.bodies[0])
        if segment is longest:
            made.repeat(count, _named(first), *(_named(body) for body in segment.bodies[1:]))
        elif segment.numbered:
            made.repeat(segment.count, first, *segment.bodies[1:])
        else:
            made.add(first)
    return made


def _on_the_last(body: Body) -> Body:
    return body.model_copy(update={"parent": None})


def _named(body: Body) -> Body:
    """A body whose name may be numbered."""
    return body.model_copy(update={"name": body.name.rstrip("0123456789") or "body"})
