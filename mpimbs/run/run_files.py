"""The files of a run: its output, begun or gone on with, and the place of its checkpoints."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from mpimbs.base.errors import InterruptionError, SimulationError, by_all_ranks, interrupted, undisturbed
from mpimbs.base.lock import Lock
from mpimbs.base.places import check_new, check_writable
from mpimbs.base.sizes import tuned
from mpimbs.dynamics.selection import Selection
from mpimbs.files.checkpoint import Kept, restart_call
from mpimbs.files.motion import Motion
from mpimbs.files.output import NOWHERE, PATIENCE, OutputError, OutputFile
from mpimbs.files.output_layout import versions
from mpimbs.files.sample_writer import SampleWriter
from mpimbs.files.samples import Samples
from mpimbs.model.contents import Contents
from mpimbs.model.text.writing import holds_functions
from mpimbs.parallel.agreement import on_root, together
from mpimbs.run.keeper import check_free, clear, place_of
from mpimbs.run.result import EnsembleResult, Result
from mpimbs.stepping.settings import Checkpoints, SimulationSettings


class RunFiles:
    """The files of a run; all ranks make it together and call.

    Parameters
    ----------
    signals : bool
        Signals ask for checkpoints too.
    kept : Kept or None
        The run goes on from this.
    force : bool
        Files of an earlier run may be replaced.

    Attributes
    ----------
    output : Path or None
    checkpoints : Checkpoints
    place : Path or None
        Of the checkpoints, where there are any.
    run : str or None
        What tells the output from others.
    kept : Kept or None

    Raises
    ------
    InputError
        On all ranks; see `place_of`.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        output: Path | None,
        checkpoints: Checkpoints | None,
        signals: bool,
        kept: Kept | None,
        force: bool,
    ) -> None:
        self._comm, self._force = comm, force
        self.output, self.kept = output, kept
        self.checkpoints = checkpoints or Checkpoints()
        keeps = checkpoints is not None or (signals and output is not None)
        self.place = together(comm, lambda: place_of(self.checkpoints, output)) if keeps else None
        self.run: str | None = None
        self._lock: Lock | None = None  # on rank 0, of the checkpoints
        self._writer: SampleWriter | None = None

    def open(
        self,
        begin: Callable[[Path], OutputFile],
        widths: dict[str, int],
        shapes: dict[str, tuple[int, ...]],
        rows: list[int],
    ) -> Samples | SampleWriter:
        """Begin the output, or go on with it.

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
            return Samples(comm, widths, shapes)
        with undisturbed():
            file = on_root(comm, lambda: self._begin(path, begin) if kept is None else self._go_on(path, kept, rows))
            self.run = comm.bcast(None if file is None else file.run)
            self._writer = SampleWriter(comm, file, path, widths, shapes)
        return self._writer

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
        self,
        store: Samples | SampleWriter,
        structures: list[Callable[[int], Contents]],
        rows: list[int],
        selection: Selection,
        *of_copies: Any,
    ) -> Motion | None:
        """Give what was kept, on rank 0: of each structure so many samples; see `Motion`. All ranks call."""
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

    def restarts(self) -> list[dict[str, float]]:
        """Where the run has gone on from checkpoints, and on how many ranks."""
        if self.kept is None:
            return []
        header = self.kept.header
        return [*header["restarts"], {"time": header["time"], "ranks": self._comm.size}]

    @contextlib.contextmanager
    def setting_up(self) -> Iterator[None]:
        """Let go of all files where an error leaves this block, in which a run is made; a Ctrl-C gets words."""
        try:
            yield
        except BaseException as error:
            self.abandon()
            if isinstance(error, KeyboardInterrupt) and not error.args:
                error.args = ("the simulation had not begun",)
            raise

    def end(
        self,
        store: Samples | SampleWriter,
        result: Result | EnsembleResult,
        error: SimulationError | None,
        hint: Callable[[], str],
        before: Callable[[], None] = lambda: None,
    ) -> SimulationError | None:
        """Complete the output with a result, and let go of all files; all ranks call.

        Gives the error that has ended the run, or what breaks now, with a hint how to go on. `before` writes the last
        that there is.
        """
        try:
            if not isinstance(error, OutputError):  # which has ended it
                before()
                store.close(result.status, result.statistics(), isinstance(error, InterruptionError))
        except OutputError as broken:
            error = error or broken
        self.release()
        return OutputError(f"{error}{hint()}") if isinstance(error, OutputError) else error

    def broken(self, error: BaseException, t: float, instead: str, end: Callable[..., object]) -> None:
        """End what a Ctrl-C or a fault has stopped at a time (s), with its output, if all ranks know of it.

        `instead` is what would have kept the samples where there is no output.
        """
        if self._comm.size > 1 and by_all_ranks(error) is None:
            return
        kept = f"its samples are lost; {instead}" if self.output is None else f"{self.output} has its samples"
        with undisturbed():
            try:
                end(status=interrupted(error, t, kept))
            except Exception:  # of what is half done
                self.abandon()

    def abandon(self) -> None:
        """Let go of all files, where an error has left them as they are."""
        if self._writer is not None:
            self._writer.abandon()
        self.release()

    def release(self) -> None:
        """Let other runs write checkpoints where this one did."""
        if self._lock is not None:
            self._lock.release()
