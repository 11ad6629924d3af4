"""The checkpoint file (HDF5): all that a run needs to go on, vectors in the model's order whatever the ranks.

A file is written beside its place, flushed to the disk and renamed, so that there is a whole one at any moment; the
ones before it are kept under numbers. HDF5 is used by rank 0 alone; the ranks write their parts of large vectors at the
places that it gives, where they all see the file, and vectors pass through it in slices otherwise. A checksum over all
of the contents tells a damaged file.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.disk import check_room, claim, flush_to_disk, reason_of
from mpimbs.base.errors import InputError
from mpimbs.base.places import note_input, part_of
from mpimbs.base.sizes import tuned
from mpimbs.files.output_layout import ENSEMBLE_FORMAT, PAGED, make_dataset
from mpimbs.files.output_layout import FORMAT as OUTPUT_FORMAT
from mpimbs.files.reading import open_hdf5
from mpimbs.files.slices import SharedFile, Slices

FORMAT = "mpimbs checkpoint 8"
_KIND = FORMAT.rsplit(" ", 1)[0]
METADATA = 2**16  # bytes, at the most


class Kept(NamedTuple):
    """A checkpoint that was read and checked: its file, and its header on every rank."""

    file: Path
    header: dict[str, Any]

    @property
    def place(self) -> Path:
        """Where its run writes checkpoints."""
        return self.file.parent / str(self.header["place"])

    @property
    def output(self) -> Path:
        """The output that its run writes."""
        return self.file.parent / str(self.header["output"])


def older(path: Path, age: int) -> Path:
    """Where the checkpoint is that was written so many before the last one, whose place is `path`."""
    return path.with_name(f"{path.stem}.{age}{path.suffix}") if age else path


def kept_files(path: Path) -> list[Path]:
    """The checkpoints that there are at a place, the last one first."""
    numbered = path.parent.glob(f"{path.stem}.*{path.suffix}")
    ages = [int(age) for file in numbered if (age := file.stem[len(path.stem) + 1 :]).isdecimal()]
    return [file for file in (older(path, age) for age in sorted({0, *ages})) if file.exists()]


def write_checkpoint(
    path: Path, keep: int, header: dict[str, Any], vectors: dict[str, Floats], comm: MPI.Comm
) -> str | None:
    """Write a checkpoint, the last of `keep` at its place; all ranks call.

    Parameters
    ----------
    header : dict
        Whatever JSON can hold; used on rank 0.
    vectors : dict of arrays
        This rank's parts.

    Returns
    -------
    str or None
        Why it can't be written, the same on all ranks; those before it stay as they are then.
    """
    plans = {name: Slices(comm, len(part)) for name, part in vectors.items()}
    writer = None
    if comm.rank == 0:
        writer = _Writer(path, header | {"parts": {name: plan.counts for name, plan in plans.items()}})
    places: dict[str, int] = comm.bcast(None if writer is None else writer.places)
    least = tuned().checkpoint_bytes * comm.size
    large = [name for name, plan in plans.items() if name in places and 8 * sum(plan.counts) >= least]
    shared = SharedFile(comm, part_of(path)) if large else None
    direct = large if shared is not None and shared.usable else []
    for name, plan in plans.items():
        if name not in direct:
            plan.collect([vectors[name]], partial(writer.take, name) if writer is not None else _nothing)
    mine = None
    if shared is not None and shared.usable:
        try:
            shared.write((places[name] + 8 * plans[name].columns.start, vectors[name]) for name in direct)
            shared.sync()
        except OSError as error:
            mine = reason_of(error)
        shared.close()
    parts = [hashlib.sha256(np.ascontiguousarray(part).data).digest() for part in vectors.values()]
    found = comm.gather((mine, parts))
    if writer is None or found is None:
        return comm.bcast(None)
    return comm.bcast(writer.finish(keep, [reason for reason, _ in found], [digests for _, digests in found]))


def _nothing(rows: slice, columns: slice, piece: Floats) -> None:
    """Take a slice on a rank that gets none."""


def _checksum(text: bytes, parts: Iterable[bytes]) -> str:
    """Checksum of a header and of the ranks' parts of all vectors, vector after vector, from their own digests."""
    return hashlib.sha256(text + b"".join(parts)).hexdigest()


