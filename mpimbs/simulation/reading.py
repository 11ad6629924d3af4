"""Output files opened for reading, at any time: complete, being written, or left by a run that was killed."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import h5py

from mpimbs.filesystem.places import part_of

_ATTEMPTS = 25  # at metadata whose checksum is wrong: HDF5 waits twice as long after each, 30 ms in all


def open_output(path: str | Path) -> h5py.File:
    """Open an output file for reading: also while its run goes on, and after that was killed.

    It has the samples of the last flush, about a second ago; open it again for later ones. The run is not disturbed.

    Where a file is damaged this raises an error, where h5py with `swmr=True` repeats its attempts for ever.

    Parameters
    ----------
    path : path
        OUT.h5; its unfinished part OUT.h5.part is opened while there is no other.

    Raises
    ------
    OSError
        There is no such file, or it is no HDF5 file; what is damaged is found when it is read (KeyError, OSError).
    """
    file = Path(path)
    if not file.exists() and part_of(file).exists():
        file = part_of(file)
    try:
        return h5py.File(file, "r", libver="latest", locking=False)  # which finds at once that the file was cut off
    except OSError as error:
        if "already open for" not in str(error):
            raise
    return h5py.File(_opened_beside_a_writer(file))


def _opened_beside_a_writer(file: Path) -> h5py.h5f.FileID:
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    access.set_file_locking(False, False)
    library = ctypes.CDLL(h5py.h5p.__file__)  # h5py has no name for this function
    library.H5Pset_metadata_read_attempts(ctypes.c_int64(access.id), ctypes.c_uint(_ATTEMPTS))
    return h5py.h5f.open(os.fsencode(file), h5py.h5f.ACC_RDONLY | h5py.h5f.ACC_SWMR_READ, access)
