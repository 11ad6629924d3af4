"""The tuned sizes (`mpimbs.sizes`), measured again on this core: what `mpimbs tune` writes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import nnls

from mpimbs.compiling import compile_evaluations
from mpimbs.model import JOINT_TYPES, Body, Joint, System, system_from
from mpimbs.partition.division import Division
from mpimbs.sizes import Sizes, tuned, using
from mpimbs.spatial.lanes import WIDTHS, native_width
from mpimbs.study.bench import check_seconds
from mpimbs.study.share import SECONDS, Share
from mpimbs.study.tables import host
from mpimbs.sweep.structure import BIAS, PIVOT, PLACE

BODIES = 1024  # of a share
ASSEMBLED = 128  # of a share whose bodies are assembled one by one
TYPES = ("revolute", "prismatic", "universal", "spherical", "planar")
SHORT = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)  # bodies of a lane, tried against one piece
LONG = (16, 32, 64, 128, 256, 512)  # bodies of a lane, tried against one another
KEPT = tuple(2**k for k in range(10, 18))  # bodies of a subchain that keeps all, the pivots, or nothing
LEVELS = (1, 2, 3, 4)  # below the root of subtrees that are swept side by side
TILES = (1, 8)  # of these
LINKS = (8, 16, 32, 64)  # of a stretch, for each lane
_ALWAYS = 1 << 38  # bytes
NOT_MEASURED = ("sample_bytes", "checkpoint_bytes", "slice_numbers")  # which take several ranks and their file system


def tune(seconds: float = SECONDS) -> Sizes:
    """Measure the sizes on this core; those of `NOT_MEASURED` stay as they are in use.

    Parameters
    ----------
    seconds : float
        Wall time for each share of some hundred (s).

    Raises
    ------
    InputError
        A time that makes no sense.
    """
    check_seconds(seconds)
    used, width, chain = tuned(), native_width(), system_from(f"spatial_chain:{3 * BODIES}")
    # Every share is cut as the package is by default, whatever sizes are in use.
    with using(Sizes()):
        inner, tip = (_share(chain, number, BODIES, 1, seconds) for number in (1, 2))
        inner_lanes, tip_lanes = (_share(chain, number, BODIES, width, seconds) for number in (1, 2))
        few = system_from(f"spatial_chain:{3 * ASSEMBLED}")
        leaves = _share(few, 1, ASSEMBLED, 1, seconds, "dca")
        all_bytes, pivot_bytes = _kept(width, seconds)
        return replace(
            used,
            axis_cost=_rounded(_axis_cost(seconds)),
            tip_ratio=_rounded(inner / tip),
            joins_in_bodies=_rounded(max(BODIES * (inner_lanes / tip_lanes - 1.0), 1.0)),
            terminal_ratio=_rounded(leaves / ASSEMBLED / (tip / BODIES)),
            swept_in_lanes=_rounded(tip / tip_lanes),
            least_lane=_least_lane(width, seconds),
            most_lane=_most_lane(width, seconds),
            all_bytes=all_bytes,
            pivot_bytes=pivot_bytes,
            **_limbs(seconds),
        )


def _share(
    system: System, number: int, bodies: int, width: int, seconds: float, coupling: str = "dcae", ranks: int = 3
) -> float:
    """Time an evaluation of one of some equal shares of a chain, alone (s)."""
    division = Division(width, 1.0, bodies * np.arange(ranks + 1), np.arange(ranks + 1))
    with closing(Share(system, division, number, coupling)) as share:
        compile_evaluations(share)
        return sum(share.time(seconds))


def _alone(bodies: int, width: int, seconds: float) -> float:
    """Time an evaluation of a chain on one rank (s)."""
    return _whole(system_from(f"spatial_chain:{bodies}"), width, seconds)


def _whole(system: System, width: int, seconds: float) -> float:
    """Time an evaluation of a system on one rank (s)."""
    return _share(system, 0, system.n_bodies, width, seconds, ranks=1)


def _axis_cost(seconds: float) -> float:
    """Fit the times of chains of several joint types: a step and each of its freedoms take their parts."""
    rows, times = [], []
    for kind in (kind for kind in JOINT_TYPES if kind.name in TYPES):
        chain = System(f"chain of {kind.name} joints")
        joint = Joint(type=kind.name, position=(0, -1, 0))
        link = Body(name="link", mass=1, center_of_mass=(0, -0.5, 0), inertia=(1, 1, 1, 0, 0, 0), joint=joint)
        chain.repeat(BODIES, link)
        rows.append((len(kind.steps), kind.nu))
        times.append(_share(chain, 0, BODIES, 1, seconds, ranks=1))
    step, axis = np.linalg.lstsq(np.array(rows, float), np.array(times))[0]
    return float(np.clip(axis / step, 0.01, 10.0)) if step > 0.0 else 10.0


def _forest(copies: int, levels: int) -> System:
    """So many equal binary trees that hang on the world: each a lane."""
    one = system_from(f"tree:{levels}:2")
    system = System("forest")
    n, begins = one.n_bodies, one.n_bodies * np.arange(copies)[:, None]
    bodies, rows = one.segments.rows(0, n)
    parents = np.where(one.parents() >= 0, one.parents() + begins, -1)
    system.branch(bodies, np.tile(rows, copies), parents.ravel())
    return system


def _limbs(seconds: float) -> dict[str, Any]:
    """Fit the times of equal subtrees side by side, and of stretches, to what they are predicted by.

    An evaluation takes some time itself; then every body in doubles, row of so many lanes, tile of rows, all limbs
    together, row of a stretch, and join of its lanes. Widths for which this machine has no registers are left out.
    """
    widths = [width for width in WIDTHS if width <= native_width()]
    names = [f"row_of_{width}" for width in widths] + ["tile_start", "limbs_start", "join_cost"]
    columns = ["call", "body", "row_of_stretch", *names]
    terms: list[dict[str, float]] = []
    times: list[float] = []

    def add(system: System, width: int, **term: float) -> None:
        terms.append({"call": 1.0, **term})
        times.append(_whole(system, width, seconds))

    for width, tiles, levels in itertools.product(widths, TILES, LEVELS):
        forest = _forest(width * tiles, levels)
        rows = forest.n_bodies / width
        add(forest, width, **{f"row_of_{width}": rows, "tile_start": tiles, "limbs_start": 1.0})
        add(forest, 1, body=forest.n_bodies)
    for links in LINKS:
        stretch = system_from(f"caterpillar:{links * widths[-1]}")
        add(stretch, widths[-1], row_of_stretch=2.0 * links, join_cost=widths[-1], limbs_start=1.0)
    relative = np.array(times)[:, None]
    rows_of_all = np.array([[term.get(name, 0.0) for name in columns] for term in terms])
    found = dict(zip(columns, nnls(rows_of_all / relative, np.ones(len(times)))[0].tolist(), strict=True))
    return {name: _rounded(float(np.clip(found[name] / max(found["body"], 1e-9), 0.01, 1e3))) for name in names}


def _least_lane(width: int, seconds: float) -> int:
    """Fewest bodies of a lane from which on lanes are the faster in all that are tried."""
    with using(replace(tuned(), least_lane=1)):
        faster = [_alone(width * n, width, seconds) < _alone(width * n, 1, seconds) for n in SHORT]
    slower = [n for n, fast in zip(SHORT, faster, strict=True) if not fast]
    return next((n for n in SHORT if not slower or n > slower[-1]), SHORT[-1])


def _most_lane(width: int, seconds: float) -> int:
    """Bodies of a lane of the tiles that sweep a long chain the fastest."""
    times = {}
    for most in LONG:
        with using(replace(tuned(), most_lane=most)):
            times[most] = _alone(4 * width * LONG[-1], width, seconds)
    return min(times, key=lambda most: times[most])


def _kept(width: int, seconds: float) -> tuple[int, int]:
    """Bytes of workspace and of pivots up to which keeping them is faster than making them again."""
    faster = []
    for bodies in KEPT:
        times = []
        for all_bytes, pivot_bytes in ((_ALWAYS, _ALWAYS), (1, _ALWAYS), (1, 1)):
            with using(replace(tuned(), all_bytes=all_bytes, pivot_bytes=pivot_bytes)):
                times.append(_alone(bodies, width, seconds))
        faster.append((times[0] <= min(times[1:]), times[1] <= times[2]))
    whole, pivots = (KEPT[max(int(np.argmin((*flags, False))) - 1, 0)] for flags in zip(*faster, strict=True))
    return 8 * (PLACE + BIAS + PIVOT) * whole, 8 * PIVOT * pivots


def _rounded(value: float) -> float:
    """A measured number with the digits that it has."""
    return float(f"{value:.2g}")


def report(measured: Sizes) -> Sequence[str]:
    """Say the sizes in use beside those measured."""
    found = {name: "-" if name in NOT_MEASURED else f"{value:g}" for name, value in vars(measured).items()}
    return [
        f"{'size':16s} {'in use':>12s} {'measured':>12s}",
        *(f"{name:16s} {value:12g} {found[name]:>12s}" for name, value in vars(tuned()).items()),
    ]


def file_text(measured: Sizes) -> str:
    """The sizes as a file that MPIMBS_SIZES may name, which says where they were measured."""
    here = host()
    return f"# mpimbs tune: {here['cpu']}, {native_width()} lanes, {here['system']}\n{measured.text()}"
