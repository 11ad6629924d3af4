"""The tables that a user writes: `Body` with its `Joint` and its `Wrench`es, and `Loop`.

Each is a frozen pydantic model, the same whether it comes from a file or from Python. All units are SI,
frames are right-handed, quaternions are w x y z. The body frame has its origin at the inboard joint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PlainValidator, model_validator

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.model.geometry import Shape
from mpimbs.model.joint import Joint, Jointed
from mpimbs.model.over_time import VectorOrFunction
from mpimbs.model.text import table
from mpimbs.model.text.table import CheckedTable, Number, Numbers, Unit, Units, Vector

_IDENTITY = (1.0, 0.0, 0.0, 0.0)
_SLACK = 1e-9  # relative slack of the triangle inequality of principal moments
_SINGULAR = 1e-14  # ratio of principal moments below which an inertia counts as singular


_OF_DIAGONAL = ("kg m^2",) * 3 + ("kg",) * 3
_OF_ADDED_MASS = (("kg m^2",) * 3 + ("kg m",) * 3,) * 3 + (("kg m",) * 3 + ("kg",) * 3,) * 3


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
PointPair = Annotated[tuple[Numbers, Numbers], PlainValidator(table.pair(table.vector)), Unit("m")]


class Wrench(CheckedTable):
    """A moment and a force on a body, constant or given functions of time.

    Attributes
    ----------
    moment, force : tuple of 3 floats, function of time, or rows
        N m and N, components in `frame`. A function of t (s) returns three numbers; rows of a time (s) and three
        numbers are linear between their times, and constant before and behind.
    point : tuple of 3 floats
        Where the force acts, m, in the body frame.
    frame : {"body", "world"}
        Frame of the components of moment and force.
    """

    __init__ = CheckedTable.__init__

    moment: Annotated[VectorOrFunction, Unit("N m", 3)] = (0.0, 0.0, 0.0)
    force: Annotated[VectorOrFunction, Unit("N", 3)] = (0.0, 0.0, 0.0)
    point: Annotated[Vector, Unit("m", 3)] = (0.0, 0.0, 0.0)
    frame: Literal["body", "world"] = "body"


def _inertia(value: Any) -> Numbers:
    return table.numbers(value, 6, "xx yy zz xy xz yz")


def _added_mass(value: Any) -> tuple[Numbers, ...]:
    what = "a diagonal, or rows of a 6x6 matrix"
    rows = value.tolist() if isinstance(value, np.ndarray) else value
    if rows == ():  # of most bodies
        return ()
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
        Name of another body (in Python, of one that is there) or "world"; None: the last body added ("world" for the
        first).
    mass : float
        kg; none only of a body that has no inertia either.
    center_of_mass : tuple of 3 floats
        m, body frame.
    inertia : tuple of 6 floats
        xx yy zz xy xz yz about the center of mass, body axes, kg m^2: the components of the matrix (xy is the
        entry of the matrix, with its sign). No principal moment is negative, none above the sum of the others. Where
        a body has no inertia in some direction, or neither mass nor inertia, what lies on it has to resist its joint
        (`summary.validate`), and no rank has it apart from that.
    unphysical : bool
        The inertia is taken as it stands though no rigid body has it: the largest principal moment above the sum of the
        others, or without mass. Its principal moments have to be positive.
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
    mass: Annotated[Number, Unit("kg")] = Field(description="the mass in kg")
    center_of_mass: Annotated[Vector, Unit("m", 3)] = (0.0, 0.0, 0.0)
    inertia: Annotated[Numbers, PlainValidator(_inertia), Unit("kg m^2", 6)] = Field(
        description="xx yy zz xy xz yz about the center of mass in kg m^2"
    )
    unphysical: bool = False
    added_mass: Annotated[tuple[Numbers, ...], PlainValidator(_added_mass)] = ()
    joint: Joint = Field(description="the table of the joint to the parent, with at least its type")
    wrench: Annotated[tuple[Wrench, ...], BeforeValidator(_as_list)] = ()
    geometry: Annotated[tuple[Shape, ...], BeforeValidator(_as_list)] = ()

    decisive: ClassVar[str] = "unphysical"

    @property
    def needed(self) -> frozenset[str]:
        return super().needed | ({"unphysical"} if self.unphysical else frozenset())

    @classmethod
    def units_of(cls, fields: Mapping[str, Any]) -> dict[str, Units]:
        added = fields.get("added_mass")
        rows = isinstance(added, list) and any(isinstance(row, list) for row in added)
        return super().units_of(fields) | {"added_mass": _OF_ADDED_MASS if rows else _OF_DIAGONAL}

    @property
    def thin(self) -> bool:
        """Whether the body has no inertia in some direction: what lies on it has to resist its joint there."""
        xx, yy, zz, xy, xz, yz = self.inertia
        product = xx * (yy * zz - yz * yz) - xy * (xy * zz - yz * xz) + xz * (xy * yz - yy * xz)
        if self.mass > 0 and product > 2 * _SINGULAR * (xx + yy + zz) ** 3:  # far from it, as most bodies are
            return False
        low, _, high = self.principal_moments
        return self.mass == 0 or bool(low <= _SINGULAR * high)

    @property
    def principal_moments(self) -> Numbers:
        """The principal moments of inertia, in order (kg m^2)."""
        xx, yy, zz, xy, xz, yz = self.inertia
        if xy == xz == yz == 0:
            return tuple(sorted((xx, yy, zz)))
        return tuple(np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]).tolist())

    @model_validator(mode="after")
    def _check_physics(self) -> Body:
        if not self.mass and not any(self.inertia):
            return self
        if self.mass < 0 or (not self.mass and not self.unphysical):
            raise ValueError(f"mass must be positive, got {self.mass:g}; give the mass in kg")
        low, middle, high = self.principal_moments
        moments = f"principal moments {low:.6g}, {middle:.6g}, {high:.6g} kg m^2"
        if low < -_SINGULAR * high:
            raise ValueError(
                f"inertia must be positive semidefinite, got {list(self.inertia)} with {moments}; give xx yy zz xy xz "
                "yz about the center of mass"
            )
        if self.unphysical and low <= _SINGULAR * high:
            raise ValueError(f"inertia must be positive, got {list(self.inertia)} with {moments}")
        if low + middle < high * (1 - _SLACK) and not self.unphysical:
            raise ValueError(
                f"inertia is of no rigid body, got {list(self.inertia)} with {moments}: the largest exceeds "
                "the sum of the others; check the order xx yy zz xy xz yz and the units, or take it as it stands by "
                "`unphysical = true`"
            )
        return self


class Loop(Jointed):
    """A joint that closes a loop between two bodies that are already in the system.

    It leads from the first body to the second, as a `Joint` does from the parent to the body, and its coordinates are
    those of a joint of its type. The poses of the two bodies give them: angles within pi of `rest` at first, from there
    on runs count turns; that of a helical joint by its displacement.

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
    rotations: Annotated[tuple[Numbers, Numbers], PlainValidator(table.pair(table.unit_quaternion)), Unit("1")] = (
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


def place_within(bodies: tuple[Body, ...], place: int) -> int:
    """Return the place in a repeated group of the parent of its body at a place."""
    name, parent = bodies[place].name, bodies[place].parent
    names = [body.name for body in bodies]
    if parent is None:
        return place - 1
    if parent == name:
        raise InputError(f"body {name!r}: is its own parent; name a body before it in the repeat")
    if parent not in names[:place]:
        late = "comes below it in the repeat; move it up" if parent in names else "is none of this repeat"
        raise InputError(
            f"body {name!r}: parent {parent!r} {late}; name a body before it there, or leave it out for the last one"
        )
    return names.index(parent)


def shifts_of_copies(given: Any, count: int) -> Floats:
    """Return where copies lie, checked: float [count, 3]."""
    try:
        shifts = np.array(given, np.float64)
    except (TypeError, ValueError):
        shifts = np.empty(0)
    if shifts.shape != (count, 3) or not np.isfinite(shifts).all():
        raise InputError(f"repeat: shifts must be {count} vectors of 3 finite numbers (m), one for each copy")
    return shifts
