"""The output file (HDF5): written as a whole or not at all, readable whatever happens to the run.

The samples go to `OUT.part`, flushed now and then in HDF5's single-writer mode, so that they can be read while the run
goes on or after it died; at the end the file gets its timing and its name. HDF5 is used by rank 0 alone; the other
ranks write their columns of large datasets at the places that it gives.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.disk import check_room, claim, flush_to_disk, reason_of
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.base.lock import Lock
from mpimbs.base.places import check_new, check_place, part_of
from mpimbs.files.output_layout import PAGED, SEGMENTS, make_dataset
from mpimbs.files.reading import newest, open_hdf5

METADATA = 2**18  # bytes that a flush adds to the samples, at the most
COPIED = 2**24  # bytes at a time
PATIENCE = 5.0  # s that a restart waits for the run before it, which may be about to end
NOWHERE = "; from Python, mpimbs.simulate(system, t_end) writes none"


class OutputError(SimulationError):
    """The output can't be written any more; what was flushed before stays readable."""


class Rows(NamedTuple):
    """Where new rows of a dataset are in the file."""

    first: int  # of the new ones, in the dataset
    chunk: int  # rows of a chunk
    size: int  # bytes of a row
    places: list[int]  # of the chunks from that of the first row on, in bytes from the begin of the file

    def place(self, row: int) -> int:
        """Give the place of a new row."""
        before = self.first % self.chunk + row
        return self.places[before // self.chunk] + before % self.chunk * self.size


class OutputFile:
    """Writes samples to an HDF5 file; on rank 0 only, driven by a `SampleWriter`.

    Parameters
    ----------
    path : Path
        The file to be.
    lay : callable
        Writes what it begins with, such as `lay_out`.
    force : bool
        Replace an existing file.

    Raises
    ------
    InputError
        The file exists (without `force`), can't be written, or is being written by another process.
    """

    def __init__(self, path: Path, lay: Callable[[h5py.File], None], force: bool) -> None:
        self.run = uuid.uuid4().hex  # what tells this run from others; also in the file, and in checkpoints
        self._prepare(path)
        check_new(path, force, instead=NOWHERE)
        check_place(self._fresh)
        with contextlib.ExitStack() as after_error:
            self._lock = Lock(path)
            after_error.callback(self._lock.release)
            self._file = self._begun(lay)
            after_error.pop_all()
        self._place: h5py.Group = self._file  # of the samples that come next
        self._file.swmr_mode = True

    def _begun(self, lay: Callable[[h5py.File], None]) -> h5py.File:
        """Make the file, which takes the place of what an earlier run has left only when it is there."""
        try:
            self._fresh.unlink(missing_ok=True)
            check_room(self._fresh, METADATA)
            file = h5py.File(self._fresh, "w", **PAGED)
            claim(file.id.get_vfd_handle(), 0, METADATA)
            lay(file)
            file.attrs["run"] = self.run
            file.flush()
            self._fresh.replace(self._part)
            return file
        except OSError as error:
            self._fresh.unlink(missing_ok=True)
            raise InputError(
                f"{self._path}: cannot be written ({reason_of(error)}); choose another place with `output`"
            ) from None

    def _prepare(self, path: Path) -> None:
        self._path, self._part = path, part_of(path)
        self._fresh = self._part.with_name(self._part.name + ".new")
        self._claimed = 0  # bytes of the file
        self._first = 0  # row of the last flush
        self._open_rows = False  # it goes on
        self._error: OutputError | None = None

    @classmethod
    def continued(cls, path: Path, run: str, rows: list[int]) -> OutputFile:
        """Go on with the output of a run that did not end, behind so many samples of each of its segments.

        They are copied, in slices, to a new file that takes the place of the unfinished one: whatever stands behind
        them, or was being written when the run died, is left out.

        Raises
        ------
        InputError
            There is no such output, it is complete or that of another run, it is damaged, or lacks samples; or its
            run goes on.
        """
        file = cls.__new__(cls)
        file._prepare(path)
        file.run = run
        source, fresh = newest(path, run), file._fresh
        for place in (path, file._part, fresh):
            check_place(place)
        with contextlib.ExitStack() as after_error:
            file._lock = Lock(path, PATIENCE)
            after_error.callback(file._lock.release)
            file._file = _continued(source, fresh, file._part, run, rows)
            file._place = file._file[f"{SEGMENTS}/{len(rows) - 1}"] if len(rows) > 1 else file._file
            after_error.pop_all()
        return file

    def begin_segment(self, number: int, lay: Callable[[h5py.Group], None]) -> None:
        """Make room for the samples of another structure, and have what they begin with written; on its own."""
        with self._writing():
            self._file.close()  # readers may look at it meanwhile: nothing else can be added to it
            self._file = h5py.File(self._part, "r+", **PAGED)
            self._claimed = 0
            self._place = self._file.create_group(f"{SEGMENTS}/{number}")
            lay(self._place)
            self._file.swmr_mode = True

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn what the file system or HDF5 says into an `OutputError`."""
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            raise OutputError(f"{self._part}: can't be written any more ({reason_of(error)})") from None

    def abandon(self) -> None:
        """Let go of a file that can't be written any more, with the samples of the flushes before."""
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            if self._open_rows:
                for item in self._data().values():
                    item.resize(min(self._first, len(item)), axis=0)
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self._file.close()
        self._lock.release()

    def extend(self, count: int, direct: list[str]) -> dict[str, Rows]:
        """Make room for so many samples, and say where the rows of some datasets are; `commit` makes them visible."""
        with self._writing():
            data = self._data()
            self._first = len(data["time"])
            self._claim_room(count, data)
            self._open_rows = True
            for item in data.values():
                item.resize(self._first + count, axis=0)
            return {name: self._rows(data[name]) for name in direct}

    def _data(self) -> dict[str, h5py.Dataset]:
        return {name: item for name, item in self._place.items() if isinstance(item, h5py.Dataset)}

    def _claim_room(self, count: int, data: dict[str, h5py.Dataset]) -> None:
        """Claim room for new samples, the chunks that they begin, and the end of the file."""
        size = METADATA
        for item in data.values():
            size += count * _row_bytes(item) + 8 * int(np.prod(item.chunks))
            size += (count // item.chunks[0] + 1) * PAGED["alignment_interval"]
        end = self._file.id.get_filesize() + size
        if end > self._claimed:
            claim(self._file.id.get_vfd_handle(), self._claimed, end)
            self._claimed = end

    def _rows(self, item: h5py.Dataset) -> Rows:
        chunk, rest = item.chunks[0], (0,) * (item.ndim - 1)
        begins = range(self._first // chunk * chunk, len(item), chunk)
        places = [item.id.get_chunk_info_by_coord((row, *rest)).byte_offset for row in begins]
        return Rows(self._first, chunk, _row_bytes(item), places)

    def write(self, name: str, rows: slice, columns: slice, piece: Floats) -> None:
        """Write numbers of whole bodies to rows and columns of a dataset's new part; `commit` raises what is wrong."""
        if self._error is not None:
            return
        try:
            with self._writing():
                data = self._place[name]
                width = int(np.prod(data.shape[2:]))  # numbers of a body
                places = (
                    slice(self._first + rows.start, self._first + rows.stop),
                    slice(columns.start // width, columns.stop // width),
                )
                data[places] = piece.reshape(len(piece), -1, *data.shape[2:])
        except OutputError as error:
            self._error = error

    def put(self, name: str, rows: slice, columns: slice, piece: Floats) -> None:
        """Write a part of a dataset that has its size from the begin; `check` raises what is wrong."""
        if self._error is not None:
            return
        try:
            with self._writing():
                self._place[name][rows, columns] = piece
        except OutputError as error:
            self._error = error

    def check(self) -> None:
        """Raise what was wrong."""
        if self._error is not None:
            raise self._error

    def commit(self, common: dict[str, list[Any]]) -> None:
        """Write what samples have that isn't distributed, and let readers see them."""
        self.check()
        with self._writing():
            for name, values in common.items():
                self._place[name][self._first :] = values
            self._file.flush()
            self._open_rows = False
        self._lock.show_life()

    def sync(self) -> None:
        """Wait until all that was written is on the disk; raises `OutputError`."""
        with self._writing():
            self._check_place()
            flush_to_disk(self._part)

    def _check_place(self) -> None:
        """Raise an OSError if another run has put its file into the place of this one."""
        if not os.path.samestat(os.stat(self._part), os.fstat(self._file.id.get_vfd_handle())):
            raise OSError("another run goes on with it, restarted while this one still ran")

    def finish(self, status: str, statistics: dict[str, Any]) -> None:
        """Close the file, add the outcome, and give it its name; see `SampleWriter.close`."""
        self._close(status, statistics)
        with self._writing():
            self._part.replace(self._path)
        self._lock.release()

    def leave(self, status: str, statistics: dict[str, Any]) -> None:
        """Close the file as `finish` does, but keep it unfinished, to be continued."""
        self._close(status, statistics)
        self._lock.release()

    def _close(self, status: str, statistics: dict[str, Any]) -> None:
        with self._writing():
            self._check_place()
            self._file.close()
            with h5py.File(self._part, "r+", **PAGED) as file:
                file.attrs.update(status=status, statistics=json.dumps(_plain(statistics), allow_nan=False))
            flush_to_disk(self._part)


_NOT_FINITE = "not finite"


def _plain(value: Any) -> Any:
    """Statistics as JSON has them: an object of one string for what is no finite number."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {_NOT_FINITE: str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def read_statistics(file: h5py.File) -> dict[str, Any]:
    """Give the statistics of a run's output file; none while it goes on."""

    def numbers(found: dict[str, Any]) -> Any:
        return float(found[_NOT_FINITE]) if list(found) == [_NOT_FINITE] else found

    found: dict[str, Any] = json.loads(file.attrs.get("statistics", "{}"), object_hook=numbers)
    return found


def _row_bytes(item: h5py.Dataset) -> int:
    return 8 * int(np.prod(item.shape[1:]))


def _continued(source: Path, fresh: Path, part: Path, run: str, rows: list[int]) -> h5py.File:
    """Put a copy of an output's first samples into the place of the unfinished one, and open it."""
    try:
        fresh.unlink(missing_ok=True)
        _copy(source, fresh, run, rows)
        fresh.replace(part)
        file = h5py.File(part, "r+", **PAGED)
        file.swmr_mode = True
        return file
    except FileNotFoundError:
        raise InputError(
            f"{part}: there is no such file: the samples before the checkpoint are missing; put it back"
        ) from None
    except (OSError, RuntimeError, KeyError) as error:
        raise InputError(f"{source}: can't be continued ({reason_of(error)})") from None
    finally:
        fresh.unlink(missing_ok=True)


def _copy(source: Path, fresh: Path, run: str, rows: list[int]) -> None:
    """Copy an output file up to so many samples of each segment, if it is that of the run and has them."""
    with source.open("rb"):  # HDF5 has no error of its own for a file that is not there
        pass
    with open_hdf5(source) as old, h5py.File(fresh, "w", **PAGED) as new:
        if old.attrs.get("run") != run:
            raise InputError(f"{source}: is the output of another run than the checkpoint")
        if old.attrs["status"] == "complete":
            raise InputError(f"{source}: is complete: there is nothing to go on with")
        _copy_samples(source, old, new, rows[0])
        for number, count in enumerate(rows[1:], 1):
            place = f"{SEGMENTS}/{number}"
            if place not in old:
                raise InputError(_too_short(source, f"{number} structure(s)", len(rows)))
            _copy_samples(source, old[place], new.create_group(place), count)
        new.attrs["status"] = "running"
        new.attrs.pop("statistics", None)
    flush_to_disk(fresh)


def _too_short(source: Path, has: str, needed: int) -> str:
    """Why an output can't be continued."""
    return (
        f"{source}: has {has}, the checkpoint comes after {needed}; put the file back that the run has written, or "
        "take an older checkpoint"
    )


def _copy_samples(source: Path, old: h5py.Group, new: h5py.Group, count: int) -> None:
    """Copy all of a group, of its samples so many, but for the segments in it."""
    new.attrs.update(old.attrs)
    for name, item in old.items():
        if isinstance(item, h5py.Group):
            if name != SEGMENTS:
                old.copy(item, new, name)
            continue
        if len(item) < count:
            raise InputError(_too_short(source, f"{len(item)} samples", count))
        data = make_dataset(new, name, (count, *item.shape[1:]), maxshape=item.maxshape, chunks=item.chunks)
        data.attrs.update(item.attrs)
        rows = max(1, COPIED // max(1, _row_bytes(item)) // item.chunks[0]) * item.chunks[0]
        for lo in range(0, count, rows):
            data[lo : min(lo + rows, count)] = item[lo : min(lo + rows, count)]
