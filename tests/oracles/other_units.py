"""The same system in other units, elsewhere, turned, described otherwise: what it does must be the same.

Numbers of a model are turned by the units that its tables say they have; no other code of the package is used.
"""

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from mpimbs.model import JOINT_TYPES, Body, Gear, Joint, Loop, Spring, System, Tendon
from mpimbs.model.body import Wrench
from mpimbs.model.over_time import Lagged, OverTime
from mpimbs.model.text.table import CheckedTable
from oracles.dense import Array, quaternion_product
from oracles.loops import quaternion_of


class OtherUnits(NamedTuple):
    """How many of a model's units a meter, a kilogram and a second are."""

    metre: float = 1.0
    kilogram: float = 1.0
    second: float = 1.0

    def factor(self, unit: str) -> float:
        """How many of the new units one of a kind is, such as "N m s/rad"."""
        above, _, below = unit.partition("/")
        return self._product(above) / self._product(below)

    def _product(self, symbols: str) -> float:
        force = self.kilogram * self.metre / self.second**2
        sizes = {"1": 1.0, "rad": 1.0, "m": self.metre, "kg": self.kilogram, "s": self.second, "N": force}
        powers = re.findall(r"(\w+)(?:\^(\d))?", symbols)
        return math.prod(sizes[symbol] ** int(power or 1) for symbol, power in powers)

    @property
    def energy(self) -> float:
        return self.factor("N m")

    def q(self, system: System) -> Array:
        """Of coordinates [nq]."""
        return np.array([self.factor(unit) for k in kinds(system) for unit in k.q_units])

    def u(self, system: System) -> Array:
        """Of speeds [nu]; over `second` of accelerations."""
        return np.array([self.factor(unit) for k in kinds(system) for unit in k.u_units])

    def tau(self, system: System) -> Array:
        """Of generalized forces [nu]."""
        return np.array([self.factor("N m" if unit == "rad/s" else "N") for k in kinds(system) for unit in k.u_units])

    @property
    def load(self) -> Array:
        """Of a moment and a force [6]."""
        return np.repeat([self.factor("N m"), self.factor("N")], 3)


def kinds(system: System) -> list[Any]:
    """The types of all joints of the tree."""
    return [JOINT_TYPES[number] for number in system.contents.joint_types()]


def scaled(table: CheckedTable, units: OtherUnits) -> dict[str, Any]:
    """What makes a table in other units."""
    fields = {key: getattr(table, key) for key in table.model_fields_set}
    if isinstance(table, Body) and table.added_mass:
        fields["added_mass"] = [list(row) for row in table.added_mass]
    if isinstance(table, Joint | Loop):
        fields = {key: value for key, value in table.given.items() if key != "cross_stiffness" or any(value)}
    for key, unit in type(table).units_of(fields).items():
        if key in fields:
            fields[key] = _times(fields[key], unit, units)
    for key, value in fields.items():
        if isinstance(value, Joint | Wrench):
            fields[key] = scaled(value, units)
        elif isinstance(value, list | tuple) and any(isinstance(item, CheckedTable) for item in value):
            fields[key] = [scaled(item, units) for item in value]
    return fields


def _times(given: Any, unit: Any, units: OtherUnits) -> Any:
    if isinstance(given, OverTime):
        each = [unit] * (len(given[0]) - 1) if isinstance(unit, str) else unit
        return [[t * units.second, *_times(values, each, units)] for t, *values in given]
    if isinstance(given, Lagged):
        each = [unit] * len(given.begin) if isinstance(unit, str) else unit
        begin = _times(list(given.begin), each, units)
        return {"rows": _times(given.rows, unit, units), "begin": begin, "lag": given.lag * units.second}
    if given is None or isinstance(given, str) or callable(given):
        return given
    if isinstance(given, list | tuple):
        rows = any(isinstance(item, list | tuple) for item in given)
        if isinstance(unit, str) or (rows and not any(isinstance(each, tuple) for each in unit)):
            return [_times(item, unit, units) for item in given]
        return [_times(item, each, units) for item, each in zip(given, unit, strict=False)]
    return given * units.factor(unit if isinstance(unit, str) else next(iter(unit), "1"))


def in_units(system: System, units: OtherUnits) -> System:
    """The system with all numbers in other units."""
    gravity = [value * units.factor("m/s^2") for value in system.gravity]
    made = System(system.name, tuple(gravity))
    for body in system.contents.bodies():
        made.add(Body(**scaled(body, units)))
    for loop in system.contents.loops:
        if isinstance(loop, Gear):
            fields = {key: getattr(loop, key) for key in loop.model_fields_set}
            of_second, of_first = (
                units.factor(made.contents.body(made.contents.index_of(name)).joint.kind.q_units[0])
                for name in (loop.joint, loop.of)
            )
            fields["ratio"] = loop.ratio * of_second / of_first
            fields["offset"] = loop.offset * of_second
            made.add_gear(Gear(**fields))
        else:
            made.add_loop(Loop(**scaled(loop, units)))
    for spring in system.contents.springs.values():
        made.add_spring(Spring(**scaled(spring, units)))
    for tendon in system.contents.loads.tendons.values():  # over joints of one kind
        unit = made.contents.body(made.contents.index_of(tendon.joints[0])).joint.kind.q_units[0]
        force, each = ("N m", "N m/rad") if unit == "rad" else ("N", "N/m")
        kinds_of = {"stiffness": each, "damping": each.replace("N m/", "N m s/").replace("N/", "N s/"), "rest": unit}
        kinds_of |= dict.fromkeys(("force", "least", "most"), force) | dict.fromkeys(("lower", "upper"), unit)
        kinds_of |= {f"stop_{name}": kinds_of[name] for name in ("stiffness", "damping")}
        fields = {key: _times(getattr(tendon, key), kind, units) for key, kind in kinds_of.items()}
        made.add_tendon(name=tendon.name, joints=tendon.joints, ratios=tendon.ratios, **fields)
    return made


