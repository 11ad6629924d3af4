"""The color of a tension."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps

Floats = npt.NDArray[np.float64]


def tension_colors(tensions: Floats, most: float) -> Floats:
    """Colors [n, 3], 0 to 255, of tensions [n] up to the largest magnitude (N): red is pulled, blue is pushed."""
    share = tensions / most if most > 0.0 else np.zeros(len(tensions))
    return 255.0 * colormaps["coolwarm"](0.5 + 0.5 * np.clip(np.nan_to_num(share), -1.0, 1.0))[:, :3]
