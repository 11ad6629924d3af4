"""Random sequences of a run's life, against the same course undisturbed: for the driver `fuzz.py` and the corpus.

What disturbs a course (`courses`) is a list of acts: it is looked at, advanced, saved, closed, stopped by a signal, or
killed, as far as its files can tell: they are copied at a moment, and it goes on from the copies. It goes on from any
checkpoint on any number of ranks, the others idle. Then its file has to be that of the course undisturbed: bit by bit
where the ranks are the same throughout, beside one rank to rounding, times what the motion makes of a difference of
1e-12 at the begin.
"""

import contextlib
import json
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from courses import ENDS, Course
from ensembles import check_ensemble
from fuzzing import Verdict, as_large, told_as
from mpimbs import Simulation, load, restart
from mpimbs.base.errors import InputError, InterruptionError, SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.files.checkpoint import kept_files
from mpimbs.model import Loop
from mpimbs.run.restart import read_checkpoint
from mpimbs.run.result import Result
from oracles.dense import Array
from oracles.random_systems import vector
from oracles.structured_systems import Weighted
from run.interruptions import differing
from tolerances import TOLERANCE, error

APART = 1e-12  # of the states of two runs that tell what the motion amplifies
MOST_AMPLIFIED = 1e5
FOUND = 1e-10  # s, to which events by functions are found
SAME_STEPS = 1e-6  # of their sizes, by which steps may differ and be taken for the same


