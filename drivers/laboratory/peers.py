"""Other programs on the same model at the same state: do they agree, and how long does an evaluation take.

A peer is a line of `PEERS`, with a module of its own, `peer_<name>`, which alone imports it, when it is asked for.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.bench.bench import check_seconds
from mpimbs.bench.laps import summary, take_turns
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.resources import free_memory
from mpimbs.model import system_from
from mpimbs.model.contents import Contents
from mpimbs.model.text.table import suggest

OURS = "mpimbs"
AGREEMENT = 1e-8
JOB = ("OMPI_", "PMIX_", "PMI_", "ORTE_", "HYDRA")  # what tells a process that it is a rank of a job


class UnavailableError(Exception):
    """A peer gives no figure: a short reason, a colon, the details or the remedy."""


@dataclass(frozen=True)
class Peer:
    """A system in another program, at one state."""

    version: str  # of the program
    # the ways in which it evaluates forward dynamics, each a function without arguments; what is timed
    ways: dict[str, Callable[[], Any]]
    # from what such a function returns to the generalized accelerations [nu] (rad/s^2, m/s^2), in the model's order
    in_our_order: Callable[[Any], Floats]
    # of a way that is known to be less accurate than `peers.AGREEMENT`: the difference up to which it is timed
    rough: dict[str, float] = field(default_factory=dict)


def _pinocchio(*state: Any) -> Peer:
    try:
        from laboratory.peer_pinocchio import pinocchio_peer
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "pinocchio":
            raise
        raise UnavailableError("not installed: pip install pin") from error
    except ImportError as error:
        raise UnavailableError(f"does not load: {error}") from error
    return pinocchio_peer(*state)


PEERS: dict[str, Callable[..., Peer]] = {"pinocchio": _pinocchio}
"""By name the function that builds a system in that program at a state.

Its arguments are the system, q [nq] and u [nu] (our order; rad, m, quaternions; rad/s, m/s), generalized forces tau
[nu] on top of the model's or None (N m, N), and the memory that it may take or None (bytes; half of what is free). It
raises `UnavailableError` with the reason where it gives no figure.
"""


def compare(
    system: Contents, seconds: float = 1.0, names: Sequence[str] | None = None, memory: float | None = None
) -> dict[str, dict[str, Any]]:
    """Time one evaluation of forward dynamics by this package and by its peers, in one run on one process.

    The state is the model's q with speeds u_k = 0.1 sin(k), as for `bench`; of a model with loops the nearest to these
    that close them, beside the model's q, where accelerations may be nothing. All are called from Python. First the
    accelerations are compared: a peer that differs from ours by more than 1e-8 of the largest one, the tolerance of a
    simulation by default, is not timed, but for ways that are rough by nature (see `Peer`). Another frame, sign or
    inertia would give differences of the order of 1; what is below is the peer's own rounding, which grows along a
    chain (Pinocchio: 1e-13 after 256 revolute joints; of spherical ones 1e-12 after 16, 1e-8 to 1e-4 after 32).

    Then they take turns, in rounds in which the first evaluation of each is not counted, so that caches are warm as in
    a simulation, and a slow moment of the machine meets all alike.

    Parameters
    ----------
    seconds : float
        Wall time to spend on repetitions (s), all programs together; each does 10 rounds at least.
    names : sequence of str, optional
        Peers: keys of `PEERS`, all by default.
    memory : float, optional
        What a peer may take (bytes); half of what is free by default. Its need is estimated before it is built.

    Returns
    -------
    dict of str to dict
        This package ("mpimbs") and each peer by name: version, us_min, us_median, us_p90, ns_per_body_min, way (how
        it was called; of several ways that agree the fastest), difference (largest, relative to our largest
        acceleration), ratio (its us_min over ours), ways (us_min and difference of each). A peer that gives no figure
        has a reason in their place, and its version if it came so far; "short: details".

    Raises
    ------
    InputError
        A name that is not known, a bad number of seconds; or as `Dynamics`.
    """
    check_seconds(seconds)
    wanted = list(PEERS) if names is None else list(names)
    for name in wanted:
        if name not in PEERS:
            raise InputError(f"unknown peer {name!r}{suggest(name, PEERS)}")
    dynamics = Dynamics(system, MPI.COMM_SELF)
    dynamics.derivative.timed = False
    order_q, order_u = dynamics.gather_q.part, dynamics.gather_u.part
    ours = _state(dynamics, 0.1 * np.sin(np.arange(system.nu))[order_u])
    q, u, udot = np.empty(system.nq), np.empty(system.nu), np.empty(system.nu)
    q[order_q], u[order_u] = ours
    found, rates = np.empty(system.nu), np.empty(system.nq)
    rows: dict[str, dict[str, Any]] = {OURS: {"version": metadata.version(OURS)}}
    ways = {(OURS, "derivative"): _Way(partial(dynamics.derivative, 0.0, *ours, found, rates), 0.0)}
    ways[OURS, "derivative"].call()
    udot[order_u] = found
    for name in wanted:
        rows[name], agreeing = _agreeing(name, (system, q, u, None, memory), udot)
        ways |= {(name, way): what for way, what in agreeing.items()}
    timed, _ = take_turns(MPI.COMM_SELF, {key: what.call for key, what in ways.items()}, seconds)
    for (name, way), laps in timed.items():
        times = summary(laps)
        each_way = {"us_min": times["us_min"], "difference": ways[name, way].difference}
        rows[name].setdefault("ways", {})[way] = each_way
        if times["us_min"] < rows[name].get("us_min", np.inf):
            each = {"ns_per_body_min": 1e3 * times["us_min"] / system.n_bodies}
            rows[name] |= {"way": way, **times, **each, "difference": ways[name, way].difference}
    for row in rows.values():
        if "us_min" in row:
            row["ratio"] = row["us_min"] / rows[OURS]["us_min"]
    dynamics.close()
    return rows


def _state(dynamics: Dynamics, u: Floats) -> tuple[Floats, Floats]:
    """Give the model's coordinates and these speeds; where it has loops those near by that close them."""
    q, loops = dynamics.subchain.q, dynamics.loops
    if loops is None:
        return q, u
    q = loops.close_places(dynamics.subchain.displaced(q, u))
    return q, loops.close_speeds(q, u)


