"""Output files opened for reading, at any time: complete, being written, or left by a run that was killed."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py

from mpimbs.base.arguments import as_path
from mpimbs.base.disk import reason_of
from mpimbs.base.errors import InputError
from mpimbs.base.places import part_of
from mpimbs.files.output_layout import ENSEMBLE_FORMAT, FORMAT

_WAITS = (0.01, 0.03, 0.1, 0.3)  # wall time (s) for a writer that makes room in the file
_ATTEMPTS = 25  # at metadata whose checksum is wrong: HDF5 waits twice as long after each, 30 ms in all


def newest(path: Path, run: str | None = None) -> Path:
    """Where the samples of an output are: in the file, or in its unfinished part where that is the newer one.

    Of a certain `run`, in the one that is of that run, if any is.
    """
    written = {}
    for file in (part_of(path), path):
        with contextlib.suppress(OSError, KeyError, RuntimeError):
            written[file] = file.stat().st_mtime_ns
            if run is not None:
                with open_hdf5(file) as found:
                    if found.attrs.get("run") == run:
                        return file
    return max(written, key=lambda file: written[file], default=path)


class OpenedFile(h5py.File):
    """The output of a run, open for reading: who leaves its block for what is damaged in it is told so."""

    def fits(self, check: Callable[[], bool]) -> bool:
        """Whether it is what it should be; where it is not, or that can't be read, it is closed."""
        with contextlib.ExitStack() as closing:
            closing.enter_context(self)
            if found := check():
                closing.pop_all()
        return found

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        name = self.filename
        super().__exit__(kind, error, trace)
        if error is None or isinstance(error, InputError):
            return
        # HDF5 says what it could not do "synchronously", whichever class h5py makes of that.
        if isinstance(error, json.JSONDecodeError | UnicodeError) or "synchronously" in str(error):
            reason = error.args[0] if isinstance(error, KeyError) else error
            raise InputError(f"{name}: is damaged ({reason}); take a copy from before, or simulate again") from None


def open_output(path: str | Path, run: str | None = None) -> OpenedFile:
    """Open an output file for reading: also while its run goes on, and after that was killed.

    It has the samples of the last flush, about a second ago; open it again for later ones. The run is not disturbed.

    Parameters
    ----------
    path : path
        OUT.h5; where its unfinished part OUT.h5.part is newer, or there is no other, that is opened.
    run : str, optional
        Of which run it must be.

    Raises
    ------
    InputError
        It is of another run. When its `with` block ends: something is damaged that was read there.
    OSError
        There is no such file, or it is no HDF5 file.
    """
    file = OpenedFile(open_hdf5(newest(as_path("the output", path), run)).id)
    if not file.fits(lambda: run is None or file.attrs.get("run") == run):
        raise InputError(f"{path}: another run has been written there since; look at that by `mpimbs.load`")
    return file


def open_run(path: Path, run: str | None = None) -> OpenedFile:
    """Open the output of a run or an ensemble for reading, as `open_output`.

    Raises
    ------
    InputError
        There is none, or it is none, another's, or damaged.
    """
    place = newest(path, run)
    try:
        file = open_output(path, run)
    except OSError as error:
        gone = f"is no readable HDF5 file ({reason_of(error)})" if place.exists() else "there is no such file"
        raise InputError(f"{place}: {gone}; give an output of mpimbs run") from None
    if not file.fits(lambda: file.attrs.get("format") in (FORMAT, ENSEMBLE_FORMAT) and "time" in file):
        raise InputError(f"{place}: is no output file of mpimbs; give what `run` or `simulate` has written")
    return file


def open_hdf5(file: Path) -> h5py.File:
    """Open an HDF5 file for reading, which may be written meanwhile, or was when its run was killed.

    Where it is damaged this raises an error, where h5py with `swmr=True` repeats its attempts for ever.
    """
    for wait in _WAITS:
        try:
            return h5py.File(file, "r", libver="latest", locking=False)  # which finds at once that it was cut off
        except OSError as error:
            if "already open for" not in str(error):
                raise
        try:
            return h5py.File(_opened(file, h5py.h5f.ACC_RDONLY | h5py.h5f.ACC_SWMR_READ))
        except OSError as error:
            if "not already open for SWMR" not in str(error):
                raise
        time.sleep(wait)
    # Nobody is that long at making room for what comes next: who did is gone, and what was there before is whole.
    return h5py.File(_opened(file, h5py.h5f.ACC_RDONLY, left_open=True))


def _opened(file: Path, flags: int, left_open: bool = False) -> h5py.h5f.FileID:
    """Open a file that a writer has open, or has `left_open`, by what h5py has no names for."""
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    access.set_file_locking(False, False)
    library = ctypes.CDLL(h5py.h5p.__file__)
    library.H5Pset_metadata_read_attempts(ctypes.c_int64(access.id), ctypes.c_uint(_ATTEMPTS))
    if left_open:  # as `h5clear` has it; in a file that is read nothing is written
        library.H5Pset(ctypes.c_int64(access.id), b"clear_status_flags", ctypes.byref(ctypes.c_bool(True)))
    return h5py.h5f.open(os.fsencode(file), flags, access)
