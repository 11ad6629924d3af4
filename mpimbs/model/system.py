"""`System`: a model as the user makes it, body by body, loop by loop, spring by spring, load by load."""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.base.errors import InputError
from mpimbs.base.former import former_attribute, refuse_former, warn_of_former
from mpimbs.model.body import Body, Loop, Wrench, place_within, shifts_of_copies
from mpimbs.model.connections import check_event, driven_parts
from mpimbs.model.contents import Contents, body_force, joint_force
from mpimbs.model.event import Event
from mpimbs.model.force_functions import Selection
from mpimbs.model.gear import Gear
from mpimbs.model.joint import Joint
from mpimbs.model.names import DIGITS, WORLD
from mpimbs.model.rod import Rod
from mpimbs.model.spring import Spring, Tendon
from mpimbs.model.summary import Summary, summarise, validate
from mpimbs.model.text.table import CheckedTable, TimeFunction

TableT = TypeVar("TableT", bound=CheckedTable)


# What a system answered to itself, that its contents answer now; and where names of versions before went.
MOVED = {
    **{name: f"contents.{name}" for name in (
        *("apart", "bodies", "body", "changes", "columns", "coordinates", "events", "given", "has_added_mass"),
        *("has_given_wrenches", "has_loads_of_time", "has_motions", "has_wrenches", "index_of", "initial_state"),
        *("is_chain", "joint_patterns", "joint_types", "left_out", "likeness", "loads", "loops", "name_of", "names"),
        *("numbers_in_model", "offsets", "offsets_of", "parent_name", "parents", "segments", "shifted", "shifts"),
        *("sizes", "springs"),
    )},
    "force_functions": "contents.loads.functions", "force_modules": "contents.loads.modules",
    "before_forces": "contents.loads.before_modules", "idle_loops": "contents.loops.idle",
    **{name: f"contents.loads.{name}" for name in ("torques", "wrenches", "joint_forces", "body_forces")},
    **{f"spring_{name}": f"contents.springs.{name}" for name in ("bodies", "ends")},
    **{f"loop_{name}": f"contents.loops.{name}" for name in ("names", "bodies", "ends", "joints")},
}  # fmt: skip