class _Way(NamedTuple):
    """A way to call a program, and how far its accelerations are from ours."""

    call: Callable[[], Any]
    difference: float


def _agreeing(name: str, given: tuple[Any, ...], udot: Floats) -> tuple[dict[str, Any], dict[str, _Way]]:
    """Build a peer of what it is given; say its version, or why it gives no figure, and the ways that agree with ours.

    Parameters
    ----------
    given : tuple
        The arguments of a function of `PEERS`.
    udot : array [nu]
        Our accelerations (rad/s^2, m/s^2).
    """
    row: dict[str, Any] = {}
    try:
        peer = PEERS[name](*given)
        row["version"] = peer.version
        found = {way: _Way(call, _difference(peer.in_our_order(call()), udot)) for way, call in peer.ways.items()}
        agreeing = {name: way for name, way in found.items() if way.difference <= peer.rough.get(name, AGREEMENT)}
        if not agreeing:
            least = min(way.difference for way in found.values())
            raise UnavailableError(f"disagrees: accelerations differ by {least:.1e} of the largest")
    except UnavailableError as reason:
        row["reason"] = str(reason)
    except MemoryError:
        row["reason"] = "out of memory: more than was estimated"
    except Exception as error:  # whatever a peer raises: the others go on
        row["reason"] = f"failed: {type(error).__name__} {error}".split("\n")[0].strip()
    else:
        return row, agreeing
    return row, {}


def _difference(theirs: Floats, ours: Floats) -> float:
    """Largest difference relative to the largest of ours; infinite where a number is not finite."""
    largest = float(np.abs(ours).max(initial=1e-300))
    value = float(np.abs(theirs - ours).max(initial=0.0)) / largest
    return value if np.isfinite(value) else np.inf


def compare_apart(
    spec: str, seconds: float, names: Sequence[str], memory: float | None = None, limit: float = 300.0
) -> dict[str, dict[str, Any]]:
    """Call `compare` in a process of its own, which may crash, or run out of time or memory, without harm.

    The process may take what memory is free when it begins, so that a peer that needs more than was estimated meets an
    error of its own rather than the end of some process that the system chooses.

    Parameters
    ----------
    spec : str
        The model, as `mpimbs run` takes it.
    seconds, names, memory
        As for `compare`.
    limit : float
        Wall time for everything, set-up included (s).

    Returns
    -------
    dict of str to dict
        As `compare`; where the process gave no answer, every program has the reason.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(JOB)}
    folder = Path(__file__).resolve().parents[1]  # the laboratory's, which lies beside the package's
    paths = [str(folder), str(folder.parent), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    order = json.dumps([spec, seconds, list(names), memory])
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from laboratory import peers; peers.answer()", order],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        reason = f"out of time: no answer after {limit:g} s, set-up included"
    else:
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
        last = (done.stderr.strip().splitlines() or [""])[-1]
        code = done.returncode
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        reason = f"failed: the process ended with {cause} {last}".rstrip()
    return {name: {"reason": reason} for name in (OURS, *names)}


def answer() -> None:
    """Do what the process of `compare_apart` is asked for by its argument."""
    spec, seconds, names, memory = json.loads(sys.argv[1])
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = min(free_memory(swap=False), math.inf if hard < 0 else hard)
    if most < math.inf:
        resource.setrlimit(resource.RLIMIT_DATA, (int(most), hard))
    print(json.dumps(compare(system_from(spec).contents, seconds, names, memory=memory)))
