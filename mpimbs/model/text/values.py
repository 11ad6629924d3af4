"""The numbers of a model text: parameters, expressions of them, and units other than SI.

An expression is a text in place of a number, such as "2 * pi * radius". It is evaluated by simpleeval, from its syntax
tree: it can't run code.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal

from pydantic import ConfigDict

from mpimbs.base.errors import InputError, Keys, about
from mpimbs.model.over_time import are_rows
from mpimbs.model.text.table import CheckedTable, Units, keys_in_words, number, suggest

CONSTANTS = {"pi": math.pi, "e": math.e}
_MATH = "sqrt exp log sin cos tan asin acos atan atan2 sinh cosh tanh hypot radians degrees floor ceil"
FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(math, name) for name in _MATH.split()}
FUNCTIONS |= {"abs": abs, "min": min, "max": max}
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,  # of doubles, so that no power takes long
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}

OVER_TIME = ("torque", "servo_torque", "moment", "force")  # keys that may have rows of a time and values
_SIZES: dict[str, dict[str, float]] = {
    "m": {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "km": 1e3, "in": 0.0254, "ft": 0.3048},
    "rad": {"rad": 1.0, "deg": math.pi / 180, "rev": 2 * math.pi},
    "kg": {"kg": 1.0, "g": 1e-3, "t": 1e3, "lb": 0.45359237},
    "s": {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0},
    "N": {"N": 1.0, "mN": 1e-3, "kN": 1e3, "MN": 1e6, "lbf": 4.4482216152605},
}


class BaseUnits(CheckedTable):
    """The units of a text; those of others are made of these: a moment is force times length.

    Attributes
    ----------
    length, angle, mass, time, force : str
        Name of a unit; by default that of SI.
    """

    model_config = ConfigDict(title="units")

    length: Literal["m", "cm", "mm", "um", "km", "in", "ft"] = "m"
    angle: Literal["rad", "deg", "rev"] = "rad"
    mass: Literal["kg", "g", "t", "lb"] = "kg"
    time: Literal["s", "ms", "min", "h"] = "s"
    force: Literal["N", "mN", "kN", "MN", "lbf"] = "N"

    @cached_property
    def _factors(self) -> dict[str, float]:
        chosen = {"m": self.length, "rad": self.angle, "kg": self.mass, "s": self.time, "N": self.force}
        return {"1": 1.0} | {symbol: _SIZES[symbol][name] for symbol, name in chosen.items()}

    def factor(self, unit: str) -> float:
        """Return what one of the text's units of a kind is in SI, where it is `unit`; see `table.Unit`."""
        if unit not in self._factors:
            above, _, below = unit.partition("/")
            self._factors[unit] = self._product(above) / self._product(below)
        return self._factors[unit]

    def _product(self, symbols: str) -> float:
        powers = re.findall(r"(\w+)(?:\^(\d))?", symbols)
        return math.prod(self._factors[symbol] ** int(power or 1) for symbol, power in powers)


