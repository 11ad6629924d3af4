"""The same system in other units, elsewhere, turned, described otherwise: what it does must be the same.

Numbers of a model are turned by the units that its tables say they have; no other code of the package is used.
"""

import math
import re
from typing import Any, NamedTuple

import numpy as np

from mpimbs.model import JOINT_TYPES, Body, Gear, Joint, Loop, Spring, System
from mpimbs.model.body import Wrench
from mpimbs.model.text.table import CheckedTable
from oracles.dense import Array


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
    return [JOINT_TYPES[number] for number in system.joint_types()]


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
    for body in system.bodies():
        made.add(Body(**scaled(body, units)))
    for loop in system.loops:
        if isinstance(loop, Gear):
            fields = {key: getattr(loop, key) for key in loop.model_fields_set}
            of_second, of_first = (
                units.factor(made.body(made.index_of(name)).joint.kind.q_units[0]) for name in (loop.joint, loop.of)
            )
            fields["ratio"] = loop.ratio * of_second / of_first
            fields["offset"] = loop.offset * of_second
            made.add_gear(Gear(**fields))
        else:
            made.add_loop(Loop(**scaled(loop, units)))
    for spring in system.springs.values():
        made.add_spring(Spring(**scaled(spring, units)))
    return made
