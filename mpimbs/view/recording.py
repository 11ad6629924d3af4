"""A motion as it is shown: poses and loads of all bodies at any time, also of a run that goes on."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.simulation.result import motion_in
from mpimbs.simulation.rods import tension
from mpimbs.view.scene import rotated

Floats = npt.NDArray[np.float64]
PATIENCE = 1.0  # s between looks at a file that grows


class Recording:
    """The motion in an output file.

    Parameters
    ----------
    path : path
        OUT.h5, or its unfinished part.

    Attributes
    ----------
    system : System
    t : array [samples]
        Times (s).
    poses : array [samples, bodies, 7]
        Positions (m) and quaternions w x y z; of bodies whose motion was not kept not a number.
    forces : array [samples, bodies, 3] or None
        On each body through its inboard joint, in the world (N), where loads were kept.
    tensions : array [samples, bodies] or None
        Of each body, N, negative where it is pushed, where loads were kept.
    status : str

    Raises
    ------
    InputError
        There is no such file, or it holds no poses, nor what gives them.
    """

    def __init__(self, path: str | Path, copy: str | None = None) -> None:
        self.path, self._copy = Path(path), copy
        self._looked, self._took = 0.0, 0.0
        self.t: Floats = np.zeros(0)
        self.update()

    def update(self) -> bool:
        """Look for new samples, now and then; says whether there are any."""
        began = time.monotonic()
        if began - self._looked < max(PATIENCE, 5.0 * self._took):
            return False
        motion, self.status = motion_in(self.path, self._copy)
        self._looked = began
        if len(motion.t) == len(self.t):
            return False
        system, poses, kept = motion.system, motion.poses, motion.kept("poses")
        if poses is None:
            raise InputError(f"{self.path}: holds neither poses nor all of q: let samples have q or poses")
        self.system = system
        self.poses = of_all(poses, kept, system.n_bodies)
        self.forces = self.tensions = None
        if motion.loads is not None:
            loads = of_all(motion.loads, motion.kept("loads"), system.n_bodies)
            self.tensions = tension(loads[..., 3:], system.columns().center_of_mass)
            turn = self.poses[..., 3:].reshape(-1, 4)
            self.forces = rotated(turn, loads[..., 3:].reshape(-1, 3)).reshape(*loads.shape[:2], 3)
        self.t = motion.t
        self._took = time.monotonic() - began
        return True

    @property
    def going_on(self) -> bool:
        """Whether the run may write more."""
        return self.status == "running"

    def seen(self) -> npt.NDArray[np.int64]:
        """Which bodies have poses [n]."""
        return np.flatnonzero(np.isfinite(self.poses[0, :, 0]))

    def at(self, t: float) -> tuple[Floats, Floats | None]:
        """Poses [bodies, 7] and forces [bodies, 3] at a time (s), between samples by interpolation."""
        k = int(np.clip(np.searchsorted(self.t, t, side="right") - 1, 0, len(self.t) - 1))
        n = min(k + 1, len(self.t) - 1)
        share = float(np.clip((t - self.t[k]) / (self.t[n] - self.t[k]), 0.0, 1.0)) if self.t[n] > self.t[k] else 0.0
        a, b = self.poses[k], self.poses[n]
        poses = (1.0 - share) * a + share * b
        same = np.where(np.sum(a[:, 3:] * b[:, 3:], axis=1, keepdims=True) < 0.0, -1.0, 1.0)
        turn = (1.0 - share) * a[:, 3:] + share * same * b[:, 3:]
        poses[:, 3:] = turn / np.linalg.norm(turn, axis=1, keepdims=True)
        if self.forces is None:
            return poses, None
        return poses, (1.0 - share) * self.forces[k] + share * self.forces[n]

    def tension_at(self, t: float) -> Floats | None:
        """Tensions [bodies] at a time (s), between samples by interpolation; None where loads were not kept."""
        if self.tensions is None:
            return None
        return np.array([np.interp(t, self.t, column) for column in self.tensions.T])

    @property
    def most_tension(self) -> float:
        """The largest magnitude of all tensions (N); 0 where loads were not kept."""
        return 0.0 if self.tensions is None else float(np.nanmax(np.abs(self.tensions), initial=0.0))

    def size(self) -> float:
        """Of all where bodies are at any time (m)."""
        low, high = self.bounds()
        return float(np.linalg.norm(high - low))

    def bounds(self) -> tuple[Floats, Floats]:
        """Lowest and highest coordinates of all origins [3]; m."""
        places = self.poses[:, self.seen(), :3].reshape(-1, 3)
        return places.min(axis=0), places.max(axis=0)


def of_all(values: Floats, kept: npt.NDArray[np.int64], bodies: int) -> Floats:
    """Give values [samples, bodies, ...] of all bodies, of those that were kept: not a number of the others."""
    if len(kept) == bodies:
        return values
    whole = np.full((len(values), bodies, values.shape[2]), np.nan)
    whole[:, kept] = values
    return whole
