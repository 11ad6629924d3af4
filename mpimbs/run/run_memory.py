"""What a run leaves to the one that goes on from it: the contents of its checkpoints."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mpimbs.base.sizes import tuned
from mpimbs.dynamics import Dynamics
from mpimbs.files.checkpoint import read_vectors, restart_call, write_checkpoint
from mpimbs.files.output_layout import versions
from mpimbs.model import System, system_text
from mpimbs.model.text.writing import holds_functions
from mpimbs.parallel.reorder import Reorder
from mpimbs.run.recorder import Recorder
from mpimbs.run.run_files import RunFiles
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.settings import SimulationSettings

Floats = npt.NDArray[np.float64]
_COUPLING = "coupling_"  # begins the names of what is the coupling's


class RunMemory:
    """Writes what a run needs to go on, and reads it again; all ranks make it together and call.

    Parameters
    ----------
    system : System
        As the run began.
    dynamics : Dynamics
        Of what it is now.
    settings : SimulationSettings
    files : RunFiles
    """

    def __init__(self, system: System, dynamics: Dynamics, settings: SimulationSettings, files: RunFiles) -> None:
        self._system, self._dynamics, self._settings, self._files = system, dynamics, settings, files

    def write(
        self,
        stepper: Integrator,
        recorder: Recorder,
        seconds: dict[str, float],
        solutions: dict[str, float],
        events: dict[str, Any] | None,
    ) -> str | None:
        """Write a checkpoint of the state after the last step; gives the reason why not.

        Parameters
        ----------
        stepper : Integrator
        recorder : Recorder
        seconds : dict
            Wall time spent so far, by phase (s).
        solutions : dict
            As of `RunTotals.solutions_left`.
        events : dict or None
            What goes beyond the segment, where there are events: for JSON.
        """
        files, dynamics = self._files, self._dynamics
        assert files.place is not None
        recorder.store.sync()  # its samples come first
        memory = stepper.memory()
        samples, extremes = recorder.memory()
        own = {"q": stepper.q, "u": stepper.u, **memory.vectors, **extremes}
        if stepper.held is not None:
            own["u_held"] = stepper.held
        vectors = {name: self._order(name)(part) for name, part in own.items()}
        steps = memory._asdict()
        del steps["vectors"]
        coupling = None
        if (iterative := dynamics.coupling.iterative) is not None:
            coupling, arrays = iterative.memory()
            vectors |= {f"{_COUPLING}{name}": values for name, values in arrays.items()}
        header = self._unchanging | {
            "time": memory.time, "steps": steps, "evaluations": dynamics.evaluations, "coupling": coupling,
            "recorder": samples, "seconds": seconds, "solutions": solutions, "events": events,
        } if dynamics.comm.rank == 0 else {}  # fmt: skip
        return write_checkpoint(files.place, files.checkpoints.keep, header, vectors, dynamics.comm)

    def recall(self) -> dict[str, Floats]:
        """This rank's part of the vectors of the checkpoint; what the coupling has kept is given back to it."""
        dynamics, kept = self._dynamics, self._files.kept
        assert kept is not None
        header = kept.header
        same = self._partition() == header["partition"]
        counts = {}
        for name, parts in header["parts"].items():
            if not name.startswith(_COUPLING):
                counts[name] = self._order(name).count
            elif same:
                counts[name] = parts[dynamics.comm.rank]
        vectors = read_vectors(kept.file, counts, dynamics.comm)
        arrays = {k.removeprefix(_COUPLING): vectors.pop(k) for k in counts if k.startswith(_COUPLING)}
        if (iterative := dynamics.coupling.iterative) is not None:
            iterative.recall(header["coupling"], arrays)
        return {name: self._order(name).back(stretch) for name, stretch in vectors.items()}

    def _order(self, name: str) -> Reorder:
        """How a vector of a checkpoint comes into the model's order: its name begins with that of what it is like."""
        return self._dynamics.model_order[name.partition("_")[0]]

    def going_on(self) -> str:
        """How the run is continued, for a message."""
        assert self._files.place is not None
        return restart_call(self._files.place, self._unchanging)

    def restarts(self) -> list[dict[str, float]]:
        """Where the run has gone on from checkpoints, and on how many ranks."""
        if self._files.kept is None:
            return []
        header = self._files.kept.header
        return [*header["restarts"], {"time": header["time"], "ranks": self._dynamics.comm.size}]

    @cached_property
    def _unchanging(self) -> dict[str, Any]:
        """What all checkpoints of the run say alike."""
        files, system = self._files, self._system
        assert files.place is not None and files.output is not None
        base, modules = system.before_forces, system.force_modules
        return {
            "name": system.name, "run": files.run, "model": system_text(system, functions=True),
            "has_functions": holds_functions(system), "base": base, "forces": [] if base is None else list(modules),
            "settings": self._settings.data(), "versions": versions(), "sizes": tuned().told(),
            "output": os.path.relpath(files.output, files.place.parent), "place": files.place.name,
            "checkpoints": files.checkpoints.data() | {"path": None}, "partition": self._partition(),
            "restarts": self.restarts(),
        }  # fmt: skip

    def _partition(self) -> list[list[int]]:
        """Which bodies every rank has, and in which subchains: with the same, all of a checkpoint can be used."""
        return [self._dynamics.division.bounds.tolist(), self._dynamics.division.owners.tolist()]
