"""What the steps of a run leave to the next one, which a checkpoint keeps."""

from __future__ import annotations

from typing import Any, NamedTuple

from mpimbs.base.arrays import Floats
from mpimbs.stepping.projection import ProjectionState
from mpimbs.stepping.stability import ProbeState
from mpimbs.stepping.step_sizes import StepSizes

RATES = ("q_rate", "u_rate")  # where the next step begins, if it does not evaluate them itself
ANCHORS = "u_anchor"  # of friction, of all speeds: see `sweep.grip`


class StepMemory(NamedTuple):
    """The memory that the steps leave to the next, beside the state.

    Attributes
    ----------
    time, step : float
        Time reached, and size of the next step (s).
    steps, rejected : int
        So far.
    norm_error : float
        See `Integrator`; of all ranks.
    work : list of lists of floats
        Of every rank, if the system has any: work on its bodies (J), and its rate where the next step begins (W).
    sizes : StepSizes
    probe : ProbeState, optional
    projection : ProjectionState, optional
    tension : list of int, optional
        Of `StageMatrix`.
    vectors : dict of arrays
        This rank's parts of `RATES`, where these are known, and of `ANCHORS`, where there is friction.
    again : bool
        Whether the last attempt of a step was rejected.
    error : float
        Of the step before, over the tolerance.
    refining : bool, optional
        Whether solutions with loops are refined; see `ClosedLoops`.
    """

    time: float
    step: float
    steps: int
    rejected: int
    norm_error: float
    work: list[list[float]]
    sizes: StepSizes
    probe: ProbeState | None
    vectors: dict[str, Floats]
    projection: ProjectionState | None = None
    tension: list[int] | None = None
    again: bool = False
    error: float = 1.0
    refining: bool | None = None

    def of_another(self, **changes: Any) -> StepMemory:
        """Give the memory for an integrator whose first step takes nothing from the last one: what acts has changed."""
        kept = {name: values for name, values in self.vectors.items() if name == ANCHORS}
        return self._replace(probe=None, vectors=kept, again=False, refining=None, **changes)
