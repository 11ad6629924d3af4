"""What holds a system together from one event to the next: inboard joints that are cut, loops that hold."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.base.errors import InputError
from mpimbs.model.body import Body, Loop
from mpimbs.model.contents import Contents
from mpimbs.model.event import Event
from mpimbs.model.force_functions import ForceFunction
from mpimbs.model.gear import Constraint, Gear
from mpimbs.model.joint import Joint
from mpimbs.model.names import WORLD
from mpimbs.model.order.segments import Branches, Copies, Segment, Segments
from mpimbs.model.text.table import suggest

FREE = Joint(type="free")
ContentsT = TypeVar("ContentsT", bound=Contents)
ForceT = TypeVar("ForceT", bound=ForceFunction)


class Connections(NamedTuple):
    """The joints that are cut and the loops that hold, at a time."""

    cut: tuple[int, ...]  # bodies whose inboard joints are cut, ascending
    # the loops that hold, in the model's order: those that hold from the begin on, then those that don't
    loops: tuple[str, ...]
    # of those the ones that hold as their ends lay: position (m), quaternion of the joint frame on the second body
    kept: tuple[tuple[str, tuple[float, ...]], ...] = ()

    @classmethod
    def of(cls, system: Contents) -> Connections:
        """Give the connections of a system at the begin."""
        return cls((), tuple(loop.name for loop in system.loops))

    def refusal(self, system: Contents, event: Event) -> str | None:
        """Say why an event can't happen now; None if it can."""
        for name in event.cut:
            loop = name in system.loops.names
            if name not in self.loops if loop else system.index_of(name) in self.cut:
                return (
                    f"cuts {name!r}, which is cut already" if not loop else f"cuts loop {name!r}, which does not hold"
                )
        held = next((name for name in event.connect if name in self.loops), None)
        if held is not None:
            return f"connects loop {held!r}, which holds already"
        cut = set(self.cut) | {system.index_of(name) for name in event.cut if name not in system.loops.names}
        for gear in system.loops.all:
            if isinstance(gear, Gear) and gear.name in event.connect and not cut.isdisjoint(_ends(system, gear.bodies)):
                return f"connects gear {gear.name!r}, of whose joints one is cut"
        return None

    def after(self, system: Contents, event: Event) -> Connections:
        """Give the connections of the system after an event."""
        bodies = {system.index_of(name) for name in event.cut if name not in system.loops.names}
        held = {*self.loops, *event.connect} - set(event.cut)
        loops = system.loops.all
        held -= {loop.name for loop in loops if isinstance(loop, Gear) and not set(event.cut).isdisjoint(loop.bodies)}
        names = tuple(loop.name for loop in loops if loop.name in held)
        kept = tuple(item for item in self.kept if item[0] in held and item[0] not in event.connect)
        return Connections(tuple(sorted({*self.cut, *bodies})), names, kept)

    def keeping(self, frames: Iterable[tuple[str, tuple[float, ...]]]) -> Connections:
        """Give the same connections with joint frames on the second bodies of some loops."""
        new = dict(frames)
        kept = {name: frame for name, frame in self.kept if name not in new} | new
        return self._replace(kept=tuple((name, kept[name]) for name in self.loops if name in kept))


def check_event(system: Contents, event: Event) -> None:
    """Refuse an event that names what a system has not, or that can't change it.

    Raises
    ------
    InputError
    """
    event.check()
    for name in event.bodies:
        if system.names.find(name) is None:
            raise InputError(f"event: unknown body {name!r}{system.names.suggest(name)}")
    for name in event.connect:
        if name not in system.loops.names:
            what = "is a body, and loops are" if system.names.find(name) is not None else "is no loop, and they are"
            hint = suggest(name, sorted(system.loops.names)) or "; declare a [[loop]] with active = false"
            raise InputError(f"event: connects {name!r}, which {what} what is connected{hint}")
        if event.gap == "keep" and any(isinstance(g, Gear) and g.name == name for g in _all_loops(system)):
            raise InputError(
                f'event: connects gear {name!r} with gap = "keep", and gears have no pose; give it an event of its own'
            )
    for name in event.cut:
        _check_cut(system, name)


def _all_loops(system: Contents) -> list[Constraint]:
    return system.loops.all


def _check_cut(system: Contents, name: str) -> None:
    body, loop = system.names.find(name), name in system.loops.names
    if body is None and not loop:
        near = suggest(name, sorted(system.loops.names)) if system.loops.names else ""
        hint = near if "did you mean" in near else system.names.suggest(name)
        raise InputError(f"event: cuts {name!r}, which is neither a body nor a loop{hint}")
    if body is not None and loop:
        raise InputError(f"event: cuts {name!r}, which names a body and a loop; rename one of them")
    if body is not None and system.segments.parent(body) < 0 and system.segments.template(body).joint.type == "free":
        raise InputError(f"event: cuts the joint of body {name!r}, which is free; leave it out")


