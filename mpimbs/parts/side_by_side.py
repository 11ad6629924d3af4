"""What is made ready for the sweeps, put side by side in lanes: pieces of a chain or tree, or systems of the same
joints."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.memory import aligned
from mpimbs.sweep.build import Build, different_rows, parted
from mpimbs.sweep.structure import ADDED, BODY, FIXED, SLIDES, Springs, Structure


class LanesOfTiles(NamedTuple):
    """Pieces that take the same steps, of some tiles of as many lanes: what may be different in them."""

    fixed: Floats  # [tiles, lanes, m, FIXED]: of each step
    added: Floats  # [tiles, lanes, m, ADDED]: what its body is heavier by; or [..., 0]
    slides: Integers  # [tiles, lanes, m]: column SLIDES of the steps
    pitch: Floats  # [tiles, lanes, nu]
    armature: Floats  # [tiles, lanes, nu or 0]
    springs: Springs  # of arrays [tiles, lanes, ...]


def put_side_by_side(lane: Structure, lanes: LanesOfTiles) -> list[tuple[Structure, Springs]]:
    """Put the lanes of each tile side by side; `lane` is the structure of one, for all that is equal."""
    tiles, width, m, _ = lanes.fixed.shape
    bodies = np.concatenate((lanes.fixed, lanes.added), axis=3)
    numbers = np.moveaxis(bodies, 1, 3).reshape(tiles, m, -1)
    number = np.broadcast_to(np.arange(float(tiles))[:, None, None], (tiles, m, 1))  # rows of two tiles are different
    different, which = different_rows(np.concatenate((number, numbers), axis=2).reshape(tiles * m, -1))
    fixed, added = (aligned(part).reshape(len(different), -1) for part in parted(different[:, 1:], width))
    which = which.reshape(tiles, m)
    begins = np.append(which[:, 0], len(different))  # they are numbered as they come
    steps = aligned(np.broadcast_to(lane.steps, (tiles, *lane.steps.shape)))
    steps[..., BODY] = which - which[:, :1]
    steps[..., SLIDES] = lanes.slides.max(axis=1)  # a pitch may vanish in some
    pitch, armature, *forces = map(_interleaved, (lanes.pitch, lanes.armature, *lanes.springs))
    lane = lane._replace(axes=aligned(lane.axes), path=aligned(lane.path))
    found = []
    for tile in range(tiles):
        rows = slice(begins[tile], begins[tile + 1])
        own = {"fixed": fixed[rows].ravel(), "added": added[rows].ravel()}
        structure = lane._replace(steps=steps[tile], pitch=pitch[tile], armature=armature[tile], **own)
        found.append((structure, Springs(*(values[tile] for values in forces))))
    return found


def _interleaved(values: Floats) -> Floats:
    """Numbers [tiles, lanes, n], those of the lanes side by side [tiles, n * lanes]."""
    return aligned(np.swapaxes(values, 1, 2)).reshape(len(values), -1)


def side_by_side(pieces: list[Build]) -> Build:
    """Put pieces that take the same steps side by side, one a lane.

    Parameters
    ----------
    pieces : list of Build
        Equal in joints and order; their bodies may differ. Steps are taken from the first.
    """
    structures = [p.structure for p in pieces]
    m = len(structures[0].steps)
    fixed = _stacked([s.fixed.reshape(-1, FIXED)[s.steps[:, BODY]].ravel() for s in structures])
    added = _stacked([s.added.reshape(-1, ADDED)[s.steps[:, BODY] if s.added.size else []].ravel() for s in structures])
    lanes = LanesOfTiles(
        fixed.reshape(1, len(pieces), m, -1),
        added.reshape(1, len(pieces), m, -1),
        np.stack([s.steps[:, SLIDES] for s in structures])[None],
        _stacked([s.pitch for s in structures]),
        _stacked([s.armature for s in structures]),
        Springs(*(_stacked(list(values)) for values in zip(*(p.springs for p in pieces), strict=True))),
    )
    ((structure, springs),) = put_side_by_side(structures[0], lanes)
    return pieces[0]._replace(structure=structure, springs=springs)


def _stacked(arrays: list[Floats]) -> Floats:
    """Numbers of the lanes of one tile; empty ones, which stand for zeros, are filled where others are not."""
    size = max(a.size for a in arrays)
    return np.stack([a if a.size == size else np.zeros(size) for a in arrays])[None]


def in_lanes(made: Build, width: int) -> Build:
    """Cut a chain into equal pieces of the same joints, side by side.

    Parameters
    ----------
    width : int
        Number of lanes, which divides the steps.
    """
    s = made.structure
    steps = np.arange(len(s.steps)).reshape(1, width, -1)
    springs = [values.reshape(1, width, -1) for values in made.springs]
    m, nu = steps.shape[2], len(s.axes) // width
    lane = s._replace(steps=s.steps[:m], axes=s.axes[:nu], path=np.arange(m))
    lanes = lanes_of_steps(s, steps, s.pitch.reshape(1, width, -1), s.armature.reshape(1, width, -1), Springs(*springs))
    ((structure, springs_of_lanes),) = put_side_by_side(lane, lanes)
    return made._replace(structure=structure, springs=springs_of_lanes)


def lanes_of_steps(
    structure: Structure, steps: Integers, pitch: Floats, armature: Floats, springs: Springs
) -> LanesOfTiles:
    """Give the lanes of tiles that are made of steps [tiles, lanes, m] of a structure; the rest as given."""
    own = structure.steps[steps]
    body = own[..., BODY]
    added = structure.added.reshape(-1, ADDED)
    return LanesOfTiles(
        structure.fixed.reshape(-1, FIXED)[body],
        added[body] if len(added) else np.zeros((*body.shape, 0)),
        own[..., SLIDES],
        pitch,
        armature,
        springs,
    )
