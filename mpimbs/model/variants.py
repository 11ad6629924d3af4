"""Variants of a system: the same bodies and joints with other numbers, those of the rows of a table.

A column is `BODY.KEY`, a number of the body's table or of its joint's (`link1.mass`, `hip.stiffness`), `q:BODY` or
`u:BODY` for the initial state, `SPRING.KEY`, `gravity`; or a parameter of the model's text. Where a key has several
numbers, the one that is meant stands behind it, from 0 on: `link1.inertia[3]`, `gravity[1]`. The name of repeated
bodies without a number stands for all of them. `force:NAME` is no number of the model: functions find it in
`Contents.given`.

Of a system at rest only the inertia is left: what implicit steps are solved with, and factors without load sweeps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from mpimbs.base.errors import InputError
from mpimbs.model.between import SystemSprings
from mpimbs.model.body import Body, Joint, Loop
from mpimbs.model.contents import Contents, SystemLoads
from mpimbs.model.examples.library import contents_from, parameters_in, system_from
from mpimbs.model.spring import Spring
from mpimbs.model.text.parameter_table import ParameterTable
from mpimbs.model.text.table import suggest

_BODY = ("mass", "center_of_mass", "inertia")
_JOINT = (
    *("axis", "pitch", "position", "rotation", "q", "u"),
    *("stiffness", "damping", "rest", "torque", "armature"),
    *("lower", "upper", "stop_stiffness", "stop_damping"),
    *("servo_stiffness", "servo_damping", "servo_torque", "servo_least", "servo_most"),
    *("friction", "friction_speed"),
)
_SPRING = ("stiffness", "damping", "rest")
FORCE_COLUMN = "force:"
GRAVITY = "gravity"
FORMS = "BODY.KEY, q:BODY, u:BODY, SPRING.KEY, gravity[1] or force:NAME"


class _Column(NamedTuple):
    """The meaning of a column's numbers."""

    name: str
    what: str  # "body", "joint", "spring", "gravity", "force", or of the "text"
    whose: tuple[Any, ...]  # numbers of bodies, or the name of a spring or force
    key: str
    part: int | None


def variants(model: object, table: ParameterTable) -> list[Contents]:
    """Give a system for each row of a table; what no column says is that of the model.

    Parameters
    ----------
    model : System, str or Path
        Or what names it, as for `system_from`: only of a file, the parameters of its text may be columns. Functions
        that act on a system are not taken along where its parameters change.

    Raises
    ------
    InputError
        A column is none, or a number makes no sense in its place; names line, column and remedy.
    """
    named = parameters_in(model)
    system = contents_from(model)
    of_text = [k for k, name in enumerate(table.columns) if name in named]
    columns: list[_Column] = []
    for k, name in enumerate(table.columns):
        try:
            columns.append(_Column(name, "text", (), name, None) if k in of_text else _column(system, name))
        except InputError as error:
            hint = f", or one of the parameters {', '.join(named)}" if named else ""
            raise InputError(f"{table.where}, line {table.head}, column '{name}': {error}{hint}") from None
    systems = []
    for row in range(len(table.lines)):
        if of_text:
            values = {table.columns[k]: float(table.values[row, k]) for k in of_text}
            own = _at(table, row, [columns[k] for k in of_text], lambda v=values: system_from(str(model), v).contents)  # type: ignore[misc]
        else:
            own = copy.deepcopy(system)
        systems.append(_variant(own, table, columns, row))
    return systems


def _column(system: Contents, name: str) -> _Column:
    """Find what a column is."""
    if name.startswith(FORCE_COLUMN):
        return _Column(name, "force", (name.removeprefix(FORCE_COLUMN),), "", None)
    text, part = name, None
    if name.endswith("]"):
        text, _, number = name[:-1].rpartition("[")
        if not number.isdecimal():
            raise InputError("what stands in brackets must be a whole number from 0 on")
        part = int(number)
    if text == GRAVITY:
        return _Column(name, GRAVITY, (), GRAVITY, _part(part, system.gravity))
    if text[:2] in ("q:", "u:"):
        body, key = text[2:], text[0]
    else:
        body, _, key = text.rpartition(".")
    if not body:
        raise InputError(f"is no name of a number; write {FORMS}")
    if body in system.springs and system.names.find(body) is None:
        _known(key, _SPRING)
        return _Column(name, "spring", (body,), key, None)
    bodies = _bodies(system, body)
    _known(key, (*_BODY, *_JOINT))
    what = "body" if key in _BODY else "joint"
    found = [_value(system.body(k), what, key) for k in bodies]
    if any(callable(value) for value in found):
        raise InputError("is a function of time; give the column the name of a number")
    parts = {_part(part, value) for value in found}
    if len(parts) > 1:
        raise InputError("the bodies have joints of other types; make a column for each")
    return _Column(name, what, tuple(bodies), key, parts.pop())


def _known(key: str, keys: Sequence[str]) -> None:
    if key not in keys:
        raise InputError(f"unknown key {key!r}{suggest(key, keys)}")


def _bodies(system: Contents, name: str) -> list[int]:
    """Numbers of the body of that name, or of the repeated ones."""
    if system.names.find(name) is None and (repeated := system.names.indices(name)) is not None:
        return sorted(repeated.tolist())
    return [system.index_of(name)]


def _part(part: int | None, value: Any) -> int | None:
    """Check which of a value's numbers is meant; None where it is one number."""
    size = len(value) if isinstance(value, tuple) else 1
    if part is None and size != 1:
        raise InputError(f"has {size} numbers; say which, from [0] to [{size - 1}]" if size else "has no numbers here")
    if part is not None and part >= size:
        raise InputError(f"has {size} number{'s' * (size != 1)}, counted from [0] on")
    return (part or 0) if isinstance(value, tuple) else None


