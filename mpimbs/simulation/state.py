"""State files (.npz): coordinates, generalized speeds and forces of a whole system, in the model's joint order."""

from __future__ import annotations

import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.model import JOINT_TYPES, Columns, System
from mpimbs.sweep.subchain import Subchain

Floats = npt.NDArray[np.float64]
LARGEST = 1e15  # of coordinates and speeds: beyond, their squares and angles have no digit that means anything
NORM_SLACK = 1e-6  # a quaternion farther from unit length is not one that was rounded


class State(NamedTuple):
    """State of a whole system and the generalized forces on it; SI units, quaternions w x y z."""

    q: Floats  # [nq]
    u: Floats  # [nu]
    tau: Floats  # [nu]


def check_size(system: System, part: Columns | Subchain) -> None:
    """Refuse initial coordinates or speeds, of some bodies of a model, that are too large to compute with.

    Raises
    ------
    InputError
    """
    for name, values in (("q", part.q), ("u", part.u)):
        beyond = np.abs(values) > LARGEST
        if beyond.any():
            k = int(np.argmax(beyond))
            columns = part if isinstance(part, Columns) else part.columns
            offset = columns.q_offset if name == "q" else columns.u_offset
            body = system.name_of(part.first + int(np.searchsorted(offset, k, side="right")) - 1)
            raise InputError(f"body '{body}': {name} = {values[k]:g} is beyond {LARGEST:g}: give SI units")


def initial_state(system: System) -> State:
    """State that the model gives, without forces on top of the model's.

    Raises
    ------
    InputError
        As `check_size`.
    """
    columns = system.columns()
    check_size(system, columns)
    return State(columns.q.copy(), columns.u.copy(), np.zeros(system.nu))


def read_state(path: str | Path, system: System) -> State:
    """Read a state file for a system.

    Raises
    ------
    InputError
        The file can't be read, lacks q or u, has other sizes than the system, or holds what is no state.
    """
    try:
        file = np.load(path, allow_pickle=False)
        single = not isinstance(file, np.lib.npyio.NpzFile)
        with nullcontext() if single else file:
            arrays = {} if single else {name: np.asarray(file[name]) for name in file.files}
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; give an .npz file with q and u") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: is not a readable .npz file ({error}); write it with numpy.savez") from None
    if single:
        raise InputError(f"{path}: holds a single array; give an .npz file with q, u and optionally tau")
    sizes = {"q": system.nq, "u": system.nu, "tau": system.nu}
    unknown = sorted(set(arrays) - set(sizes))
    if unknown:
        raise InputError(f"{path}: unknown array '{unknown[0]}'; a state holds q, u and optionally tau")
    arrays.setdefault("tau", np.zeros(system.nu))
    return State(**{name: _checked(path, system, name, arrays.get(name), size) for name, size in sizes.items()})


def _checked(path: str | Path, system: System, name: str, value: Any, size: int) -> Floats:
    if value is None:
        raise InputError(f"{path}: array '{name}' is missing; a state holds q, u and optionally tau")
    if value.dtype.kind not in "fiu" or value.shape != (size,):
        raise InputError(
            f"{path}: '{name}' has shape {value.shape} and type {value.dtype}; "
            f"system '{system.name}' needs {size} numbers in its joint order"
        )
    value = value.astype(np.float64)
    bad = ~np.isfinite(value)
    if bad.any():
        raise InputError(f"{path}: '{name}' is not finite at index {int(np.argmax(bad))}; give finite numbers")
    beyond = np.abs(value) > LARGEST
    if name != "tau" and beyond.any():
        k = int(np.argmax(beyond))
        raise InputError(f"{path}: '{name}' is {value[k]:g} at index {k}, beyond {LARGEST:g}; give SI units")
    return _unit_quaternions(path, system, value) if name == "q" else value


def _unit_quaternions(path: str | Path, system: System, q: Floats) -> Floats:
    quaternion = np.array([kind.quaternion for kind in JOINT_TYPES])[system.joint_types()]
    first = system.offsets()[0][:-1][quaternion]
    index = first[:, None] + np.arange(4)
    length = np.linalg.norm(q[index], axis=1)
    bad = np.abs(length - 1.0) > NORM_SLACK
    if bad.any():
        k = int(np.argmax(bad))
        name = system.name_of(int(np.flatnonzero(quaternion)[k]))
        raise InputError(f"{path}: the quaternion of body '{name}' has length {length[k]:.6g}; give unit quaternions")
    q[index] /= length[:, None]
    return q
