"""What a simulation is asked for, and the times of its samples."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.coupling import LoadSolver
from mpimbs.errors import InputError
from mpimbs.simulation.schemes import Accuracy

Floats = npt.NDArray[np.float64]
SAMPLES = 200  # by default
MOST_SAMPLES = 1e8


class Settings(NamedTuple):
    """What a simulation is asked for, as `simulate` explains it; a checkpoint keeps it."""

    t_end: float
    coupling: str
    integrator: str
    rtol: float
    atol: float
    dt: float | None
    every: float | None
    force: bool
    poses: bool
    loads: bool
    tip_ratio: float | None
    lanes: int | None
    cuts: int | None
    solver: LoadSolver | None
    overlap: bool
    extremes: bool = False

    def data(self) -> dict[str, Any]:
        """The settings as JSON holds them."""
        return self._asdict() | {"solver": None if self.solver is None else self.solver._asdict()}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Settings:
        """Give the settings that `data` gave."""
        return cls(**data | {"solver": None if data["solver"] is None else LoadSolver(**data["solver"])})


def sample_times(t_end: float, every: float | None, accuracy: Accuracy, integrator: str) -> Floats:
    """Sample times, first 0 and last `t_end`, after a check of all that has to do with time."""
    if not (np.isfinite(t_end) and t_end > 0.0):
        raise InputError(f"the end of the simulation must be a positive time in seconds, got {t_end:g}")
    accuracy.check(integrator)
    if accuracy.dt is not None and accuracy.dt > t_end:
        raise InputError(f"the fixed step (`dt={accuracy.dt:g}`) is beyond the end at {t_end:g} s; give a shorter step")
    if every is not None and every > t_end:
        raise InputError(
            f"the time between samples ({every:g} s) is beyond the end at {t_end:g} s; give a shorter `every`, "
            f"or `every={t_end:g}` for the begin and the end alone"
        )
    if every is None:
        every = t_end / SAMPLES
        if accuracy.dt is not None:
            if t_end / accuracy.dt > 1e15:
                raise InputError(f"`dt={accuracy.dt:g}` is too short a step for {t_end:g} s; give a longer one")
            every = accuracy.dt * max(1, round(every / accuracy.dt))
    if not (np.isfinite(every) and every > 0.0):
        raise InputError(f"the time between samples must be a positive time in seconds, got {every:g}")
    if t_end / every > MOST_SAMPLES:
        raise InputError(
            f"the time between samples ({every:g} s) gives more than {MOST_SAMPLES:g} samples in {t_end:g} s; "
            "give a longer `every`"
        )
    if accuracy.dt is not None:
        ratio = every / accuracy.dt
        if ratio < 0.5 or abs(ratio - round(ratio)) > 1e-6 * ratio:
            raise InputError(
                f"the time between samples ({every:g} s) must be a multiple of the fixed step ({accuracy.dt:g} s); "
                "change `every` or `dt`"
            )
    count = int(np.ceil(t_end / every * (1.0 - 1e-9)))
    return np.append(every * np.arange(count), t_end)
