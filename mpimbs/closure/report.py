"""What the loops of a model are at its start, for `mpimbs check`: numbers, and lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.closure.assembly import close_loops
from mpimbs.closure.geometry import LoopJoints, body_motions
from mpimbs.closure.jacobian import LoopJacobian, TooLargeError
from mpimbs.closure.mobility import Mobility, mobility, nearby_state
from mpimbs.model.contents import Contents
from mpimbs.model.summary import comma_list

_MOST = 3  # loops that are named
_SAID = 1e-9  # of 1 rad, of the size of the system and of its speeds: less open counts as closed


@dataclass(frozen=True)
class Violation:
    """The largest of all loops: how far it is from closed, norm over its constraints, and which it is."""

    loop: str
    size: float


@dataclass(frozen=True)
class LoopReport:
    """A report on the loops of a system at its start."""

    joint_types: dict[str, int]  # how many loops are closed by joints of which type
    position_violation: Violation  # of the initial state as it is given (m and rad together; m/s and rad/s)
    velocity_violation: Violation
    open: bool  # whether that is more than numbers are rounded by
    unclosed: Violation | None = None  # what is left where loops can't be closed near the initial state
    # with all loops closed at the start, and in a state nearby; None where it is not known
    start: Mobility | None = None
    nearby: Mobility | None = None

    def numbers(self) -> dict[str, Any]:
        """All as plain numbers and texts; with the mobilities what follows from them."""
        found = asdict(self)
        for name, of_state in (("start", self.start), ("nearby", self.nearby)):
            if of_state is not None:
                found[name] |= {"mobility": of_state.mobility, "redundant": of_state.redundant}
        return found


def loop_report(system: Contents, state: tuple[Floats, Floats] | None = None) -> LoopReport:
    """Find what the loops of a system, of which there are some, are in a state; on one process.

    By default the initial one.
    """
    q, u = system.initial_state(0, system.n_bodies) if state is None else state
    joints, bodies = LoopJoints(system), body_motions(system, q, u)
    given = LoopReport(
        dict(Counter(loop.type for loop in system.loops)),
        _largest(joints.names, joints.position_violation(bodies)),
        _largest(joints.names, joints.velocity_violation(bodies)),
        bool(joints.opened(bodies, _SAID, float(np.linalg.norm(system.gravity)))),
    )
    try:
        loops = LoopJacobian(system)
        closed = close_loops(loops, q)
        if not closed.reached:
            return replace(given, unclosed=_largest(joints.names, joints.norms(closed.violation)))
        given = replace(given, start=mobility(loops, closed.q))
        there = nearby_state(loops, closed.q)
        return given if there is None else replace(given, nearby=mobility(loops, there))
    except TooLargeError:
        return given


def _largest(names: list[str], values: Floats) -> Violation:
    k = int(np.argmax(values))
    return Violation(names[k], float(values[k]))


def told_loops(report: LoopReport) -> Iterator[str]:
    """Say what the loops of a system are, line by line."""
    kinds = ", ".join(f"{count} {name}" for name, count in report.joint_types.items())
    here, there = report.start, report.nearby
    left = "how many degrees of freedom they leave is not determined"
    if report.unclosed is not None:
        left += ", since they can't be closed near the initial state"
    elif here is None:
        left += ": too many of them act on the same joints"
    else:
        left = (
            f"{_count(here.constraints, 'constraint')}, {here.redundant or 'none'} of them redundant; {_freedoms(here)}"
        )
    yield f"loops: {kinds}; {left}"
    if there is not None and here is not None and there.mobility != here.mobility:
        yield (
            f"note: the start is a singular position: in one nearby {there.redundant} constraints are redundant, and "
            f"{_freedoms(there)}"
        )
    if there is None and here is not None:
        yield "note: no closed state nearby was found, so that it is open whether the start is a singular position"
    usual = there or here
    if usual is not None and usual.undetermined:
        alike: dict[str, list[str]] = {}
        for name, components in usual.undetermined.items():
            alike.setdefault(", ".join(components), []).append(repr(name))
        loops = [f"{comma_list(names, _MOST)} ({components})" for components, names in alike.items()]
        yield f"loop loads that are not unique: {comma_list(loops, _MOST)}"
    if usual is not None and usual.undetermined_joints:
        yield f"nor are the loads through the joints of {comma_list(list(map(repr, usual.undetermined_joints)), _MOST)}"
    far, fast, still = report.position_violation, report.velocity_violation, report.unclosed
    if report.open:
        yield (
            f"loops at the start: open by up to {far.size:.3g} m and rad ({far.loop!r}), opening by up to "
            f"{fast.size:.3g} m/s and rad/s ({fast.loop!r})"
        )
    if still is not None:
        yield f"note: loop {still.loop!r} stays open by {still.size:.3g} m and rad wherever the bodies move from here"


def _freedoms(found: Mobility) -> str:
    left = found.mobility
    return f"{_count(left, 'degree')} of freedom {'is' if left == 1 else 'are'} left" if left else "nothing can move"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
