"""Joint loads of a run: tension and moment of every body, over time and along the chain."""

from __future__ import annotations

import h5py
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from mpimbs.simulation.rods import tension
from mpimbs.study.curves import Histories, draw_histories, even_choice

Floats = npt.NDArray[np.float64]
_NOTHING = 1e-9  # of the largest force, N or at a lever of 1 m: what is below it is rounding
_NO_FORCE = 1e-12  # N: bodies in free fall


def draw_loads(run: h5py.File) -> Figure:
    """Tension and magnitude of the moment at the joints: curves over time for a few bodies, for many a map."""
    names = run["model/body"].asstr()[:]
    bodies = even_choice(len(names))
    loads = run["loads"][:, bodies]
    pull = tension(loads[:, :, 3:], run["model/center_of_mass"][:][bodies])
    moment = np.linalg.norm(loads[:, :, :3], axis=2)
    least = max(_NOTHING * float(np.abs(loads[..., 3:]).max()), _NO_FORCE)
    found = [
        Histories(name, unit, np.where(np.abs(values) > least, values, 0.0), names[bodies])
        for name, unit, values in (("tension", "N", pull), ("moment at the joint", "N m", moment))
    ]
    title = f"{run.attrs['name']}: loads at the joints, on each body by its parent"
    more = "" if len(bodies) == len(names) else f" ({len(bodies)} of {len(names)})"
    return draw_histories(title + more, run["time"][:], found)
