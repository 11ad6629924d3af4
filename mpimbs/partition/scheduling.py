"""How a system is divided for an assembly: its leaves, the ranks that own them, and the schedule. No MPI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from mpimbs.base.errors import InputError
from mpimbs.base.names import AUTO, BALANCED, BODIES, LEAVES, SCHEDULES, SERIAL, SWEEPS  # noqa: F401
from mpimbs.model import System
from mpimbs.model.order.order import Order
from mpimbs.partition.assembly_costs import PACKAGE_COSTS, AssemblyCosts
from mpimbs.partition.division import Division, divide_tree
from mpimbs.partition.schedule import balanced, serial
from mpimbs.partition.schedule_file import Laid, read_schedule
from mpimbs.partition.schedule_search import Search
from mpimbs.partition.thin import check_pieces, refuse_thin

Integers = npt.NDArray[np.int64]

MADE = {BALANCED: balanced, SERIAL: serial}


def divide_scheduled(
    system: System,
    size: int,
    cuts: int | None = None,
    tip_ratio: float | None = None,
    lanes: int | None = None,
    schedule: str = BALANCED,
    leaves: str = SWEEPS,
) -> Division:
    """Divide a system into the leaves of a schedule: single bodies, or intervals that are swept.

    Parameters and errors are those of `partition.division.divide_tree`, and:

    Parameters
    ----------
    schedule : str
        One of SCHEDULES, or the path of a file (`partition.schedule_file`), which has leaves of its own.
    leaves : str
        One of LEAVES.

    Raises
    ------
    InputError
        Cuts of their own with single bodies, or with a file; what `read_schedule` finds.
    """
    if leaves == BODIES and cuts is not None:
        raise InputError(f"with `leaves='bodies'` every joint is cut already; leave `cuts={cuts}` out")
    divided = divide_tree(system, size, None if leaves == BODIES else cuts, tip_ratio, lanes)
    if schedule not in SCHEDULES:
        laid = _of_file(schedule, system, size, cuts, leaves)
    else:
        laid = lay(system, divided, leaves, schedule)
    if leaves == BODIES:
        refuse_thin(system, "assembly with `leaves='bodies'`")
    check_pieces(system, laid.bounds, laid.order)
    owners = np.searchsorted(laid.schedule.owners, np.arange(size + 1))
    return Division(divided.width, 1.0, laid.bounds, owners, laid.order, laid.schedule)


def lay(system: System, divided: Division, leaves: str, schedule: str, costs: AssemblyCosts = PACKAGE_COSTS) -> Laid:
    """Lay a schedule of SCHEDULES over a system that is divided among its ranks; what is found moves cuts too."""
    order, bounds = divided.order or Order.of(system), divided.bounds
    if schedule == AUTO:
        if leaves == SWEEPS and len(bounds) != len(divided.cuts):
            raise InputError("the schedule 'auto' has one swept leaf for each rank; leave `cuts` out")
        search = Search(system, order, len(divided.cuts) - 1, divided.width, leaves == BODIES, costs)
        found = search.best(divided.cuts)
        return Laid(order, found.bounds, found.schedule)
    counts = np.diff(divided.owners)
    if leaves == BODIES:
        counts, bounds = np.diff(divided.cuts), np.arange(system.n_bodies + 1)
    return Laid(order, bounds, MADE[schedule](counts.tolist()))


def _of_file(name: str, system: System, size: int, cuts: int | None, leaves: str) -> Laid:
    if cuts is not None or leaves != SWEEPS:
        given = f"cuts={cuts}" if cuts is not None else f"leaves='{leaves}'"
        raise InputError(f"the schedule of a file has its own leaves; leave `{given}` out")
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        raise InputError(f"unknown schedule '{name}'; choose one of: {', '.join(SCHEDULES)}; or name a .toml file")
    return read_schedule(path, system, size)
