"""Sizes that were tuned on one machine: at which bodies a chain is cut, how long lanes are, how much a sweep keeps, and
who writes to a file.

They change how fast an evaluation or a file is written, and results by rounding only. The environment variable
MPIMBS_SIZES gives others, such as "most_lane=64,pivot_bytes=8388608"; what is faster `mpimbs bench` tells. Outputs and
checkpoints say which sizes were in use.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mpimbs.base.errors import InputError

VARIABLE = "MPIMBS_SIZES"


@dataclass(frozen=True)
class Sizes:
    """The tuned sizes; the defaults were measured on one core of an AMD EPYC with AVX-512, eight lanes."""

    # time of the elimination of one degree of freedom over that of a step (58 ns), n = 1024, without lanes
    axis_cost: float = 0.3
    # time of a body inside a subchain with neighbours outboard, whose sweep carries handle 2, over that of one at the
    # tip, without lanes
    tip_ratio: float = 1.2
    # in lanes all pieces carry two handles, and all but the tip's rank join them with both: so many bodies' time more
    joins_in_bodies: float = 25.0
    # time of a body assembled as a leaf (dca) over that of one swept at the tip without lanes
    terminal_ratio: float = 7.0
    swept_in_lanes: float = 4.0  # time of a body swept without lanes over that of one in lanes
    # time of a row of so many bodies side by side, of closed subtrees, over that of one swept in doubles
    row_of_2: float = 1.0
    row_of_4: float = 1.2
    row_of_8: float = 2.3
    # what a tile of such subtrees takes beside its rows, and what all together take, in bodies swept in doubles
    tile_start: float = 4.0
    subtrees_start: float = 5.5
    join_cost: float = 5.0  # time of a join of two pieces of a path, in bodies swept in doubles
    least_lane: int = 4  # bodies of a lane from which on lanes are faster than one piece
    # bodies of a lane of the tile that is the fastest per body: its arrays fit the second-level cache
    most_lane: int = 128
    # workspace of a subchain up to which all of it is kept from one pass to the next, bytes: a second-level cache
    all_bytes: int = 1 << 20
    # pivots of a subchain up to which they are kept, bytes: a core's share of a third-level cache. Memory beyond is
    # slower than making them again, most of all when all cores of a processor read it.
    pivot_bytes: int = 1 << 22
    # bytes of a rank in a dataset's row of an output, on average, from which on each rank writes its own: fewer are
    # faster through rank 0. Measured, as is the next, with 2 ranks of one node and a virtual disk.
    sample_bytes: int = 1 << 15
    # the same of a vector of a checkpoint: of fewer, one flush to the disk is faster than one of every rank
    checkpoint_bytes: int = 1 << 18
    # numbers that pass through rank 0 at once, of what it writes or reads for others: memory that it needs beside its
    # own. Chosen, not measured: 8 MB, against which the time until a message begins is nothing.
    slice_numbers: int = 1 << 20

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not 0.0 < value < 1e12:
                raise InputError(f"{field.name} must be a positive number, got {value!r}")
        if self.most_lane < self.least_lane:
            raise InputError(f"most_lane {self.most_lane} is below least_lane {self.least_lane}; give as much or more")

    def told(self) -> str:
        """The name of these sizes in files and summaries: "package", or a digest of them."""
        return "package" if self == PACKAGE else hashlib.sha256(repr(self).encode()).hexdigest()[:12]


PACKAGE = Sizes()
_used: Sizes | None = None


def tuned() -> Sizes:
    """Give the sizes in use: what MPIMBS_SIZES gives when they are first asked for, else the package's.

    Raises
    ------
    InputError
        It gives what is no size.
    """
    global _used
    if _used is None:
        _used = read_sizes(os.environ.get(VARIABLE, ""))
    return _used


@contextmanager
def using(others: Sizes | None) -> Iterator[None]:
    """Use other sizes for what is made meanwhile; None: those that the environment names by then."""
    global _used
    before, _used = _used, others
    try:
        yield
    finally:
        _used = before


def read_sizes(text: str) -> Sizes:
    """Read sizes as "most_lane=64,pivot_bytes=8388608"; those that are left out are the package's.

    Raises
    ------
    InputError
        It says what is no size.
    """
    known, given = {field.name: field.type for field in dataclasses.fields(Sizes)}, dict[str, float]()
    for part in filter(None, text.split(",")):
        name, _, number = map(str.strip, part.partition("="))
        if name not in known:
            raise InputError(
                f"{VARIABLE}: unknown size '{name}'; give it as most_lane=64,pivot_bytes=8388608; known are "
                f"{', '.join(known)}"
            )
        try:
            given[name] = int(number) if known[name] == "int" else float(number)
        except ValueError:
            kind = "whole number" if known[name] == "int" else "number"
            raise InputError(f"{VARIABLE}: {name} must be a {kind}, got '{number}'") from None
    try:
        return Sizes(**given)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{VARIABLE}: {error}") from None
