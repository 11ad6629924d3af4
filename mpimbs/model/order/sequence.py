"""What adds bodies to a system, in an order in which each comes after those that its bodies lie on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mpimbs.base.errors import InputError, about
from mpimbs.model.body import Body
from mpimbs.model.names import WORLD, Names, stem_and_number
from mpimbs.model.rod import Rod
from mpimbs.model.system import System
from mpimbs.model.text.toml import Place, at


@dataclass(frozen=True)
class Statement:
    """A body, a rod, or the bodies of a repeat with their count, what they lie on and where; its place in a text."""

    place: Place
    what: Body | Rod | tuple[Body, ...]
    count: int = 0
    parents: Any = None
    shifts: Any = None

    @property
    def first(self) -> Body | Rod:
        """The item that says on which body it lies."""
        return self.what[0] if isinstance(self.what, tuple) else self.what

    def names(self) -> Iterator[tuple[str, int]]:
        """The names of its bodies, each with how many there are by numbers; 0 of a name without."""
        bodies = self.what if isinstance(self.what, tuple) else (self.what,)
        count = self.what.count if isinstance(self.what, Rod) else self.count
        return ((body.name, count) for body in bodies)

    def lies_on(self) -> list[str] | str | None:
        """The names of the bodies that it lies on; one may stand for all its numbers; None for the last one."""
        return self.first.parent if self.parents is None else self.parents

    def add(self, system: System, last: str | None) -> None:
        """Add it, to that body if it names none."""
        what = self.what
        if isinstance(what, Rod):
            system.add_rod(what)
        elif isinstance(what, Body):
            system.add(what if last is None else what.model_copy(update={"parent": last}))
        else:
            system.repeat(self.count, *what, parent=last, parents=self.parents, shifts=self.shifts)


def add_in_sequence(system: System, statements: Sequence[Statement]) -> None:
    """Add all bodies to a system, as they stand but for those that lie on later ones.

    Raises
    ------
    InputError
        A body lies on none of these, or on itself by way of others, or the system refuses it; names its place.
    """
    last: dict[int, int] = {}  # bodies of the statements so far
    for k in _sorted(statements):
        statement = statements[k]
        with at(statement.place):
            moved = k > 0 and statement.lies_on() is None and last[k - 1] != system.n_bodies - 1
            statement.add(system, system.contents.name_of(last[k - 1]) if moved else None)
            last[k] = system.n_bodies - 1


def _sorted(statements: Sequence[Statement]) -> Iterator[int]:
    """The numbers of statements, each after those that have to come before it."""
    done = set(range(_as_they_stand(statements)))
    yield from range(len(done))
    if len(done) == len(statements):
        return
    order = _Order(statements)
    for k in range(len(done), len(statements)):
        waiting = {} if k in done else {k: order.before(k)}
        while waiting:
            last, needs = next(reversed(waiting.items()))
            needed = next((other for other in needs if other not in done), None)
            if needed is None:
                waiting.popitem()
                done.add(last)
                yield last
            elif needed in waiting:
                passed = list(waiting)
                circle = [statements[j] for j in passed[passed.index(needed) :]]
                with at(circle[0].place):
                    raise _lying_on_itself(circle)
            else:
                waiting[needed] = order.before(needed)


def _as_they_stand(statements: Sequence[Statement]) -> int:
    """How many statements from the first on are of single bodies that lie on earlier ones: all, as a rule."""
    names = {WORLD, None}
    for k, statement in enumerate(statements):
        if not isinstance(statement.what, Body) or statement.what.parent not in names:
            return k
        names.add(statement.what.name)
    return len(statements)


def _lying_on_itself(statements: list[Statement]) -> InputError:
    first, *others = (statement.first.name for statement in statements)
    unnamed = next((statement.first.name for statement in statements if statement.lies_on() is None), None)
    hint = "" if unnamed is None else f" ({unnamed!r} names no parent, so it lies on the last one)"
    return InputError(
        f"body {first!r}: lies on itself, by way of {' on '.join(map(repr, others))}{hint}; put one of them on 'world' "
        "or on a body outside, and close a loop with a [[loop]]"
    )


class _Order:
    """Which statements have to come before which."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._statements = statements
        self._singles: dict[str, int] = {}
        self._numbered: dict[str, list[tuple[int, int]]] = {}  # stem: statements that have it, and up to which number
        self._counted: dict[int, list[int]] = {}  # those whose numbers a statement's count on
        self._names = Names()  # for messages
        for k, statement in enumerate(statements):
            for name, count in statement.names():
                if not count:
                    self._singles.setdefault(name, k)
                    self._names.add_single(name, k)
                    continue
                known = self._numbered.setdefault(name, [])
                if known:
                    self._counted.setdefault(k, []).append(known[-1][0])
                known.append((k, count + (known[-1][1] if known else 0)))
                self._names.add_run(name, count, k, 0)

    def before(self, k: int) -> Iterator[int]:
        """The statements that have to come before statement k."""
        yield from self._counted.get(k, ())
        on = self._statements[k].lies_on()
        if on is None and k:
            yield k - 1
        names = [on] if isinstance(on, str) else on if isinstance(on, list) else []
        for name in dict.fromkeys(name for name in names if isinstance(name, str)):
            with at(self._statements[k].place):
                found = self._having(name, k)
            yield from (other for other in found if other != k)

    def _having(self, name: str, k: int) -> list[int]:
        """The statements of the bodies that statement k means by a name."""
        if name == WORLD:
            return []
        if name in self._singles:
            return [self._singles[name]]
        stem, number = stem_and_number(name)
        known = self._numbered.get(stem, [])
        if number and number <= (known[-1][1] if known else 0):
            return [known[bisect_left(known, number, key=lambda item: item[1])][0]]
        if not number and known and self._statements[k].parents == name:
            others = [other for other, _ in known if other != k]
            return [other for other in others if other < k] or others
        title, hint = f"body {self._statements[k].first.name!r}", self._names.suggest(name)
        raise about(("parent",), f"{title}: parent {name!r} is neither 'world' nor a body of the model{hint}")