class _Writer:
    """Writes one checkpoint on rank 0; after an error it takes what comes, and does nothing with it."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self._path, self._part = path, part_of(path)
        self._file: h5py.File | None = None
        self._error: str | None = None
        self._text = json.dumps(header).encode()
        # where the vectors are in the file, in bytes from its begin; empty after an error
        self.places: dict[str, int] = {}
        with self._watched():
            size = len(self._text) + 8 * sum(sum(counts) for counts in header["parts"].values()) + METADATA
            check_room(self._part, size)
            self._file = h5py.File(self._part, "w", **PAGED)
            claim(self._file.id.get_vfd_handle(), 0, size)
            self._file.attrs.update(format=FORMAT, name=header["name"], time=header["time"])
            self._file.create_dataset("header", data=np.frombuffer(self._text, np.uint8))
            data = {name: make_dataset(self._file, name, (sum(n),)) for name, n in header["parts"].items()}
            self.places = {name: item.id.get_offset() for name, item in data.items()}

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Keep the first error of a file system for later."""
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            self._error = reason_of(error)

    def take(self, name: str, rows: slice, columns: slice, piece: Floats) -> None:
        """Write a slice of a vector."""
        if self._error is not None or self._file is None:
            return
        with self._watched():
            self._file[name][columns] = piece[0]

    def finish(self, keep: int, reasons: list[str | None], digests: list[list[bytes]]) -> str | None:
        """Give the file its place, and the ones before it theirs; or say what went wrong, here or on other ranks.

        Parameters
        ----------
        reasons, digests : list
            Of every rank: why it could not write, and the digests of its parts.
        """
        self._error = self._error or next((reason for reason in reasons if reason is not None), None)
        if self._error is None:
            with self._watched():
                assert self._file is not None
                self._file.close()
                checksum = _checksum(self._text, itertools.chain(*zip(*digests, strict=True)))
                with h5py.File(self._part, "r+", **PAGED) as file:  # which cuts off claimed room at the end
                    file.attrs["checksum"] = checksum
                flush_to_disk(self._part)
                for age in range(keep - 1, 0, -1):
                    if (younger := older(self._path, age - 1)).exists():
                        _place_too(younger, older(self._path, age))
                self._part.replace(self._path)
                flush_to_disk(self._path.parent)
        if self._error is not None:
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                if self._file is not None:
                    self._file.close()
            with contextlib.suppress(OSError):
                self._part.unlink()
        return self._error


def _place_too(file: Path, other: Path) -> None:
    """Give a file a second place, in one step, where there may be another file."""
    step = part_of(other)
    step.unlink(missing_ok=True)
    try:
        os.link(file, step)
    except OSError:  # a file system without links
        shutil.copyfile(file, step)
        flush_to_disk(step)
    step.replace(other)


def read_header(path: Path) -> dict[str, Any]:
    """Read a checkpoint's header, after a check of all of its contents; on rank 0.

    Raises
    ------
    InputError
        There is no such file; it is no checkpoint, of another version, truncated or damaged. Names an older one that
        is good, where there is one.
    """
    try:
        header = _checked_header(path)
        note_input(path)
        return header
    except InputError as error:
        for candidate in _others(path):
            try:
                header = _checked_header(candidate)
            except InputError:
                continue
            good = f"{candidate.name} is good (t = {header['time']:g} s): {restart_call(candidate, header)}"
            raise InputError(f"{error}; {good}") from None
        raise


def is_checkpoint(path: Path) -> bool:
    """Whether a file says of itself that it is a checkpoint, good or not."""
    try:
        with open_hdf5(path) as file:
            return str(file.attrs.get("format", "")).startswith(_KIND)
    except (OSError, RuntimeError, KeyError, InputError):
        return False


