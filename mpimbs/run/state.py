"""States of a whole system, in the model's joint order, and the files (.npz) that hold them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arguments import array_of
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.base.places import absolute_path, note_input
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.resources import SIMULATION, check_memory
from mpimbs.model import JOINT_TYPES
from mpimbs.model.contents import Contents
from mpimbs.model.text.parameter_table import UNREADABLE
from mpimbs.model.text.table import ROUND_OFF
from mpimbs.parts.subchain import Subchain

if TYPE_CHECKING:
    from mpimbs.files.motion import Sampled

LARGEST = 1e15  # of speeds (rad/s, m/s): beyond, a second later no angle has a digit that means anything
IN_ORDER = "bodies"  # names, in a state file
OUTPUTS = (".h5", ".hdf5")  # suffixes of what is no state file, but the output of a run
NORM_SLACK = 1e-6  # a quaternion farther from unit length is not one that was rounded


class StateArrays(NamedTuple):
    """Which arrays a state has, and which it may have."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def __str__(self) -> str:
        *first, last = (*self.needed, *(f"optionally {name}" for name in self.optional))
        return f"{', '.join(first)} and {last}"


MOVING = StateArrays(("q", "u"))
COORDINATES = StateArrays(("q",), ("u", "tau"))
WITH_FORCES = StateArrays(("q", "u"), ("tau",))
PRESCRIBED = StateArrays(("q", "u", "udot"))


class State(NamedTuple):
    """State of a whole system, the generalized forces on it, its accelerations; SI units, quaternions w x y z."""

    q: Floats  # [nq]
    u: Floats = np.zeros(0)  # [nu]
    tau: Floats | None = None  # [nu]
    udot: Floats | None = None  # [nu]


def own_part(dynamics: Dynamics, state: State | None = None) -> State:
    """Give this rank's part of a state of the whole system, without what that doesn't have; the model's by default."""
    if state is None:
        return State(dynamics.subchain.q, dynamics.subchain.u)
    own, u = dynamics.gather_u.part, state.u
    tau, udot = (None if value is None else value[own].copy() for value in state[2:])
    return State(state.q[dynamics.gather_q.part].copy(), u[own].copy() if u.size else u, tau, udot)


def check_system(system: Contents, ranks: int = 1, here: int = 1) -> None:
    """Refuse a system that can't be simulated: none of its joints can move, or it takes too much memory.

    Parameters
    ----------
    system, ranks, here
        As for `check_memory`.
    """
    if system.n_bodies and not system.nu:
        raise InputError(
            f"system '{system.name}': no joint can move, so there is nothing to simulate; what its joints carry is "
            "given by: mpimbs acceleration --loads"
        )
    check_memory(system, SIMULATION, ranks, here)


def check_speeds(part: Subchain) -> None:
    """Refuse initial speeds, of some bodies of a model, that are too large to compute with.

    Raises
    ------
    InputError
    """
    beyond = np.abs(part.u) > LARGEST
    if beyond.any():
        k = int(np.argmax(beyond))
        body = part.name_of(np.searchsorted(part.columns.u_offset, k, side="right") - 1)
        raise InputError(f"body '{body}': u = {part.u[k]:g} is beyond {LARGEST:g}: give SI units")


def read_state(path: str | Path, system: Contents, contents: StateArrays = WITH_FORCES) -> State:
    """Read a state for a system, from a state file, or from an output: that of its last sample.

    Raises
    ------
    InputError
        The file can't be read, lacks an array, has one too many or of another size, or holds what is no state; or the
        output is of copies, or of other bodies.
    """
    note_input(path)
    if Path(path).suffix.lower() in OUTPUTS:
        from mpimbs.run.result import result_of

        return last_state(result_of(absolute_path(path)), system, contents, path)
    try:
        file = np.load(path, allow_pickle=False)
        single = not isinstance(file, np.lib.npyio.NpzFile)
        with nullcontext() if single else file:
            arrays = {} if single else {name: np.asarray(file[name]) for name in file.files}
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; give an .npz file with {contents}") from None
    except UNREADABLE as error:
        raise InputError(f"{path}: is not a readable .npz file ({_reason(error)}); write it with numpy.savez") from None
    if single:
        raise InputError(f"{path}: holds a single array; give an .npz file with {contents}")
    if (names := arrays.pop(IN_ORDER, None)) is not None:
        _check_order(path, system, names)
    return checked_state(path, system, arrays, contents)


def last_state(motion: Sampled, system: Contents, contents: StateArrays = MOVING, where: str | Path = "") -> State:
    """Give the state of the last sample of a run, for a system of the same bodies; messages say `where` it stands.

    Raises
    ------
    InputError
        As `read_state`; or the motion is on another rank.
    """
    there = motion.there
    where = where or f"the run {there.where}"
    if there.names:
        raise InputError(
            f"{where}: is of {len(there.names)} copies; give the state of one, an .npz file with {contents}"
        )
    *before, last = there.segments
    if before:
        raise InputError(f"{where}: at its end other joints hold than in a model; give an .npz file with {contents}")
    _check_order(where, system, names_of(last.system))
    kept = [name for name in MOVING.needed if len(last.kept(name)) == system.n_bodies and len(last.t)]
    if lost := [name for name in contents.needed if name in MOVING.needed and name not in kept]:
        raise InputError(
            f"{where}: has no sample with {lost[0]} of all bodies; run again with q and u among its samples"
        )
    known = (*contents.needed, *contents.optional)
    return checked_state(where, system, {name: last.column(name)[-1] for name in kept if name in known}, contents)


