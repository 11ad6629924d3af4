"""Operations of a kernel, counted by running it uncompiled with numbers and arrays that count.

What is counted is what the compiled code executes:

- A literal (a Python number, or a `Counted` made as a constant, which is what a sweep's `zero` is) is known to the
  compiler. Arithmetic of literals alone, x + 0, x - 0, 1 x and -1 x are free; 0 x is not, since NaN has to survive.
- A number that comes from an array is never known, be it 0 or 1: its operations count.
- Changes of sign and absolute values are free: part of the instruction that uses them.
- An operation repeated on the same numbers counts once: the compiler keeps its result.
- An operation counts when its result is stored, compared or given back, or goes into one that is; others are dead.

Rows of 6x6 matrices fill registers of eight doubles (`spatial.rows`), of which one or two columns are spare. What goes
into a spare column that is stored counts, but for `UsefulCounts`; a column that nobody reads does not.

A loop begins with literals which compiled code carries as variables, so counts per body are those of a longer chain
minus those of a shorter one.
"""

from __future__ import annotations

import gc
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from numba.core.dispatcher import Dispatcher

from mpimbs.kernels.compiler import interpreted
from mpimbs.kernels.lanes import square_root
from mpimbs.kernels.trigonometry import arc_tangent, sine_cosine
from mpimbs.spatial.rows import PART, columns_at_once

# Additions and multiplications of a sine with its cosine, and of an arc tangent, as `kernels.trigonometry` has them;
# the division of the latter is one of them. Exchanges and changes of sign are not counted.
SINE_COSINE = 47
ARC_TANGENT = 31


@dataclass
class Counts:
    """How often a kernel did what; counts per body may be fractions."""

    zeros_vanish: ClassVar[bool] = False  # a product with a literal zero is that zero

    additions: float = 0  # subtractions are additions
    multiplications: float = 0
    divisions: float = 0
    square_roots: float = 0
    sine_cosines: float = 0  # a sine and cosine of one angle count once
    arc_tangents: float = 0
    comparisons: float = 0

    def _combined(self, other: Counts, combine: Callable[[float, float], float]) -> Counts:
        return Counts(*(combine(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)))

    def __add__(self, other: Counts) -> Counts:
        return self._combined(other, lambda a, b: a + b)

    def __sub__(self, other: Counts) -> Counts:
        return self._combined(other, lambda a, b: a - b)

    def __mul__(self, number: float) -> Counts:
        return Counts(*(getattr(self, f.name) * number for f in fields(self)))

    def __truediv__(self, number: float) -> Counts:
        return Counts(*(getattr(self, f.name) / number for f in fields(self)))

    @property
    def elementary(self) -> float:
        """Operations of the sines with cosines and of the arc tangents."""
        return SINE_COSINE * self.sine_cosines + ARC_TANGENT * self.arc_tangents

    @property
    def operations(self) -> float:
        """Floating-point operations, those of sines, cosines and arc tangents among them."""
        return self.additions + self.multiplications + self.divisions + self.square_roots + self.elementary

    @property
    def instructions(self) -> float:
        """Least number of instructions, of which each does at most one multiplication and one addition."""
        roots = self.divisions + self.square_roots
        return max(self.additions, self.multiplications) + roots + self.elementary / 2


class UsefulCounts(Counts):
    """Counts of what is useful: products with literal zeros are left out, as are the spare items of arrays.

    A register multiplies by the zeros that fill a row up, or that pick one of its columns; the mathematics doesn't.
    """

    zeros_vanish = True