@dataclass
class Life:
    """A run that is disturbed; all ranks make it together, those that are idle too."""

    course: Course
    comm: MPI.Comm
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)  # what was done

    def __post_init__(self) -> None:
        comm = self.comm
        self._parts = [comm.Split(0 if comm.rank <= k else MPI.UNDEFINED) for k in range(comm.size)]
        self._simulation: Simulation | None = None
        self._ranks = self.course.ranks
        self.used = {self._ranks}
        self.last: tuple[float, int] | None = None  # restart: its time (s), and on how many ranks
        self._since = 0.0  # when that was, by the clock

    def live(self) -> None:
        """From its begin to its end."""
        try:
            self._begin()
            for number, (act, ranks, age) in enumerate(self.course.acts):
                self._source = Weighted(self.course.case.seed + (4 + number) * 10**9)  # idle ranks draw nothing
                if not self.on_part(partial(self._going, act)):
                    continue
                self.counts[act] += 1
                if act in ENDS:
                    self._end(act, ranks, age)
                else:
                    self.on_part(getattr(self, f"_{act}"))
            self.on_part(self._finish)
            self.on_part(self._begin_there)
        finally:
            if self._simulation is not None:
                self._simulation.close()

    def free(self) -> None:
        for part in self._parts:
            if part != MPI.COMM_NULL:
                part.Free()

    @property
    def part(self) -> MPI.Comm:
        return self._parts[self._ranks - 1]

    @property
    def output(self) -> Path:
        return self.folder / "out.h5"

    def on_part(self, action: Callable[[], Any]) -> Any:
        """Do something on the ranks that run; all ranks have what rank 0 has, or its error."""
        found, error = None, None
        if self.part != MPI.COMM_NULL:
            try:
                found = action()
            except (InputError, SimulationError) as stopped:
                error = stopped
        error = self.comm.bcast(error)
        if error is not None:
            raise error
        return self.comm.bcast(found)

    def _begin(self) -> None:
        """A run that begins, in a folder of its own."""
        course, case = self.course, self.course.case

        def begin() -> None:
            course.commanded(0.0)
            self._simulation = Simulation(
                course.system, self.part, output=self.output, checkpoints=course.cadence, signals=True,
                state=(case.q, case.u), **course.settings,
            )  # fmt: skip

        self.on_part(begin)

    @property
    def _now(self) -> Simulation:
        assert self._simulation is not None
        return self._simulation

    @property
    def _ahead(self) -> list[int]:
        return self.course.ahead(self._now.time)

    def _going(self, act: str) -> bool:
        """Whether an act makes sense yet: at the very end a kill does."""
        return self._simulation is not None and (bool(self._ahead) or act == "kill")

    def _advance(self) -> None:
        for k in self._ahead[: 1 + self._source.index(3)]:
            self.course.reach(self._now, k, stepping=self._source.chance(0.5))

    def _save(self) -> None:
        self._now.save()

    def _look(self) -> None:
        """Ask for what does not change the run, of other systems and states too."""
        simulation, source = self._now, self._source
        system, (q, u, *_) = simulation.system, simulation.state
        simulation.poses()
        assert simulation.result.status == "running"
        if self.course.settings["coupling"] in ("dcae", "dca") and source.chance(0.5):
            self.counts["loads"] += 1
            simulation.loads()
        with closing(Dynamics(system, self.part)) as other:
            v = np.array(vector(source, 1, system.nu))[other.gather_u.part]
            own, speeds = q[other.gather_q.part], u[other.gather_u.part]
            other.accelerations(own, v, None, simulation.time)
            other.energy_and_momentum(own, speeds)
            with contextlib.suppress(InputError):  # of what is for trees alone
                other.inertia.multiply(own, v)

    def _finish(self) -> None:
        if self._simulation is not None:
            for k in self._ahead:
                self.course.reach(self._now, k)
            self._now.finish()

    def _begin_there(self) -> None:
        """A run that begins in the last sample of the output has that state, unless the structure has changed.

        Bit by bit, but that loops are closed once more. What follows a given motion begins where that does, at no time.
        """
        found, system = load(self.output), self.course.system
        joints, loops = system.contents.columns().prescribed, system.contents.loops
        if joints.any() or any(loop.motion is not None for loop in loops if isinstance(loop, Loop)):
            return
        try:
            begun = Simulation(system, self.part, state=self.output, **self.course.settings)
        except InputError:
            if isinstance(found.q, tuple):  # another structure than it began with
                return
            raise
        with begun:
            apart = difference({"q": (begun.state.q,), "u": (begun.state.u,)}, {"q": found.q[-1:], "u": found.u[-1:]})
        if apart > TOLERANCE["sequences"][0] * bool(system.contents.loops):
            raise SimulationError(f"begun elsewhere than at the last sample of the output, by {apart:.2g}")

    def _end(self, how: str, ranks: int, age: int) -> None:
        """Stop the run in some way, and go on from a checkpoint, or from the begin where there is none."""
        if self.on_part({"close": self._close, "signal": self._signal, "kill": self._kill}[how]) is False:
            return  # it was too late for the signal
        if how == "kill":
            self.folder = self.folder / "again"
        files = self.comm.bcast(kept_files(self.folder / "out.checkpoint.h5"))
        self._simulation, self._ranks = None, ranks
        for file in files[age % max(len(files), 1) :]:
            stale = self.comm.bcast(file.stat().st_mtime < self._since)
            try:
                self.last = self.on_part(partial(self._go_on, file)), ranks
            except InputError as error:  # it went on from an older one, and is not there again
                if not stale or "take an older checkpoint" not in str(error):
                    raise
                self.counts["older"] += 1
                continue
            self.used.add(ranks)
            self.counts["restarts"] += 1
            self._since = time.time()
            return
        self.counts["begun anew"] += 1
        self.folder = self.folder / "anew"
        if self.comm.rank == 0:
            self.folder.mkdir()
        self.comm.Barrier()
        self.last, self.used = None, {ranks}
        self._begin()

    def _close(self) -> None:
        self._now.close()

    def _signal(self) -> bool:
        """A signal to one rank ends the run after its next step."""
        if self.part.rank == self._source.index(self.part.size):
            signal.raise_signal(signal.SIGUSR2)
        try:
            self.course.reach(self._now, self._ahead[0])
        except InterruptionError:
            return True
        assert not self._ahead, "a signal was not heard"
        return False

    def _kill(self) -> None:
        """What files are at a moment is what a kill leaves."""
        if self.part.rank == 0:
            shutil.copytree(self.folder, self.folder / "again")
        self.part.Barrier()
        self._now.close()

    def _go_on(self, file: Path) -> float:
        """Go on from a checkpoint; gives its time (s)."""
        course, kept = self.course, read_checkpoint(file, self.part)
        now: float = kept.header["time"]
        # Rank 0 says it: one that was idle has drawn nothing of what others have drawn in this act.
        if course.steps and not (course.drives or course.commands) and self.part.bcast(self._source.chance(0.3)):
            restart(kept, self.part, system=course.system)
            return now
        course.commanded(now)
        cadence = replace(course.cadence, path=kept.place)
        self._simulation = Simulation.going_on(kept, course.system.contents, self.part, cadence, True)
        for k in set(course.ahead(now * (1 - 2e-12))) - set(course.ahead(now)):
            course.drive(self._simulation, k)
        return now


@as_large
def check_sequence(course: Course, comm: MPI.Comm) -> tuple[Verdict, dict[str, int]]:
    """Live a course disturbed, and compare; rank 0 has the verdict, all what was done. All ranks call."""
    verdict, told = Verdict(), told_as(course.settings)
    right, amplified, stopped = (None, 0.0, None) if course.singular else reference(course, comm)
    if stopped is not None:
        (verdict.told if "please report the model" in stopped else verdict.refused).append(f"{told} {stopped}")
        return verdict, {}
    if course.singular or not amplified < MOST_AMPLIFIED:
        verdict.unjudged.append(f"{told} a singular position, or motion that amplifies roundings")
        return verdict, {}
    if course.case.seed // 10 % 2:
        return check_ensemble(course, amplified, comm)
    folder = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))
    life, whole = Life(course, comm, folder), folder / "whole.h5"
    wrong = []
    try:
        life.live()
        if len(life.used) == 1:
            life.counts["same ranks"] += 1
            life.on_part(lambda: course.undisturbed(life.part, output=whole) and None)
        if right is not None:
            wrong = judged(life, right, amplified)
        if comm.rank == 0 and whole.exists() and (unlike := unlike_in(life, whole)):
            wrong.append(f"on the same ranks other bits of {', '.join(unlike)}")
        verdict.judged += 1
    except InterruptionError:
        raise  # by a signal from outside
    except (InputError, SimulationError) as error:
        wrong = [f"ends where the undisturbed course does not: {error}"]
    finally:
        comm.Barrier()
        if comm.rank == 0:
            shutil.rmtree(folder)
        life.free()
    verdict.wrong += [f"{told} {dict(life.counts)}: {text}" for text in wrong]
    return verdict, dict(life.counts)


