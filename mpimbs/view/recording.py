"""A motion as it is shown: poses and loads of all bodies at any time, also of a run that goes on."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.files.motion import Motion
from mpimbs.run.result import load
from mpimbs.view.scene import bounds, turns_of

PATIENCE = 1.0  # s between looks at a file that grows


class Recording:
    """A motion, or that in an output file.

    Parameters
    ----------
    source : path or Motion
        OUT.h5, or its unfinished part, of which new samples are looked for.
    copy : str, optional
        Of an ensemble, whose motion.

    Attributes
    ----------
    system : Contents
    t : array [samples]
        Times (s).
    poses : array [samples, bodies, 7]
        Positions (m) and quaternions w x y z; of bodies whose motion was not kept not a number.
    forces : array [samples, bodies, 3] or None
        On each body through its inboard joint, in the world (N), where loads were kept.
    tensions : array [samples, bodies] or None
        Of each body, N, negative where it is pushed, where loads were kept.
    motion : Motion
        What it is made from.
    status : str

    Raises
    ------
    InputError
        There is no such file, or it holds no poses, nor what gives them.
    """

    def __init__(self, source: str | Path | Motion, copy: str | None = None) -> None:
        self._source, self._copy = source, copy
        self.path = Path() if isinstance(source, Motion) else Path(source)
        self._looked, self._took = 0.0, 0.0
        self.t: Floats = np.zeros(0)
        self.update()

    def update(self) -> bool:
        """Look for new samples, now and then; says whether there are any."""
        began = time.monotonic()
        if began - self._looked < max(PATIENCE, 5.0 * self._took):
            return False
        if isinstance(self._source, Motion):
            whole, self.status = self._source, "complete"
        else:
            result = load(self._source)
            whole, self.status = result.there, result.status
        self.motion = motion = whole.one(self._copy)
        self._looked = began
        if len(motion.t) == len(self.t):
            return False
        poses, loads = motion.of_all("poses"), motion.of_all("loads")
        if poses is None:
            raise InputError(f"the motion {motion.where} holds neither poses nor all of q: let samples have q or poses")
        self.system, self.poses = motion.system, poses
        self.forces = None
        self.tensions = motion.of_all("tension")
        if loads is not None:
            flat, forces = poses.reshape(-1, 7), loads[..., 3:].copy()  # which scipy asks to be writable
            turned = turns_of(flat).apply(forces.reshape(-1, 3))
            self.forces = np.where(np.isfinite(flat[:, :1]), turned, np.nan).reshape(forces.shape)
        self.t = motion.t
        self._took = time.monotonic() - began
        return True

    @property
    def going_on(self) -> bool:
        """Whether the run may write more."""
        return self.status == "running"

    def seen(self) -> Integers:
        """Which bodies have poses [n]."""
        return np.flatnonzero(np.isfinite(self.poses[0, :, 0]))

    def at(self, t: float) -> tuple[Floats, Floats | None]:
        """Poses [bodies, 7] and forces [bodies, 3] at a time (s), between samples by interpolation."""
        k = int(np.clip(np.searchsorted(self.t, t, side="right") - 1, 0, len(self.t) - 1))
        n = min(k + 1, len(self.t) - 1)
        share = float(np.clip((t - self.t[k]) / (self.t[n] - self.t[k]), 0.0, 1.0)) if self.t[n] > self.t[k] else 0.0
        n = n if share else k  # the next one of a copy that fails is not a number
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
        """The size of all places where bodies are at any time (m)."""
        return float(np.linalg.norm(np.subtract(*self.bounds())))

    def bounds(self) -> tuple[Floats, Floats]:
        """Lowest and highest coordinates of all origins [3]; m."""
        return bounds(self.poses[:, self.seen(), :3])
