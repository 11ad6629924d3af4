"""How often a kernel does what, and what that comes to: operations, instructions, bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar

# Additions and multiplications of a sine with its cosine, and of an arc tangent, as `spatial.trigonometry` has them;
# the division of the latter is one of them. Exchanges and changes of sign are not counted.
SINE_COSINE = 47
ARC_TANGENT = 31


@dataclass
class Counts:
    """How often a kernel did what; counts per body may be fractions.

    Attributes
    ----------
    additions, multiplications, divisions, square_roots, comparisons : float
        Subtractions are additions.
    sine_cosines, arc_tangents : float
        A sine and cosine of one angle count once.
    loads, stores : float
        Accesses to numbers in arrays.
    fetched, written : float
        Numbers read, and numbers written, that the last `counting.NEAR` accesses have not touched: what moves between
        the kernel and a memory that holds the whole chain, through a cache that holds a body or two.
    integers : float
        Integers fetched, which all lanes share.
    touched : float
        Different numbers accessed: what the memory holds that they move to and from.
    """

    zeros_vanish: ClassVar[bool] = False  # a product with a literal zero is that zero

    additions: float = 0
    multiplications: float = 0
    divisions: float = 0
    square_roots: float = 0
    sine_cosines: float = 0
    arc_tangents: float = 0
    comparisons: float = 0
    loads: float = 0
    stores: float = 0
    fetched: float = 0
    written: float = 0
    integers: float = 0
    touched: float = 0

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

    def bytes_moved(self, width: int = 1) -> float:
        """Bytes fetched and written, with the integers shared by `width` lanes."""
        return 8 * (self.fetched + self.written + self.integers / width)


class UsefulCounts(Counts):
    """Counts of what is useful: products with literal zeros are left out, as are the spare items of arrays.

    A register multiplies by the zeros that fill a row up, or that pick one of its columns; the mathematics doesn't.
    """

    zeros_vanish = True
