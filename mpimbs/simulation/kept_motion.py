"""The motion that a run has kept, as arrays: from its samples in memory, or from its output file when asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.filesystem.disk import reason_of
from mpimbs.model import System, system_from_text
from mpimbs.model.connections import Connections, connected
from mpimbs.resources import free_memory, gigabytes
from mpimbs.simulation.output_layout import ENSEMBLE_FORMAT, FORMAT, SAMPLED, SEGMENTS
from mpimbs.simulation.reading import newest, open_output
from mpimbs.simulation.rods import RodHistory, rod_history
from mpimbs.simulation.selection import OF_JOINTS, Selection
from mpimbs.sweep.subchain import Subchain

if TYPE_CHECKING:
    from mpimbs.simulation.samples import Sample

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class BodyHistory(NamedTuple):
    """The motion of one body and of its inboard joint, a row for each sample; None of what was not kept."""

    q: Any  # [samples, nq]: rad, m, or quaternion w x y z; through changes of structure a tuple, one for each
    u: Any  # [samples, nu]: rad/s or m/s; likewise
    position: Floats | None  # [samples, 3]: m, of the body frame's origin in the world
    quaternion: Floats | None  # [samples, 4]: w x y z, of the body frame in the world
    load: Floats | None  # [samples, 6]: moment (N m), force (N) by the parent, body frame


class KeptMotion:
    """Samples of a whole system as arrays, in the model's order; each is read when it is first asked for, then kept.

    Poses, histories of bodies and pictures are made of the same arrays: numpy refuses to write into them; copy them to
    change numbers.

    Parameters
    ----------
    where : str
        Where the samples are, in words.
    read : callable
        Gives what samples have under a name of the output file; None if they don't.
    system : callable
        Gives what moved.
    partial : callable
        Gives by quantity the bodies [n] of which samples have it, where these are not all.
    """

    def __init__(
        self,
        where: str,
        read: Callable[[str], Floats | None],
        system: Callable[[], System],
        partial: Callable[[], dict[str, Integers]],
    ) -> None:
        self.where, self._make_system, self._make_partial = where, system, partial
        self._read = lambda name: shared(read(name))

    def __repr__(self) -> str:
        return f"KeptMotion({self.system.name} {self.where}: {_extent(self.t)})"

    @cached_property
    def system(self) -> System:
        """What moved; of an output file without the forces that are functions."""
        return self._make_system()

    def _array(self, name: str) -> Floats:
        found = self._read(name)
        assert found is not None  # every sample has it
        return found

    @cached_property
    def t(self) -> Floats:
        """Times of the samples [samples], s."""
        return self._array("time")

    @cached_property
    def _partial(self) -> dict[str, Integers]:
        return self._make_partial()

    @cached_property
    def q(self) -> Floats | None:
        """Coordinates [samples, nq] of all bodies, or of those of `kept`; rad, m, quaternions w x y z."""
        return self._read("q")

    @cached_property
    def u(self) -> Floats | None:
        """Generalized speeds [samples, nu] likewise; rad/s, m/s."""
        return self._read("u")

    def kept(self, name: str) -> Integers:
        """Numbers of the bodies [n] of which samples have q, u, poses or loads, in the order of their columns."""
        if name in self._partial:
            return self._partial[name]
        there = getattr(self, name) is not None
        return np.arange(self.system.n_bodies if there else 0)

    @cached_property
    def energy(self) -> Floats:
        """Kinetic and potential energy [samples, 2], J."""
        return self._array("energy")

    @cached_property
    def equation_residual(self) -> Floats | None:
        """What accelerations have left at the most so far of the equations of motion, and of those of loops.

        [samples, 2], relative to their terms; see `simulation.witness`. None where samples were not checked.
        """
        return self._read("equation_residual")

    @cached_property
    def poses(self) -> Floats | None:
        """Position (m) and quaternion w x y z of each body in the world [samples, bodies, 7]; from q if not kept.

        NaN where a copy of an ensemble has failed.
        """
        kept = self._read("poses")
        if kept is not None or self.q is None or "q" in self._partial:
            return kept
        part = Subchain(self.system)
        found = np.full((len(self.q), part.n_bodies, 7), np.nan)
        for poses, q in zip(found, self.q, strict=True):
            if np.isfinite(q).all():
                poses[:] = pose_numbers(*part.body_poses(q))
        return shared(found)

    @cached_property
    def loads(self) -> Floats | None:
        """Loads through the joints [samples, bodies, 6], as of `Dynamics.joint_loads`; None where not kept."""
        return self._read("loads")

    @cached_property
    def loop_violation(self) -> Floats | None:
        """How far loops are from closed [samples, loops, 2], as of `ClosedLoops.violations`; None without loops."""
        return self._read("loop_violation")

    @cached_property
    def loop_loads(self) -> Floats | None:
        """Loads of the loops [samples, loops, 6], as of `ClosedLoops`; None where not kept."""
        return self._read("loop_loads")

    def body(self, name: str) -> BodyHistory:
        """Give the motion of one body; InputError with close matches if there is none of that name."""
        k = self.system.index_of(name)
        pose, load = self._row("poses", k), self._row("loads", k)
        position, quaternion = (None, None) if pose is None else (pose[:, :3], pose[:, 3:])
        return BodyHistory(self._row("q", k), self._row("u", k), position, quaternion, load)

    def _row(self, name: str, k: int) -> Floats | None:
        """What samples have of one quantity of body `k`."""
        values, kept = getattr(self, name), self.kept(name)
        place = int(np.searchsorted(kept, k))
        if values is None or place == len(kept) or kept[place] != k:
            return None
        if name not in OF_JOINTS:
            return values[:, place]
        offset = self.system.offsets()[OF_JOINTS.index(name)]
        begin = int(np.diff(offset)[kept[:place]].sum())
        return values[:, begin : begin + int(offset[k + 1] - offset[k])]

    def rod(self, name: str) -> RodHistory:
        """Give what a rod carries; InputError if there is none of that name, or loads were not kept."""
        return rod_history(self.system, None if "loads" in self._partial else self.loads, name)


class SegmentedMotion:
    """The motion of a system whose structure changes: that of its segments, one after the other.

    Parameters
    ----------
    segments : list of KeptMotion

    Attributes
    ----------
    q, u, loop_violation, loop_loads : tuple of arrays
        As of `KeptMotion`, for each segment.
    """

    def __init__(self, segments: list[KeptMotion]) -> None:
        self.segments, self.where = segments, segments[0].where

    def __repr__(self) -> str:
        told = f"{len(self.segments)} structures, {_extent(np.asarray(self.t))}"
        return f"SegmentedMotion({self.system.name} {self.where}: {told})"

    @property
    def system(self) -> System:
        """What moved, as it began."""
        return self.segments[0].system

    def _joined(self, name: str) -> Floats | None:
        """What samples have, of one segment behind that of the other."""
        return _throughout([getattr(segment, name) for segment in self.segments])

    def _each(self, name: str) -> tuple[Any, ...]:
        return tuple(getattr(segment, name) for segment in self.segments)

    t = cached_property(lambda self: self._joined("t"))
    energy = cached_property(lambda self: self._joined("energy"))
    equation_residual = cached_property(lambda self: self._joined("equation_residual"))
    poses = cached_property(lambda self: self._joined("poses"))
    loads = cached_property(lambda self: self._joined("loads"))

    def kept(self, name: str) -> Integers:
        """As `KeptMotion.kept`."""
        return self.segments[0].kept(name)

    q = property(lambda self: self._each("q"))
    u = property(lambda self: self._each("u"))
    loop_violation = property(lambda self: self._each("loop_violation"))
    loop_loads = property(lambda self: self._each("loop_loads"))

    def body(self, name: str) -> BodyHistory:
        """Give the motion of one body, as `KeptMotion.body`."""
        parts = [segment.body(name) for segment in self.segments]
        q, u = tuple(part.q for part in parts), tuple(part.u for part in parts)
        position, quaternion, load = (_throughout([part[k] for part in parts]) for k in (2, 3, 4))
        return BodyHistory(q, u, position, quaternion, load)

    def rod(self, name: str) -> RodHistory:
        """Give what a rod carries, as `KeptMotion.rod`."""
        return rod_history(self.system, self.loads if len(self.kept("loads")) == self.system.n_bodies else None, name)


def shared(values: Floats | None) -> Floats | None:
    """Let nobody write into an array [any shape] that is read once and given to all; None stays None."""
    if values is not None:
        values.flags.writeable = False
    return values


def _extent(t: Floats) -> str:
    """The times of samples (s), in words."""
    return f"{len(t)} samples of {t[0]:g} to {t[-1]:g} s" if len(t) else "no samples"


def _throughout(parts: list[Any]) -> Floats | None:
    return None if any(part is None for part in parts) else shared(np.concatenate(parts))


def pose_numbers(rotations: Floats, positions: Floats) -> Floats:
    """Give poses of bodies, rotations [n, 3, 3] and positions [n, 3], as samples have them [n, 7]."""
    from scipy.spatial.transform import Rotation  # takes 0.2 s: where it is needed

    return np.hstack([positions, Rotation.from_matrix(rotations).as_quat()[:, [3, 0, 1, 2]]])


def motion_in_memory(
    samples: list[Sample], systems: list[Callable[[], System]], rows: list[int], selection: Selection
) -> KeptMotion | SegmentedMotion:
    """Give the motion of samples that are in memory: so many of each structure."""
    ends = np.cumsum(rows)
    parts = [samples[end - count : end] for end, count in zip(ends.tolist(), rows, strict=True)]
    motions = []
    for part, system in zip(parts, systems, strict=True):
        read = partial(_of_samples, part, samples[:1], system, selection)
        motions.append(KeptMotion("in memory", read, system, lambda: selection.partial))
    return _of_segments(motions)


def _of_samples(
    samples: list[Sample], examples: list[Sample], system: Callable[[], System], selection: Selection, name: str
) -> Floats | None:
    values = [getattr(sample, name) for sample in samples]
    if samples:
        return None if any(value is None for value in values) else np.array(values)
    example = getattr(examples[0], name)  # of a segment between two samples
    if example is None:
        return None
    return np.empty((0, selection.number(name, system())) if name in OF_JOINTS else (0, *np.shape(example)))


class RunFile:
    """The output file of one run, read when something is asked for: another run's is never taken for it.

    Parameters
    ----------
    path : Path
    run : str
        What tells the run from others.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path, self.run = path, run
        self._counts: dict[str, int] = {}  # of samples by segments, when they were first looked at

    def open(self) -> h5py.File:
        """Open it; InputError if another run's file has taken its place."""
        return open_run(self.path, ensembles=True, run=self.run)

    def read(self, place: str, name: str) -> Floats | None:
        """Read what samples have under a name; None if they don't. So many samples as there were at the first look."""
        with self.open() as file:
            count = self._counts.setdefault(place, len(file[f"{place}time"]))
            if place + name not in file:
                return None
            data = file[place + name]
            size = 8.0 * count * math.prod(data.shape[1:])
            if size > free_memory():
                raise InputError(
                    f"{self.path}: {name} of all samples takes {gigabytes(size)}, more than this machine has left; "
                    "read parts of it from the file that `mpimbs.open_output` gives"
                )
            found = np.asarray(data[:count], np.float64)
        if len(found) < count:
            raise InputError(f"{self.path}: its run began anew at an earlier time since; see it by `mpimbs.load`")
        return found

    def partial(self) -> dict[str, Integers]:
        """Which bodies [n] samples have quantities of, where these are not all."""
        with self.open() as file:
            return {name: bodies[:] for name, bodies in file.get(SAMPLED, {}).items()}

    def system(self, place: str = "") -> System:
        """What moved; in a later segment as it held together then."""
        with self.open() as file:
            system = system_from_text(file["model"].attrs["toml"], self.path)
            if not place:
                return system
            cut, loops = (file[f"{place}model/{name}"].asstr()[:] for name in ("cut", "loop"))
        return connected(system, Connections(tuple(sorted(map(system.index_of, cut))), tuple(map(str, loops))))


