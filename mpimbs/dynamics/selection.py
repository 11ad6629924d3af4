"""What samples keep: of all bodies, or of some, so that the outputs of large systems stay small."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.base.errors import InputError
from mpimbs.dynamics.quantities import (
    CALLED,
    DECLARED,
    OF_JOINTS,
    PER_BODY,
    PER_LOOP,
    SEPARATED,
    SYSTEM,
    Q,
    Quantity,
    U,
)
from mpimbs.model.columns import numbers_of
from mpimbs.model.contents import Contents

CHOSEN = tuple(quantity for quantity in DECLARED if quantity.chosen)


class Selection(NamedTuple):
    """Which of the quantities that users choose samples have, and of which bodies."""

    bodies: dict[str, Integers | None]  # by quantity the bodies [n], ascending; None stands for all

    @classmethod
    def of(cls, system: Contents, text: str | None, poses: bool = False, loads: bool = False) -> Selection:
        """Read what a user asks for, such as `q,pose:tip`; `poses` and `loads` add those of all bodies.

        Raises
        ------
        InputError
            There is no such quantity or body.
        """
        found: dict[str, set[int] | None] = {}
        for item in ("q,u" if text is None else text).split(","):
            kind, _, body = item.strip().partition(":")
            quantity = CALLED.get(kind)
            if quantity is None or not quantity.chosen:
                names = [each.asked_for for each in CHOSEN]
                raise InputError(
                    f"`sample`: {item.strip()!r} is nothing that samples have; give some of {', '.join(names)}, or of "
                    f"one body {', '.join(f'{name}:NAME' for name in names)}, with commas between them"
                )
            if not body:
                found[quantity.name] = None
            elif (others := found.setdefault(quantity.name, set())) is not None:
                others.add(system.index_of(body))
        found |= {name: None for name, wanted in (("poses", poses), ("loads", loads)) if wanted}
        ordered = ((each.name, found[each.name]) for each in CHOSEN if each.name in found)
        return cls({name: None if of is None else np.array(sorted(of), np.int64) for name, of in ordered})

    @property
    def partial(self) -> dict[str, Integers]:
        """The bodies of each quantity that samples have of some bodies only."""
        return {name: bodies for name, bodies in self.bodies.items() if bodies is not None}

    def rows(self, quantity: Quantity, system: Contents) -> Integers | None:
        """Which rows of a quantity there are: numbers of q or u, or bodies; None stands for all."""
        bodies = self.bodies.get(quantity.name)
        if bodies is None or quantity.of not in OF_JOINTS:
            return bodies
        return numbers_of(system.offsets()[OF_JOINTS.index(quantity.of)], bodies)[0]


class SampleTable:
    """The quantities that samples of a structure have, as columns of a table with a row for each sample.

    Parameters
    ----------
    system : Contents
        Of copies the first.
    facts : sequence of str
        What there is beside, of that which quantities may need: "witness", "iterative".
    unknowns : int
        Constraint loads of all ranks.
    copies : int, optional
        Of an ensemble: how many.
    loops_differ : bool
        Whether they have not the same loops at all times: what loops have is not kept then.
    """

    def __init__(
        self,
        system: Contents,
        selection: Selection,
        facts: tuple[str, ...] = (),
        unknowns: int = 0,
        copies: int | None = None,
        loops_differ: bool = False,
    ) -> None:
        self.selection = selection
        there = {*facts, *selection.bodies} | ({"loops"} if system.loops and not loops_differ else set())
        self.quantities = [each for each in DECLARED if each.take is not None and _kept(each, there, copies is None)]
        # by name which numbers of q or u, or bodies, it is of; None stands for all
        self.rows = {each.name: selection.rows(each, system) for each in self.quantities}
        counts = {
            Q: system.nq,
            U: system.nu,
            PER_BODY: system.n_bodies,
            PER_LOOP: len(system.loops),
            SEPARATED: unknowns,
        }
        self.shapes = {}  # by name the shape of a row
        for each in self.quantities:
            rows = self.rows[each.name]
            own = () if each.of == SYSTEM else (counts[each.of] if rows is None else len(rows),)
            of_copies = () if copies is None or not each.copied else (copies,)
            self.shapes[each.name] = (*of_copies, *own, *each.row)


def _kept(quantity: Quantity, there: set[str], one: bool) -> bool:
    """Whether samples of one system, or of copies, have a quantity, of what there is."""
    if not one and not quantity.copied and quantity.name not in ("time", "step_size"):
        return False
    return quantity.name in there if quantity.chosen else there.issuperset(quantity.needs)
