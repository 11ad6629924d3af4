"""The copies of an ensemble: their systems, names and initial states, as a table or a caller gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpimbs.base.arrays import Floats
from mpimbs.forces.modules import add_forces
from mpimbs.model.contents import Contents
from mpimbs.model.text.parameter_table import ParameterTable, read_table, table_of
from mpimbs.model.variants import variants

Parameters = str | Path | Mapping[str, Any]
"""A table of parameters: a file (.csv, .npz), or arrays [copies] by column."""


@dataclass(frozen=True)
class Members:
    """The copies of an ensemble."""

    systems: Sequence[Contents]  # one for all copies, or one for each
    names: tuple[str, ...]  # what the copies are called, each its own
    state: tuple[Floats, Floats] | None = None  # initial q [copies, nq], u [copies, nu]; of the models by default
    table: ParameterTable | None = None  # what has made the systems differ

    @property
    def count(self) -> int:
        """Number of copies."""
        return len(self.names)


def members_of_table(model: Contents | str | Path, parameters: Parameters, forces: Sequence[str] = ()) -> Members:
    """Give the copies of a model that a table makes; functions of modules (module:function) act on each of them.

    Raises
    ------
    InputError
        Names the table's line and column.
    """
    table = read_table(parameters) if isinstance(parameters, str | Path) else table_of(parameters)
    systems = variants(model, table)
    for system in systems:
        for given in forces:
            add_forces(system, given)
    return Members(systems, table.names, None, table)