def motion_in_file(path: Path, run: str, structures: int) -> KeptMotion | SegmentedMotion:
    """Give the motion of a run in its output file, of so many structures one after the other."""
    file, motions = RunFile(path, run), []
    for place in ("", *(f"{SEGMENTS}/{number}/" for number in range(1, structures))):
        read, system = partial(file.read, place), partial(file.system, place)
        motions.append(KeptMotion(f"in {path}", read, system, file.partial))
    return _of_segments(motions)


def _of_segments(motions: list[KeptMotion]) -> KeptMotion | SegmentedMotion:
    return motions[0] if len(motions) == 1 else SegmentedMotion(motions)


def open_run(path: Path, ensembles: bool = False, run: str | None = None) -> h5py.File:
    """Open an output file for reading: complete, left by a run that was killed, or being written.

    `ensembles`: that of an ensemble will do. `run`: of which run it must be.

    Raises
    ------
    InputError
        There is none, or it is none, or another's.
    """
    place = newest(path, run)
    try:
        file = open_output(path, run)
    except OSError as error:
        gone = f"is no readable HDF5 file ({reason_of(error)})" if place.exists() else "there is no such file"
        raise InputError(f"{place}: {gone}; give an output of mpimbs run") from None
    kind = file.attrs.get("format")
    if kind == ENSEMBLE_FORMAT and not ensembles:
        file.close()
        raise InputError(f"{place}: is the output of an ensemble; choose one of its copies")
    if kind not in (FORMAT, ENSEMBLE_FORMAT) or "time" not in file:
        file.close()
        raise InputError(f"{place}: is no output file of mpimbs; give what `run` or `simulate` has written")
    return file