class Counted:
    """A double that knows how it was made, and counts that once it is of use."""

    __slots__ = ("constant", "counts", "done", "operands", "operation", "value")

    def __init__(
        self,
        value: Any,
        counts: Counts,  # of the operations that made it, and all results
        constant: bool = False,  # known to the compiler
        operation: str = "",  # the field of `Counts` that made it; empty for none
        operands: tuple[Counted, ...] = (),  # what it was made of
    ) -> None:
        self.value, self.counts, self.constant = value, counts, constant
        self.operation, self.operands = operation, operands
        self.done: dict[tuple[str, float], tuple[Counted, Counted]] = {}  # operations on it: the other number, result

    def use(self) -> float:
        """Give the value, and count what made it, if that was not done before."""
        pending = [self]
        while pending:
            number = pending.pop()
            pending.extend(number.operands)
            if number.operation:
                setattr(self.counts, number.operation, getattr(self.counts, number.operation) + 1)
            number.operation, number.operands = "", ()
        return self.value

    def __float__(self) -> float:
        raise TypeError("a counted number would become a double here, and what follows would not be counted")

    def __int__(self) -> int:
        """A whole number that is kept among doubles: it is no operation to read it."""
        return int(self.use())

    def __repr__(self) -> str:
        return f"Counted({self.value})"

    def _other(self, other: Any) -> Counted:
        return other if isinstance(other, Counted) else Counted(float(other), self.counts, True)

    def _is(self, value: float) -> bool:
        return self.constant and self.value == value

    def _result(self, operation: str, other: Counted, value: float) -> Counted:
        """Give the number that an operation makes: known if both are, the same as before if that was done before."""
        if self.constant and other.constant:
            return Counted(value, self.counts, True)
        key = (f"{operation} literal", other.value) if other.constant else (operation, id(other))
        if key not in self.done:
            self.done[key] = (other, Counted(value, self.counts, False, operation, (self, other)))
        return self.done[key][1]

    def _in_order(self, other: Counted) -> tuple[Counted, Counted]:
        """Operands of a commutative operation, a literal last."""
        ordered = other.constant or (not self.constant and id(self) < id(other))
        return (self, other) if ordered else (other, self)

    def __add__(self, other: Any) -> Counted:
        a, b = self._in_order(self._other(other))
        return a if b._is(0.0) else a._result("additions", b, a.value + b.value)

    def __neg__(self) -> Counted:
        if self.constant:
            return Counted(-self.value, self.counts, True)
        if ("-", 0) not in self.done:
            negative = Counted(-self.value, self.counts, operands=(self,))
            self.done["-", 0], negative.done["-", 0] = (self, negative), (negative, self)
        return self.done["-", 0][1]

    def __abs__(self) -> Counted:
        return Counted(abs(self.value), self.counts, self.constant, operands=(self,))

    def __sub__(self, other: Any) -> Counted:
        return self + -self._other(other)

    def __rsub__(self, other: Any) -> Counted:
        return self._other(other) + -self

    def __mul__(self, other: Any) -> Counted:
        a, b = self._in_order(self._other(other))
        if b._is(1.0):
            return a
        if b._is(0.0) and self.counts.zeros_vanish:
            return b
        return -a if b._is(-1.0) else a._result("multiplications", b, a.value * b.value)

    __radd__ = __add__
    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Counted:
        other = self._other(other)
        with np.errstate(all="ignore"):
            value = float(np.float64(self.value) / other.value)
        return self if other._is(1.0) else self._result("divisions", other, value)

    def __rtruediv__(self, other: Any) -> Counted:
        return self._other(other) / self

    def _compared(self, other: Any) -> tuple[float, float]:
        other = self._other(other)
        if not (self.constant and other.constant):
            self.counts.comparisons += 1
        return self.use(), other.use()

    def __lt__(self, other: Any) -> bool:
        return operator.lt(*self._compared(other))

    def __le__(self, other: Any) -> bool:
        return operator.le(*self._compared(other))

    def __gt__(self, other: Any) -> bool:
        return operator.gt(*self._compared(other))

    def __ge__(self, other: Any) -> bool:
        return operator.ge(*self._compared(other))

    def __eq__(self, other: object) -> bool:
        return operator.eq(*self._compared(other))

    def __ne__(self, other: object) -> bool:
        return operator.ne(*self._compared(other))


@sine_cosine.register
def _(angle: Counted) -> tuple[Counted, Counted]:
    both = Counted(angle.value, angle.counts, False, "sine_cosines", (angle,))
    sine, cosine = math.sin(angle.value), math.cos(angle.value)
    return Counted(sine, angle.counts, operands=(both,)), Counted(cosine, angle.counts, operands=(both,))


@square_root.register
def _(value: Counted) -> Counted:
    return Counted(math.sqrt(value.value), value.counts, False, "square_roots", (value,))


@arc_tangent.register
def _(y: Counted, x: Counted) -> Counted:
    return Counted(math.atan2(y.value, x.value), y.counts, False, "arc_tangents", (y, x))


@columns_at_once.register
def _(zero: Counted) -> int:
    return PART  # as in lanes


class CountedArray:
    """An array that gives out doubles as `Counted`, integers as they are.

    A part of it (a slice, a row) is a view, as in compiled code.

    Parameters
    ----------
    values : array
        Copied. Masked items of a masked array are spare: zeros that fill a register up, which are read as literals and
        written without use.
    """

    def __init__(self, values: npt.ArrayLike, counts: Counts) -> None:
        given: Any = np.ma.array(values, copy=True)
        self.values = given.data
        self._spare = set(np.flatnonzero(np.ma.getmaskarray(given)).tolist())
        self._items = np.arange(self.values.size).reshape(self.values.shape)
        self._counts = counts

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths along the axes."""
        return self.values.shape

    @property
    def size(self) -> int:
        """Number of items."""
        return self.values.size

    def __len__(self) -> int:
        return len(self.values)

    def copy(self) -> npt.NDArray[np.object_]:
        """Load all items of a flat array."""
        return np.array([self[i] for i in range(len(self))], dtype=object)

    def _part(self, index: Any) -> CountedArray:
        part = object.__new__(CountedArray)
        part.values, part._items, part._counts = self.values[index], self._items[index], self._counts
        part._spare = self._spare
        return part

    def __getitem__(self, index: Any) -> Any:
        item = self._items[index]
        if np.ndim(item):
            return self._part(index)
        if self.values.dtype.kind in "iu":
            return int(self.values[index])
        return Counted(float(self.values[index]), self._counts, int(item) in self._spare)

    def __setitem__(self, index: Any, value: Any) -> None:
        items = np.ravel(self._items[index]).tolist()
        several = isinstance(value, (tuple, list, np.ndarray, CountedArray))
        given = value if several else (value,) * len(items)
        numbers = [_value(given[i]) if item in self._spare else _used(given[i]) for i, item in enumerate(items)]
        self.values[index] = np.reshape(numbers, np.shape(self._items[index]))


def _value(number: Any) -> Any:
    return number.value if isinstance(number, Counted) else number


def _used(result: Any) -> Any:
    """Values of what a kernel stores or gives back, tuples of any depth, as of use."""
    if isinstance(result, tuple):
        return tuple(_used(part) for part in result)
    return result.use() if isinstance(result, Counted) else result


def counting(compiled: Dispatcher) -> Callable[..., Any]:
    """Give a function that runs a kernel uncompiled with `Counted` numbers and `CountedArray`s, and gives values."""
    twin = interpreted(compiled)

    def run(*arguments: Any) -> Any:
        collecting = gc.isenabled()
        gc.disable()  # it would look through all numbers again and again, none of which can go
        try:
            return _used(twin(*arguments))
        finally:
            if collecting:
                gc.enable()

    return run