def check_events(system: Contents) -> None:
    """Refuse events in time that can't follow one another, as far as events by functions have no say in it.

    Raises
    ------
    InputError
    """
    unsure = {name for event in system.events if event.time is None for name in (*event.cut, *event.connect)}
    now, before = Connections.of(system), ""
    for event in sorted((e for e in system.events if e.time is not None), key=lambda event: event.time or 0.0):
        known = event.model_copy(
            update={key: tuple(n for n in getattr(event, key) if n not in unsure) for key in ("cut", "connect")}
        )
        reason = now.refusal(system, known)
        if reason is not None:
            raise InputError(f"event ({event.told}): {reason}{before}; leave it out, or change the order")
        now, before = now.after(system, known), f" after the event before ({event.told})"


def connected(system: ContentsT, now: Connections) -> ContentsT:
    """Give a system as it holds together now: the same bodies in the same order, those that are cut on free joints.

    It has no events of its own. What acted along joints that are cut is gone.
    """
    made = copy.copy(system)
    made.changes = 0
    cut = np.array(now.cut, np.int64)
    if len(cut):
        made.segments = _freed(system.segments, cut)
        left = {k: torque for k, torque in system.loads.torques.items() if k not in now.cut}
        forces = list(_without(system.loads.joint_forces, cut))
        made.loads = replace(system.loads, torques=left, joint_forces=forces)
        kept = ~np.isin(system.shifted, cut)
        made.shifted, made.shifts = system.shifted[kept], system.shifts[kept]
    loops = {loop.name: loop for loop in system.loops.all}
    frames = {name: {"positions": frame[:3], "rotations": frame[3:]} for name, frame in now.kept}
    held = []
    for name in now.loops:
        loop = loops[name]
        change = {key: (getattr(loop, key)[0], value) for key, value in frames.get(name, {}).items()}
        held.append(loop.model_copy(update=change) if change else loop)
    made.loops = system.loops.holding(held, [_ends(system, loop.bodies) for loop in held])
    made.events = []
    return made


def _ends(system: Contents, names: tuple[str, str]) -> tuple[int, int]:
    first, second = (-1 if name == WORLD else system.index_of(name) for name in names)
    return first, second


def _without(forces: Iterable[ForceT], cut: Integers) -> Iterable[ForceT]:
    """Force functions on joints without those that are cut."""
    for force in forces:
        bodies = np.asarray(force.bodies, np.int64)
        left = bodies[~np.isin(bodies, cut)]
        if len(left):
            yield force if len(left) == len(bodies) else replace(force, bodies=left)


def _freed(segments: Segments, cut: Integers) -> Segments:
    """Give the same bodies, some of them free."""
    made = Segments()
    for segment in segments:
        here = cut[(segment.first <= cut) & (cut <= segment.last)]
        if not len(here):
            _append(made, segment)
        elif not segment.numbered:
            made.append(_free(segment.bodies), -1)
        else:
            _append_freed(made, segment, here - segment.first)
    return made


def _append(made: Segments, segment: Segment) -> None:
    if isinstance(segment, Copies):
        made.append_copies(segment.bodies, segment.within, segment.roots_on, segment.in_sequence)
    elif isinstance(segment, Branches):
        made.append_branches(segment.bodies, segment.row_of_each, segment.parent_of_each)
    else:
        made.append(segment.bodies, segment.parent, segment.count, segment.numbered)


def _append_freed(made: Segments, segment: Segment, places: Integers) -> None:
    """Append numbered bodies, those at some places free: of each template there is a free one behind the others."""
    first, last = segment.first, segment.last + 1
    rows = np.array(segment.rows(first, last))
    parents = np.array(
        segment.parents(first, last) if isinstance(segment, Copies | Branches) else np.arange(first - 1, last - 1)
    )
    parents[0] = segment.parent
    used, which = np.unique(rows[places], return_inverse=True)
    rows[places] = len(segment.bodies) + which
    parents[places] = -1
    templates = [segment.bodies[row] for row in used.tolist()]
    made.append_branches((*segment.bodies, *_free(templates)), rows, parents)


def _free(bodies: Sequence[Body]) -> tuple[Body, ...]:
    change: dict[str, Any] = {"joint": FREE, "parent": WORLD}
    return tuple(body.model_copy(update=change) for body in bodies)


ORIGIN, STRAIGHT = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
NO_INERTIA = (0.0,) * 6


def driven_parts(loop: Loop) -> tuple[Body, Loop]:
    """Give what follows the motion, a body without mass on the loop's first, and what holds the second to it.

    Raises
    ------
    InputError
        The loop does not hold from the begin on.
    """
    if not loop.active:
        raise InputError(
            f"loop {loop.name!r}: has a motion, and is not active from the begin on; leave one of them out"
        )
    (first, second), (here, there), (turned, other) = loop.bodies, loop.positions, loop.rotations
    keys = ("type", "axis", "pitch", "stiffness", "cross_stiffness", "damping", "rest", "torque", "motion")
    given = {key: getattr(loop, key) for key in keys if key in loop.model_fields_set}
    joint = Joint(**given, position=here, rotation=turned)
    name = f"{loop.name} drive"
    body = Body(name=name, parent=first, mass=0, inertia=NO_INERTIA, joint=joint)
    ends = {"bodies": (name, second), "positions": (ORIGIN, there), "rotations": (STRAIGHT, other)}
    return body, Loop(name=loop.name, type="fixed", **ends)
