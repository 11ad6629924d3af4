"""What is made ready for the sweeps, put side by side in lanes: pieces of a chain, or systems of the same joints."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mpimbs.sweep.build import Build, different_rows, parted
from mpimbs.sweep.structure import ADDED, BODY, FIXED, SLIDES, Springs, Structure

Floats = npt.NDArray[np.float64]


def side_by_side(pieces: list[Build]) -> Build:
    """Put pieces that take the same steps side by side, one a lane.

    Parameters
    ----------
    pieces : list of Build
        Equal in joints and order; their bodies may differ. Steps are taken from the first.
    """
    first = pieces[0]
    steps = first.structure.steps.copy()
    bodies = [p.structure.fixed.reshape(-1, FIXED)[p.structure.steps[:, BODY]] for p in pieces]
    if any(p.structure.added.size for p in pieces):
        bodies = [np.append(own, _heavier(p.structure), axis=1) for own, p in zip(bodies, pieces, strict=True)]
    different, steps[:, BODY] = different_rows(np.stack(bodies, axis=2).reshape(len(steps), -1))
    fixed, added = parted(different, len(pieces))
    steps[:, SLIDES] = np.max([p.structure.steps[:, SLIDES] for p in pieces], axis=0)  # a pitch may vanish in some
    structure = first.structure._replace(
        steps=steps,
        fixed=fixed,
        added=added,
        pitch=_interleaved([p.structure.pitch for p in pieces]),
        armature=_interleaved([p.structure.armature for p in pieces]),
    )
    springs = Springs(*(_interleaved(list(values)) for values in zip(*(p.springs for p in pieces), strict=True)))
    return first._replace(structure=structure, springs=springs)


def _heavier(structure: Structure) -> Floats:
    """What the bodies of all steps are heavier by [m, ADDED]."""
    if not structure.added.size:
        return np.zeros((len(structure.steps), ADDED))
    return structure.added.reshape(-1, ADDED)[structure.steps[:, BODY]]


def in_lanes(made: Build, width: int) -> Build:
    """Cut a chain into equal pieces of the same joints, side by side.

    Parameters
    ----------
    made : Build
    width : int
        Number of lanes, which divides the steps.
    """
    s = made.structure
    cut: dict[str, list[Any]] = {
        "steps": np.split(s.steps, width),
        "axes": np.split(s.axes, width),
        "pitch": np.split(s.pitch, width),
        "path": [np.arange(len(s.steps) // width)] * width,
        "armature": np.split(s.armature, width),
    }
    springs = [Springs(*values) for values in zip(*(np.split(v, width) for v in made.springs), strict=True)]
    return side_by_side(
        [
            made._replace(
                structure=s._replace(**{name: parts[lane] for name, parts in cut.items()}), springs=springs[lane]
            )
            for lane in range(width)
        ]
    )


def _interleaved(arrays: list[Floats]) -> Floats:
    """Numbers of the lanes side by side; empty ones, which stand for zeros, are filled where others are not."""
    size = max(a.size for a in arrays)
    return np.stack([a if a.size == size else np.zeros(size) for a in arrays], axis=1).ravel()
