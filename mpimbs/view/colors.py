"""The color of a force."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps

Floats = npt.NDArray[np.float64]


def tension_colors(forces: Floats, most: float) -> Floats:
    """Colors [n, 3], 0 to 255, of the magnitudes of forces [n, 3] up to the largest (N)."""
    share = np.linalg.norm(forces, axis=1) / most if most > 0.0 else np.zeros(len(forces))
    return 255.0 * colormaps["turbo"](0.08 + 0.84 * np.clip(np.nan_to_num(share), 0.0, 1.0))[:, :3]
