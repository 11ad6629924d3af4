"""From where a motion is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
FIELD = 0.6  # rad that a picture is high
_ASIDE, _ABOVE = 0.45, 0.3  # of the distance in front


class Camera(NamedTuple):
    """Where it stands, where it looks, and what is up there."""

    position: Floats  # [3]: m
    target: Floats  # [3]: m
    up: Floats  # [3]

    @classmethod
    def facing(cls, low: Floats, high: Floats, gravity: Sequence[float], margin: float) -> Camera:
        """See all between two corners [3] (m) and a margin (m), with gravity downward and the widest side in front."""
        down = np.asarray(gravity, float)
        size = np.linalg.norm(down)
        up = -down / size if size > 0.0 else np.array([0.0, 0.0, 1.0])
        level = [axis - (axis @ up) * up for axis in np.eye(3) if abs(axis @ up) < 0.9]
        front = min(level, key=lambda axis: float(abs(axis) @ (high - low)))
        front /= np.linalg.norm(front)
        side = np.cross(up, front)
        direction = front + _ASIDE * side + _ABOVE * up
        center = 0.5 * (low + high)
        reach = 0.5 * float(np.linalg.norm(high - low)) + margin
        distance = reach / np.tan(0.5 * FIELD)
        return cls(center + distance * direction / np.linalg.norm(direction), center, up)

    def moved(self, by: Floats) -> Camera:
        """The same, elsewhere."""
        return Camera(self.position + by, self.target + by, self.up)

    def axes(self) -> Floats:
        """To the right, up and forward in the picture, as rows [3, 3]."""
        forward = (self.target - self.position) / np.linalg.norm(self.target - self.position)
        right = np.cross(forward, self.up)
        right /= np.linalg.norm(right)
        return np.array([right, np.cross(right, forward), forward])
