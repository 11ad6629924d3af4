"""`System`: the bodies of a model in order, its loops and its loads; what the user makes and solvers read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from mpimbs.errors import InputError
from mpimbs.model import columns
from mpimbs.model.body import Body, Joint, Loop, Name, Wrench
from mpimbs.model.columns import Columns
from mpimbs.model.force_functions import BodyForce, ForceFunction, JointForce, Selection, body_force, joint_force
from mpimbs.model.joints import joint_index
from mpimbs.model.names import DIGITS, WORLD, Names
from mpimbs.model.segments import Integers, Segments, counts
from mpimbs.model.summary import Summary, summarise, validate
from mpimbs.model.table import CheckedTable, TimeFunction, Vector


class Heading(CheckedTable):
    """What a system says of itself: its name, and the acceleration of gravity in the world frame, m/s^2."""

    model_config = ConfigDict(title="system")

    name: Name = "system"
    gravity: Vector = (0.0, -9.81, 0.0)


class System:
    """An articulated system of rigid bodies.

    Bodies are indexed in the order in which they were added, each after its parent; the coordinates q and the
    speeds u of all joints follow the same order. Repeated bodies are kept as templates, so that a chain of
    ten million equal bodies takes no memory and no time, and each rank expands only its own range
    (`columns`).

    Parameters
    ----------
    name : str
        Title of the system.
    gravity : sequence of 3 floats
        Acceleration of gravity in the world frame, m/s^2.

    Attributes
    ----------
    segments : Segments
        The bodies, run-length coded.
    loops : list of Loop
        The joints that close loops.
    torques : dict of int to function or tuple of floats
        What drives the joints of single bodies, functions of time or constant, in place of what their templates say.
    wrenches : dict of int to list of Wrench
        What acts on single bodies, in addition to what their templates say.
    joint_forces : list of JointForce
        Functions of time and state that act on joints.
    body_forces : list of BodyForce
        Functions of time, pose and velocities that act on bodies.
    force_modules : list of str
        Which functions of modules have added forces (module:function), so that a checkpoint can name them.
    before_forces : str or None
        The system as a model file, before they did; None if that was none.
    changes : int
        How often it was changed: what was made of it before does not know of the later ones.
    """

    def __init__(self, name: str = "system", gravity: Any = (0.0, -9.81, 0.0)) -> None:
        self.changes = 0
        self.name: str = Heading(name=name).name
        self.gravity = gravity
        self.segments = Segments()
        self.loops: list[Loop] = []
        self.torques: dict[int, TimeFunction | tuple[float, ...]] = {}
        self.wrenches: dict[int, list[Wrench]] = {}
        self.joint_forces: list[JointForce] = []
        self.body_forces: list[BodyForce] = []
        self.force_modules: list[str] = []
        self.before_forces: str | None = None
        self._names = Names()

    def __repr__(self) -> str:
        return f"System({self.name!r}: {self.n_bodies} bodies, {self.nu} degrees of freedom)"

    @property
    def gravity(self) -> tuple[float, ...]:
        """Acceleration of gravity in the world frame, m/s^2."""
        return self._gravity

    @gravity.setter
    def gravity(self, value: Any) -> None:
        self._gravity: tuple[float, ...] = Heading(name=self.name, gravity=value).gravity
        self.changes += 1

    def add(self, body: Body | None = None, **fields: Any) -> Body:
        """Add one body: a `Body`, the fields of one, or a `Body` with some fields replaced.

        Raises
        ------
        InputError
            A field is bad, the name is taken, the parent is not in the system, or the body is connected
            twice.
        """
        if body is None or fields:
            body = Body(**(dict(body or {}) | fields))
        if self._names.find(body.name) is not None:
            raise InputError(self._duplicate(body))
        parent = self._parent_index(body.name, body.parent)
        self._names.add_single(body.name, self.n_bodies)
        self.segments.append((body,), parent)
        self.changes += 1
        return body

    def repeat(self, count: int, *bodies: Body, parent: str | None = None) -> None:
        """Add the bodies in sequence, `count` times, each on the last.

        Body "link" becomes link1, link2, ...: every template counts its own, and a later `repeat` of the same
        name counts on. The first body lies on `parent`; None is the parent that it names, or the last body
        added.

        Raises
        ------
        InputError
            The count is no positive integer, a name ends with a digit or is taken, a body but the first names
            a parent, or the parent is not in the system.
        """
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
            raise InputError(f"repeat: count must be a positive integer, got {count!r}; say how often to repeat")
        if not bodies:
            raise InputError("repeat: needs at least one body; give the body to repeat")
        for position, body in enumerate(bodies):
            self._check_repeated(body, int(count), bodies[:position])
        index = self._parent_index(bodies[0].name, parent or bodies[0].parent)
        for position, body in enumerate(bodies, self.n_bodies):
            self._names.add_run(body.name, int(count), position, len(bodies))
        self.segments.append(bodies, index, int(count), numbered=True)
        self.changes += 1

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
        templates, n = tuple(bodies), self.n_bodies
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
        self._names.add_run(templates[0].name, size, n, 1)
        self.segments.append_branches(templates, row_of_each, parent_of_each)
        self.changes += 1

    def add_loop(self, loop: Loop | None = None, **fields: Any) -> Loop:
        """Add a joint that closes a loop between two bodies of the system: a `Loop` or the fields of one.

        Raises
        ------
        InputError
            A field is bad, the name is taken, or a body is not in the system.
        """
        loop = loop or Loop(**fields)
        if any(other.name == loop.name for other in self.loops):
            raise InputError(f"loop {loop.name!r}: the name is taken by another loop; give each its own")
        for name in loop.bodies:
            if name != WORLD and self._names.find(name) is None:
                raise InputError(f"loop {loop.name!r}: unknown body {name!r}{self._names.suggest(name)}")
        self.loops.append(loop)
        self.changes += 1
        return loop

    def set_torque(self, body_name: str, torque: TimeFunction | float | Sequence[float]) -> None:
        """Drive the joint of one body: by a number or nu (N m, N), or a function of time t (s) that returns as many.

        Raises
        ------
        InputError
            The body is not in the system, its joint is fixed, or this is neither a function nor such numbers.
        """
        index = self.index_of(body_name)
        joint = self.segments.template(index).joint
        if not joint.kind.nu:
            raise InputError(f"body {body_name!r}: torque has nothing to act on in a fixed joint; drive another joint")
        try:
            given = {name: getattr(joint, name) for name in joint.model_fields_set}
            self.torques[index] = Joint(**(given | {"torque": torque})).torque
        except InputError as error:
            what = str(error).removeprefix("joint: ")
            raise InputError(f"body {body_name!r}: {what}; give numbers or a function of time") from None
        self.changes += 1

    def add_wrench(self, body_name: str, wrench: Wrench | None = None, **fields: Any) -> Wrench:
        """Let a wrench act on one body, in addition to those that it has: a `Wrench` or the fields of one.

        Raises
        ------
        InputError
            The body is not in the system, or a field is bad.
        """
        index = self.index_of(body_name)
        wrench = wrench or Wrench(**fields)
        self.wrenches.setdefault(index, []).append(wrench)
        self.changes += 1
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
        self.joint_forces.append(joint_force(self, names, function, vectorized))
        self.changes += 1

    def add_body_force(
        self,
        names: Selection,
        function: Callable[..., Any],
        *,
        point: Any = (0.0, 0.0, 0.0),
        vectorized: bool = False,
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
            moment and a force [n, 3] each, or one number for all. The arrays are used again: copy what you keep.

        Raises
        ------
        InputError
            A body is unknown or named twice, the point is none, or the function can't be called.
        """
        self.body_forces.append(body_force(self, names, function, vectorized, point))
        self.changes += 1

    @property
    def force_functions(self) -> list[ForceFunction]:
        """All force functions, in the order in which they act."""
        return [*self.joint_forces, *self.body_forces]

    @property
    def n_bodies(self) -> int:
        """Number of bodies."""
        return self.segments.n_bodies

    @property
    def nq(self) -> int:
        """Number of coordinates q of all joints."""
        return self.segments.nq

    @property
    def nu(self) -> int:
        """Number of generalized speeds u of all joints: the degrees of freedom without loops."""
        return self.segments.nu

    @property
    def is_chain(self) -> bool:
        """Whether every body's parent is the body before it, the first on the world."""
        return self.segments.is_chain

    def name_of(self, k: int) -> str:
        """Return the name of body k; IndexError if there is no such body."""
        name = self.segments.template(k).name
        return f"{name}{self._names.number(name, k)}" if self.segments.of(k).numbered else name

    def index_of(self, name: str) -> int:
        """Return the index of the body of that name; InputError with the close matches if there is none."""
        index = self._names.find(name)
        if index is None:
            raise InputError(f"unknown body {name!r}{self._names.suggest(name)}")
        return index

    def body(self, k: int) -> Body:
        """Return body k alone: with its own name, its parent's name and its own loads."""
        body, parent = self.segments.template(k), self.segments.parent(k)
        own: dict[str, Any] = {
            "name": self.name_of(k),
            "parent": self.name_of(parent) if parent >= 0 else WORLD,
            "wrench": body.wrench + tuple(self.wrenches.get(k, ())),
        }
        if k in self.torques:
            own["joint"] = body.joint.model_copy(update={"torque": self.torques[k]})
        return body.model_copy(update=own)

    def bodies(self) -> Iterator[Body]:
        """Go through all bodies, each as `body` returns it."""
        return map(self.body, range(self.n_bodies))

    def parents(self) -> Integers:
        """Return the index of each body's parent: int64 [n], -1 the world."""
        return self.segments.parents(0, self.n_bodies)

    def joint_types(self, lo: int = 0, hi: int | None = None) -> NDArray[np.int8]:
        """Return the row in `JOINT_TYPES` of the joint of each of the bodies lo to hi - 1 (to the last): int8."""
        bodies, rows = self.segments.rows(lo, self.n_bodies if hi is None else hi)
        return np.array([joint_index(body.joint.type) for body in bodies], np.int8)[rows]

    def offsets(self) -> tuple[Integers, Integers]:
        """Return where each body's coordinates q and speeds u begin: two int64 [n + 1], up to nq and nu."""
        bodies, rows = self.segments.rows(0, self.n_bodies)
        nq, nu = counts(bodies)
        return columns.offsets(nq[rows]), columns.offsets(nu[rows])

    def offsets_of(self, bodies: Iterable[int]) -> tuple[Integers, Integers]:
        """Return what `offsets` says of some bodies, without expanding the others; n_bodies stands for the end."""
        q, u = zip(*(self.segments.numbers_before(int(k)) for k in bodies), strict=True)
        return np.array(q, np.int64), np.array(u, np.int64)

    def columns(self, lo: int = 0, hi: int | None = None) -> Columns:
        """Expand the bodies lo to hi - 1 (to the last) to columns; IndexError if there are no such bodies."""
        hi = self.n_bodies if hi is None else hi
        expanded = columns.expand(lo, *self.segments.expand(lo, hi))
        driven = dict(expanded.torque_functions)
        for k, torque in self.torques.items():
            if lo <= k < hi:
                driven.pop(k - lo, None)
                if callable(torque):
                    driven[k - lo] = torque
                constant = 0.0 if callable(torque) else torque
                expanded.torque[expanded.u_offset[k - lo] : expanded.u_offset[k - lo + 1]] = constant
        wrenches = [(k - lo, wrench) for k, own in self.wrenches.items() if lo <= k < hi for wrench in own]
        return replace(
            expanded,
            torque_functions=sorted(driven.items(), key=lambda item: item[0]),
            wrenches=sorted(expanded.wrenches + wrenches, key=lambda item: item[0]),
        )

    def sizes(self, lo: int, hi: int) -> tuple[int, int]:
        """Return the numbers of coordinates q and of speeds u of the bodies lo to hi - 1."""
        (q, u), (q_end, u_end) = (self.segments.numbers_before(k) for k in (lo, hi))
        return q_end - q, u_end - u

    def initial_state(self, lo: int, hi: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the coordinates q and the speeds u with which the bodies lo to hi - 1 begin: float [nq], [nu]."""
        return columns.initial_state(*self.segments.rows(lo, hi))

    def has_wrenches(self, lo: int, hi: int) -> bool:
        """Return whether wrenches or body forces act on the bodies lo to hi - 1."""
        pushed = [segment for segment in self.segments if any(body.wrench for body in segment.bodies)]
        for segment in pushed:
            begin, end = max(lo, segment.first), min(hi, segment.last + 1)
            rows = np.unique(segment.rows(begin, end)) if begin < end else ()
            if any(segment.bodies[row].wrench for row in rows):
                return True
        if any(lo <= k < hi for k in self.wrenches):
            return True
        return any(len(force.on(lo, hi)) for force in self.body_forces)

    def has_loads_of_time(self) -> bool:
        """Return whether wrenches act on bodies, or functions of time or state on joints or bodies."""
        joints = (body.joint.torque for segment in self.segments for body in segment.bodies)
        driven = any(map(callable, chain(self.torques.values(), joints)))
        return bool(driven or self.force_functions) or self.has_wrenches(0, self.n_bodies)

    def likeness(self, lo: int, hi: int) -> tuple[object, ...]:
        """Return a key that is the same for two stretches of bodies only if their columns are, but for `first`."""
        parents, bodies, rows = self.segments.expand(lo, hi)
        own = {k - lo: torque for k, torque in self.torques.items() if lo <= k < hi}
        driven = tuple((k, None if callable(torque) else torque) for k, torque in own.items())
        used = np.unique(rows)
        which = np.searchsorted(used, rows)
        return (*(id(bodies[row]) for row in used), which.tobytes(), (parents - lo).tobytes(), driven)

    def joint_patterns(self, lo: int, hi: int) -> NDArray[np.int8]:
        """Return a number for each body's joint, the same where the sweeps take the same steps: int8 [hi - lo]."""
        bodies, rows = self.segments.rows(lo, hi)
        joints = [body.joint for body in bodies]
        return np.array([2 * joint_index(joint.type) + (joint.pitch != 0.0) for joint in joints], np.int8)[rows]

    def validate(self) -> None:
        """Check the system as a whole; InputError if it has no bodies, or one without mass and inertia."""
        validate(self)

    def summary(self) -> Summary:
        """Return what the system is in numbers, with warnings about what is allowed but rarely meant."""
        return summarise(self)

    def _parent_index(self, name: str, parent: str | None) -> int:
        """Return the index of the body that body `name` lies on: `parent`, or if None the last body added."""
        if parent is None:
            return self.n_bodies - 1
        index = -1 if parent == WORLD else self._names.find(parent)
        if parent == name:
            raise InputError(f"body {name!r}: is its own parent; name 'world' or a body above")
        if index is None:
            hint = self._names.suggest(parent)
            raise InputError(f"body {name!r}: parent {parent!r} is neither 'world' nor a body above{hint}")
        return index

    def _duplicate(self, body: Body) -> str:
        """Say what is wrong with a body whose name is in the system."""
        before = self.body(self.index_of(body.name)).parent
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
        if before and body.parent is not None:
            raise InputError(f"{title}: each repeated body lies on the one before; leave its parent out")
        taken = self._names.taken(body.name, count)
        if taken:
            raise InputError(f"{title}: the number names would include {taken!r}, which is taken; rename one of them")
