"""What a run leaves to the one that goes on from it: the contents of its checkpoints, and what it has added up."""

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
from mpimbs.run.run_segment import RunSegment
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.projection import KINDS, UNTOLD, Projection
from mpimbs.stepping.settings import SimulationSettings

Floats = npt.NDArray[np.float64]


class RunTotals:
    """Adds up what segments leave.

    Parameters
    ----------
    seconds, solutions : dict
        What a checkpoint has of them; `solutions` as `solutions_left` gave it.

    Attributes
    ----------
    begins : list of int
        How many samples there were at the begin of each segment; the first 0.
    seconds : dict of str to float
        Wall time by phase (s).
    loops : dict
        What `Projection.memory` gave last.
    """

    def __init__(self, seconds: dict[str, float], solutions: dict[str, float]) -> None:
        self.begins = [0]
        self.seconds = seconds
        self.loops: dict[str, Any] = {}
        self._solutions = solutions
        self._peaks: list[str] = []

    def take(self, segment: RunSegment, recorder: Recorder, time: float, seconds: dict[str, float]) -> None:
        """Take a segment that ends at a time (s); all ranks call."""
        self.begins.append(recorder.count)
        self.seconds = seconds
        self._solutions = self.solutions(segment)
        if segment.projection is not None:
            self.loops = {**segment.projection.memory(), "singular": Projection.NOT_SINGULAR}
        if recorder.extremes is not None:
            self._peaks.append(f"to t = {time:.6g} s, {recorder.extremes.told()}")

    def rows(self, count: int) -> list[int]:
        """How many samples each segment has, of so many in all."""
        ends = [*self.begins[1:], count]
        return [end - begin for begin, end in zip(self.begins, ends, strict=True)]

    def solutions(self, segment: RunSegment) -> dict[str, float]:
        """Of the constraint loads of the segments so far, and of another one."""
        now = segment.solutions()
        if not self._solutions or not now:
            return now or self._solutions
        joined = {}
        for name, value in now.items():
            before = self._solutions[name]
            summed = name in ("solutions", "total_iterations", "factorizations", "unfinished")
            joined[name] = before + value if summed else max(before, value)
        return joined

    def solutions_left(self, segment: RunSegment) -> dict[str, float]:
        """Of the constraint loads, what a checkpoint keeps: of a segment only where its coupling keeps nothing."""
        return self._solutions if segment.constraints is not None else self.solutions(segment)

    def told_loops(self, segment: RunSegment) -> dict[str, Any]:
        """What a result tells of the loops, of the segment now and of those before."""
        if segment.projection is not None:
            return segment.projection.told()
        if not self.loops:
            return {}
        named = {name: value for name, value in self.loops.items() if name not in UNTOLD}
        settings = segment.settings
        return {"projection": settings.projection or KINDS[0], "stabilisation": settings.stabilisation, **named}

    def peaks(self, recorder: Recorder) -> str:
        """The extremes of all segments, in lines; all ranks call."""
        last = [] if recorder.extremes is None else [recorder.extremes.told()]
        return "\n".join([*self._peaks, *last])

    def memory(self) -> dict[str, Any]:
        """For JSON; `recall` takes it again."""
        return {"begins": self.begins, "loops": self.loops, "peaks": self._peaks}

    def recall(self, memory: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        self.begins, self.loops, self._peaks = memory["begins"], memory["loops"], memory["peaks"]


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
        return {name: self._order(name).back(block) for name, block in vectors.items()}

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