def elsewhere(system: System, turned: Array, moved: Array) -> System:
    """The system in a world that is turned [3, 3] and moved [3] (m)."""
    made = System(system.name, tuple(turned @ system.gravity))

    def put(place: Any) -> tuple[float, ...]:
        return tuple((turned @ np.array(place, float) + moved).tolist())

    def of_world(load: Any) -> Any:
        if isinstance(load, OverTime):
            return OverTime((t, *(turned @ values).tolist()) for t, *values in load)
        if isinstance(load, Lagged):
            return Lagged((of_world(load.rows), load.lag, tuple(turned @ load.begin)))
        return tuple(turned @ load)

    def turn(rotation: Any) -> tuple[float, ...]:
        return tuple(quaternion_product(quaternion_of(turned), np.array(rotation, float)).astype(float).tolist())

    for body in system.contents.bodies():
        update: dict[str, Any] = {}
        if body.parent == "world":
            there = {"position": put(body.joint.position), "rotation": turn(body.joint.rotation)}
            update["joint"] = Joint(**dict(body.joint.given) | there)
        wrenches = [
            wrench.model_copy(update={n: of_world(getattr(wrench, n)) for n in ("moment", "force")})
            if wrench.frame == "world"
            else wrench
            for wrench in body.wrench
        ]
        made.add(body.model_copy(update=update | ({"wrench": tuple(wrenches)} if wrenches else {})))
    for loop in system.contents.loops:
        if isinstance(loop, Gear):
            made.add_gear(loop)
            continue
        at_world = [name == "world" for name in loop.bodies]
        positions = [put(p) if world else p for p, world in zip(loop.positions, at_world, strict=True)]
        rotations = [turn(r) if world else r for r, world in zip(loop.rotations, at_world, strict=True)]
        made.add_loop(loop.model_copy(update={"positions": tuple(positions), "rotations": tuple(rotations)}))
    for spring in system.contents.springs.values():
        positions = [put(p) if name == "world" else p for p, name in zip(spring.positions, spring.bodies, strict=True)]
        made.add_spring(spring.model_copy(update={"positions": tuple(positions)}))
    return with_tendons(made, system.contents.loads.tendons.values())


def with_tendons(made: System, tendons: Iterable[Tendon]) -> System:
    """The system with tendons over its joints."""
    for tendon in tendons:
        made.add_tendon(tendon)
    return made


def described_otherwise(system: System, swapped: bool, halved: bool) -> System:
    """The system with loops that lead the other way, where their joints are the same then, and with bodies in halves.

    Halves are fixed to one another: what hangs on a body hangs on the second, what holds it holds the first.
    """
    made, second = System(system.name, system.gravity), {}
    for body in system.contents.bodies():
        parent = second.get(body.parent, body.parent)
        if parent != body.parent:
            at = {"position": tuple(np.subtract(body.joint.position, HALF).tolist())}
            body = body.model_copy(update={"joint": Joint(**dict(body.joint.given) | at)})
        if not halved or not body.mass:
            made.add(body.model_copy(update={"parent": parent}))
            continue
        half = {"mass": body.mass / 2, "inertia": tuple(value / 2 for value in body.inertia)}
        made.add(body.model_copy(update=half | {"parent": parent}))
        second[body.name] = f"{body.name} half"
        center = tuple(np.subtract(body.center_of_mass, HALF).tolist())
        joint = Joint(type="fixed", position=HALF)
        made.add(name=second[body.name], parent=body.name, center_of_mass=center, joint=joint, **half)
    for loop in system.contents.loops:
        if isinstance(loop, Gear):
            made.add_gear(loop)
        elif swapped and loop.type in SYMMETRIC and not loop.acts:
            names = ("bodies", "positions", "rotations")
            made.add_loop(loop.model_copy(update={name: tuple(reversed(getattr(loop, name))) for name in names}))
        else:
            made.add_loop(loop)
    for spring in system.contents.springs.values():
        made.add_spring(spring)
    return with_tendons(made, system.contents.loads.tendons.values())


def in_another_order(system: System, draw: np.random.Generator) -> tuple[System, Array, Array]:
    """The system with its bodies, loops and springs listed otherwise, and where its numbers stood: of q, and of u."""
    bodies, at = list(system.contents.bodies()), system.contents.offsets()
    waiting, order = [k for k, body in enumerate(bodies) if body.parent == "world"], list[int]()
    while waiting:
        order.append(waiting.pop(int(draw.integers(len(waiting)))))
        waiting += [k for k, body in enumerate(bodies) if body.parent == bodies[order[-1]].name]
    made = System(system.name, system.gravity)
    for k in order:
        made.add(bodies[k])
    for loop in draw.permutation(np.array([*system.contents.loops, None], object)[:-1]):
        made.add_gear(loop) if isinstance(loop, Gear) else made.add_loop(loop)
    for name in draw.permutation(sorted(system.contents.springs)):
        made.add_spring(system.contents.springs[name])
    with_tendons(
        made, [system.contents.loads.tendons[name] for name in draw.permutation(sorted(system.contents.loads.tendons))]
    )
    where_q, where_u = (np.concatenate([np.arange(places[k], places[k + 1]) for k in order]) for places in at)
    return made, where_q, where_u


HALF = 0.3, -0.2, 0.1  # m, where the second half of a body has its origin
SYMMETRIC = ("fixed", "revolute", "prismatic", "helical", "cylindrical", "spherical")
