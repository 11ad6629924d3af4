"""Samples of an ensemble: kept in memory on rank 0, laid out in its output, and when ranks have given all of theirs."""

from __future__ import annotations

import json
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.sizes import tuned
from mpimbs.dynamics.copies.members import Members
from mpimbs.dynamics.selection import Selection
from mpimbs.files.output_layout import (
    ENSEMBLE_FORMAT,
    PER_ITEM,
    SELECTED,
    make_rows,
    versions,
    write_model,
    write_selection,
)
from mpimbs.model import System, system_text

Floats = npt.NDArray[np.float64]


def units_of(selection: Selection, system: System) -> dict[str, int]:
    """How many numbers of a sample each copy has, by dataset."""
    units = {name: selection.number(name, system) * PER_ITEM.get(name, 1) for name in selection.bodies}
    return units | {"energy": 2}


def lay_out_ensemble(file: h5py.File, members: Members, settings: dict[str, Any], selection: Selection) -> None:
    """Write what an output begins with: attributes, the models, the copies, and the datasets without rows."""
    system, count = members.systems[0], members.count
    file.attrs.update(name=system.name, format=ENSEMBLE_FORMAT, status="running", sizes=tuned().told())
    file.attrs.update(settings=json.dumps(settings), versions=json.dumps(versions()))
    write_model(file, system)
    write_selection(file, selection)
    text = h5py.string_dtype()
    group = file.create_group("copies")
    group.create_dataset("name", data=list(members.names), dtype=text)
    group.create_dataset("model", data=[system_text(s, functions=True) for s in members.systems], dtype=text)
    if any(s.force_modules for s in members.systems):
        group.create_dataset("before_forces", data=[s.before_forces or "" for s in members.systems], dtype=text)
    if (table := members.table) is not None:
        data = group.create_dataset("parameters", data=table.values)
        data.attrs["columns"] = list(table.columns)
    rows: dict[str, tuple[tuple[int, ...], str, str]] = {
        "time": ((), "s", "time of the sample"),
        "step_size": ((), "s", "the smallest of the steps that follow, if the next sample does not shorten it"),
        "energy": ((count, 2), "J", "kinetic, potential (weight from the inertial origin, springs), of each copy"),
    }
    for name in selection.bodies:
        shape = (count, selection.number(name, system), *((PER_ITEM[name],) if name in PER_ITEM else ()))
        rows[name] = (shape, *SELECTED[name])
    make_rows(file, rows)


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

    def __call__(self, facts: int, wait: bool) -> int | None:
        """Tell facts, where this rank has told none in the round, and give what all have told; None while others work.

        Parameters
        ----------
        facts : int
            In bits.
        wait : bool
            Wait for the others.
        """
        if self._comm.size == 1:
            return facts
        if self._request is None:
            self._told[0] = facts
            self._request = self._comm.Iallreduce(self._told, self._heard, MPI.BOR)
        if wait:
            self._request.Wait()
        elif not self._request.Test():
            return None
        self._request = None
        return int(self._heard[0])


class EnsembleSamples:
    """Keeps samples in memory on rank 0, as `Samples` those of a run; all ranks make it together and call."""

    def __init__(self, comm: MPI.Comm, widths: dict[str, int]) -> None:
        self._comm = comm
        self.samples: dict[str, list[Any]] = {}

    def due(self) -> bool:
        """Whether samples have to be written before the next one comes: never."""
        return False

    def add(self, own: dict[str, Floats], common: dict[str, Any], due: bool) -> None:
        """Take a sample: this rank's copies [copies, ...], and what all ranks have."""
        parts = self._comm.gather(own)
        if parts is not None:
            whole = {name: np.concatenate([part[name] for part in parts]) for name in own}
            for name, values in (whole | common).items():
                self.samples.setdefault(name, []).append(values)

    def read(self, name: str, at: tuple[Any, ...] | None = None) -> Floats | None:
        """What samples have under a name, all or at a place of the array."""
        return np.array(self.samples[name])[at or slice(None)] if name in self.samples else None

    def sync(self) -> None:
        """There is nothing to wait for."""

    def close(self, status: str, statistics: dict[str, Any], unfinished: bool = False) -> None:
        """There is nothing to end."""
