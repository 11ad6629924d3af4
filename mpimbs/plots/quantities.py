"""What samples hold, by names: `q:hip,knee`, `load:link1`, `energy`, ...: numbers over time with labels and units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.errors import InputError
from mpimbs.dynamics.selection import MEANT
from mpimbs.files.motion import Motion
from mpimbs.model.text.table import suggest

Floats = npt.NDArray[np.float64]
_LEAST = 1e-18  # of a violation, which has a logarithmic axis
_KINDS = {
    "q": {"rad": "angles", "m": "displacements", "1": "quaternions w x y z"},
    "u": {"rad/s": "angular velocities", "m/s": "velocities"},
}
_ASKED = {arrays: name for name, arrays in MEANT.items()} | {"loop_violation": "violation"}  # as Python calls arrays


class Histories(NamedTuple):
    """Numbers of one kind over time: what they are, their unit, the values [samples, k], and k labels.

    Of some the order of magnitude matters.
    """

    name: str
    unit: str
    values: Floats
    labels: Sequence[str]
    logarithmic: bool = False

    @property
    def told(self) -> str:
        """What stands at the axis."""
        return f"{self.name} ({self.unit})"


def quantities(motion: Motion, text: str) -> list[Histories]:
    """Give what a text names of a motion: `q`, `u`, `pose`, `load`, `tension`, `moment` of all bodies or of some, ...

    Parameters
    ----------
    motion : Motion
        Of an ensemble the numbers of all copies stand side by side. Where the structure changes, what a body or loop
        has only at times is NaN at others.
    text : str
        A quantity, one of `NAMED_QUANTITIES`, or one with names behind a colon and commas between them: "q:hip,knee".

    Raises
    ------
    InputError
        There is no such quantity, body or loop, or it was not kept.
    """
    what, _, given = text.partition(":")
    what = _ASKED.get(what, what)
    if what not in NAMED_QUANTITIES:
        raise InputError(f"quantity {text!r}: unknown{suggest(what, NAMED_QUANTITIES)}")
    names = [name for name in given.split(",") if name]
    if not motion.names:
        return NAMED_QUANTITIES[what](motion, names)
    each = [NAMED_QUANTITIES[what](motion.copy(copy), names) for copy in motion.names]
    return [_beside(motion.names, kind) for kind in zip(*each, strict=True)]


def _beside(copies: Sequence[str], each: Sequence[Histories]) -> Histories:
    """What copies have, as one: a label for each number and copy."""
    first = each[0]
    several = len(first.labels) > 1
    labels = [
        f"{copy}: {label}" if several else copy for copy, own in zip(copies, each, strict=True) for label in own.labels
    ]
    name = first.name if several else f"{first.name} of {first.labels[0]}"
    return first._replace(name=name, values=np.hstack([own.values for own in each]), labels=labels)


def letters(units: Sequence[str]) -> list[str]:
    """What tells the coordinates of one joint from each other: w x y z of quaternions, x y z of others, if several."""
    of = {unit: [k for k, other in enumerate(units) if other == unit] for unit in units}
    turns = iter("wxyz")
    return [
        next(turns) if unit == "1" else "" if len(of[unit]) == 1 else "xyz"[of[unit].index(k)]
        for k, unit in enumerate(units)
    ]


def _bodies(motion: Motion, kept: str, names: Iterable[str]) -> tuple[list[int], list[int]]:
    """The bodies of those names, or all of which there are samples; and where they are among these."""
    there = {body: place for place, body in enumerate(motion.kept(kept).tolist())}
    if not there:
        raise InputError(f"the run {motion.where} has kept no {kept}; run it again with {kept} among its samples")
    bodies = [motion.system.index_of(name) for name in names] or list(there)
    for body in bodies:
        if body not in there:
            name = motion.system.name_of(body)
            raise InputError(f"body {name!r}: the run {motion.where} has kept no {kept} of it; sample it too")
    return bodies, [there[body] for body in bodies]


def _of_joints(which: str) -> Callable[[Motion, list[str]], list[Histories]]:
    def found(motion: Motion, names: list[str]) -> list[Histories]:
        system, kinds = motion.system, _KINDS[which]
        places: dict[str, list[tuple[int, int, str]]] = {unit: [] for unit in kinds}  # body, place there, label
        for k in _bodies(motion, which, names)[0]:
            joint = system.segments.template(k).joint.kind
            units = joint.q_units if which == "q" else joint.u_units
            for place, (unit, letter) in enumerate(zip(units, letters(units), strict=True)):
                places[unit].append((k, place, f"{system.name_of(k)} {letter}".strip()))
        if not any(places.values()):
            raise InputError(f"quantity {which!r}: the joints of {', '.join(names) or 'all bodies'} are fixed")
        return [
            Histories(name, unit, _columns(motion, which, places[unit]), [label for *_, label in places[unit]])
            for unit, name in kinds.items()
            if places[unit]
        ]

    return found


def _columns(motion: Motion, which: str, places: list[tuple[int, int, str]]) -> Floats:
    """Some coordinates or speeds [samples, places]; NaN while the joint is of another type."""
    types = motion.system.joint_types()
    bodies, offset = np.array([body for body, *_ in places]), np.array([place for _, place, _ in places])
    rows = []
    for part in motion.segments:
        kept = part.kept(which)
        sizes = np.diff(part.system.offsets()[0 if which == "q" else 1])[kept]
        begins = (np.cumsum(sizes) - sizes)[np.searchsorted(kept, bodies)]
        same = part.system.joint_types()[bodies] == types[bodies]
        values = getattr(part, which)
        found = np.full((len(values), len(places)), np.nan)
        found[:, same] = values[:, (begins + offset)[same]]
        rows.append(found)
    return np.concatenate(rows)


def _loads(motion: Motion, names: list[str]) -> list[Histories]:
    bodies, places = _bodies(motion, "loads", names)
    labels = [f"{motion.system.name_of(k)} {letter}" for k in bodies for letter in "xyz"]
    loads = motion.loads[:, places]
    moment, force = (loads[..., part].reshape(len(loads), -1) for part in (slice(0, 3), slice(3, 6)))
    return [
        Histories("force at the joint", "N", force, labels),
        Histories("moment at the joint", "N m", moment, labels),
    ]


def _tension(motion: Motion, names: list[str]) -> list[Histories]:
    bodies, places = _bodies(motion, "loads", names)
    return [Histories("tension", "N", motion.tension[:, places], [motion.system.name_of(k) for k in bodies])]


def _moment(motion: Motion, names: list[str]) -> list[Histories]:
    bodies, places = _bodies(motion, "loads", names)
    values = np.linalg.norm(motion.loads[:, places, :3], axis=2)
    return [Histories("moment at the joint", "N m", values, [motion.system.name_of(k) for k in bodies])]


def _poses(motion: Motion, names: list[str]) -> list[Histories]:
    system = motion.system
    bodies, places = _bodies(motion, "poses", names)
    poses = motion.poses[:, places]
    told = [system.name_of(k) for k in bodies]
    place, turn = (poses[..., part].reshape(len(poses), -1) for part in (slice(0, 3), slice(3, 7)))
    return [
        Histories("position", "m", place, [f"{name} {letter}" for name in told for letter in "xyz"]),
        Histories("quaternion w x y z", "1", turn, [f"{name} {letter}" for name in told for letter in "wxyz"]),
    ]


def _energy(motion: Motion, names: list[str]) -> list[Histories]:
    _refuse_names("energy", names)
    values = np.column_stack([motion.energy, motion.energy.sum(axis=1)])
    return [Histories("energy", "J", values, ("kinetic", "potential", "total"))]


def _violation(motion: Motion, names: list[str]) -> list[Histories]:
    parts = motion.segments
    known = list(dict.fromkeys(loop.name for part in parts for loop in part.system.loops))
    if not known:
        raise InputError(f"the run {motion.where} closes no loop: nothing can be violated")
    for name in names:
        if name not in known:
            raise InputError(f"unknown loop {name!r}{suggest(name, known)}")
    chosen = names or known
    values = np.full((len(motion.t), len(chosen), 2), np.nan)
    begin = 0
    for part in parts:
        own = {loop.name: place for place, loop in enumerate(part.system.loops)}
        here = [place for place, name in enumerate(chosen) if name in own]
        if here and part.loop_violation is not None:
            values[begin : begin + len(part.t), here] = part.loop_violation[:, [own[chosen[k]] for k in here]]
        begin += len(part.t)
    values = np.where(values < _LEAST, _LEAST, values)
    return [
        Histories("how far loops are from closed", "m and rad", values[..., 0], chosen, logarithmic=True),
        Histories("speed at which they open", "m/s and rad/s", values[..., 1], chosen, logarithmic=True),
    ]


def _refuse_names(what: str, names: list[str]) -> None:
    if names:
        raise InputError(f"quantity {what!r}: is of the whole system; leave {', '.join(names)} out")


NAMED_QUANTITIES: dict[str, Callable[[Motion, list[str]], list[Histories]]] = {
    "q": _of_joints("q"),
    "u": _of_joints("u"),
    "pose": _poses,
    "load": _loads,
    "tension": _tension,
    "moment": _moment,
    "energy": _energy,
    "violation": _violation,
}
