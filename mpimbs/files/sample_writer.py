"""Samples on their way to the output file: each rank keeps its own part of some, then all write them together."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.disk import reason_of
from mpimbs.base.errors import undisturbed
from mpimbs.base.sizes import tuned
from mpimbs.files.output import OutputError, OutputFile, Rows, part_of
from mpimbs.files.slices import SharedFile, Slices
from mpimbs.parallel.agreement import on_root, together

FLUSH_SECONDS = 1.0
FLUSH_BYTES = 2**24  # of a rank


class SampleWriter:
    """Writes samples to an output file; all ranks make it together and call.

    No rank ever holds a whole sample. Where all ranks may write to the file, each writes its own columns of large
    datasets itself, at places that rank 0 has laid out; all else passes through rank 0 in slices.

    Parameters
    ----------
    comm : MPI.Comm
        Must outlive it.
    file : OutputFile or None
        On rank 0.
    path : Path
        Of the output.
    widths : dict of str to int
        How many numbers of a sample this rank has, by dataset: blocks of the model's order.
    shapes : dict of str to tuple of int
        What shape the whole sample of a dataset has: numbers of one row stay together.

    Raises
    ------
    OutputError
        On all ranks, by all methods: the file can't be written any more, or another run has taken its place.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        file: OutputFile | None,
        path: Path,
        widths: dict[str, int],
        shapes: dict[str, tuple[int, ...]],
    ) -> None:
        self._comm, self._file, self._path = comm, file, path
        self._part = part_of(path)
        self._slices = {name: Slices(comm, width, math.prod(shapes[name][1:])) for name, width in widths.items()}
        self._shared = SharedFile(comm, self._part)
        least = tuned().sample_bytes * comm.size
        large = [name for name, plan in self._slices.items() if 8 * sum(plan.counts) >= least]
        self._direct = large if self._shared.usable else []
        self._own: dict[str, list[Floats]] = {name: [] for name in widths}
        self._common: dict[str, list[Any]] = {}
        self._count = 0
        self._bytes = 8 * sum(widths.values())  # of a sample
        self._flushed = -np.inf  # the first sample shows at once

    def next(
        self, widths: dict[str, int], shapes: dict[str, tuple[int, ...]], begin: Callable[[OutputFile], None]
    ) -> SampleWriter:
        """Give what writes the samples of another structure behind these, to the same file.

        Parameters
        ----------
        begin : callable
            Makes room for them in the file, on rank 0.
        """
        self._flush()
        self._shared.close()
        self._on_root(begin)
        return SampleWriter(self._comm, self._file, self._path, widths, shapes)

    def due(self, count: int) -> bool:
        """Whether samples have to be written with so many more: rank 0 says it, for all."""
        late = time.monotonic() - self._flushed > FLUSH_SECONDS
        return self._comm.rank == 0 and (late or (self._count + count) * self._bytes > FLUSH_BYTES)

    def add(self, own: dict[str, Floats], common: dict[str, Any], due: bool) -> None:
        """Take samples: this rank's blocks of them, and what all ranks have [samples, ...]; then write, if this is
        due."""
        count = len(common["time"])
        with undisturbed():
            for name, values in own.items():
                self._own[name].extend(np.ascontiguousarray(values).reshape(count, -1))
            for name, values in common.items():
                self._common.setdefault(name, []).extend(values)
            self._count += count
            if due:
                self._flush()

    def put_extremes(self, found: dict[str, Floats]) -> dict[str, Floats]:
        """Write the extremes of all steps: four rows of this rank's numbers, by quantity; there is nothing to give."""
        for name, rows in found.items():
            Slices(self._comm, rows.shape[1]).collect(list(rows), functools.partial(self._put, f"extremes/{name}"))
        self._on_root(lambda file: file.check())
        return {}

    def _put(self, name: str, rows: slice, columns: slice, piece: Floats) -> None:
        assert self._file is not None
        self._file.put(name, rows, columns, piece)

    def sync(self) -> None:
        """Wait until all samples so far are on the disk."""
        self._flush()
        self._each(self._shared.sync)
        self._on_root(lambda file: file.sync())

    def close(self, status: str, statistics: dict[str, Any], unfinished: bool = False) -> None:
        """Write what waits, add the outcome, and give the file its name, unless it is to be continued.

        Parameters
        ----------
        status : str
            "complete", or why the run stopped.
        statistics : dict
            Steps, evaluations and seconds by phase; kept as an attribute in JSON.
        """
        try:
            self._flush()
            self._each(self._shared.sync)
        finally:
            self._shared.close()
        self._on_root(lambda file: file.leave(status, statistics) if unfinished else file.finish(status, statistics))

    def abandon(self) -> None:
        """Let go of a file that can't be written any more."""
        self._shared.close()
        if self._file is not None:
            self._file.abandon()

    def _flush(self) -> None:
        """Bring the samples that wait to the file."""
        if self._count == 0:
            return
        places = self._comm.bcast(self._on_root(lambda file: file.extend(self._count, self._direct)))
        for name in self._slices:
            if name not in self._direct:
                self._through_root(name)
        if self._direct:
            self._each(lambda: self._shared.write(self._pieces(places)))
        self._on_root(lambda file: file.commit(self._common))
        self._own = {name: [] for name in self._own}
        self._common, self._count = {}, 0
        self._flushed = time.monotonic()

    def _through_root(self, name: str) -> None:
        """Write a dataset's numbers of all ranks by rank 0."""

        def take(rows: slice, columns: slice, piece: Floats) -> None:
            assert self._file is not None
            self._file.write(name, rows, columns, piece)

        self._slices[name].collect(self._own[name], take)

    def _pieces(self, places: dict[str, Rows]) -> Iterator[tuple[int, Floats]]:
        """This rank's parts of the rows of large datasets, and where they go."""
        for name in self._direct:
            begin = 8 * self._slices[name].columns.start
            for row, values in enumerate(self._own[name]):
                yield places[name].place(row) + begin, values

    def _each(self, action: Callable[[], None]) -> None:
        """Have every rank do what the operating system may refuse."""

        def agreed() -> None:
            try:
                action()
            except OSError as error:
                raise OutputError(f"{self._part}: can't be written any more ({reason_of(error)})") from None

        try:
            together(self._comm, agreed)
        except OutputError:
            self.abandon()
            raise

    def _on_root(self, action: Callable[[OutputFile], Any]) -> Any:
        """Have rank 0 do something with the file."""
        file = self._file
        try:
            return on_root(self._comm, lambda: None if file is None else action(file))
        except OutputError:
            self.abandon()
            raise
