"""The witness of ensembles: copies are checked by the equations of motion, and one that is wrong ends alone, by name.

Copies in turn have a witness each, as runs do [`run.witness`]. Of copies side by side, an evaluation of which takes a
microsecond while a check takes hundreds, some are checked at each sample, in rotation: so many of a rank at the first
and at the last, so that ensembles of moderate size are checked whole, and between them one for so many evaluations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI

from mpimbs.base.errors import SimulationError
from mpimbs.run.ensembles.in_turn import TurnStepper
from mpimbs.run.witness import TO_GO_ON, Seen, Witness
from mpimbs.stepping.copies_stepper import CopiesStepper

WHOLE = 100  # copies of a rank at the first sample, and at the last
BETWEEN = 50_000  # evaluations of copies for each that is checked between them


class CopiesWitness(Protocol):
    """Checks the copies of a rank at samples."""

    def take(self, t: float, whole: bool) -> None:
        """Check the copies whose turn it is at a time (s), the first, the last or another; what is wrong ends there."""

    def memory(self) -> list[dict[str, Any]]:
        """For JSON; another one goes on from it."""

    def seen(self) -> tuple[Seen, int]:
        """What was found so far, and of how many copies."""


class LaneWitness:
    """Checks copies that are evaluated side by side.

    Parameters
    ----------
    stepper : CopiesStepper
        What steps them.
    names : sequence of str
        What they are called.
    memories : sequence of dict
        Go on from what others gave by `memory`.
    """

    def __init__(self, stepper: CopiesStepper, names: Sequence[str], memories: Sequence[Mapping[str, Any]]) -> None:
        self._stepper, self._names = stepper, names
        self._seen, self._paid = Seen(), 0  # checks for which evaluations stand
        self._asked = sum(memory["asked"] for memory in memories)  # in rotation
        for memory in memories:
            self._seen.join(Seen.of(memory))

    def memory(self) -> list[dict[str, Any]]:
        return [{"asked": self._asked, **self._seen.told()}]

    def seen(self) -> tuple[Seen, int]:
        return self._seen, min(self._asked, len(self._names))

    def take(self, t: float, whole: bool) -> None:
        stepper, count = self._stepper, len(self._names)
        due = stepper.evaluations * count // BETWEEN - self._paid
        self._paid += due
        asked = min(max(WHOLE if whole else 0, due), count)
        turn = (np.arange(self._asked, self._asked + asked) % count).tolist()
        self._asked += asked
        chosen = [k for k in turn if not stepper.left[k]]
        if not chosen:
            return
        wrong = {}
        for k, found in stepper.copies.residuals(t, *stepper.state, chosen):
            self._seen.take(found, t, of=self._names[k])
            if told := found.judged(None):
                wrong[k] = f"{told}. {TO_GO_ON}"
        stepper.leave(wrong)


class TurnWitness:
    """Checks copies that are stepped one after the other; arguments as of `LaneWitness`, the memories of each copy."""

    def __init__(self, stepper: TurnStepper, names: Sequence[str], memories: Sequence[Mapping[str, Any]]) -> None:
        self._stepper, self._names = stepper, names
        self._dynamics = [segment.dynamics for segment in stepper.copies.segments]
        self._own = [Witness(dynamics) for dynamics in self._dynamics]
        for own, dynamics, memory in zip(self._own, self._dynamics, memories, strict=False):
            own.recall({**memory, "due": memory["due"] + dynamics.evaluations})

    def memory(self) -> list[dict[str, Any]]:
        found = [own.memory() for own in self._own]
        for memory, dynamics in zip(found, self._dynamics, strict=True):
            memory["due"] -= dynamics.evaluations
        return found

    def seen(self) -> tuple[Seen, int]:
        found = Seen()
        for own, name in zip(self._own, self._names, strict=True):
            found.join(own.seen, of=name)
        return found, sum(own.seen.checks > 0 for own in self._own)

    def take(self, t: float, whole: bool) -> None:
        for k, stepper in list(self._stepper.going()):
            try:
                self._own[k].take(t, *stepper.parts, stepper.held, whole)
            except SimulationError as error:
                self._stepper.leave({k: str(error)})


def make_witness(
    stepper: CopiesStepper | TurnStepper, names: Sequence[str], memories: Sequence[Mapping[str, Any]]
) -> CopiesWitness:
    """Make what checks copies; see `LaneWitness`."""
    if isinstance(stepper, TurnStepper):
        return TurnWitness(stepper, names, memories)
    return LaneWitness(stepper, names, memories)


def told_by_all(comm: MPI.Comm, own: CopiesWitness) -> dict[str, Any]:
    """What the witnesses of all ranks have seen, for a result; all ranks call."""
    found, copies = Seen(), 0
    for seen, count in comm.allgather(own.seen()):
        found.join(seen)
        copies += count
    return {**found.told(), "copies": copies}