class System:
    """An articulated system of rigid bodies, as it is made: body by body, loop by loop, load by load.

    Bodies are indexed in the order in which they were added, each after its parent; the coordinates q and the
    speeds u of all joints follow the same order. Repeated bodies are kept as templates, so that a chain of
    ten million equal bodies takes no memory and no time, and each rank expands only its own range
    (`Contents.columns`).

    Parameters
    ----------
    name : str
        Title of the system.
    gravity : sequence of 3 floats
        Acceleration of gravity in the world frame, m/s^2.

    Attributes
    ----------
    contents : Contents
        What it holds so far, and what solvers ask of it: bodies and their names, loops, springs, loads, events, what
        was left out of a robot's file.
    """

    def __init__(self, name: str = "system", gravity: Any = (0.0, -9.81, 0.0)) -> None:
        self.contents = Contents(name, gravity)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "validate":
                warn_of_former("system.validate()", "mpimbs.model.summary.validate(system.contents)")
                return partial(validate, self.contents)
            return former_attribute(self, "system", MOVED, name)

        def __setattr__(self, name: str, value: Any) -> None:
            refuse_former("system", MOVED, name)
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"System({self.name!r}: {self.n_bodies} bodies, {self.nu} degrees of freedom)"

    def __copy__(self) -> System:
        """Give one whose numbers can be replaced apart from this one's."""
        return system_holding(copy.copy(self.contents))

    @property
    def name(self) -> str:
        """Title of the system."""
        return self.contents.name

    @name.setter
    def name(self, value: str) -> None:
        self.contents.name = value

    @property
    def gravity(self) -> tuple[float, ...]:
        """Acceleration of gravity in the world frame, m/s^2."""
        return self.contents.gravity

    @gravity.setter
    def gravity(self, value: Any) -> None:
        self.contents.gravity = value

    @property
    def n_bodies(self) -> int:
        """Number of bodies."""
        return self.contents.n_bodies

    @property
    def nq(self) -> int:
        """Number of coordinates q of all joints."""
        return self.contents.nq

    @property
    def nu(self) -> int:
        """Number of generalized speeds u of all joints: the degrees of freedom without loops."""
        return self.contents.nu

    def add(self, body: Body | None = None, **fields: Any) -> Body:
        """Add one body: a `Body`, the fields of one, or a `Body` with some fields replaced.

        Raises
        ------
        InputError
            A field is bad, the name is taken, the parent is not in the system, or the body is connected
            twice.
        """
        if body is not None and fields:
            body, fields = None, dict(_given(Body, body, {})) | fields
        body = _given(Body, body, fields)
        if self.contents.names.find(body.name) is not None:
            raise InputError(self._duplicate(body))
        parent = self._parent_index(body.name, body.parent)
        self.contents.names.add_single(body.name, self.contents.n_bodies)
        self.contents.segments.append((body,), parent)
        self.contents.changes += 1
        return body

    def repeat(
        self,
        count: int,
        *bodies: Body,
        parent: str | None = None,
        parents: str | Sequence[str] | None = None,
        shifts: Any = None,
    ) -> None:
        """Add a group of bodies `count` times, as arrays: no object is made for each copy.

        Body "link" becomes link1, link2, ...: every template counts its own, and a later `repeat` of the same
        name counts on. Within the group a body lies on that before it, or on the one of the group that it names as its
        parent. The first body of the first copy lies on `parent`; None is the parent that it names, or the last body
        added. Every other copy lies on the last body of the copy before, or all of them where `parents` says.

        Parameters
        ----------
        count : int
            How many copies.
        *bodies : Body
            The group.
        parent : str, optional
            On which body the first copy lies.
        parents : str or sequence of str, optional
            On which bodies the copies lie: the name of a body, or "world", for all of them; names in sequence; or the
            name of a repeated body without its number, for all that have it. Several are given as many copies each, in
            sequence.
        shifts : array [count, 3], optional
            How far the joint of each copy's first body lies from where the template says (m, in the parent's frame).

        Raises
        ------
        InputError
            The count is no positive integer, a name ends with a digit or is taken, a parent is not in the system or
            not in the group, the parents are not as many as can have the same number of copies, or the shifts are bad.
        """
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
            raise InputError(f"repeat: count must be a positive integer, got {count!r}; say how often to repeat")
        if not bodies:
            raise InputError("repeat: needs at least one body; give the body to repeat")
        for position, body in enumerate(bodies):
            _given(Body, body, {})
            self._check_repeated(body, int(count), bodies[:position])
        within = np.array([-1, *(place_within(bodies, place) for place in range(1, len(bodies)))])
        as_chain = parents is None and np.array_equal(within, np.arange(-1, len(bodies) - 1))  # of any number of bodies
        roots_on = self._roots_on(1 if as_chain else int(count), bodies, parent or bodies[0].parent, parents)
        moves = None if shifts is None else shifts_of_copies(shifts, int(count))
        first = self.contents.n_bodies
        for position, body in enumerate(bodies, first):
            self.contents.names.add_run(body.name, int(count), position, len(bodies))
        if as_chain:
            self.contents.segments.append(bodies, int(roots_on[0]), int(count), numbered=True)
        else:
            self.contents.segments.append_copies(bodies, within, roots_on, parents is None)
        if moves is not None:
            roots = np.arange(first, self.contents.n_bodies, len(bodies))
            self.contents.shifted = np.append(self.contents.shifted, roots)
            self.contents.shifts = np.append(self.contents.shifts, moves, axis=0)
        self.contents.changes += 1

    def branch(self, bodies: Sequence[Body], rows: Any, parents: Any) -> None:
        """Add many bodies that branch, each after a template: a tree of millions without an object for each body.

        Body "link" becomes link1, link2, ... in sequence, whatever their templates: these bear one name. A later
        `repeat` or `branch` of the same name counts on.

        Parameters
        ----------
        bodies : sequence of Body
            The templates; what they say of a parent doesn't count.
        rows : array of int [n]
            Which template each body follows.
        parents : array of int [n]
            Index in the system of the parent of each, a body before it; -1 the world.

        Raises
        ------
        InputError
            There are no bodies, a template or parent doesn't exist, or the name differs, ends with a digit or is taken.
        """
        templates, n = tuple(_given(Body, body, {}) for body in bodies), self.contents.n_bodies
        row_of_each, parent_of_each = (np.array(given, np.int64) for given in (rows, parents))  # of their own
        size = row_of_each.size
        if not templates or not size or row_of_each.shape != (size,) or parent_of_each.shape != (size,):
            raise InputError(
                "branch: needs templates, and for each body a row and a parent, as many of both; give them"
            )
        if row_of_each.min() < 0 or row_of_each.max() >= len(templates):
            raise InputError(f"branch: rows must be from 0 to {len(templates) - 1}, of {len(templates)} templates")
        wrong = np.flatnonzero((parent_of_each < -1) | (parent_of_each >= np.arange(n, n + size)))
        if len(wrong):
            raise InputError(
                f"branch: the parent of body {n + wrong[0]} is {parent_of_each[wrong[0]]}; give the index of a body "
                "before it, or -1 for the world"
            )
        if any(body.name != templates[0].name for body in templates):
            raise InputError("branch: the templates bear several names; give all of them one, which gets a number")
        self._check_repeated(templates[0], size, ())
        self.contents.names.add_run(templates[0].name, size, n, 1)
        self.contents.segments.append_branches(templates, row_of_each, parent_of_each)
        self.contents.changes += 1

    def add_rod(self, rod: Rod | None = None, **fields: Any) -> Rod:
        """Add a flexible line as rigid links with springs between them: a `Rod` or the fields of one.

        Raises
        ------
        InputError
            A field is bad, a name is taken, or the parent is not in the system.
        """
        rod = _given(Rod, rod, fields)
        first, other = rod.bodies()
        if self.contents.names.used(rod.name):
            raise InputError(f"rod {rod.name!r}: the name is taken; give each its own")
        self.repeat(1, first)
        if rod.count > 1:
            self.repeat(rod.count - 1, other)
        return rod

    def add_loop(self, loop: Loop | None = None, **fields: Any) -> Loop:
        """Add a joint that closes a loop between two bodies of the system: a `Loop` or the fields of one.

        Raises
        ------
        InputError
            A field is bad, the name is taken, or a body is not in the system.
        """
        loop = _given(Loop, loop, fields)
        title = f"loop {loop.name!r}"
        _check_free(title, loop.name, self.contents.loops.names, "loop or gear")
        if loop.motion is not None:
            self._bodies_of(title, loop.bodies)
            body, loop = driven_parts(loop)
            self.add(body)
        self.contents.loops.take(loop, self._bodies_of(title, loop.bodies))
        self.contents.changes += 1
        return loop

    def add_gear(self, gear: Gear | None = None, **fields: Any) -> Gear:
        """Let the coordinate of one joint follow that of another: a `Gear` or the fields of one.

        Raises
        ------
        InputError
            A field is bad, the name is taken, a body is not in the system, or its joint has not one coordinate.
        """
        gear = _given(Gear, gear, fields)
        title = f"gear {gear.name!r}"
        _check_free(title, gear.name, self.contents.loops.names, "loop or gear")
        ends = self._bodies_of(title, gear.bodies)
        joints = [self.contents.segments.template(body).joint for body in ends]
        self._check_single(title, "a gear takes", dict(zip(gear.bodies, ends, strict=True)))
        if all(joint.motion is not None for joint in joints):
            raise InputError(f"{title}: both joints follow given motions; leave one of them free")
        self.contents.loops.take(gear, ends)
        self.contents.changes += 1
        return gear

    def add_tendon(self, tendon: Tendon | None = None, **fields: Any) -> Tendon:
        """Let a servo act along a sum of joints' coordinates: a `Tendon` or the fields of one.

        Raises
        ------
        InputError
            A field is bad, the name is taken, a body is not in the system, or its joint has not one coordinate.
        """
        tendon = _given(Tendon, tendon, fields)
        title = f"tendon {tendon.name!r}"
        _check_free(title, tendon.name, self.contents.loads.tendons, "tendon")
        self._check_single(title, "tendons run over", {name: self.contents.index_of(name) for name in tendon.joints})
        self.contents.loads.tendons[tendon.name] = tendon
        self.contents.changes += 1
        return tendon

    def _check_single(self, title: str, takes: str, bodies: dict[str, int]) -> None:
        """Refuse joints that have not one coordinate, of bodies by name."""
        for name, body in bodies.items():
            kind = self.contents.segments.template(body).joint.kind
            if kind.nu != 1:
                raise InputError(
                    f"{title}: the joint of body {name!r} is {kind.name}, and {takes} revolute, prismatic and helical "
                    "ones; choose such"
                )

    def add_event(self, event: Event | None = None, **fields: Any) -> Event:
        """Add a change of structure: an `Event` or the fields of one.

        Raises
        ------
        InputError
            A field is bad, or what it names is not in the system.
        """
        event = _given(Event, event, fields)
        check_event(self.contents, event)
        self.contents.events.append(event)
        self.contents.changes += 1
        return event

    def add_spring(self, spring: Spring | None = None, **fields: Any) -> Spring:
        """Add a spring between two points of two bodies, or of a body and the world: a `Spring` or the fields of one.

        Raises
        ------
        InputError
            A field is bad, the name is taken, or a body is not in the system.
        """
        spring = _given(Spring, spring, fields)
        title = f"spring {spring.name!r}"
        _check_free(title, spring.name, self.contents.springs, "spring")
        self.contents.springs.bodies.append(self._bodies_of(title, spring.bodies))
        self.contents.springs[spring.name] = spring
        self.contents.changes += 1
        return spring

    def set_torque(
        self, body_name: str, torque: TimeFunction | float | Sequence[float] | Sequence[Sequence[float]]
    ) -> None:
        """Drive the joint of one body: by a number or nu (N m, N), or a function of time t (s) that returns as many.

        Or by rows of a time (s) and as many numbers: linear between their times, constant before and behind.

        Raises
        ------
        InputError
            The body is not in the system, its joint is fixed, or this is neither a function nor such numbers or rows.
        """
        index = self.contents.index_of(body_name)
        joint = self.contents.segments.template(index).joint
        if not joint.kind.nu:
            raise InputError(f"body {body_name!r}: torque has nothing to act on in a fixed joint; drive another joint")
        try:
            self.contents.loads.torques[index] = Joint(**(joint.given | {"torque": torque})).torque
        except InputError as error:
            what = str(error).removeprefix("joint: ")
            raise InputError(f"body {body_name!r}: {what}; give numbers, rows or a function of time") from None
        self.contents.changes += 1

    def add_wrench(self, body_name: str, wrench: Wrench | None = None, **fields: Any) -> Wrench:
        """Let a wrench act on one body, in addition to those that it has: a `Wrench` or the fields of one.

        Raises
        ------
        InputError
            The body is not in the system, or a field is bad.
        """
        index = self.contents.index_of(body_name)
        wrench = _given(Wrench, wrench, fields)
        self.contents.loads.wrenches.setdefault(index, []).append(wrench)
        self.contents.changes += 1
        return wrench

    def add_joint_force(self, names: Selection, function: Callable[..., Any], *, vectorized: bool = False) -> None:
        """Let a function of time and state act on joints, in addition to their springs, dampers and torques.

        Parameters
        ----------
        names : str, iterable of str, or None
            The bodies whose inboard joints it acts on; None: all that are in the system and can move.
        function : callable
            `function(t, q, u)` of the time (s), the joint's coordinates [nq] (rad, m, unit quaternion) and speeds [nu]
            (rad/s, m/s) returns its generalized force (N m, N): nu numbers, or one for all. May be compiled by
            `numba.njit`.
        vectorized : bool
            The function is called once for all joints of a rank, which are of one type: q [n, nq] and u [n, nu], and
            it returns [n, nu], or one number for all.

        Raises
        ------
        InputError
            A body is unknown or named twice, its joint is fixed, the joints are of several types (vectorized), or the
            function can't be called.
        """
        self.contents.loads.joint_forces.append(joint_force(self.contents, names, function, vectorized))
        self.contents.changes += 1

    def add_body_force(
        self, names: Selection, function: Callable[..., Any], *, point: Any = (0.0, 0.0, 0.0), vectorized: bool = False
    ) -> None:
        """Let a function of time, pose and velocities act on bodies, in addition to their wrenches.

        Parameters
        ----------
        names : str, iterable of str, or None
            The bodies; None: all that are in the system.
        function : callable
            `function(t, motion)` of the time (s) and a `BodyMotion` returns a moment (N m) and a force (N) on the
            body: each three components in the world frame, or one number for all three. May be compiled by
            `numba.njit`.
        point : sequence of 3 floats, or "center_of_mass"
            The point (m, body frame) on which the force acts, whose position and velocity the function is told.
        vectorized : bool
            The function is called once for all bodies of a rank: the fields of `motion` have n rows, it returns a
            moment and a force [n, 3] each, or one number for all. The arrays are used again: copy what you keep. Behind
            these it may return a damping and a stiffness: how much less the two are for changes of angular velocity and
            velocity, and of orientation and position of the point, matrices [n, 6, 6] or one [6, 6] for all, or None,
            in the world frame, angular parts first, not indefinite. Linearly implicit steps take their symmetric parts.

        Raises
        ------
        InputError
            A body is unknown or named twice, the point is none, or the function can't be called.
        """
        self.contents.loads.body_forces.append(body_force(self.contents, names, function, vectorized, point))
        self.contents.changes += 1

    def summary(self) -> Summary:
        """Return what the system is in numbers, with warnings about what is allowed but rarely meant."""
        return summarise(self.contents)

    def _bodies_of(self, title: str, names: tuple[str, str]) -> tuple[int, int]:
        """Return the numbers of the two bodies of what has that title; -1 is the world."""

        def number(name: str) -> int:
            index = -1 if name == WORLD else self.contents.names.find(name)
            if index is None:
                raise InputError(f"{title}: unknown body {name!r}{self.contents.names.suggest(name)}")
            return index

        first, second = names
        return number(first), number(second)

    def _parent_index(self, name: str, parent: str | None) -> int:
        """Return the index of the body that body `name` lies on: `parent`, or if None the last body added."""
        if parent is None:
            return self.contents.n_bodies - 1
        index = -1 if parent == WORLD else self.contents.names.find(parent)
        if parent == name:
            raise InputError(f"body {name!r}: is its own parent; name 'world' or a body above")
        if index is None:
            hint = self.contents.names.suggest(parent)
            raise InputError(f"body {name!r}: parent {parent!r} is neither 'world' nor a body above{hint}")
        return index

    def _roots_on(
        self, count: int, bodies: tuple[Body, ...], parent: str | None, parents: str | Sequence[str] | None
    ) -> Integers:
        """Return the index of the body on which each copy of a repeated group lies: int64 [count]."""
        name, size = bodies[0].name, len(bodies)
        if parents is None:
            on = self.contents.n_bodies - 1 + size * np.arange(count)
            on[0] = self._parent_index(name, parent)
            return on
        if parent is not None:
            raise InputError(f"body {name!r}: has a parent, and the repeat has parents; give one of the two")
        if isinstance(parents, str):
            repeated = self.contents.names.indices(parents) if self.contents.names.find(parents) is None else None
            on = np.array([self._parent_index(name, parents)]) if repeated is None else repeated
        elif isinstance(parents, Sequence) and parents and all(isinstance(item, str) for item in parents):
            on = np.array([self._parent_index(name, item) for item in parents], np.int64)
        else:
            raise InputError(f"repeat: parents must be a name or a list of names, got {parents!r}")
        if count % len(on):
            raise InputError(
                f"repeat: count must be a multiple of the number of parents, {len(on)}, got {count}: each has as many "
                "copies"
            )
        return np.repeat(on, count // len(on))

    def _duplicate(self, body: Body) -> str:
        """Say what is wrong with a body whose name is in the system."""
        before = self.contents.body(self.contents.index_of(body.name)).parent
        if body.parent in (None, before, body.name):
            return f"body {body.name!r}: the name is taken by a body above; give each body its own"
        return (
            f"body {body.name!r} is connected twice: to {before!r} and to {body.parent!r}; "
            "close the second connection with a [[loop]]"
        )

    def _check_repeated(self, body: Body, count: int, before: tuple[Body, ...]) -> None:
        """Check one template of a repeat that comes after the templates `before`."""
        title = f"body {body.name!r}"
        if body.name[-1] in DIGITS:
            raise InputError(
                f"{title}: a repeated body's name gets a number, so it must not end with a digit; rename it"
            )
        if any(other.name == body.name for other in before):
            raise InputError(f"{title}: stands twice in one repeat; give each body its own name")
        taken = self.contents.names.taken(body.name, count)
        if taken:
            raise InputError(f"{title}: the number names would include {taken!r}, which is taken; rename one of them")


def system_holding(contents: Contents) -> System:
    """Give a system by which more is added to contents that are there."""
    system = System.__new__(System)
    system.contents = contents
    return system


def contents_of(system: System | Contents) -> Contents:
    """Give what a system holds, or contents as they are, as results and solvers have them."""
    return system.contents if isinstance(system, System) else system


def _check_free(title: str, name: str, taken: Container[str], kind: str) -> None:
    if name in taken:
        raise InputError(f"{title}: the name is taken by another {kind}; give each its own")


def _given(kind: type[TableT], table: Any, fields: dict[str, Any]) -> TableT:
    """Give what a caller has given of a kind: itself, or its fields by name."""
    if table is None:
        return kind(**fields)
    name = kind.__name__
    if not isinstance(table, kind):
        raise InputError(
            f"{name.lower()}: must be a {name} or fields of one by name, as {name}(**fields) takes them, "
            f"got a {type(table).__name__}"
        )
    if fields:
        raise InputError(f"{name.lower()}: is a {name}, and has fields besides; give one of the two")
    return table