def reference(course: Course, comm: MPI.Comm) -> tuple[Result | None, float, str | None]:
    """The course undisturbed on one rank, its result on rank 0; and on all what it makes of a difference at the begin,
    beside another run at the same time, and what has stopped one of them."""
    results, stopped = dict[float, Result](), None
    for rank, apart in ((0, 0.0), (comm.size - 1, APART)):
        if comm.rank == rank and stopped is None:
            try:
                results[apart] = course.undisturbed(MPI.COMM_SELF, apart)
            except (InputError, SimulationError) as error:
                stopped = str(error)
    stopped = next((text for text in comm.allgather(stopped) if text is not None), None)
    if stopped is not None:
        return None, np.inf, stopped
    other = comm.bcast(motion(results[APART]) if APART in results else None, comm.size - 1)
    right = results.get(0.0)
    return right, comm.bcast(None if right is None else max(1.0, difference(other, motion(right)) / APART)), None


def motion(result: Result) -> dict[str, tuple[Array, ...]]:
    """Coordinates and speeds of the samples, of each structure an array."""
    return {name: x if isinstance(x := getattr(result, name), tuple) else (x,) for name in ("q", "u")}


def difference(ours: dict[str, tuple[Array, ...]], right: dict[str, tuple[Array, ...]]) -> float:
    """How far the motions of two runs are apart, of the sizes of coordinates and speeds."""
    worst = [0.0]
    for (name, least), theirs in zip((("q", 1.0), ("u", 1e-6)), right.values(), strict=True):
        if len(theirs) != len(ours[name]):
            return np.inf
        size = max([least, *(float(abs(values).max(initial=0.0)) for values in theirs)])
        worst += [error(a, b, size) for a, b in zip(ours[name], theirs, strict=True)]
    return max(worst)


def unlike_in(life: Life, whole: Path) -> list[str]:
    """What is not the same in two files that should be, bit by bit.

    Not what solutions took, with augmented: after a restart it condenses a matrix once more.
    """
    counted = life.course.settings["coupling"] == "augmented"
    return [name for name in differing(life.output, whole) if not (counted and name == "solutions")]


def others_chosen(found: Result, right: Result) -> bool:
    """Whether adaptive steps are others: error estimates, above all those of high order, are rounding in part."""
    means = [result.step_sizes.get("mean") for result in (found, right)]
    return found.steps != right.steps or None in means or error(means[0], means[1]) > SAME_STEPS


def judged(life: Life, right: Result, amplified: float) -> list[str]:
    """What is wrong in the file of a disturbed run, beside the undisturbed one; on rank 0."""
    course, found = life.course, load(life.output)
    assert isinstance(found, Result)
    iterated = course.settings["coupling"] in ("pcg", "augmented")
    share = TOLERANCE["iterated sequences" if iterated else "sequences"][0]
    if any(event.when is not None for event in course.system.contents.events):
        share += FOUND * course.fastest
    if others_chosen(found, right):
        share += course.settings.get("rtol", 0.0)
    share *= amplified
    balance = TOLERANCE["balance of sequences"][0] * course.settings.get("rtol", np.inf) + share
    events, expected = ([(e["cut"], e["connected"]) for e in result.events] for result in (found, right))
    last = found.restarts[-1] if found.restarts else None
    seen = {
        f"its status is {found.status}": found.status != "complete",
        f"there are {len(found.t)} samples of {len(right.t)}, or at other times": not np.array_equal(found.t, right.t),
        f"the events are {events} for {expected}": events != expected,
        f"the last restart was {life.last} and is said to be {last}": (last and (last["time"], last["ranks"]))
        != life.last,
        f"the energy changes by {found.energy_change:.2g}, and {balance:.2g} is allowed": not (
            found.energy_change <= balance
        ),
    }
    for what, off in (
        ("motion", difference(motion(found), motion(right))),
        ("energies", 0.1 * error(found.energy, right.energy)),
    ):
        seen[f"{what} are off by {off:.2g}, and {share:.2g} is allowed"] = not off <= share
    return [text for text, wrong in seen.items() if wrong]


def kept_text(seed: int, ranks: int, plain: bool, wrong: str) -> str:
    """A sequence as an entry of `corpus/courses/sequences.toml`."""
    told = {"seed": seed, "ranks": ranks, "plain": plain, "wrong": wrong}
    return "[[sequence]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in told.items()) + "\n"
