"""The tables that a user writes: `Body` with its `Joint` and its `Wrench`es, and `Loop`.

Each is a frozen pydantic model, the same whether it comes from a file or from Python. All units are SI,
frames are right-handed, quaternions are w x y z. The body frame has its origin at the inboard joint.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo, field_validator, model_validator

from mpimbs.model import table
from mpimbs.model.geometry import Shape
from mpimbs.model.joints import JointType, joint_type
from mpimbs.model.motion import Motion, checked_motion
from mpimbs.model.table import CheckedTable, Number, Quaternion, TimeFunction, Vector, VectorOrFunction

Floats = tuple[float, ...]

_IDENTITY = (1.0, 0.0, 0.0, 0.0)
_SLACK = 1e-9  # relative slack of the triangle inequality of principal moments
_SINGULAR = 1e-14  # ratio of principal moments below which an inertia counts as singular

_BY_TYPE: Any = None  # a default that depends on the type of the joint; the check of the field fills it in


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"must be a printable, non-empty text, got {value!r}")
    return value


def _name(value: Any) -> str:
    value = _text(value)
    if value == "world":
        raise ValueError("'world' is reserved for the inertial frame; give another name")
    return value


Name = Annotated[str, PlainValidator(_name)]
BodyPair = Annotated[tuple[str, str], PlainValidator(table.pair(_text))]
PointPair = Annotated[tuple[Floats, Floats], PlainValidator(table.pair(table.vector))]


class _Jointed(CheckedTable):
    """What `Joint` and `Loop` share: type, axis and pitch, which only some types take, and what acts along it."""

    type: str = Field(description="the type of joint, such as 'revolute'")
    axis: Floats = _BY_TYPE
    pitch: float = _BY_TYPE
    stiffness: Floats = _BY_TYPE
    cross_stiffness: Floats = _BY_TYPE
    damping: Floats = _BY_TYPE
    rest: Floats = _BY_TYPE
    torque: Floats | TimeFunction = _BY_TYPE
    motion: Motion | None = _BY_TYPE

    @property
    def kind(self) -> JointType:
        """The row of `JOINT_TYPES` of this joint."""
        return joint_type(self.type)

    @property
    def driven(self) -> bool:
        """Whether a torque acts on it."""
        return callable(self.torque) or any(self.torque)

    @property
    def needed(self) -> set[str]:
        return super().needed | ({"pitch"} if self.kind.takes_pitch else set())

    @field_validator("type")
    @classmethod
    def _check_type(cls, value: str) -> str:
        return joint_type(value).name

    @field_validator("axis", mode="plain")
    @classmethod
    def _check_axis(cls, value: Any, info: ValidationInfo) -> Floats:
        if value is None:
            return (0.0, 0.0, 1.0)
        if not _kind(info).takes_axis:
            raise ValueError(f"has no meaning for a {_kind(info).name} joint; leave it out, use `rotation`")
        return table.direction(value)

    @field_validator("pitch", mode="plain")
    @classmethod
    def _check_pitch(cls, value: Any, info: ValidationInfo) -> float:
        takes_pitch = _kind(info).takes_pitch
        if value is not None and not takes_pitch:
            raise ValueError(f"has no meaning for a {_kind(info).name} joint; leave it out or make it helical")
        if value is None and takes_pitch:
            raise ValueError("is missing; give the pitch of the helical joint in m/rad")
        return table.number(value) if takes_pitch else 0.0

    @field_validator("q", "rest", mode="plain", check_fields=False)
    @classmethod
    def _check_coordinates(cls, value: Any, info: ValidationInfo) -> Floats:
        kind = _kind(info)
        if value is None:
            return kind.zero
        single = kind.nq == 1 and not isinstance(value, list | tuple | np.ndarray)
        values = (table.number(value),) if single else table.numbers(value, kind.nq, _meaning(kind, kind.q_units))
        for x, unit, limit in zip(values, kind.q_units, kind.q_limits, strict=True):
            if abs(x) > limit:
                raise ValueError(f"must be at most {limit:g} {unit}, got {x:g}; give it in {unit}")
        return table.unit_quaternion(values[:4]) + values[4:] if kind.quaternion else values

    @field_validator("u", "stiffness", "damping", mode="plain", check_fields=False)
    @classmethod
    def _check_speeds(cls, value: Any, info: ValidationInfo) -> Floats:
        kind = _kind(info)
        if isinstance(value, list | tuple | np.ndarray):
            return table.numbers(value, kind.nu, _meaning(kind, kind.u_units))
        single = table.number(0 if value is None else value)
        # One number serves every axis of the same unit; zero serves any.
        if single and len(set(kind.u_units)) != 1:
            raise ValueError(f"needs a list of {kind.nu} numbers ({_meaning(kind, kind.u_units)}), got {value!r}")
        return (single,) * kind.nu

    @field_validator("torque", mode="plain")
    @classmethod
    def _check_torque(cls, value: Any, info: ValidationInfo) -> Floats | TimeFunction:
        if not callable(value):
            return cls._check_speeds(value, info)
        if not _kind(info).nu:
            raise ValueError("has nothing to act on in a fixed joint; leave it out")
        return value

    @field_validator("motion", mode="plain")
    @classmethod
    def _check_motion(cls, value: Any, info: ValidationInfo) -> Motion | None:
        return checked_motion(value, _kind(info))

    @field_validator("stiffness", "damping", mode="after")
    @classmethod
    def _check_sign(cls, value: Floats) -> Floats:
        return _not_negative(value)

    @field_validator("cross_stiffness", mode="plain")
    @classmethod
    def _check_cross_stiffness(cls, value: Any, info: ValidationInfo) -> Floats:
        if value is None:
            return ()
        if not _kind(info).quaternion:
            raise ValueError(f"has no meaning for a {_kind(info).name} joint; leave it out")
        xy, xz, yz = given = table.numbers(value, 3, "xy xz yz")
        xx, yy, zz = info.data.get("stiffness", (0.0, 0.0, 0.0))[:3]
        least, _, most = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        if least < -_SLACK * most:
            raise ValueError(
                f"makes the stiffness indefinite, with a principal value of {least:.6g}; give smaller ones"
            )
        return given


def _kind(info: ValidationInfo) -> JointType:
    """Return the joint type of a table under validation; ValueError if the type itself was refused."""
    if "type" not in info.data:
        raise ValueError("needs a valid joint type")
    return joint_type(info.data["type"])


def _not_negative(values: Floats) -> Floats:
    """Return values as they are; ValueError if one is below zero."""
    if any(x < 0 for x in values):
        raise ValueError(f"must not be negative, got {list(values)}; give 0 for none")
    return values


class Joint(_Jointed):
    """The joint that connects a body to its parent: where it lies, how it moves, what acts along it.

    A single number may stand for a list of one; for `u`, `stiffness`, `damping`, `torque` and `armature` also for
    several speeds of the same unit (spherical, universal).

    Attributes
    ----------
    type : str
        Name of a row of `JOINT_TYPES`.
    axis : tuple of 3 floats
        Unit vector in the joint frame; only for types that take an axis, default z.
    pitch : float
        Displacement per angle of a helical joint, m/rad; 0 for every other type.
    position : tuple of 3 floats
        Origin of the joint frame in the parent's frame, m.
    rotation : tuple of 4 floats
        Unit quaternion: the joint frame in the parent's frame at q = 0.
    q : tuple of nq floats
        Initial coordinates, rad or m (quaternion first); default the zero position.
    u : tuple of nu floats
        Initial generalized speeds, rad/s or m/s; of spherical and free joints in the body frame.
    stiffness, damping : tuple of nu floats
        Of the spring and damper along each free axis, N m/rad or N/m, and N m s/rad or N s/m; not negative.
        About a ball along the axes of the body: the moment is that of the energy x . K x / 2, x the rotation vector
        from rest.
    cross_stiffness : tuple of 3 floats
        xy, xz, yz of that K, N m/rad: where its principal axes are not the body's. K must not be indefinite.
    rest : tuple of nq floats
        Coordinates at which the springs carry no load; default the zero position.
    torque : tuple of nu floats, or function of time
        Actuation along each free axis, N m or N. A function of t (s) returns a number or nu numbers.
    armature : tuple of nu floats
        Inertia of the rotor that drives each free axis, as the axis feels it: times the square of the gear ratio,
        kg m^2 for turning, kg for sliding; not negative. It adds armature udot to the torque that the axis needs and
        armature u^2 / 2 to the kinetic energy, and turns nothing else: no part in weight, momentum or gyroscopic
        effects. A free joint may have it, as in MuJoCo; a fixed one has no axis for it.
    motion : function of time, str or rows
        What the joint follows exactly, whatever that takes: `motion(t)` of the time (s) gives coordinates, speeds and
        accelerations (three numbers, or three lists of nu), and must have no jumps but of the accelerations; as text
        module:function; or rows of a time and coordinates, through which goes a cubic spline. Not for joints with a
        quaternion. What else acts along the joint acts on what drives it; `q` and `u` don't count.

    Raises
    ------
    InputError
        A value is not allowed; the message names the key and the remedy.
    """

    __init__ = CheckedTable.__init__

    position: Vector = (0.0, 0.0, 0.0)
    rotation: Quaternion = _IDENTITY
    q: Floats = _BY_TYPE
    u: Floats = _BY_TYPE
    armature: Floats = _BY_TYPE

    @field_validator("armature", mode="plain")
    @classmethod
    def _check_armature(cls, value: Any, info: ValidationInfo) -> Floats:
        if value is not None and not _kind(info).nu:
            raise ValueError("has no axis to turn about in a fixed joint; leave it out")
        return _not_negative(cls._check_speeds(value, info))


def _meaning(kind: JointType, units: tuple[str, ...]) -> str:
    """Say what the numbers of a joint belong to: its coordinates or its speeds, by their units."""
    if not units:
        return f"a {kind.name} joint has no coordinates"
    what = "speeds" if units is kind.u_units else "coordinates"
    quaternion = "quaternion w x y z first, " if kind.quaternion and units is kind.q_units else ""
    return f"{kind.name} joint: {quaternion}{what} in {' '.join(units)}"


class Wrench(CheckedTable):
    """A moment and a force on a body, constant or given functions of time.

    Attributes
    ----------
    moment, force : tuple of 3 floats, or function of time
        N m and N, components in `frame`. A function of t (s) returns three numbers.
    point : tuple of 3 floats
        Where the force acts, m, in the body frame.
    frame : {"body", "world"}
        Frame of the components of moment and force.
    """

    __init__ = CheckedTable.__init__

    moment: VectorOrFunction = (0.0, 0.0, 0.0)
    force: VectorOrFunction = (0.0, 0.0, 0.0)
    point: Vector = (0.0, 0.0, 0.0)
    frame: Literal["body", "world"] = "body"


def _inertia(value: Any) -> Floats:
    return table.numbers(value, 6, "xx yy zz xy xz yz")


def _added_mass(value: Any) -> tuple[Floats, ...]:
    what = "a diagonal, or rows of a 6x6 matrix"
    rows = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(rows, list | tuple) or len(rows) not in (0, 6):
        raise ValueError(f"needs six numbers or six rows of six ({what}), got {value!r}")
    if any(isinstance(row, list | tuple | np.ndarray) for row in rows):
        matrix = np.array([table.numbers(row, 6, what) for row in rows])
    else:
        matrix = np.diag(table.numbers(rows, len(rows), what))
    if not matrix.any():
        return ()
    # Of any units: moments, masses and what couples them are taken by the size of the diagonal.
    size = np.sqrt(np.abs(np.diag(matrix)))
    scaled = matrix / np.outer(size, size).clip(np.finfo(float).tiny)
    if np.abs(scaled - scaled.T).max() > _SLACK:
        raise ValueError("must be symmetric; give a matrix that equals its transpose, angular part first")
    least = np.linalg.eigvalsh(scaled)[0]
    if least < -_SLACK:
        raise ValueError(f"must not be indefinite, got a principal value of {least:.6g} of the diagonal scaled to 1")
    return tuple(map(tuple, (0.5 * (matrix + matrix.T)).tolist()))


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, dict | Wrench | Shape) else value


class Body(CheckedTable):
    """A rigid body and the joint to its parent.

    Attributes
    ----------
    name : str
        Unique in the system; "world" is reserved.
    parent : str or None
        Name of a body above, or "world"; None: the last body added ("world" for the first).
    mass : float
        kg, positive. A body with neither mass nor inertia passes here, but not in `System.validate`.
    center_of_mass : tuple of 3 floats
        m, body frame.
    inertia : tuple of 6 floats
        xx yy zz xy xz yz about the center of mass, body axes, kg m^2: the components of the matrix (xy is the
        entry of the matrix, with its sign). Positive definite, and no principal moment above the sum of the
        others.
    added_mass : tuple of 6 tuples of 6 floats
        What a fluid at rest around the body adds to its inertia: a symmetric matrix, not indefinite, about the origin
        of the body frame, in its components, angular part first (kg m^2, kg m, kg). Six numbers are its diagonal. It
        has no weight, and a part in loads, energies and momenta by Kirchhoff's equations; default none.
    joint : Joint
        The joint to the parent.
    wrench : tuple of Wrench
        What acts on the body beside gravity and its joints; one table or a list of them.
    geometry : tuple of Shape
        What it looks like; one table or a list of them. For pictures alone.

    Raises
    ------
    InputError
        A value is not allowed; the message names the body, the key and the remedy.
    """

    __init__ = CheckedTable.__init__

    name: Name = Field(description="a unique name of the body")
    parent: str | None = None
    mass: Number = Field(description="the mass in kg")
    center_of_mass: Vector = (0.0, 0.0, 0.0)
    inertia: Annotated[Floats, PlainValidator(_inertia)] = Field(
        description="xx yy zz xy xz yz about the center of mass in kg m^2"
    )
    added_mass: Annotated[tuple[Floats, ...], PlainValidator(_added_mass)] = ()
    joint: Joint = Field(description="the table of the joint to the parent, with at least its type")
    wrench: Annotated[tuple[Wrench, ...], BeforeValidator(_as_list)] = ()
    geometry: Annotated[tuple[Shape, ...], BeforeValidator(_as_list)] = ()

    @property
    def massless(self) -> bool:
        """Whether the body has neither mass nor inertia."""
        return self.mass == 0 and not any(self.inertia)

    @model_validator(mode="after")
    def _check_physics(self) -> Body:
        if self.massless:
            return self
        if self.mass <= 0:
            raise ValueError(f"mass must be positive, got {self.mass:g}; give the mass in kg")
        xx, yy, zz, xy, xz, yz = self.inertia
        low, middle, high = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        moments = f"principal moments {low:.6g}, {middle:.6g}, {high:.6g} kg m^2"
        if low <= _SINGULAR * high:
            raise ValueError(
                f"inertia must be positive definite, got {list(self.inertia)} with {moments}; give "
                "xx yy zz xy xz yz about the center of mass, small positive moments for a thin body"
            )
        if low + middle < high * (1 - _SLACK):
            raise ValueError(
                f"inertia is of no rigid body, got {list(self.inertia)} with {moments}: the largest exceeds "
                "the sum of the others; check the order xx yy zz xy xz yz and the units"
            )
        return self


class Loop(_Jointed):
    """A joint that closes a loop between two bodies that are already in the system.

    It leads from the first body to the second, as a `Joint` does from the parent to the body, and its coordinates are
    those of a joint of its type. They are no part of the state: the poses of the two bodies give them, angles within pi
    of `rest`, that of a helical joint by its displacement.

    Attributes
    ----------
    name : str
        Unique among the loops.
    type, axis, pitch
        As for `Joint`; the axis lies in the joint frame. A free joint would close nothing and is refused.
    bodies : tuple of 2 str
        Names of the two bodies; either may be "world".
    positions : tuple of 2 tuples of 3 floats
        Origin of the joint frame in the frame of each body, m.
    rotations : tuple of 2 tuples of 4 floats
        Unit quaternions: the joint frame in the frame of each body; default none. The loop is at the zero position
        where the two frames coincide.
    stiffness, cross_stiffness, damping, rest, torque
        As for `Joint`: what acts along the free axes, on the second body, and reversed on the first.
    motion
        As for `Joint`. The loop becomes a joint of the tree that follows it, on the first body, with a body "NAME
        drive" of no mass, to which the second one is fixed.
    active : bool
        Whether it holds from the begin on, or only once an `Event` connects it.

    Raises
    ------
    InputError
        A value is not allowed; the message names the loop, the key and the remedy.
    """

    __init__ = CheckedTable.__init__

    name: Name = Field(description="a unique name of the loop")
    bodies: BodyPair = Field(description="the names of the two bodies")
    positions: PointPair = Field(description="the position of the joint in the frame of each of the two bodies, in m")
    rotations: Annotated[tuple[Floats, Floats], PlainValidator(table.pair(table.unit_quaternion))] = (
        _IDENTITY,
        _IDENTITY,
    )
    active: bool = Field(default=True, strict=True)

    @property
    def acts(self) -> bool:
        """Whether anything drives it: springs, dampers or torques."""
        return self.driven or any(self.stiffness) or any(self.damping)

    @model_validator(mode="after")
    def _check_closure(self) -> Loop:
        if self.type == "free":
            raise ValueError("type free closes no loop; leave the loop out or choose a type that constrains")
        if self.bodies[0] == self.bodies[1]:
            raise ValueError(f"bodies must be two different ones, got {self.bodies[0]!r} twice")
        return self
