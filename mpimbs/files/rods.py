"""What rods carry, from the loads of their joints: tension, bending and torsion along them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.model import JOINT_TYPES
from mpimbs.model.contents import Contents
from mpimbs.model.text.table import suggest


class RodHistory(NamedTuple):
    """The loads through the joints of a rod, by the links beyond on those before, a row for each sample."""

    s: Floats  # [links]: m, where the inboard joint of each link is along the rod
    tension: Floats  # [samples, links]: N; negative for a push
    shear: Floats  # [samples, links, 2]: N, along `axis` and across it
    bending: Floats  # [samples, links, 2]: N m, about `axis` and across it; positive as curvature is
    torsion: Floats  # [samples, links]: N m


def rod_history(system: Contents, loads: Floats | None, name: str) -> RodHistory:
    """Give what a rod of a system carries, of samples of loads [samples, bodies, 6].

    A rod is the numbered bodies of a name, one on the other, that lie along z as those of a `Rod` do and don't slide.

    Raises
    ------
    InputError
        There is no such rod, or loads were not kept.
    """
    found = rods_of(system)
    if name not in found:
        raise InputError(f"unknown rod {name!r}{suggest(name, found)}")
    if loads is None:
        raise InputError(f"rod {name!r}: joint loads were not kept; run with `loads=True`, or --loads")
    return history_of(system, found[name], loads[:, found[name]])


def history_of(system: Contents, links: Integers, loads: Floats) -> RodHistory:
    """Give what a rod of these links [n] carries, of samples of their loads [samples, n, 6]."""
    s = np.cumsum(system.columns(int(links[0]), int(links[-1]) + 1).position[:, 2])
    moment, force = -loads[..., :3], -loads[..., 3:]
    return RodHistory(s - s[0], force[..., 2], force[..., [1, 0]], moment[..., [1, 0]], moment[..., 2])


def rods_of(system: Contents) -> dict[str, Integers]:
    """Which bodies are the links of each rod."""
    found = {}
    stems = dict.fromkeys(body.name for segment in system.segments if segment.numbered for body in segment.bodies)
    for name in stems:
        links = system.names.indices(name)
        if links is None or len(links) < 2 or np.any(np.diff(links) != 1):
            continue
        first, last = int(links[0]), int(links[-1])
        columns = system.columns(first, last + 1)
        slides = np.array(["m" in kind.q_units for kind in JOINT_TYPES])[columns.joint_type[1:]].any()
        straight = not slides and not columns.center_of_mass[:, :2].any() and not columns.position[1:, :2].any()
        if straight and np.array_equal(columns.parent[1:], links[:-1]) and (columns.position[1:, 2] > 0).all():
            found[name] = links
    return found
