"""How ranks fail together: what is foreseen is agreed on; any other error ends the job, and never hangs it."""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import HaltError, InputError, SimulationError, as_meant, by_all_ranks, warn_caller
from mpimbs.base.garbage import many_objects
from mpimbs.base.sizes import PACKAGE, VARIABLE, tuned
from mpimbs.kernels.turns import COMPILING
from mpimbs.model import contents_from, facts, is_robot, system_from_text, system_text
from mpimbs.model.contents import Contents, JointRead
from mpimbs.model.facts import digest
from mpimbs.parallel.launcher import let_jobs_start

_NAP = 0.01  # s


@contextmanager
def first_ranks(comm: MPI.Comm, count: int) -> Iterator[MPI.Comm | None]:
    """Give the first ranks a communicator of their own, and None to the others, which wait at the end for them.

    Parameters
    ----------
    comm : MPI.Comm
        All ranks enter and leave together.
    count : int
        How many; at least 1, and at most all, who get `comm` itself.
    """
    count = min(max(count, 1), comm.size)
    if count == comm.size:
        yield comm
        return
    part = comm.Split(0 if comm.rank < count else MPI.UNDEFINED)
    try:
        yield None if part == MPI.COMM_NULL else part
    finally:
        done = comm.Ibarrier()
        while not done.Test():
            time.sleep(_NAP)
        if part != MPI.COMM_NULL:
            part.Free()


def greatest(comm: MPI.Comm, numbers: npt.ArrayLike) -> Floats:
    """Give the greatest of each number among all ranks, infinite where any has none (NaN); all ranks call."""
    found = np.array(numbers, np.float64)
    found[np.isnan(found)] = np.inf
    if comm.size > 1:
        comm.Allreduce(MPI.IN_PLACE, found, MPI.MAX)
    return found


def largest_magnitudes(comm: MPI.Comm, *vectors: Floats) -> Floats:
    """Give the largest magnitude in each vector among all ranks, infinite where one has a NaN; all ranks call."""
    return greatest(comm, [np.abs(vector).max(initial=0.0) for vector in vectors])


T = TypeVar("T")


def together(comm: MPI.Comm, action: Callable[[], T]) -> T:
    """Run an action that may find bad input or fail, and raise on all ranks if it does on any of them.

    Parameters
    ----------
    comm : MPI.Comm
        Every rank calls, with an action that raises before or after all of its communication.
    action : callable
        Its result is returned.

    Raises
    ------
    InputError, SimulationError
        On all ranks, that of the lowest rank that found one.
    KeyboardInterrupt, SystemExit
        On all ranks: a function of the user's raised it on one of them.
    """
    if comm.size == 1:
        try:
            return action()
        except HaltError as halt:
            raise halt.meant from None
    results: list[T] = []
    mine = None
    try:
        results.append(action())
    except (InputError, SimulationError) as error:
        mine = type(error), error.args
    failed = np.array(mine is not None)
    comm.Allreduce(MPI.IN_PLACE, failed, MPI.LOR)  # 1 us; a gathering of objects takes 10
    if failed:
        raise as_meant(first_failure(comm.allgather(mine)))
    return results[0]


def first_failure(found: Iterable[tuple[type[T], tuple[Any, ...]] | None]) -> T:
    """Give the error that ranks raise: the first, by type and arguments, but one that halts all is before others."""
    kind, arguments = max(filter(None, found), key=lambda failure: issubclass(failure[0], HaltError))
    return kind(*arguments)


def alike(comm: MPI.Comm, describe: Callable[[], dict[str, Any]]) -> None:
    """Refuse what ranks would not work on together: all have to call with the same.

    Parameters
    ----------
    comm : MPI.Comm
        All ranks call.
    describe : callable
        Gives what should be the same, by what a message calls it: texts and numbers, which it shows, or digests.

    Raises
    ------
    InputError
        On all ranks: names the first that differs, and which rank has which. Or what `describe` raises on any rank.
    """
    if comm.size == 1:
        return
    mine = together(comm, lambda: describe() | _sizes())
    number = int.from_bytes(hashlib.blake2b(marshal.dumps(mine, 2), digest_size=7).digest(), "big")
    most = np.array([number, -number])
    comm.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
    if most[0] != -most[1]:
        raise InputError(_difference(comm.allgather(mine)))


def _sizes() -> dict[str, Any]:
    used = tuned()
    return {f"the sizes ({VARIABLE})": None if used == PACKAGE else digest(repr(used))}


def _difference(described: list[dict[str, Any]]) -> str:
    """Say what differs first among the ranks."""
    what = next(
        name for mine in described for name in mine if any(other.get(name) != mine[name] for other in described)
    )
    groups: dict[Any, list[int]] = {}
    for rank, mine in enumerate(described):
        groups.setdefault(mine.get(what), []).append(rank)
    words = iter(("one", "another", *(["a third"] * len(groups))))
    shown = (
        f"{'none' if value is None else next(words) if isinstance(value, bytes) else value} on {_ranks(ranks)}"
        for value, ranks in groups.items()
    )
    return f"the ranks disagree on {what}: {', '.join(shown)}; all of them must be given the same"


