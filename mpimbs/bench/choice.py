"""The choice of a coupling for a model on the ranks that there are, and the reason."""

from __future__ import annotations

from typing import Any, NamedTuple

from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.bench.accuracy import ASSEMBLED, LONG
from mpimbs.bench.bench import bench
from mpimbs.coupling import COUPLINGS, UNCOMPARED, unavailable
from mpimbs.model.contents import Contents

_SECONDS = 0.05  # s for each coupling


class Choice(NamedTuple):
    """A coupling, and why it was chosen."""

    coupling: str
    why: str


def choose_coupling(system: Contents, comm: MPI.Comm, **settings: Any) -> Choice:
    """Choose the coupling that is the fastest on these ranks: measured, a moment for each; all ranks call.

    On one rank with one subchain there is nothing to join, and nothing is measured: the sweep is the fastest. What
    loses digits in long chains is left out.

    Parameters
    ----------
    system, comm, **settings
        As for `Dynamics`, but for the coupling and its solver.

    Raises
    ------
    InputError
        On all ranks: none solves the system.
    """
    if comm.size == 1 and not settings.get("cuts"):
        return Choice("dcae", "one subchain, swept in O(n): nothing to join")
    found: dict[str, float] = {}
    left_out: dict[str, str] = {}
    refusal: InputError | None = None
    for name in COUPLINGS:
        if name in UNCOMPARED:
            continue
        if name in ASSEMBLED and system.n_bodies > LONG:
            left_out[name] = f"loses digits beyond {LONG} bodies"
            continue
        if unavailable(name):
            left_out[name] = "needs petsc4py"
            continue
        try:
            figures = bench(system, comm, name, _SECONDS, **settings)
        except InputError as error:
            left_out[name] = "refused"
            refusal = refusal or error
            continue
        found[name] = comm.bcast(figures["us_median"])
    if not found:
        raise refusal or InputError("no coupling solves this system")
    best = min(found, key=lambda name: found[name])
    others = [f"{name} {us:.4g}" for name, us in found.items() if name != best]
    others += [f"{name} {reason}" for name, reason in left_out.items()]
    why = f"{found[best]:.4g} us an evaluation on {comm.size} ranks, measured"
    return Choice(best, f"{why} ({'; '.join(others)})" if others else why)
