"""The sweeps of a chain, one kernel for each, and their operations per body, counted by running them uncompiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from laboratory.counting import Counted, CountedArray, Counts, UsefulCounts, counting
from mpimbs.base.arrays import Floats
from mpimbs.model.contents import Contents
from mpimbs.sweep.build import build
from mpimbs.sweep.inward import far_handle, inward, outward
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import coordinate_rates, joint_places, relative_turn, velocity_terms
from mpimbs.sweep.structure import TURNING, Springs, Structure, Workspace, workspace
from mpimbs.values.handles import SIZE


class Chain(NamedTuple):
    """All that the sweeps of a chain work on, in doubles."""

    structure: Structure
    springs: Springs
    work: Workspace
    q: Floats  # [nq]: rad, m, quaternions
    u: Floats  # [nu]: rad/s, m/s
    loads: Floats  # [12]: acceleration of handle 1, whose first numbers serve as its angular velocity, and load on 2
    total: Floats  # [nu], written: joint forces
    turn: Floats  # [TURNING], written
    block: Floats  # [SIZE], written: handle equations
    udot: Floats  # [nu], written
    rates: Floats  # [nq], written


# Of each sweep, in the order in which one may follow the other: the kernel and its arguments.
SWEEPS = {
    "joint places": lambda a: (joint_places, 0.0, a.structure, a.q, a.work.place),
    "boundary turn": lambda a: (relative_turn, 0.0, a.structure, a.work, a.u, a.turn),
    "velocity terms": lambda a: (velocity_terms, 0.0, a.structure, a.work, a.u, tuple(a.loads[:3])),
    "joint forces": lambda a: (joint_forces, 0.0, a.structure, a.springs, a.q, a.u, np.zeros(0), a.total),
    "inward": lambda a: (inward, 0.0, a.structure, a.work, a.total, a.block, False),
    "far handle": lambda a: (far_handle, 0.0, a.structure, a.work, a.block),
    "outward, one handle": lambda a: _outward(a, False),
    "outward": lambda a: _outward(a, True),
    "rates": lambda a: (coordinate_rates, 0.0, a.structure, a.q, a.u, a.rates),
}
# A chain alone, and a piece of one, which has both handles.
TIP = ("joint places", "velocity terms", "joint forces", "inward", "outward, one handle", "rates")
PIECE = (*TIP[:1], "boundary turn", *TIP[1:4], "far handle", "outward", "rates")


def _outward(a: Chain, two_handles: bool) -> tuple[Any, ...]:
    return outward, 0.0, a.structure, a.work, tuple(a.loads[:6]), tuple(a.loads[6:]), two_handles, a.udot


def chain(system: Contents) -> Chain:
    """Make what the sweeps work on: a chain in its initial state, with speeds u_k = 0.1 sin(k).

    Raises
    ------
    ValueError
        Not a chain.
    """
    if not system.is_chain:
        raise ValueError(f"'{system.name}' is not a chain")
    columns = system.columns()
    made = build(columns)
    nq, nu = system.nq, system.nu
    loads = np.array([0.1, 0.2, 0.3, *(-g for g in system.gravity), 1, -2, 3, -1, 2, -3])
    work = workspace(len(made.structure.steps), nu, made.junctions, 1, wrenches=False)
    written = (np.zeros(size) for size in (nu, TURNING, SIZE, nu, nq))
    moving = 0.1 * np.sin(np.arange(1, nu + 1))
    return Chain(made.structure, made.springs, work, columns.q, moving, loads, *written)


def count_sweeps(a: Chain, useful: bool = False) -> dict[str, Counts]:
    """Count what each sweep does for a whole chain; it writes into `a`, as the compiled one does."""
    return {name: count(*call(a), useful=useful) for name, call in SWEEPS.items()}


def counts_per_body(short: Contents, long: Contents, useful: bool = False) -> dict[str, Counts]:
    """Counts of each sweep per body, from two chains of different lengths."""
    few, many = (count_sweeps(chain(system), useful) for system in (short, long))
    return {name: (many[name] - few[name]) / (long.n_bodies - short.n_bodies) for name in many}


def count(compiled: Any, *given: Any, useful: bool = False) -> Counts:
    """Count what a kernel does, which writes into the arrays that it is given.

    Parameters
    ----------
    compiled : numba dispatcher
    given
        Its arguments. A Python float is a literal, a NumPy one is not; spare items of arrays are masked.
    useful : bool
        Count what is useful; see `laboratory.counting`.
    """
    counts = UsefulCounts() if useful else Counts()
    counted = tuple(_counted(part, counts) for part in given)
    counting(compiled)(*counted)
    for part, array in zip(flat(counted), flat(given), strict=True):
        if isinstance(part, CountedArray):
            np.ma.getdata(array)[...] = part.values
    return counts


def _counted(given: Any, counts: Counts) -> Any:
    if isinstance(given, tuple):
        parts = [_counted(part, counts) for part in given]
        return type(given)(*parts) if hasattr(given, "_fields") else tuple(parts)
    if isinstance(given, np.ndarray):
        return CountedArray(given, counts)
    return Counted(float(given), counts, type(given) is float) if isinstance(given, float) else given


def flat(given: Any) -> list[Any]:
    """Give the arrays and numbers of a tuple of any depth in order."""
    return [part for one in given for part in (flat(one) if isinstance(one, tuple) else [one])]