def _ranks(ranks: list[int]) -> str:
    """Name some ranks."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]} to {ranks[-1]}"
    listed = ", ".join(map(str, ranks[:8]))
    return f"ranks {listed}" if len(ranks) <= 8 else f"{len(ranks)} ranks ({listed}, ...)"


def same_system(
    comm: MPI.Comm, given: object, prepare: Callable[[Contents], tuple[T, Mapping[str, Any]]]
) -> tuple[Contents, T]:
    """Give the system that all ranks were given, by itself or by name, with the same settings; all ranks call.

    Parameters
    ----------
    prepare : callable
        Checks what else was given, with the system; gives it as it is used, and by name as `alike` compares it.

    Returns
    -------
    system : Contents
    prepared : object
        What `prepare` gave first.

    Raises
    ------
    InputError
        On all ranks: it is no system, or `prepare` refuses what else was given, on any rank; or they differ between
        ranks.
    """

    def checked() -> tuple[Contents, T, Mapping[str, Any]]:
        system = contents_from(given)
        return system, *prepare(system)

    given = read_once(comm, given)
    system, prepared, described = together(comm, checked)
    alike(comm, lambda: {**facts(system), **described})
    return system, prepared


def read_once(comm: MPI.Comm, given: object) -> object:
    """Give the system of a robot's file that all ranks were given, which rank 0 alone reads; else what was given.

    So no other rank needs the file, nor what reads it.
    """
    if comm.size == 1:
        return given
    named = os.fspath(given) if isinstance(given, str | os.PathLike) and is_robot(given) else None
    everywhere = comm.allgather(named)
    if named is None or set(everywhere) != {named}:
        return given

    def read() -> tuple[str, tuple[str, ...], tuple[JointRead, ...]]:
        system = contents_from(named)
        return system_text(system), system.left_out, system.coordinates

    text, left_out, coordinates = comm.bcast(on_root(comm, read))
    system = system_from_text(text, named).contents
    system.left_out, system.coordinates = left_out, coordinates
    return system


def communicator(given: object) -> MPI.Comm:
    """Give the communicator that a user gave, or that of all ranks of the job for none.

    Raises
    ------
    InputError
        It is none.
    """
    let_jobs_start()
    if given is None:
        return MPI.COMM_WORLD
    if not isinstance(given, MPI.Comm) or given == MPI.COMM_NULL:
        raise InputError(f"comm must be a communicator of mpi4py, such as MPI.COMM_WORLD, got {given!r}")
    if given.Is_inter():
        raise InputError("comm is an intercommunicator, between two groups: give one of a single group, as its Merge()")
    return given


def on_root(comm: MPI.Comm, action: Callable[[], T]) -> T | None:
    """Run an action on rank 0 only; bad input found there is raised on all ranks. Other ranks get None."""
    return together(comm, lambda: action() if comm.rank == 0 else None)


_guards = 0  # blocks of `abort_on_error` that are open


@contextmanager
def abort_on_error(comm: MPI.Comm) -> Iterator[None]:
    """End the whole job if an exception leaves this block on any rank, with a traceback that names the rank.

    On several ranks that is so for `sys.exit` too: the others don't know of it, and would wait for ever.
    """
    global _guards
    _guards += 1
    try:
        yield
    except BaseException as error:
        if by_all_ranks(error) is not None or (comm.size == 1 and isinstance(error, SystemExit | KeyboardInterrupt)):
            raise
        sys.stdout.flush()
        sys.stderr.write(f"[rank {comm.rank} of {comm.size}] {traceback.format_exc()}")
        sys.stderr.flush()
        if comm.size == 1:
            sys.exit(1)
        comm.Abort(1)
    finally:
        _guards -= 1


def guarded() -> bool:
    """Whether a rank that raises ends the whole job: by us, `python -m mpi4py`, pytest-mpi or a hook of the user's."""
    ours = {"mpi4py.run", "pytest_mpi"} & set(sys.modules)
    return bool(_guards or ours) or sys.excepthook is not sys.__excepthook__


_warned = False


def warn_unguarded(comm: MPI.Comm) -> None:
    """Say once, on rank 0, how a script is started so that a rank that raises leaves no others waiting."""
    global _warned
    if comm.rank == 0 and comm.size > 1 and not (_warned or guarded()):
        _warned = True  # filters of warnings change, and it would come again
        warn_caller(
            f"{comm.size} ranks, and where one of them raises outside of mpimbs the others wait for ever: start "
            f"the script with mpiexec -n {comm.size} python -m mpi4py SCRIPT.py"
        )


def first_on_node(comm: MPI.Comm, action: Callable[[], None]) -> None:
    """Run an action on the first rank of every node, then on the others: compile once, then load."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        try:
            if node.rank == 0:
                with many_objects(), COMPILING.meant():
                    action()
        finally:
            node.Barrier()  # the others find the same error themselves
        if node.rank > 0:
            action()
    finally:
        node.Free()


class Rounds:
    """Gives what any rank has told, round after round; a round is over when every rank has told its facts.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own; it must outlive this. All ranks make it together.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._told, self._heard = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._request: MPI.Request | None = None
        self._asks = 0  # not told yet

    def __call__(self, facts: int, asks: int, wait: bool) -> int | None:
        """Tell facts and what is asked for, and give what all have told; None while others work.

        Parameters
        ----------
        facts : int
            In bits, of this round: what was told first in it counts.
        asks : int
            In bits. What comes after this rank has told is told in the next round.
        wait : bool
            Wait for the others.
        """
        self._asks |= asks
        if self._request is None:
            self._told[0], self._asks = facts | self._asks, 0
            if self._comm.size == 1:
                return int(self._told[0])
            self._request = self._comm.Iallreduce(self._told, self._heard, MPI.BOR)
        if wait:
            self._request.Wait()
        elif not self._request.Test():
            return None
        self._request = None
        return int(self._heard[0])
