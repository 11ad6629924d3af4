"""What a run has kept, by names: `q:hip,knee`, `load:link1`, `energy`, ...: numbers over time with labels and units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.model.table import suggest
from mpimbs.simulation.kept_motion import KeptMotion, SegmentedMotion
from mpimbs.study.curves import Histories
from mpimbs.study.load_pictures import tension

Floats = npt.NDArray[np.float64]
Motion = KeptMotion | SegmentedMotion
_LEAST = 1e-18  # of a violation, which has a logarithmic axis
_KINDS = {
    "q": {"rad": "angles", "m": "displacements", "1": "quaternions w x y z"},
    "u": {"rad/s": "angular velocities", "m/s": "velocities"},
}


def quantities(motion: Motion, text: str) -> list[Histories]:
    """Give what a text names of a run: `q`, `u`, `load`, `pose` of all bodies or of some, `energy`, `violation`.

    Parameters
    ----------
    motion : KeptMotion or SegmentedMotion
        Where the structure changes, what a body or loop has only at times is NaN at others.
    text : str
        A quantity, or one with names behind a colon and commas between them: "q:hip,knee".

    Raises
    ------
    InputError
        There is no such quantity, body or loop, or it was not kept.
    """
    what, _, given = text.partition(":")
    if what not in NAMED_QUANTITIES:
        raise InputError(f"quantity {text!r}: unknown{suggest(what, NAMED_QUANTITIES)}")
    names = [name for name in given.split(",") if name]
    return NAMED_QUANTITIES[what](motion, names)


def segments_of(motion: Motion) -> list[KeptMotion]:
    """The parts of a motion in which the structure stays: one or several."""
    return motion.segments if isinstance(motion, SegmentedMotion) else [motion]


def letters(units: Sequence[str]) -> list[str]:
    """What tells the coordinates of one joint from each other: w x y z of quaternions, x y z of others, if several."""
    of = {unit: [k for k, other in enumerate(units) if other == unit] for unit in units}
    turns = iter("wxyz")
    return [
        next(turns) if unit == "1" else "" if len(of[unit]) == 1 else "xyz"[of[unit].index(k)]
        for k, unit in enumerate(units)
    ]


def energies(energy: Floats) -> Histories:
    """Kinetic, potential and total energy, of the first two [samples, 2]."""
    values = np.column_stack([energy, energy.sum(axis=1)])
    return Histories("energy", "J", values, ("kinetic", "potential", "total"))


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
    for part in segments_of(motion):
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
    system = motion.system
    bodies, places = _bodies(motion, "loads", names)
    loads, told = np.asarray(motion.loads)[:, places], [system.name_of(k) for k in bodies]
    if not names:
        center = system.columns().center_of_mass[bodies]
        return [
            Histories("tension", "N", tension(loads[..., 3:], center), told),
            Histories("moment at the joint", "N m", np.linalg.norm(loads[..., :3], axis=2), told),
        ]
    labels = [f"{name} {letter}" for name in told for letter in "xyz"]
    moment, force = (loads[..., part].reshape(len(loads), -1) for part in (slice(0, 3), slice(3, 6)))
    return [
        Histories("force at the joint", "N", force, labels),
        Histories("moment at the joint", "N m", moment, labels),
    ]


def _poses(motion: Motion, names: list[str]) -> list[Histories]:
    system = motion.system
    bodies, places = _bodies(motion, "poses", names)
    poses = np.asarray(motion.poses)[:, places]
    told = [system.name_of(k) for k in bodies]
    place, turn = (poses[..., part].reshape(len(poses), -1) for part in (slice(0, 3), slice(3, 7)))
    return [
        Histories("position", "m", place, [f"{name} {letter}" for name in told for letter in "xyz"]),
        Histories("quaternion w x y z", "1", turn, [f"{name} {letter}" for name in told for letter in "wxyz"]),
    ]


def _energy(motion: Motion, names: list[str]) -> list[Histories]:
    _refuse_names("energy", names)
    return [energies(np.asarray(motion.energy))]


def _violation(motion: Motion, names: list[str]) -> list[Histories]:
    parts = segments_of(motion)
    known = list(dict.fromkeys(loop.name for part in parts for loop in part.system.loops))
    if not known:
        raise InputError(f"the run {motion.where} closes no loop: nothing can be violated")
    for name in names:
        if name not in known:
            raise InputError(f"unknown loop {name!r}{suggest(name, known)}")
    chosen = names or known
    values = np.full((len(np.asarray(motion.t)), len(chosen), 2), np.nan)
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
    "load": _loads,
    "pose": _poses,
    "energy": _energy,
    "violation": _violation,
}
