"""The course of a run, of a system or of copies, to its end: its output, begun or gone on with, and checkpoints."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InterruptionError, SimulationError, by_all_ranks, interrupted, undisturbed
from mpimbs.base.lock import Lock
from mpimbs.base.places import check_new, check_writable
from mpimbs.base.sizes import tuned
from mpimbs.dynamics.selection import Selection
from mpimbs.files.checkpoint import Kept, restart_call, write_checkpoint
from mpimbs.files.motion import Motion
from mpimbs.files.output import NOWHERE, PATIENCE, OutputError, OutputFile
from mpimbs.files.output_layout import versions
from mpimbs.files.sample_writer import SampleWriter
from mpimbs.files.samples import Samples
from mpimbs.model.contents import Contents
from mpimbs.model.text.writing import holds_functions
from mpimbs.parallel.agreement import on_root, together
from mpimbs.run.keeper import Keeper, Signals, check_free, clear, place_of
from mpimbs.run.progress import Progress, Stepping
from mpimbs.run.recorder import Store
from mpimbs.run.result import EnsembleResult, Result
from mpimbs.stepping.settings import Checkpoints, SampleTimes, SimulationSettings

Ended = TypeVar("Ended", Result, EnsembleResult)


class Wanted(NamedTuple):
    """What is asked of a run, beside its system and where that begins."""

    settings: SimulationSettings
    output: Path | None
    checkpoints: Checkpoints | None
    signals: Signals
    kept: Kept | None = None  # it goes on from this


class RunFiles:
    """The files of a run; all ranks make it together and call.

    Attributes
    ----------
    output : Path or None
    checkpoints : Checkpoints
    place : Path or None
        Of the checkpoints, where there are any.
    run : str or None
        What tells the output from others.
    kept : Kept or None
    store : Samples, SampleWriter or None
        Where samples go.

    Raises
    ------
    InputError
        On all ranks; see `place_of`.
    """

    def __init__(self, comm: MPI.Comm, wanted: Wanted) -> None:
        self._comm, self._force = comm, wanted.settings.force
        self.output, self.kept = wanted.output, wanted.kept
        self.checkpoints = wanted.checkpoints or Checkpoints()
        keeps = wanted.checkpoints is not None or (wanted.signals.enabled and self.output is not None)
        self.place = together(comm, lambda: place_of(self.checkpoints, self.output)) if keeps else None
        self.run: str | None = None
        self.store: Store | None = None
        self._lock: Lock | None = None  # on rank 0, of the checkpoints

    def open(
        self,
        begin: Callable[[Path], OutputFile],
        widths: dict[str, int],
        shapes: dict[str, tuple[int, ...]],
        rows: list[int],
    ) -> Store:
        """Begin the output, or go on with it; gives `store`.

        Parameters
        ----------
        begin : callable
            Makes a new one, on rank 0.
        widths : dict
            How many numbers of a sample this rank has, by their names.
        shapes : dict
            See `SampleWriter`.
        rows : list of int
            How many samples each segment has, of an output to go on with.

        Raises
        ------
        InputError
            On all ranks: it can't be written, or gone on with.
        """
        comm, path, kept = self._comm, self.output, self.kept
        if path is None:
            self.store = Samples(comm, widths, shapes)
            return self.store
        with undisturbed():
            file = on_root(comm, lambda: self._begin(path, begin) if kept is None else self._go_on(path, kept, rows))
            self.run = comm.bcast(None if file is None else file.run)
            self.store = SampleWriter(comm, file, path, widths, shapes)
        return self.store

    def next(
        self, widths: dict[str, int], shapes: dict[str, tuple[int, ...]], begin: Callable[[OutputFile], None]
    ) -> Store:
        """Go on with samples of another structure, for which `begin` makes room in the output, on rank 0."""
        assert self.store is not None
        self.store = self.store.next(widths, shapes, begin)
        return self.store

    def _begin(self, path: Path, begin: Callable[[Path], OutputFile]) -> OutputFile:
        check_new(path, self._force, instead=NOWHERE)
        if self.place is not None:
            check_free(self.place, self.checkpoints.keep, self._force)
            self._lock = Lock(self.place)
        file = begin(path)
        if self.place is not None:
            clear(self.place)  # not before: they may be all that there is of an earlier run
        return file

    def _go_on(self, path: Path, kept: Kept, rows: list[int]) -> OutputFile:
        if self.place is not None:
            if self.place not in (kept.file, kept.place):
                check_free(self.place, self.checkpoints.keep, self._force)
            check_writable(self.place, "checkpoints.path")
            self._lock = Lock(self.place, PATIENCE)
        return OutputFile.continued(path, kept.header["run"], rows)

    def motion(
        self, structures: list[Callable[[int], Contents]], rows: list[int], selection: Selection, *of_copies: Any
    ) -> Motion | None:
        """Give what was kept, on rank 0: of each structure so many samples; see `Motion`. All ranks call."""
        store = self.store
        if isinstance(store, Samples):
            store.sync()
            return None if self._comm.rank else Motion.in_memory(store, structures, rows, selection, *of_copies)
        assert self.output is not None and self.run is not None
        return None if self._comm.rank else Motion.in_file(self.output.absolute(), self.run, len(rows), *of_copies)

    def header(self, systems: Sequence[Contents], settings: SimulationSettings) -> dict[str, Any]:
        """Give the header of the checkpoints of a run of these systems, as far as it is the same for all."""
        assert self.place is not None and self.output is not None
        first = systems[0]
        return {
            "name": first.name, "run": self.run, "has_functions": any(map(holds_functions, systems)),
            "forces": [] if first.loads.before_modules is None else list(first.loads.modules),
            "settings": settings.data(), "versions": versions(), "sizes": tuned().told(),
            "output": os.path.relpath(self.output, self.place.parent), "place": self.place.name,
            "checkpoints": self.checkpoints.data() | {"path": None}, "restarts": self.restarts(),
        }  # fmt: skip

    def going_on(self, header: dict[str, Any]) -> str:
        """How the run is continued, for a message."""
        assert self.place is not None
        return restart_call(self.place, header)

    def write(
        self, unchanging: dict[str, Any], time: float, count: int, state: Any, vectors: dict[str, Floats]
    ) -> str | None:
        """Write a checkpoint of a time (s), with so many samples; see `write_checkpoint`. All ranks call."""
        assert self.place is not None
        header = unchanging | {"time": time, "count": count, "state": state}
        return write_checkpoint(self.place, self.checkpoints.keep, header, vectors, self._comm)

    def restarts(self) -> list[dict[str, float]]:
        """Where the run has gone on from checkpoints, and on how many ranks."""
        if self.kept is None:
            return []
        header = self.kept.header
        return [*header["restarts"], {"time": header["time"], "ranks": self._comm.size}]

    def abandon(self) -> None:
        """Let go of all files, where an error has left them as they are."""
        if isinstance(self.store, SampleWriter):
            self.store.abandon()
        self.release()

    def release(self) -> None:
        """Let other runs write checkpoints where this one did."""
        if self._lock is not None:
            self._lock.release()


class Course(ABC, Generic[Ended]):
    """The course of a run, of a system or of copies, from its begin or a checkpoint to its end.

    All ranks make it together and call. An error of the simulation ends it, with what it has, and is raised.

    Attributes
    ----------
    outcome : Result, EnsembleResult or None
        Of a run that has ended.
    files : RunFiles
    """

    outcome: Ended | None = None
    _comm: MPI.Comm
    _times: SampleTimes

    def _begin_files(self, wanted: Wanted) -> None:
        """Open the files, and make ready what is stepped; where that fails all files are let go of."""
        self.files = RunFiles(self._comm, wanted)
        try:
            self._set_up()
        except BaseException as error:
            self.files.abandon()
            if isinstance(error, KeyboardInterrupt) and not error.args:
                error.args = ("the simulation had not begun",)
            raise
        given = self.files.checkpoints, self.files.place, wanted.signals
        self._keeper = Keeper(self._comm, *given, self._save, lambda: self.files.going_on(self._unchanging))

    @abstractmethod
    def _set_up(self) -> None:
        """Begin the output, or go on with it, and make ready what is stepped."""

    @property
    @abstractmethod
    def _unchanging(self) -> dict[str, Any]:
        """The part of a checkpoint's header that is the same for all."""

    @abstractmethod
    def _save(self) -> str | None:
        """Write a checkpoint between steps; gives the reason why not."""

    @property
    @abstractmethod
    def stepper(self) -> Stepping:
        """What takes the steps."""

    @property
    @abstractmethod
    def time(self) -> float:
        """Time (s) that was reached, of an ensemble by all copies."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether the last sample is taken."""

    @abstractmethod
    def step(self, several: bool = False) -> None:
        """Take one step, not beyond an event or the end, or several with nothing to do between them.

        Of an integrator that knows no states between the ends of its steps, not beyond a sample.
        """

    def stiff(self) -> str:
        """Say what there is to say of the steps; empty where there is nothing."""
        return ""

    def to_end(self, progress: bool) -> None:
        """Take steps to the end; `progress` shows it on rank 0."""
        with Progress(self._times.t_end, progress and self._comm.rank == 0, t_begin=self.stepper.time) as shown:
            while not self.ended:
                self.step(several=True)
                shown.show(self.stepper)
                if told := self.stiff():
                    shown.note(told)

    @abstractmethod
    def result(self, status: str) -> Ended:
        """Give what is known of the run so far."""

    @abstractmethod
    def _finish(self) -> None:
        """Wait until all samples are on the disk."""

    def _keep_last(self, result: Ended) -> None:  # most keep nothing
        """Write what is known in the end alone, or give it to the result."""

    @abstractmethod
    def _close(self, result: Ended) -> None:
        """Free what it holds, behind the end of its output."""

    def end(self, error: SimulationError | None = None, status: str = "complete") -> Ended:
        """End the run, and complete its output. Raises what broke it, or what breaks now, with how to go on."""
        files = self.files
        try:
            if error is None:
                self._finish()
        except SimulationError as stopped:
            error = stopped
        self.outcome = result = self.result(status if error is None else f"stopped: {error}")
        try:
            if files.store is not None and not isinstance(error, OutputError):  # which has ended it
                self._keep_last(result)
                files.store.close(result.status, result.statistics(), isinstance(error, InterruptionError))
        except OutputError as broken:
            error = error or broken
        files.release()
        if isinstance(error, OutputError):
            error = OutputError(f"{error}{self._keeper.hint()}")
        self._close(result)
        if error is not None:
            raise error
        return result

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """End the run where a SimulationError leaves this block."""
        try:
            yield
        except SimulationError as stopped:
            self.end(stopped)

    def broken(self, error: BaseException, instead: str = "") -> None:
        """End what a Ctrl-C or a fault has stopped, with its output, if all ranks know of it.

        `instead` is what else would have kept the samples where there is no output.
        """
        if self.outcome is not None or (self._comm.size > 1 and by_all_ranks(error) is None):
            return
        output = self.files.output
        kept = f"{output} has its samples" if output else f"its samples are lost; give an `output`{instead}"
        with undisturbed():
            try:
                self.end(status=interrupted(error, self.time, kept))
            except Exception:  # of what is half done
                self.files.abandon()
