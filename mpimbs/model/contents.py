"""What a system holds, bodies, loops and loads, and what solvers ask of it; `system.System` is how it is filled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.model import columns
from mpimbs.model.between import SystemLoops, SystemSprings
from mpimbs.model.body import Body, Name, Wrench
from mpimbs.model.columns import Columns
from mpimbs.model.event import Event
from mpimbs.model.force_functions import CENTER_OF_MASS, BodyForce, ForceFunction, JointForce, Selection
from mpimbs.model.joints import JointType, joint_index
from mpimbs.model.names import WORLD, Names
from mpimbs.model.order.segments import Segments, counts
from mpimbs.model.spring import Tendon
from mpimbs.model.text import table
from mpimbs.model.text.table import CheckedTable, TimeFunction, Unit, Vector


@dataclass
class SystemLoads:
    """The loads of a system, by the numbers of its bodies, and functions of time and state."""

    # what drives the joints of single bodies, functions of time or constant, in place of what their templates say
    torques: dict[int, TimeFunction | tuple[float, ...]] = field(default_factory=dict)
    # what acts on single bodies, in addition to what their templates say
    wrenches: dict[int, list[Wrench]] = field(default_factory=dict)
    joint_forces: list[JointForce] = field(default_factory=list)  # functions of time and state that act on joints
    # functions of time, pose and velocities that act on bodies
    body_forces: list[BodyForce] = field(default_factory=list)
    tendons: dict[str, Tendon] = field(default_factory=dict)  # what acts along sums of joints' coordinates, by name
    # which functions of modules have added forces (module:function), so that a checkpoint can name them
    modules: list[str] = field(default_factory=list)
    before_modules: str | None = None  # the system as a model file, before they did; None if that was none

    @property
    def functions(self) -> list[ForceFunction]:
        """All functions, in the order in which they act."""
        return [*self.joint_forces, *self.body_forces]


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


class Heading(CheckedTable):
    """The heading of a system: its name, and the acceleration of gravity in the world frame, m/s^2."""

    model_config = ConfigDict(title="system")

    name: Name = "system"
    gravity: Annotated[Vector, Unit("m/s^2", 3)] = (0.0, -9.81, 0.0)


class JointRead(NamedTuple):
    """A joint of a robot's file, as a system has it: where its coordinates and speeds begin, and what else it has."""

    name: str
    kind: str
    q: int  # where its coordinates and speeds begin
    u: int
    limits: tuple[float, float] | None = None  # least and largest coordinate (rad, m)
    friction: float = 0.0  # Coulomb's (N m, N): told, and left out
    actuators: tuple[str, ...] = ()  # what drives it, or is left out


