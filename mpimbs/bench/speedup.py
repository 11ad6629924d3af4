"""Studies of speed: times of one evaluation against ranks, bodies and couplings, on the ranks that there are."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.errors import InputError, SimulationError
from mpimbs.base.places import note_input
from mpimbs.bench.bench import bench
from mpimbs.bench.predict.calibration import powers_of_two
from mpimbs.coupling import COUPLINGS, LOOPED, TREES, UNCOMPARED, unavailable
from mpimbs.files.output_layout import versions
from mpimbs.model import Body, System
from mpimbs.model.contents import Contents
from mpimbs.parallel.agreement import first_ranks, together
from mpimbs.plots.tables import host


def scaled(system: Contents, bodies: int) -> Contents:
    """Give a chain of the same kind with about so many bodies: all of its repetitions come in proportion.

    Functions of time or state and wrenches given by `System.add_wrench` are left out.

    Parameters
    ----------
    system : Contents
        A chain with a `[[repeat]]`, or a single body.

    Raises
    ------
    InputError
        It is no chain, or nothing in it is repeated.
    """
    segments = list(system.segments)
    longest = max(segments, key=lambda segment: segment.size)
    if not system.is_chain or system.loops or (not longest.numbered and system.n_bodies > 1):
        raise InputError(
            f"system '{system.name}' has no other lengths: to study it against the number of bodies it must be a chain "
            "with a [[repeat]]"
        )
    if system.springs or system.loads.tendons:
        what = "springs" if system.springs else "tendons"
        raise InputError(f"system '{system.name}' has no other lengths: its {what} name bodies; leave them out")
    share = bodies / system.n_bodies
    counts = [max(1, round(segment.count * share)) if segment.count > 1 else 1 for segment in segments]
    made_of = sum(segment.places * count for segment, count in zip(segments, counts, strict=True))
    k = segments.index(longest)  # which makes up for what rounding leaves
    counts[k] = max(1, counts[k] + round((bodies - made_of) / longest.places))
    made = System(f"{system.name}, scaled to {bodies}", system.gravity)
    for segment, count in zip(segments, counts, strict=True):
        first = _on_the_last(segment.bodies[0])
        if segment.numbered:
            made.repeat(count, _named(first), *(_named(body) for body in segment.bodies[1:]))
        else:
            made.add(first)
    return made.contents


def _on_the_last(body: Body) -> Body:
    return body.model_copy(update={"parent": None})


def _named(body: Body) -> Body:
    """A body whose name may be numbered."""
    return body.model_copy(update={"name": body.name.rstrip("0123456789") or "body"})


Row = dict[str, Any]
STUDIES = ("strong", "weak", "size")
LENGTHS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)  # of the model, in the study against n
_MOST_ASSEMBLED = 10_000  # bodies
_ENOUGH = 0.5  # s of a simulation that tells how many evaluations there are
_LONGEST = 1.0  # s of simulated time for it


class Plan(NamedTuple):
    """The measurements of a study."""

    couplings: tuple[str, ...]
    ranks: tuple[int, ...]  # numbers of ranks; of these, those that there are
    # of `STUDIES`: "strong", the model on more and more ranks; "weak", the model's bodies on every rank; "size",
    # shorter and longer chains on the fewest and on the most ranks
    studies: tuple[str, ...] = STUDIES
    seconds: float = 0.3  # wall time for each point (s)

    def points(self, system: Contents, cores: int) -> Iterator[tuple[str, str, int, int]]:
        """Give study, coupling, number of ranks and of bodies of every point."""
        n, counts = system.n_bodies, self.ranks
        within = [count for count in counts if count <= cores] or [counts[0]]
        for coupling in self.couplings:
            if "strong" in self.studies:
                yield from (("strong", coupling, count, n) for count in counts)
            if "weak" in self.studies:
                yield from (("weak", coupling, count, n * count) for count in within)
            if "size" in self.studies:
                for count in sorted({within[0], within[-1]}):
                    lengths = sorted({max(count, round(n * length)) for length in LENGTHS})
                    yield from (("size", coupling, count, length) for length in lengths)

    def available(self) -> tuple[Plan, list[str]]:
        """Give what of the plan this installation can measure, and say what was left out.

        Raises
        ------
        InputError
            Nothing is left.
        """
        reasons = {name: unavailable(name) for name in self.couplings}
        left = tuple(name for name, reason in reasons.items() if not reason)
        if not left:
            raise InputError(next(iter(reasons.values()), "give couplings with `couplings`"))
        return self._replace(couplings=left), [f"{name}: {reason}" for name, reason in reasons.items() if reason]

    def checked(self, system: Contents) -> tuple[Plan, list[str]]:
        """Give what of the plan is possible for a system, and say what was left out.

        Raises
        ------
        InputError
            The plan makes no sense, or nothing of it is possible.
        """
        for name in self.studies:
            if name not in STUDIES:
                raise InputError(f"unknown study '{name}'; choose of: {', '.join(STUDIES)}")
        for name in self.couplings:
            if name not in COUPLINGS:
                raise InputError(f"unknown coupling '{name}'; choose of: {', '.join(COUPLINGS)}")
        if not self.ranks or min(self.ranks) < 1:
            raise InputError("give numbers of ranks from 1 on with `ranks`")
        of_lengths = [name for name in self.studies if name != "strong"]
        if not of_lengths:
            return self, []
        try:
            scaled(system, system.n_bodies)
        except InputError as error:
            if "strong" not in self.studies:
                raise InputError(f"{error}; leave `studies='weak,size'` out") from None
            return self._replace(studies=("strong",)), [f"{', '.join(of_lengths)}: {error}"]
        return self, []


def default_couplings(system: Contents) -> tuple[str, ...]:
    """All couplings that solve the system; the DCA only where it takes no more than some 10 ms an evaluation."""
    if system.loops:
        known: tuple[str, ...] = LOOPED
    elif not system.is_chain:
        known = tuple(TREES)
    else:
        known = tuple(name for name in COUPLINGS if name != "dca" or system.n_bodies <= _MOST_ASSEMBLED)
    return tuple(name for name in known if name not in UNCOMPARED)


def default_ranks(size: int) -> tuple[int, ...]:
    """Powers of two up to a number of ranks, and that number."""
    return tuple(sorted({*powers_of_two(size), size}))


def measure_plan(
    system: Contents, plan: Plan, comm: MPI.Comm, tell: Callable[[int, int, str], None] = lambda done, of, what: None
) -> tuple[list[Row], list[str]]:
    """Time every point of a plan; all ranks call.

    A point that a coupling refuses (its `InputError`) is left out, and said.

    Parameters
    ----------
    tell : callable
        Told before each point how many are done, of how many, and which comes.

    Returns
    -------
    rows : list of dict
        What `bench` gives, with "study" and "oversubscribed" (more ranks than cores of their nodes); on all ranks.
    notes : list of str
        What was left out.
    """
    cores = cores_of(comm)
    points = [point for point in plan.points(system, cores) if point[2] <= comm.size]
    rows: list[Row] = []
    notes: list[str] = []
    known: dict[tuple[str, int, int], Row] = {}
    there: set[tuple[str, str, int, int]] = set()
    chains = {system.n_bodies: system}
    for number, (study, coupling, ranks, bodies) in enumerate(points):
        tell(number, len(points), f"{coupling} on {ranks} of {study}, {bodies} bodies")
        if bodies not in chains:
            chains = {system.n_bodies: system, bodies: scaled(system, bodies)}
        chain = chains[bodies]
        key = (coupling, ranks, chain.n_bodies)
        if key not in known:
            row, refused = _measured(chain, coupling, ranks, plan.seconds, comm)
            if row is None:
                notes.append(f"{coupling} on {ranks} ranks, {bodies} bodies: {refused}")
                continue
            known[key] = row
        if (study, *key) in there:  # of a chain that is no shorter
            continue
        there.add((study, *key))
        rows.append({"study": study, "predicted": False, "oversubscribed": ranks > cores, **known[key]})
    return rows, list(dict.fromkeys(notes))


def _measured(chain: Contents, coupling: str, ranks: int, seconds: float, comm: MPI.Comm) -> tuple[Row | None, str]:
    """Figures of `bench` on the first ranks; or None, and what was refused. On all ranks."""

    def work() -> Row | None:
        with first_ranks(comm, ranks) as part:
            if part is None:
                return None
            return bench(chain, part, coupling, seconds)

    try:
        row = together(comm, work)
    except (InputError, SimulationError) as error:
        return None, str(error)
    return comm.bcast(row), ""


def cores_of(comm: MPI.Comm) -> int:
    """Cores of the nodes on which the ranks are; all ranks call."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    total = comm.allreduce((os.cpu_count() or 1) if node.rank == 0 else 0)
    node.Free()
    return int(total)


