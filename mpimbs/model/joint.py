"""The table of a joint, and what it shares with that of a loop.

All that depends on the type of the joint, defaults too, is checked against its row of `JOINT_TYPES`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from mpimbs.model.joints import JOINT_NAMES, JointType, joint_type
from mpimbs.model.motion import Motion, checked_motion
from mpimbs.model.over_time import are_rows, as_time_function
from mpimbs.model.text import table
from mpimbs.model.text.table import CheckedTable, Numbers, Quaternion, TimeFunction, Unit, Units, Vector

_INDEFINITE = 1e-9  # relative slack of the least principal stiffness

_BY_TYPE: Any = None  # a default that depends on the type of the joint; the check of the field fills it in


class Jointed(CheckedTable):
    """The part that `Joint` and `Loop` share: type, axis and pitch, of some types alone, and what acts along it."""

    decisive: ClassVar[str] = "type"

    type: str = Field(description="the type of joint, such as 'revolute'")
    axis: Annotated[Numbers, Unit("1", 3)] = _BY_TYPE
    pitch: Annotated[float, Unit("m/rad")] = _BY_TYPE
    stiffness: Numbers = _BY_TYPE
    cross_stiffness: Annotated[Numbers, Unit("N m/rad", 3)] = _BY_TYPE
    damping: Numbers = _BY_TYPE
    rest: Numbers = _BY_TYPE
    torque: Numbers | TimeFunction = _BY_TYPE
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
    def given(self) -> dict[str, Any]:
        """The keys that were given, to make another one like it, with some of them replaced."""
        return {key: getattr(self, key) for key in self.model_fields_set if key != "axis" or self.kind.takes_axis}

    @property
    def needed(self) -> frozenset[str]:
        return super().needed | {"pitch"} if self.kind.takes_pitch else super().needed

    @classmethod
    def units_of(cls, fields: Mapping[str, Any]) -> dict[str, Units]:
        kind = fields.get("type")
        found = super().units_of(fields)
        return found | _units_by_type(kind) if isinstance(kind, str) and kind in JOINT_NAMES else found

    @field_validator("type")
    @classmethod
    def _check_type(cls, value: str) -> str:
        return joint_type(value).name

    @field_validator("axis", mode="plain")
    @classmethod
    def _check_axis(cls, value: Any, info: ValidationInfo) -> Numbers:
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
    def _check_coordinates(cls, value: Any, info: ValidationInfo) -> Numbers:
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
    def _check_speeds(cls, value: Any, info: ValidationInfo) -> Numbers:
        kind = _kind(info)
        if value is None:
            return kind.at_rest
        if isinstance(value, list | tuple | np.ndarray):
            return table.numbers(value, kind.nu, _meaning(kind, kind.u_units))
        single = table.number(value)
        # One number serves every axis of the same unit; zero serves any.
        if single and len(set(kind.u_units)) != 1:
            raise ValueError(f"needs a list of {kind.nu} numbers ({_meaning(kind, kind.u_units)}), got {value!r}")
        return (single,) * kind.nu

    @field_validator("torque", mode="plain")
    @classmethod
    def _check_torque(cls, value: Any, info: ValidationInfo) -> Numbers | TimeFunction:
        kind = _kind(info)
        if not (callable(value) or are_rows(value) or isinstance(value, dict)):
            return cls._check_speeds(value, info)
        if not kind.nu:
            raise ValueError("has nothing to act on in a fixed joint; leave it out")
        units = " ".join(_units_by_type(kind.name)["torque"])  # type: ignore[arg-type]  # one for each
        found = as_time_function(value, kind.nu, f"{units} along a {kind.name} joint")
        assert found is not None
        return found

    @field_validator("motion", mode="plain")
    @classmethod
    def _check_motion(cls, value: Any, info: ValidationInfo) -> Motion | None:
        return checked_motion(value, _kind(info))

    @field_validator("stiffness", "damping", mode="after")
    @classmethod
    def _check_sign(cls, value: Numbers) -> Numbers:
        return _not_negative(value)

    @field_validator("cross_stiffness", mode="plain")
    @classmethod
    def _check_cross_stiffness(cls, value: Any, info: ValidationInfo) -> Numbers:
        if value is None:
            return ()
        if not _kind(info).quaternion:
            raise ValueError(f"has no meaning for a {_kind(info).name} joint; leave it out")
        xy, xz, yz = given = table.numbers(value, 3, "xy xz yz")
        xx, yy, zz = info.data.get("stiffness", (0.0, 0.0, 0.0))[:3]
        least, _, most = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        if least < -_INDEFINITE * most:
            raise ValueError(
                f"makes the stiffness indefinite, with a principal value of {least:.6g}; give smaller ones"
            )
        return given


@cache
def _units_by_type(name: str) -> dict[str, Units]:
    kind = joint_type(name)

    def each(turning: str, sliding: str) -> tuple[str, ...]:
        return tuple(turning if unit == "rad/s" else sliding for unit in kind.u_units)

    return {
        "q": kind.q_units,
        "rest": kind.q_units,
        "u": kind.u_units,
        "stiffness": each("N m/rad", "N/m"),
        "damping": each("N m s/rad", "N s/m"),
        "torque": each("N m", "N"),
        "armature": each("kg m^2", "kg"),
        "lower": each("rad", "m"),
        "upper": each("rad", "m"),
        "stop_stiffness": each("N m/rad", "N/m"),
        "stop_damping": each("N m s/rad", "N s/m"),
        "servo_stiffness": each("N m/rad", "N/m"),
        "servo_damping": each("N m s/rad", "N s/m"),
        "friction_speed": kind.u_units,
        **dict.fromkeys(("friction", "servo_torque", "servo_least", "servo_most"), each("N m", "N")),
        "motion": ("s", *kind.q_units),
    }


def _kind(info: ValidationInfo) -> JointType:
    """Return the joint type of a table under validation; ValueError if the type itself was refused."""
    if "type" not in info.data:
        raise ValueError("needs a valid joint type")
    return joint_type(info.data["type"])


def _refuse_without_ways(info: ValidationInfo) -> None:
    """ValueError if the joint of a table under validation has no coordinates whose rates are its speeds."""
    kind = _kind(info)
    if kind.quaternion or not kind.nu:
        raise ValueError(f"has no meaning for a {kind.name} joint; leave it out")


def _not_negative(values: Numbers) -> Numbers:
    """Return values as they are; ValueError if one is below zero."""
    if values and min(values) < 0:
        raise ValueError(f"must not be negative, got {list(values)}; give 0 for none")
    return values


class Joint(Jointed):
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
    torque : tuple of nu floats, function of time, or rows
        Actuation along each free axis, N m or N. A function of t (s) returns a number or nu numbers; rows of a time (s)
        and nu numbers are linear between their times, and constant before and behind.
    armature : tuple of nu floats
        Inertia of the rotor that drives each free axis, as the axis feels it: times the square of the gear ratio,
        kg m^2 for turning, kg for sliding; not negative. It adds armature udot to the torque that the axis needs and
        armature u^2 / 2 to the kinetic energy, and turns nothing else: no part in weight, momentum or gyroscopic
        effects. A free joint may have it, as in MuJoCo; a fixed one has no axis for it.
    lower, upper : tuple of nu floats
        Where the way of each coordinate ends, rad or m; without an end where it is infinite, as by default. Not for
        joints with a quaternion.
    stop_stiffness, stop_damping : tuple of nu floats
        Of the stops there, N m/rad or N/m, and N m s/rad or N s/m. Beyond an end by x they push back with
        stiffness x + damping dx/dt, never less than nothing, nor more than ten times stiffness x: so that it does
        not jump where a joint arrives.
    servo_stiffness, servo_damping, servo_torque, servo_least, servo_most : tuple of nu floats
        A servo along each coordinate: servo_torque - servo_stiffness q - servo_damping u, but no less than servo_least
        and no more than servo_most (N m, N; infinite by default). To hold a place q0 its torque is servo_stiffness q0;
        a function of time or rows let it follow, as of `torque`. Not for joints with a quaternion, nor for those that
        follow a motion.
    friction, friction_speed : tuple of nu floats
        Coulomb's friction along each coordinate (N m, N), and the speed (rad/s, m/s) up to which it is viscous: it is
        against the speed u, friction u / friction_speed, and no more than friction. In a run a joint that less than
        its friction pulls stands still, on a bristle that bends by no more than 0.1 s times friction_speed. Not for
        joints with a quaternion, nor for those that follow a motion.
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

    position: Annotated[Vector, Unit("m", 3)] = (0.0, 0.0, 0.0)
    rotation: Annotated[Quaternion, Unit("1", 4)] = (1.0, 0.0, 0.0, 0.0)
    q: Numbers = _BY_TYPE
    u: Numbers = _BY_TYPE
    armature: Numbers = _BY_TYPE
    lower: Numbers = _BY_TYPE
    upper: Numbers = _BY_TYPE
    stop_stiffness: Numbers = _BY_TYPE
    stop_damping: Numbers = _BY_TYPE
    servo_stiffness: Numbers = _BY_TYPE
    servo_damping: Numbers = _BY_TYPE
    servo_torque: Numbers | TimeFunction = _BY_TYPE
    servo_least: Numbers = _BY_TYPE
    servo_most: Numbers = _BY_TYPE
    friction: Numbers = _BY_TYPE
    friction_speed: Numbers = _BY_TYPE

    @property
    def stopped(self) -> bool:
        """Whether stops end the way of a coordinate."""
        return any(self.stop_stiffness)

    @property
    def servoed(self) -> bool:
        """Whether servos act along it."""
        return callable(self.servo_torque) or any(self.servo_stiffness + self.servo_damping + self.servo_torque)

    @property
    def bounded(self) -> bool:
        """Whether servos or friction act along it."""
        return self.servoed or any(self.friction)

    @field_validator("servo_torque", mode="plain")
    @classmethod
    def _check_servo_torque(cls, value: Any, info: ValidationInfo) -> Numbers | TimeFunction:
        if value is not None:
            _refuse_without_ways(info)
        return cls._check_torque(value, info)

    @field_validator(
        *("lower", "upper", "stop_stiffness", "stop_damping"),
        *("servo_least", "servo_most", "servo_stiffness", "servo_damping", "friction", "friction_speed"),
        mode="plain",
    )
    @classmethod
    def _check_along_way(cls, value: Any, info: ValidationInfo) -> Numbers:
        kind, name = _kind(info), str(info.field_name)
        side = {"lower": -math.inf, "upper": math.inf, "servo_least": -math.inf, "servo_most": math.inf}.get(name)
        if value is None:
            return (side or 0.0,) * kind.nu
        _refuse_without_ways(info)
        if side is None:
            return _not_negative(cls._check_speeds(value, info))
        items = list(value) if isinstance(value, list | tuple | np.ndarray) else [value] * kind.nu
        open_ways = [k for k, item in enumerate(items) if item == side]
        found = cls._check_speeds([0.0 if k in open_ways else item for k, item in enumerate(items)], info)
        return tuple(side if k in open_ways else end for k, end in enumerate(found))

    @model_validator(mode="after")
    def _check_ends(self) -> Joint:
        for stop in zip(self.lower, self.upper, self.stop_stiffness, self.stop_damping, strict=True):
            check_stop(*stop)
        for least, most in zip(self.servo_least, self.servo_most, strict=True):
            if least > most:
                raise ValueError(f"servo_least must not be above servo_most, got {least:g} and {most:g}; exchange them")
        for force, speed in zip(self.friction, self.friction_speed, strict=True):
            if force and not speed:
                raise ValueError("friction_speed is missing; say up to which speed friction is viscous")
        if self.bounded and self.motion is not None:
            raise ValueError("a servo or friction says nothing of a joint that follows a motion; leave one of them out")
        return self

    @field_validator("armature", mode="plain")
    @classmethod
    def _check_armature(cls, value: Any, info: ValidationInfo) -> Numbers:
        if value is not None and not _kind(info).nu:
            raise ValueError("has no axis to turn about in a fixed joint; leave it out")
        return _not_negative(cls._check_speeds(value, info))


def check_stop(lower: float, upper: float, stiffness: float, damping: float) -> None:
    """Refuse ends of a way and stops there, rad or m and of these, that do not belong together, by ValueError."""
    if lower > upper:
        raise ValueError(f"lower must not be above upper, got {lower:g} and {upper:g}; exchange them")
    ends = math.isfinite(lower) or math.isfinite(upper)
    if ends and not stiffness:
        raise ValueError("stop_stiffness is missing; say how stiff the stops at lower and upper are")
    if (stiffness or damping) and not ends:
        raise ValueError("stops without an end: give lower, upper or both, or leave their stiffness out")


def _meaning(kind: JointType, units: tuple[str, ...]) -> str:
    """Say what the numbers of a joint belong to: its coordinates or its speeds, by their units."""
    if not units:
        return f"a {kind.name} joint has no coordinates"
    what = "speeds" if units is kind.u_units else "coordinates"
    quaternion = "quaternion w x y z first, " if kind.quaternion and units is kind.q_units else ""
    return f"{kind.name} joint: {quaternion}{what} in {' '.join(units)}"
