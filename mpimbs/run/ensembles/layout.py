"""What is in the output of an ensemble (HDF5): as in that of a run, with a dimension more, the copies."""

from __future__ import annotations

import json
from typing import Any

import h5py

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