class Contents:
    """What a `System` holds, bodies, loops, springs and loads, and what solvers and readers ask of it.

    Attributes
    ----------
    segments : Segments
        The bodies, run-length coded.
    names : Names
        Which body has which name.
    loops : SystemLoops
        What closes loops: joints, and gears between joints.
    events : list of Event
        Changes of structure.
    left_out : tuple of str
        What the file of another program says that was not taken over: a line for each kind, with names.
    coordinates : tuple of JointRead
        The joints of a robot's file, and where their coordinates q and speeds u begin.
    springs : SystemSprings
        The springs between points of bodies, by name.
    loads : SystemLoads
        What acts beside what the bodies say of themselves.
    shifted, shifts : int64 [m], float [m, 3]
        Bodies, ascending, whose joints lie elsewhere on their parents than their templates say, and by how much (m).
    given : dict of str to float
        Numbers for functions that act on it, such as those of a copy's own.
    apart : bool
        Whether sweeps are to have a table row of its own for every body: its added mass there is its number, from 1 on,
        by which it is found.
    changes : int
        How often it was changed: what was made of it before does not know of the later ones.
    """

    def __init__(self, name: str = "system", gravity: Any = (0.0, -9.81, 0.0)) -> None:
        self.changes, self.apart = 0, False
        self.name: str = Heading(name=name).name
        self.gravity = gravity
        self.segments = Segments()
        self.left_out: tuple[str, ...] = ()
        self.coordinates: tuple[JointRead, ...] = ()
        self.loops, self.springs = SystemLoops(), SystemSprings()
        self.events: list[Event] = []
        self.loads = SystemLoads()
        self.shifted, self.shifts = np.empty(0, np.int64), np.empty((0, 3))
        self.given: dict[str, float] = {}
        self.names = Names()

    def __repr__(self) -> str:
        return f"Contents({self.name!r}: {self.n_bodies} bodies, {self.nu} degrees of freedom)"

    @property
    def gravity(self) -> tuple[float, ...]:
        """Acceleration of gravity in the world frame, m/s^2."""
        return self._gravity

    @gravity.setter
    def gravity(self, value: Any) -> None:
        self._gravity: tuple[float, ...] = Heading(name=self.name, gravity=value).gravity
        self.changes += 1

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
        return f"{name}{self.names.number(name, k)}" if self.segments.of(k).numbered else name

    def index_of(self, name: str) -> int:
        """Return the index of the body of that name; InputError with the close matches if there is none."""
        if not isinstance(name, str):
            raise InputError(f"a body is named by a text, got {name!r}; names of all are in `Contents.bodies()`")
        index = self.names.find(name)
        if index is None:
            raise InputError(f"unknown body {name!r}{self.names.suggest(name)}")
        return index

    def numbers_in_model(self, bodies: Integers) -> Integers:
        """Return the numbers that bodies, given by their numbers here, have in the model as the user made it."""
        return bodies

    def parent_name(self, k: int) -> str:
        """Return the name of the parent of body k, or "world"; IndexError if there is no such body."""
        parent = self.segments.parent(k)
        return self.name_of(parent) if parent >= 0 else WORLD

    def body(self, k: int) -> Body:
        """Return body k alone: with its own name, its parent's name and its own loads."""
        body = self.segments.template(k)
        own: dict[str, Any] = {
            "name": self.name_of(k),
            "parent": self.parent_name(k),
            "wrench": body.wrench + tuple(self.loads.wrenches.get(k, ())),
        }
        joint: dict[str, Any] = {"torque": self.loads.torques[k]} if k in self.loads.torques else {}
        at = self._shifts_within(k, k + 1)
        if at.start < at.stop:
            joint["position"] = tuple((np.array(body.joint.position) + self.shifts[at.start]).tolist())
        if joint:
            own["joint"] = body.joint.model_copy(update=joint)
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
        bodies, rows = self.segments.rows(lo, hi)
        torques = {k - lo: torque for k, torque in self.loads.torques.items() if lo <= k < hi}
        wrenches = [(k - lo, wrench) for k, own in self.loads.wrenches.items() if lo <= k < hi for wrench in own]
        at = self._shifts_within(lo, hi)
        shifts = self.shifted[at] - lo, self.shifts[at]
        numbers = np.arange(lo, hi) if self.apart else None
        return Columns(lo, lambda: self.segments.parents(lo, hi), bodies, rows, torques, wrenches, shifts, numbers)

    def _shifts_within(self, lo: int, hi: int) -> slice:
        """Return which of `shifted` are among the bodies lo to hi - 1."""
        first, last = np.searchsorted(self.shifted, (lo, hi)).tolist()
        return slice(first, last)

    def sizes(self, lo: int, hi: int) -> tuple[int, int]:
        """Return the numbers of coordinates q and of speeds u of the bodies lo to hi - 1."""
        (q, u), (q_end, u_end) = (self.segments.numbers_before(k) for k in (lo, hi))
        return q_end - q, u_end - u

    def initial_state(self, lo: int, hi: int) -> tuple[Floats, Floats]:
        """Return the coordinates q and the speeds u with which the bodies lo to hi - 1 begin: float [nq], [nu]."""
        return columns.initial_state(*self.segments.rows(lo, hi))

    def has_wrenches(self, lo: int, hi: int) -> bool:
        """Return whether wrenches, body forces, a fluid or springs between bodies act on the bodies lo to hi - 1."""
        ends = self.springs.ends
        sprung = bool(np.any((lo <= ends) & (ends < hi)))
        return sprung or self.has_added_mass(lo, hi) or self.has_given_wrenches(lo, hi)

    def has_added_mass(self, lo: int, hi: int) -> bool:
        """Return whether any template of the bodies lo to hi - 1, or of others beside them, has added mass."""
        return any(body.added_mass for segment in self.segments.within(lo, hi) for body in segment.bodies)

    def has_given_wrenches(self, lo: int, hi: int) -> bool:
        """Return whether wrenches or body forces act on the bodies lo to hi - 1."""
        for segment in self.segments.within(lo, hi):
            if any(body.wrench for body in segment.bodies):
                rows = np.unique(segment.rows(max(lo, segment.first), min(hi, segment.last + 1)))
                if any(segment.bodies[row].wrench for row in rows):
                    return True
        if any(lo <= k < hi for k in self.loads.wrenches):
            return True
        return any(len(force.on(lo, hi)) for force in self.loads.body_forces)

    def has_loads_of_time(self) -> bool:
        """Return whether wrenches or springs act on bodies, functions of time or state on bodies, joints, loops, or
        joints follow given motions."""
        joints = (body.joint for segment in self.segments for body in segment.bodies)
        others = chain(self.loads.torques.values(), (loop.torque for _, loop in self.loops.joints))
        functions = chain(others, chain.from_iterable((joint.torque, joint.servo_torque) for joint in joints))
        driven = self.loads.functions or self.loads.tendons or any(map(callable, functions))
        return bool(driven) or self.has_motions or self.has_wrenches(0, self.n_bodies)

    @property
    def has_motions(self) -> bool:
        """Whether any joints follow given motions."""
        return any(body.joint.motion is not None for segment in self.segments for body in segment.bodies)

    def likeness(self, lo: int, hi: int) -> tuple[object, ...]:
        """Return a key that is the same for two blocks of bodies only if their columns are, but for `first`."""
        if self.apart:
            return lo, hi
        parents, bodies, rows = self.segments.expand(lo, hi)
        own = {k - lo: torque for k, torque in self.loads.torques.items() if lo <= k < hi}
        driven = tuple((k, None if callable(torque) else torque) for k, torque in own.items())
        used, which = np.unique(rows, return_inverse=True)
        at = self._shifts_within(lo, hi)
        lying = (self.shifted[at] - lo).tobytes(), self.shifts[at].tobytes()
        return (*(id(bodies[row]) for row in used), which.tobytes(), (parents - lo).tobytes(), driven, *lying)

    def joint_patterns(self, lo: int, hi: int) -> NDArray[np.int8]:
        """Return a number for each body's joint, the same where the sweeps take the same steps: int8 [hi - lo]."""
        bodies, rows = self.segments.rows(lo, hi)
        joints = [body.joint for body in bodies]
        return np.array([2 * joint_index(joint.type) + (joint.pitch != 0.0) for joint in joints], np.int8)[rows]
