"""Joint loads of a run: tension and moment of every body, over time and along the chain."""

from __future__ import annotations

import h5py
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from mpimbs.study.curves import Histories, draw_histories, even_choice

Floats = npt.NDArray[np.float64]
_NOTHING = 1e-9  # of the largest force, N or at a lever of 1 m: what is below it is rounding
_NO_FORCE = 1e-12  # N: bodies in free fall


def tension(force: Floats, center: Floats) -> Floats:
    """Give the pull along each body: of the force by its parent, what points away from the center of mass.

    Parameters
    ----------
    force : array [samples, n, 3]
        On each body by its parent, in the body's frame (N).
    center : array [n, 3]
        Center of mass, from the joint (m). Where it is at the joint there is no direction: the magnitude then.

    Returns
    -------
    array [samples, n]
        N; negative for a push.
    """
    reach = np.linalg.norm(center, axis=1)
    along = -np.einsum("tni,ni->tn", force, center) / np.where(reach > 0, reach, 1.0)
    return np.asarray(np.where(reach > 0, along, np.linalg.norm(force, axis=2)))


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
