"""What samples hold, by names: `q:hip,knee`, `load:link1`, `energy`, ...: numbers over time with labels and units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.dynamics.quantities import CALLED, DECLARED, OF_JOINTS, PER_BODY, PER_LOOP, SYSTEM, Q, Quantity, U
from mpimbs.files.motion import ALL, Motion
from mpimbs.model.text.table import suggest

_LEAST = 1e-18  # of a violation, which has a logarithmic axis


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
        """The words at the axis."""
        return f"{self.name} ({self.unit})"


def quantities(motion: Motion, text: str) -> list[Histories]:
    """Give what a text names of a motion: `q`, `u`, `pose`, `load`, `power` of all bodies or of some, `energy`, ...

    Parameters
    ----------
    motion : Motion
        Of an ensemble the numbers of all copies stand side by side. Where the structure changes, what a body or loop
        has only at times is NaN at others.
    text : str
        A quantity, one of `NAMED`, or one with names behind a colon and commas between them: "q:hip,knee".

    Raises
    ------
    InputError
        There is no such quantity, body or loop, or it was not kept.
    """
    what, _, given = text.partition(":")
    quantity = CALLED.get(what)
    if quantity is None or not quantity.kinds:
        raise InputError(f"quantity {text!r}: unknown{suggest(what, NAMED)}")
    names = [name for name in given.split(",") if name]
    if not motion.names:
        return _DRAWN[quantity.of](motion, quantity, names)
    each = [_DRAWN[quantity.of](motion.copy(copy), quantity, names) for copy in motion.names]
    return [_beside(motion.names, kind) for kind in zip(*each, strict=True)]


def _beside(copies: Sequence[str], each: Sequence[Histories]) -> Histories:
    """Join the curves of copies: a label for each number and copy."""
    first = each[0]
    several = len(first.labels) > 1
    labels = [
        f"{copy}: {label}" if several else copy for copy, own in zip(copies, each, strict=True) for label in own.labels
    ]
    name = first.name if several else f"{first.name} of {first.labels[0]}"
    return first._replace(name=name, values=np.hstack([own.values for own in each]), labels=labels)


def letters(units: Sequence[str]) -> list[str]:
    """Give letters that tell coordinates of a joint apart: w x y z of quaternions, x y z of others, if several."""
    of = {unit: [k for k, other in enumerate(units) if other == unit] for unit in units}
    turns = iter("wxyz")
    return [
        next(turns) if unit == "1" else "" if len(of[unit]) == 1 else "xyz"[of[unit].index(k)]
        for k, unit in enumerate(units)
    ]


def _bodies(motion: Motion, quantity: Quantity, names: Iterable[str]) -> tuple[list[int], list[int]]:
    """The bodies of those names, or all of which there are samples; and where they are among these."""
    kept = quantity.derived[0] if quantity.derived else quantity.name
    there = {body: place for place, body in enumerate(motion.kept(kept).tolist())}
    if not there:
        raise InputError(f"the run {motion.where} has kept no {kept}; run it again with {kept} among its samples")
    bodies = [motion.system.index_of(name) for name in names] or list(there)
    for body in bodies:
        if body not in there:
            name = motion.system.name_of(body)
            raise InputError(f"body {name!r}: the run {motion.where} has kept no {kept} of it; sample it too")
    return bodies, [there[body] for body in bodies]


def _of_joints(motion: Motion, quantity: Quantity, names: list[str]) -> list[Histories]:
    """Coordinates or speeds, by unit."""
    system, kinds = motion.system, {kind.unit: kind for kind in quantity.kinds}
    places: dict[str, list[tuple[int, int, str]]] = {unit: [] for unit in kinds}  # body, place there, label
    for k in _bodies(motion, quantity, names)[0]:
        joint = system.segments.template(k).joint.kind
        units = joint.q_units if quantity.of == Q else joint.u_units
        for place, (unit, letter) in enumerate(zip(units, letters(units), strict=True)):
            places[unit].append((k, place, f"{system.name_of(k)} {letter}".strip()))
    if not any(places.values()):
        raise InputError(f"quantity {quantity.name!r}: the joints of {', '.join(names) or 'all bodies'} are fixed")
    return [
        Histories(kind.name, unit, _columns(motion, quantity.of, places[unit]), [label for *_, label in places[unit]])
        for unit, kind in kinds.items()
        if places[unit]
    ]


def _columns(motion: Motion, which: str, places: list[tuple[int, int, str]]) -> Floats:
    """Some coordinates or speeds [samples, places]; NaN while the joint is of another type."""
    types = motion.system.joint_types()
    bodies, offset = np.array([body for body, *_ in places]), np.array([place for _, place, _ in places])
    rows = []
    for part in motion.segments:
        kept = part.kept(which)
        sizes = np.diff(part.system.offsets()[OF_JOINTS.index(which)])[kept]
        begins = (np.cumsum(sizes) - sizes)[np.searchsorted(kept, bodies)]
        same = part.system.joint_types()[bodies] == types[bodies]
        values = getattr(part, which)
        found = np.full((len(values), len(places)), np.nan)
        found[:, same] = values[:, (begins + offset)[same]]
        rows.append(found)
    return np.concatenate(rows)


def _of_rows(quantity: Quantity, values: Floats, names: Sequence[str]) -> list[Histories]:
    """Give the curves of rows [samples, rows, ...] of a quantity, with the names of the rows."""
    found = []
    for kind in quantity.kinds:
        taken = kind.of(values).reshape(len(values), -1)
        if kind.logarithmic:
            taken = np.where(taken < _LEAST, _LEAST, taken)
        labels = [f"{name} {label}".strip() for name in names for label in kind.labels]
        found.append(Histories(kind.name, kind.unit, taken, labels, kind.logarithmic))
    return found


def _of_bodies(motion: Motion, quantity: Quantity, names: list[str]) -> list[Histories]:
    bodies, places = _bodies(motion, quantity, names)
    values = motion.some(quantity.name, ALL, np.array(places))
    return _of_rows(quantity, values, [motion.system.name_of(k) for k in bodies])


def _of_system(motion: Motion, quantity: Quantity, names: list[str]) -> list[Histories]:
    if names:
        raise InputError(f"quantity {quantity.name!r}: is of the whole system; leave {', '.join(names)} out")
    values = motion.array(quantity.name)
    if values is None:
        raise InputError(f"the run {motion.where} has kept no {quantity.name}")
    found = _of_rows(quantity, values, [""])
    return [each._replace(labels=[label or each.name for label in each.labels]) for each in found]


def _of_loops(motion: Motion, quantity: Quantity, names: list[str]) -> list[Histories]:
    parts = motion.segments
    known = list(dict.fromkeys(loop.name for part in parts for loop in part.system.loops))
    if not known:
        raise InputError(f"the run {motion.where} closes no loop: there is no {quantity.asked_for}")
    for name in names:
        if name not in known:
            raise InputError(f"unknown loop {name!r}{suggest(name, known)}")
    if not motion.holds(quantity.name) and not any(part.holds(quantity.name) for part in parts):
        raise InputError(f"the run {motion.where} has kept no {quantity.name}")
    chosen = names or known
    values = np.full((len(motion.t), len(chosen), *quantity.row), np.nan)
    begin = 0
    for part in parts:
        own = {loop.name: place for place, loop in enumerate(part.system.loops)}
        here = [place for place, name in enumerate(chosen) if name in own]
        rows = part.array(quantity.name)
        if here and rows is not None:
            values[begin : begin + len(part.t), here] = rows[:, [own[chosen[k]] for k in here]]
        begin += len(part.t)
    return _of_rows(quantity, values, chosen)


_DRAWN = {Q: _of_joints, U: _of_joints, PER_BODY: _of_bodies, SYSTEM: _of_system, PER_LOOP: _of_loops}
NAMED = tuple(quantity.asked_for for quantity in DECLARED if quantity.kinds)  # what can be drawn, as users call it