def evaluations_per_second(
    system: Contents, comm: MPI.Comm, coupling: str, ranks: int, rtol: float = 1e-8
) -> float | None:
    """Evaluations per simulated second from the initial state on, at a tolerance, simulated on the first ranks.

    All ranks call, and get it; None where it can't be simulated.
    """

    def work() -> float | None:
        with first_ranks(comm, ranks) as part:
            return None if part is None else _evaluations_per_second(system, part, coupling, rtol)

    try:
        return comm.bcast(together(comm, work))
    except SimulationError:
        return None


def _evaluations_per_second(system: Contents, comm: MPI.Comm, coupling: str, rtol: float) -> float | None:
    from mpimbs.run.run import simulate  # needs petsc4py

    t_end = 1e-3
    while True:
        began = time.perf_counter()
        try:
            result = simulate(system, t_end, comm, coupling=coupling, rtol=rtol, atol=rtol, every=t_end)
        except (InputError, SimulationError):  # nothing can move, too little memory; it stopped
            return None
        took = comm.bcast(time.perf_counter() - began)
        if took > _ENOUGH or t_end >= _LONGEST:
            return result.evaluations / result.time if result.time > 0 else None
        t_end = min(4.0 * t_end, _LONGEST)


def collect(folder: Path) -> list[Row]:
    """Read the measurements in a folder: every *.json that `mpimbs bench --json` has written.

    Raises
    ------
    InputError
        There is no such folder, or no measurement in it; a file holds another thing than JSON.
    """
    if not folder.is_dir():
        raise InputError(f"'{folder}' is no folder; give the one with what `mpimbs bench --json` wrote")
    rows: list[Row] = []
    for path in sorted(folder.glob("*.json")):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"'{path}' can't be read: {error}; remove it, or measure again") from None
        if isinstance(found, dict) and {"coupling", "ranks", "n", "us_min", "us_median"} <= found.keys():
            note_input(path)
            rows.append({"study": "strong", "predicted": False, "oversubscribed": False, **found, "file": path.name})
    if not rows:
        raise InputError(f"no measurement in '{folder}': put there what `mpimbs bench --json` writes, as *.json")
    return rows


def machine() -> dict[str, Any]:
    """Say what this process runs on: `host`, and the node, its load, the MPI library."""
    return {
        **host(),
        "node": platform.node(),
        "mpi": MPI.Get_library_version().split("\0")[0].splitlines()[0],
        "load_average": list(np.round(os.getloadavg(), 2)),
    }


def heading(system: Contents, spec: str, comm: MPI.Comm, cores: int) -> dict[str, Any]:
    """Give the heading of a study: of which model, how it was asked for, when, and on what machine."""
    return {
        "model": spec,
        "bodies": system.n_bodies,
        "command": shlex.join(sys.argv),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "ranks": comm.size,
        "cores": cores,
        "versions": versions(),
        "machine": machine(),
    }
