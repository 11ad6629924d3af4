"""The names of the bodies of a system: single ones, and numbered ones that are kept as runs.

A numbered name is a stem that ends with no digit and a number from 1 on, so that every name can be read in
one way only and is found without a list of all names.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.model.text.table import suggest

WORLD = "world"
DIGITS = "0123456789"


@dataclass(frozen=True)
class NumberedRun:
    """The names stem + number, `count` numbers from `number` on, for the bodies index, index + stride, ..."""

    number: int
    count: int
    index: int
    stride: int


class Names:
    """Which body has which name."""

    def __init__(self) -> None:
        self._singles: dict[str, int] = {}
        self._numbered_singles: dict[str, set[int]] = {}  # stem: numbers, of single names that look like numbered ones
        self._runs: dict[str, list[NumberedRun]] = {}  # stem: runs, by rising number

    def add_single(self, name: str, index: int) -> None:
        """Give the name to one body; the caller has seen that it is free (`find`)."""
        self._singles[name] = index
        stem, number = stem_and_number(name)
        if number:
            self._numbered_singles.setdefault(stem, set()).add(number)

    def add_run(self, stem: str, count: int, index: int, stride: int) -> None:
        """Give the next `count` numbers of the stem to the bodies index, index + stride, ..."""
        self._runs.setdefault(stem, []).append(NumberedRun(self.used(stem) + 1, count, index, stride))

    def used(self, stem: str) -> int:
        """Return the highest number of that stem in a run, 0 if there is none."""
        runs = self._runs.get(stem)
        return runs[-1].number + runs[-1].count - 1 if runs else 0

    def taken(self, stem: str, count: int) -> str | None:
        """Return a single name that stands in the way of the next `count` numbers of the stem."""
        used = self.used(stem)
        clash = [n for n in self._numbered_singles.get(stem, ()) if used < n <= used + count]
        return f"{stem}{min(clash)}" if clash else None

    def find(self, name: str) -> int | None:
        """Return the index of the body of that name, None if there is none."""
        if name in self._singles:
            return self._singles[name]
        stem, number = stem_and_number(name)
        if not 0 < number <= self.used(stem):
            return None
        runs = self._runs[stem]
        run = runs[bisect_right(runs, number, key=lambda run: run.number) - 1]
        return run.index + (number - run.number) * run.stride

    def indices(self, stem: str) -> Integers | None:
        """Return the indices of all numbered bodies of a stem, by rising number; None if there are none."""
        runs = self._runs.get(stem)
        return np.concatenate([run.index + run.stride * np.arange(run.count) for run in runs]) if runs else None

    def number(self, stem: str, index: int) -> int:
        """Return the number that body `index` has behind its stem."""
        runs = self._runs[stem]
        run = runs[bisect_right(runs, index, key=lambda run: run.index) - 1]
        return run.number + (index - run.index) // run.stride

    def suggest(self, name: str) -> str:
        """Return the end of a message on an unknown name, as `table.suggest`."""
        number, single = stem_and_number(name)[1], [WORLD, *self._singles]
        used = {stem: self.used(stem) for stem in self._runs}
        near = [f"{stem}{min(max(number, 1), last)}" for stem, last in used.items()]
        ranges = [f"{stem}1" + (f" to {stem}{last}" if last > 1 else "") for stem, last in used.items()]
        return suggest(name, single + near, single + ranges)


def stem_and_number(name: str) -> tuple[str, int]:
    """Split a name into stem and number; the number is 0 if the name does not end with one."""
    stem = name.rstrip(DIGITS)
    digits = name[len(stem) :]
    return (stem, int(digits)) if digits and digits[0] != "0" and len(digits) < 19 else (name, 0)
