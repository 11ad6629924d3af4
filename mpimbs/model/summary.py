"""Checks of a system as a whole, and what it is in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mpimbs.base.errors import InputError
from mpimbs.model.body import Body, Loop
from mpimbs.model.connections import check_events
from mpimbs.model.contents import Contents
from mpimbs.model.gear import Gear, refuse_contradictions
from mpimbs.model.joint import Joint
from mpimbs.model.joints import JOINT_TYPES
from mpimbs.model.order.segments import Segment
from mpimbs.model.resistance import check_resistance, thin_bodies

_MASS_RATIO = 1e8  # beyond this ratio of masses a system counts as badly scaled


@dataclass(frozen=True)
class Summary:
    """A system in numbers and words.

    `degrees_of_freedom` are those without loops; `depth` is the most joints from the world to a body; `total_mass` is
    in kg, `gravity` in m/s^2; `default_axes` names the bodies and loops whose joint has an axis that nobody gave.
    """

    name: str
    bodies: int
    degrees_of_freedom: int
    coordinates: int
    joint_types: dict[str, int]
    topology: str
    loops: int
    springs: int
    depth: int
    total_mass: float
    gravity: tuple[float, ...]
    default_axes: tuple[str, ...]
    warnings: tuple[str, ...]


def refuse_loops(system: Contents, reason: str) -> None:
    """Raise InputError for a system with loops, one of which is named; `reason` says why, and what to do instead."""
    if system.loops:
        more = f" and {len(system.loops) - 1} more" if len(system.loops) > 1 else ""
        raise InputError(f"system '{system.name}' closes a loop ({system.loops[0].name!r}{more}): {reason}")


def refuse_gears(system: Contents, reason: str) -> None:
    """Raise InputError for a system with gears, one of which is named; `reason` as of `refuse_loops`."""
    gear = next((loop for loop in system.loops if isinstance(loop, Gear)), None)
    if gear is not None:
        raise InputError(f"system '{system.name}' has a gear ({gear.name!r}): {reason}")


def validate(system: Contents) -> None:
    """Check a system as a whole; InputError if it has no bodies, a joint that nothing resists, or gears that differ."""
    title = f"system {system.name!r}"
    check_events(system)
    refuse_contradictions(loop for loop in system.loops if isinstance(loop, Gear))
    for tendon in system.loads.tendons.values():
        if cut := set(tendon.joints).intersection(name for event in system.events for name in event.cut):
            runs = f"over which tendon {tendon.name!r} runs"
            raise InputError(f"{title}: an event cuts {min(cut)!r}, {runs}; leave one of the two out")
    if not system.n_bodies:
        raise InputError(f"{title}: has no bodies; add at least one [[body]] or [[repeat]]")
    check_resistance(system, thin_bodies(system, ends=True))


def summarise(system: Contents) -> Summary:
    """Return what the system is, with warnings about what is allowed but rarely meant."""
    types: Counter[str] = Counter()
    mass = 0.0
    for segment in system.segments:
        for body, times in zip(segment.bodies, segment.times.tolist(), strict=True):
            types[body.joint.type] += times
            mass += body.mass * times
    return Summary(
        name=system.name,
        bodies=system.n_bodies,
        degrees_of_freedom=system.nu,
        coordinates=system.nq,
        joint_types={kind.name: types[kind.name] for kind in JOINT_TYPES if types[kind.name]},
        topology=("chain" if system.is_chain else "tree") + (" with loops" if system.loops else ""),
        loops=len(system.loops),
        springs=len(system.springs),
        depth=max((segment.deepest for segment in system.segments), default=0),
        total_mass=mass,
        gravity=system.gravity,
        default_axes=(
            *names_where(system, lambda segment: segment.where(lambda body: _default_axis(body.joint))),
            *(f"loop {loop.name!r}" for _, loop in system.loops.joints if _default_axis(loop)),
        ),
        warnings=tuple(_warnings(system)),
    )


def _default_axis(joint: Joint | Loop) -> bool:
    return joint.kind.takes_axis and "axis" not in joint.model_fields_set


def names_where(system: Contents, places: Callable[[Segment], Iterable[int]]) -> list[str]:
    """Name the bodies at the places of each segment that are chosen; repeated ones as 'a1' to 'a9'."""
    found = []
    for segment in system.segments:
        for first in (segment.first + place for place in places(segment)):
            ends = first, first + (segment.count - 1) * segment.places
            found.append(" to ".join(dict.fromkeys(repr(system.name_of(k)) for k in ends)))
    return found


def comma_list(names: Sequence[str], most: int = 5) -> str:
    """The names with commas between them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def nothing_acts(system: Contents) -> bool:
    """Whether there is neither gravity nor a speed nor a load."""
    loaded = (
        any(system.gravity)
        or system.loads.torques
        or system.loads.wrenches
        or system.springs
        or system.loads.functions
        or system.loads.tendons
    )
    pulled = any(loop.driven or any(loop.stiffness) for _, loop in system.loops.joints)
    return not loaded and not pulled and not any(_moves(body) for segment in system.segments for body in segment.bodies)


def _warnings(system: Contents) -> Iterator[str]:
    templates = [body for segment in system.segments for body in segment.bodies]
    if not system.nu:
        yield "no joint can move: the system has no degrees of freedom"
    elif nothing_acts(system):
        yield "nothing moves: no gravity, no initial speeds and no loads"
    masses = [body.mass for body in templates if body.mass]
    if masses and max(masses) > _MASS_RATIO * min(masses):
        yield f"masses from {min(masses):g} to {max(masses):g} kg: expect fewer correct digits"
    trees = sum(segment.on_the_world for segment in system.segments)
    if trees > 1 and not system.loops and not system.events and not system.springs:
        yield f"{trees} bodies lie on the world: {trees} separate systems that do not feel one another"


def _moves(body: Body) -> bool:
    """Return whether a body has a speed or a load of its own."""
    joint = body.joint
    pressed = joint.stopped and any(map(lambda x, a, b: not a <= x <= b, joint.q, joint.lower, joint.upper))
    return pressed or bool(
        joint.driven
        or joint.servoed
        or joint.motion
        or body.wrench
        or any(joint.u)
        or (any(joint.stiffness) and joint.q != joint.rest)
    )