def _value(body: Body, what: str, key: str) -> Any:
    return getattr(body if what == "body" else body.joint, key)


def _variant(made: Contents, table: ParameterTable, columns: Sequence[_Column], row: int) -> Contents:
    """Give a system the numbers of a row, but for those that its text has taken."""
    changes: dict[int, list[tuple[_Column, float]]] = {}
    for column, value in zip(columns, table.values[row].tolist(), strict=True):
        if column.what == "force":
            made.given[column.whose[0]] = value
        elif column.what == GRAVITY:
            made.gravity = _with(made.gravity, column.part, value)
        elif column.what == "spring":
            _at(table, row, [column], lambda c=column, v=value: _change_spring(made, c, v))  # type: ignore[misc]
        elif column.what in ("body", "joint"):
            for k in column.whose:
                changes.setdefault(k, []).append((column, value))
    if changes:
        _change_bodies(made, table, row, changes)
    return made


def _at(table: ParameterTable, row: int, columns: Sequence[_Column], action: Callable[[], Any]) -> Any:
    """Do what may find that a number makes no sense, and say where it stood."""
    try:
        return action()
    except InputError as error:
        named = ", ".join(f"'{column.name}'" for column in columns)
        raise InputError(f"{table.place(row)}, column{'s' * (len(columns) > 1)} {named}: {error}") from None


def _change_spring(system: Contents, column: _Column, value: float) -> None:
    spring = system.springs[column.whose[0]]
    given = {name: getattr(spring, name) for name in spring.model_fields_set}
    system.springs[spring.name] = Spring(**(given | {column.key: value}))
    system.changes += 1


def _change_bodies(
    system: Contents, table: ParameterTable, row: int, changes: dict[int, list[tuple[_Column, float]]]
) -> None:
    """Give some bodies other numbers: those that shared a template, and are changed alike, share one again."""
    made: dict[tuple[Any, ...], Body] = {}
    shifted, bodies = set(system.shifted.tolist()), dict[int, Body]()
    for k, items in changes.items():
        template, keys = system.segments.template(k), {column.key for column, _ in items}
        # Of its own, and not what others that followed the template have in its place.
        own = ("torque" in keys and k in system.loads.torques) or ("position" in keys and k in shifted)
        alike = id(template), k if own else -1, *((column.key, column.part, value) for column, value in items)
        if alike not in made:
            joint = system.body(k).joint if own else template.joint
            before = template.model_copy(update={"joint": joint, "name": system.name_of(k)})  # as errors call it
            body = _at(table, row, [column for column, _ in items], lambda b=before, i=items: _changed(b, i))  # type: ignore[misc]
            made[alike] = body.model_copy(update={"name": template.name})
        bodies[k] = made[alike]
        if own:
            system.loads.torques.pop(k, None)
            stay = system.shifted != k
            system.shifted, system.shifts = system.shifted[stay], system.shifts[stay]
    system.segments = system.segments.revised(bodies)
    system.changes += 1


def _changed(body: Body, items: Sequence[tuple[_Column, float]]) -> Body:
    """A body with other numbers, checked."""
    own: dict[str, Any] = {}
    joint = body.joint.given
    for column, value in items:
        into = own if column.what == "body" else joint
        before = into.get(column.key, _value(body, column.what, column.key))
        into[column.key] = value if column.part is None else _with(before, column.part, value)
    return Body(**(dict(body) | own | {"joint": Joint(**joint)}))


def _with(values: tuple[float, ...], part: int | None, value: float) -> tuple[float, ...]:
    """Some numbers with another in a place."""
    return tuple(value if k == part else x for k, x in enumerate(values))


_ACTING = ("stiffness", "damping", "torque")
_OF_BODIES = ("stop_stiffness", "stop_damping", "servo_stiffness", "servo_damping", "servo_torque", "friction")


def resting(system: Contents, loops: bool = True, apart: bool = False) -> Contents:
    """Give a copy on which nothing acts, whose speeds are told apart: the torque of each is its number, from 1.

    Weight, torques, wrenches, functions, springs and dampers of joints and between bodies, stops, servos, friction,
    what drives loops, and events are left out; loops, too, if not `loops`. All joints have room for rotors: numbers
    that are not to be used as they are, nor are the torques.

    `apart`: as `Contents.apart`.
    """
    left = copy.copy(system)
    left.apart = apart
    left.segments = system.segments.replaced(_with_rotors)
    left.gravity = (0.0, 0.0, 0.0)
    left.events, left.springs = [], SystemSprings()
    kept = system.loops if loops else []
    undriven = [loop.model_copy(update=_nothing(loop)) if isinstance(loop, Loop) else loop for loop in kept]
    left.loops = system.loops.holding(undriven, system.loops.bodies if loops else [])
    ends = system.offsets()[1].tolist()
    told: dict[int, Any] = {
        k: tuple(map(float, range(a + 1, b + 1))) for k, (a, b) in enumerate(pairwise(ends)) if b > a
    }
    left.loads = SystemLoads(torques=told, before_modules=system.loads.before_modules)
    return left


def _with_rotors(body: Body) -> Body:
    return _without(body, _nothing(body.joint) | {"armature": (1.0,) * body.joint.kind.nu})


def _nothing(joint: Joint | Loop) -> dict[str, tuple[float, ...]]:
    """The keys of what acts along a joint, for a joint along which nothing does."""
    acting = (*_ACTING, *(_OF_BODIES if isinstance(joint, Joint) else ()))
    return dict.fromkeys(acting, (0.0,) * joint.kind.nu) | {"cross_stiffness": ()}


def _without(body: Body, joint: dict[str, tuple[float, ...]]) -> Body:
    return body.model_copy(update={"wrench": (), "joint": body.joint.model_copy(update=joint)})