def names_of(system: Contents) -> npt.NDArray[np.bytes_]:
    """The names of the bodies [n], in the order of q and u: what a state file may have beside them, as `IN_ORDER`."""
    return np.array([system.name_of(k).encode() for k in range(system.n_bodies)])


def _check_order(path: str | Path, system: Contents, names: Any) -> None:
    """Refuse a file that names other bodies, or in another order."""
    told = [name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in names.ravel().tolist()]
    if len(told) != system.n_bodies:
        raise InputError(
            f"{path}: '{IN_ORDER}' names {len(told)} bodies, system '{system.name}' has {system.n_bodies}; "
            "give a state of this model"
        )
    other = next((k for k, name in enumerate(told) if name != system.name_of(k)), None)
    if other is not None:
        raise InputError(
            f"{path}: '{IN_ORDER}' has '{told[other]}' in place {other}, where system '{system.name}' has "
            f"'{system.name_of(other)}': q and u would go to other joints; bring them into the model's joint order"
        )


def state_given(state: Any) -> tuple[Any, Any]:
    """Give q and u of a state that a caller gives: as a pair, or as a `State` without more.

    Raises
    ------
    InputError
        It is neither.
    """
    if not isinstance(state, tuple | list) or len(state) < 2 or any(other is not None for other in state[2:]):
        raise InputError("state: a pair is needed, (q, u); forces are those of the system")
    for name, part in zip(("q", "u"), state, strict=False):
        if part is None:
            raise InputError(f"state: {name} is missing; give both, the model's own are in its bodies' joints")
    return state[0], state[1]


def checked_state(where: str | Path, system: Contents, arrays: dict[str, Any], contents: StateArrays = MOVING) -> State:
    """Give the state that arrays are, quaternions of unit length; messages say `where` they stood.

    Raises
    ------
    InputError
        As `read_state`.
    """
    known = (*contents.needed, *contents.optional)
    unknown = sorted(set(arrays) - set(known))
    if unknown:
        raise InputError(f"{where}: unknown array '{unknown[0]}'; a state here holds {contents}")
    for name in contents.needed:
        if name not in arrays:
            raise InputError(f"{where}: array '{name}' is missing; a state here holds {contents}")
    return State(**{name: _checked(where, system, name, array_of(value)) for name, value in arrays.items()})


def _reason(error: Exception) -> str:
    """Why a file can't be read, without numpy's advice to run what stands in it."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if "pickle" in str(error):
        return "it holds other things than arrays of numbers, or is no such file at all"
    return "it is damaged or incomplete"


def _checked(where: str | Path, system: Contents, name: str, value: Any) -> Floats:
    size = system.nq if name == "q" else system.nu
    if value.dtype.kind not in "fiu" or value.shape != (size,):
        raise InputError(
            f"{where}: '{name}' has shape {value.shape} and type {value.dtype}; "
            f"system '{system.name}' needs {size} numbers in its joint order"
        )
    value = value.astype(np.float64)
    bad = ~np.isfinite(value)
    if bad.any():
        raise InputError(f"{where}: '{name}' is not finite at index {int(np.argmax(bad))}; give finite numbers")
    beyond = np.abs(value) > LARGEST
    if name == "u" and beyond.any():
        k = int(np.argmax(beyond))
        raise InputError(f"{where}: '{name}' is {value[k]:g} at index {k}, beyond {LARGEST:g}; give SI units")
    return _coordinates(where, system, value) if name == "q" else value


def _coordinates(where: str | Path, system: Contents, q: Floats) -> Floats:
    """Check the sizes of coordinates, and make quaternions unit."""
    types, first = system.joint_types(), system.offsets()[0][:-1]
    for row, kind in enumerate(JOINT_TYPES):
        begin = first[types == row]
        for item, limit in enumerate(kind.q_limits):
            bad = np.abs(q[begin + item]) > limit
            if bad.any():
                k = int(begin[np.argmax(bad)]) + item
                raise InputError(f"{where}: 'q' is {q[k]:g} at index {k}; give at most {limit:g} {kind.q_units[item]}")
    return _unit_quaternions(where, system, q)


def _unit_quaternions(where: str | Path, system: Contents, q: Floats) -> Floats:
    quaternion = np.array([kind.quaternion for kind in JOINT_TYPES])[system.joint_types()]
    first = system.offsets()[0][:-1][quaternion]
    index = first[:, None] + np.arange(4)
    length = np.linalg.norm(q[index], axis=1)
    bad = np.abs(length - 1.0) > NORM_SLACK
    if bad.any():
        k = int(np.argmax(bad))
        name = system.name_of(int(np.flatnonzero(quaternion)[k]))
        raise InputError(f"{where}: the quaternion of body '{name}' has length {length[k]:.6g}; give unit quaternions")
    q[index] /= np.where(np.abs(length - 1.0) <= ROUND_OFF, 1.0, length)[:, None]
    return q