class Parameters(Mapping[str, float]):
    """The named numbers of a text, by their names; each may be an expression of others, in any order.

    Parameters
    ----------
    given : mapping of str to number or str
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given, self._found, self._open = given, dict[str, float](), list[str]()

    def __getitem__(self, name: str) -> float:
        if name in self._found:
            return self._found[name]
        if name not in self._given:
            return CONSTANTS[name]
        if not name.isidentifier() or keyword.iskeyword(name) or name in FUNCTIONS or name in CONSTANTS:
            raise about((name,), f"parameter {name!r}: give it a name, such as length, that nothing else has")
        if name in self._open:
            circle = " of ".join(map(repr, [*self._open[self._open.index(name) :], name]))
            raise about((name,), f"parameter {name!r}: is made of itself: {circle}; give one of them a number")
        given = self._given[name]
        self._open.append(name)
        try:
            self._found[name] = number(self.evaluate(given) if isinstance(given, str) else given)
        except ValueError as error:
            if isinstance(error, InputError) and error.keys:
                raise
            raise about((name,), f"parameter {name!r}: {error}") from None
        finally:
            self._open.pop()
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def evaluate(self, text: str) -> float:
        """Return what an expression is; whole numbers as int. InputError if it is none."""
        import simpleeval  # takes 20 ms: where there are expressions

        evaluator = simpleeval.SimpleEval(operators=_OPERATORS, functions=FUNCTIONS, names=self, allowed_attrs={})
        try:
            value = evaluator.eval(text, ast.parse(text.strip(), mode="eval").body)
        except simpleeval.NameNotDefined as error:
            hint = suggest(error.name, [*self, *CONSTANTS])
            raise InputError(f"unknown parameter {error.name!r} in {text!r}{hint}") from None
        except simpleeval.FunctionNotDefined as error:
            hint = suggest(error.func_name, FUNCTIONS)
            raise InputError(f"unknown function {error.func_name!r} in {text!r}{hint}") from None
        except InputError:
            raise
        except SyntaxError:
            raise InputError(f"{text!r} is neither a number nor an expression, such as '2 * pi * radius'") from None
        except KeyError:
            raise InputError(f"{text!r} can't be evaluated: it has an operator other than + - * / // % **") from None
        except (simpleeval.InvalidExpression, ArithmeticError, ValueError, TypeError) as error:
            raise InputError(f"{text!r} can't be evaluated: {error}") from None
        except (RecursionError, MemoryError):
            raise InputError(f"{text[:40]!r}... can't be evaluated: it is nested too deep") from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{text!r} is no number, but {value!r}")
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            return int(value)
        return value


class Values:
    """A converter of the numbers of tables, as they stand in a text, to those that the tables take.

    Parameters
    ----------
    parameters : Parameters
        What its expressions may name.
    units : BaseUnits
        What its numbers are in.
    """

    def __init__(self, parameters: Parameters, units: BaseUnits) -> None:
        self._parameters, self._units, self._si = parameters, units, units == BaseUnits()

    def of(self, kind: type[CheckedTable], fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a table of a kind, and of the tables in it, with numbers in SI.

        Raises
        ------
        InputError
            An expression can't be evaluated.
        """
        try:
            return self._in_si(kind, fields, ())
        except InputError as error:
            raise about(error.keys, f"{kind.title(fields)}: {error}") from None

    def _in_si(self, kind: type[CheckedTable], fields: dict[str, Any], keys: Keys) -> dict[str, Any]:
        found = dict(fields)
        for key, unit in kind.units_of(fields).items():
            if key not in fields or (self._si and not _has_text(fields[key])):
                continue
            if not (key == "motion" and isinstance(fields[key], str)):
                try:
                    found[key] = (self._over_time if key in OVER_TIME else self._number)(fields[key], unit)
                except InputError as error:
                    raise about((*keys, key), f"{keys_in_words((*keys, key))}: {error}") from None
        for key, table in kind.tables_within().items():
            inner = fields.get(key)
            if isinstance(inner, dict):
                found[key] = self._in_si(table, inner, (*keys, key))
            elif isinstance(inner, list):
                found[key] = [
                    self._in_si(table, item, (*keys, key, k)) if isinstance(item, dict) else item
                    for k, item in enumerate(inner)
                ]
        return found

    def _over_time(self, given: Any, unit: Units) -> Any:
        """A number, or numbers in lists, or rows of a time and such, or what follows such rows."""
        if isinstance(given, dict):
            units = {"rows": unit, "lag": "s", "begin": unit}
            return {key: self._over_time(value, units.get(key, "1")) for key, value in given.items()}
        return self._number(
            given, ("s", *((unit,) * 3 if isinstance(unit, str) else unit)) if are_rows(given) else unit
        )

    def _number(self, given: Any, unit: Units) -> Any:
        """A number, or numbers in lists; what is none is left to the check of the table."""
        if isinstance(given, list):
            rows = any(isinstance(item, list) for item in given)
            if isinstance(unit, str) or (rows and not any(isinstance(each, tuple) for each in unit)):
                return [self._number(item, unit) for item in given]
            units: list[Any] = list(unit[: len(given)])
            return [self._number(item, each) for item, each in zip_longest(given, units, fillvalue="1")]
        value = self._parameters.evaluate(given) if isinstance(given, str) else given
        factor = self._units.factor(unit if isinstance(unit, str) else str(next(iter(unit), "1")))
        return value if factor == 1.0 or not isinstance(value, int | float) else value * factor


def _has_text(given: Any) -> bool:
    """Whether there is an expression in what stands for a number, or for numbers in lists."""
    kind = type(given)
    inner = given.values() if kind is dict else given
    return kind is str or (kind in (list, dict) and any(map(_has_text, inner)))