def restart_call(path: Path, header: dict[str, Any]) -> str:
    """How a run goes on from a checkpoint, for a message."""
    how = ""
    if header["has_functions"]:
        how = f", forces={header['forces']}" if header.get("forces") else ", system=system"
    return f"`mpimbs.restart({str(path)!r}, comm{how})`"


def glance(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint's header without a check; None of a damaged or an old one.

    Raises
    ------
    InputError
        The file is something else.
    """
    try:
        with _checkpoint(path) as file:
            header: dict[str, Any] = json.loads(file["header"][:].tobytes())
            return header
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        if isinstance(error, InputError) and _KIND not in str(error):
            raise InputError(f"{error}; move it, or choose another name with `checkpoints.path`") from None
        return None


def _others(path: Path) -> list[Path]:
    """Checkpoints older than a file, by their names."""
    stem, _, number = path.stem.rpartition(".")
    base, age = (path.with_name(stem + path.suffix), int(number)) if number.isdecimal() else (path, 0)
    files = kept_files(base)
    return [file for file in files if file not in [older(base, k) for k in range(age + 1)]]


def _checked_header(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise InputError(f"{path}: there is no such file; give the checkpoint of a run")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the checkpoint of a run")
    try:
        with _checkpoint(path) as file:
            text = file["header"][:].tobytes()
            header: dict[str, Any] = json.loads(text)
            parts = (digest for name, counts in header["parts"].items() for digest in _digests(file[name], counts))
            if _checksum(text, parts) != file.attrs["checksum"]:
                raise InputError(f"{path}: is damaged: its contents don't have their checksum")
    except PermissionError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from None
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: is truncated or damaged ({reason_of(error)})") from None
    return header


@contextlib.contextmanager
def _checkpoint(path: Path) -> Iterator[h5py.File]:
    """Open a file that is a checkpoint of this version."""
    with open(path, "rb") as raw:
        signature = raw.read(8)
    if signature != b"\x89HDF\r\n\x1a\n":
        raise InputError(f"{path}: is no checkpoint (not HDF5){'' if signature else ': it is empty'}")
    with open_hdf5(path) as file:
        kind = file.attrs.get("format", "")
        if kind != FORMAT:
            raise InputError(f"{path}: {_what_else(str(kind), file.attrs.get('status'))}")
        yield file


def _digests(data: h5py.Dataset, counts: list[int]) -> Iterator[bytes]:
    """Digest of every rank's part of a vector, read in slices."""
    begin, most = 0, tuned().slice_numbers
    for count in counts:
        digest = hashlib.sha256()
        for lo in range(begin, begin + count, most):
            digest.update(data[lo : min(lo + most, begin + count)])
        yield digest.digest()
        begin += count
    if begin != len(data):
        raise ValueError("a vector has another length than its header says")


def _what_else(kind: str, status: object) -> str:
    if kind in (OUTPUT_FORMAT, ENSEMBLE_FORMAT):
        if status == "complete":
            return "is the output of a run that is complete: nothing is left to do"
        return "is the output of a run, and no checkpoint stands beside it; give the file that the run has named"
    if kind.startswith(_KIND):
        return f"has the format '{kind}', and this version reads '{FORMAT}'; use the version that wrote it"
    return "is no checkpoint of mpimbs"


def read_vectors(path: Path, counts: dict[str, int], comm: MPI.Comm) -> dict[str, Floats]:
    """Read vectors of a checkpoint that was checked, and give each rank as many numbers as it says; all ranks call."""
    with h5py.File(path, "r") if comm.rank == 0 else contextlib.nullcontext({}) as file:
        return {name: Slices(comm, count).spread(partial(_part, file, name)) for name, count in counts.items()}


def _part(file: Any, name: str, lo: int, hi: int) -> Floats:
    return np.asarray(file[name][lo:hi])
