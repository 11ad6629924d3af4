"""What segments of a run that have ended leave to the whole of it: times, counts, the largest of what was seen."""

from __future__ import annotations

from typing import Any

from mpimbs.run.recorder import Recorder
from mpimbs.run.run_segment import RunSegment
from mpimbs.stepping.projection import KINDS, UNTOLD, Projection


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
