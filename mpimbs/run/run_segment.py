"""What a run has of its own from one change of structure to the next: what evaluates, closes loops, and integrates."""

from __future__ import annotations

import dataclasses
import time
from functools import partial

from mpi4py import MPI

from mpimbs.coupling import Lagrangian, LoadSolver
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_evaluations, compile_implicit
from mpimbs.files.constraint_record import ConstraintRecord, SeparatedLoads
from mpimbs.model.contents import Contents
from mpimbs.parallel.agreement import first_on_node
from mpimbs.stepping.projection import Projection
from mpimbs.stepping.schemes import scheme_of
from mpimbs.stepping.settings import POSITIONS, SimulationSettings
from mpimbs.stepping.stage_steps import compile_steps


class RunSegment:
    """A structure of a run, ready to be integrated; all ranks make it together and call.

    Parameters
    ----------
    system : Contents
        As it holds together.
    settings : SimulationSettings
        As they were asked for.

    Attributes
    ----------
    dynamics : Dynamics
    settings : SimulationSettings
        With the cuts and lanes that were chosen, where a restart needs the same.
    constraints : ConstraintRecord or None
        Where the coupling has constraint loads.
    projection : Projection or None
        Where there are loops.
    compiling : float
        Wall time spent on kernels (s).
    """

    def __init__(
        self, system: Contents, comm: MPI.Comm, settings: SimulationSettings, solver: LoadSolver | None
    ) -> None:
        chosen = settings.part(EvaluationSettings) | {"solver": solver}
        if settings.coupling == "augmented":
            chosen["lagrangian"] = (settings.lagrangian or Lagrangian()).in_a_simulation()
        self.dynamics = dynamics = Dynamics(system, comm, **chosen)
        iterative = dynamics.divided.coupling.iterative
        numbered = dynamics.subchain.system
        self.constraints = None if iterative is None else ConstraintRecord(dynamics.comm, iterative, numbered)
        if self.constraints is not None:  # their number is that of the output's columns: the same after a restart
            cuts, ratio = len(dynamics.divided.division.bounds) - 2, dynamics.divided.division.tip_ratio
            settings = dataclasses.replace(settings, cuts=cuts, lanes=dynamics.divided.lanes, tip_ratio=ratio)
        self.settings = settings
        self.compiling = 0.0
        self.projection: Projection | None = None
        if dynamics.loops is not None:
            self.compile()
            self.projection = Projection(dynamics, settings.projection or POSITIONS, settings.stabilisation)

    def compile(self) -> None:
        """Compile, or load, the kernels of evaluations and samples."""
        began = time.perf_counter()
        compile_evaluations(self.dynamics, self.settings.loads, sampled=True, checked=not self.settings.no_witness)
        scheme = scheme_of(self.settings.integrator)
        if scheme.own:
            columns = self.dynamics.subchain.columns
            first_on_node(self.dynamics.comm, partial(compile_steps, columns.stopped, columns.bounded))
        if scheme.implicit:
            compile_implicit(self.dynamics)
        self.compiling += time.perf_counter() - began

    def told(self) -> dict[str, object]:
        """Give the division of the system, as the output tells it."""
        division = self.dynamics.divided.division
        return {
            "lanes": self.dynamics.divided.lanes, "tip_ratio": division.tip_ratio, "cuts": division.bounds.tolist(),
            "owners": division.owners.tolist(),
        }  # fmt: skip

    def separated_loads(self) -> SeparatedLoads | None:
        """Give the joints that constraint loads act on, where there are any; all ranks call."""
        return None if self.constraints is None else self.constraints.separated_loads()

    def seconds(self) -> dict[str, float]:
        """Wall time spent so far on evaluations by phase, and on closing loops (s)."""
        phases = self.dynamics.derivative.seconds()
        if self.projection is not None:
            phases = {name: value - self.projection.seconds.get(name, 0.0) for name, value in phases.items()}
            phases["projection"] = self.projection.seconds.get("projection", 0.0)
        return phases

    def solutions(self) -> dict[str, float]:
        """Give the statistics of the solutions of constraint loads, where the coupling iterates to find them."""
        found: dict[str, float] = {**self.dynamics.divided.coupling.statistics()}
        if self.constraints is not None:
            return found | self.constraints.largest()
        return found if found.get("solutions") else {}
