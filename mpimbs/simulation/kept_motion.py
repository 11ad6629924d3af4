"""The motion that a run has kept, as arrays: from its samples in memory, or from its output file when asked for."""

from __future__ import annotations

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
from mpimbs.simulation.output_layout import SEGMENTS
from mpimbs.simulation.reading import open_output
from mpimbs.simulation.rods import RodHistory, rod_history
from mpimbs.sweep.subchain import Subchain

if TYPE_CHECKING:
    from mpimbs.simulation.samples import Sample

Floats = npt.NDArray[np.float64]
FORMAT = "mpimbs 1"


class BodyHistory(NamedTuple):
    """The motion of one body and of its inboard joint, a row for each sample."""

    q: Any  # [samples, nq]: rad, m, or quaternion w x y z; through changes of structure a tuple, one for each
    u: Any  # [samples, nu]: rad/s or m/s; likewise
    position: Floats  # [samples, 3]: m, of the body frame's origin in the world
    quaternion: Floats  # [samples, 4]: w x y z, of the body frame in the world
    load: Floats | None  # [samples, 6]: moment (N m), force (N) by the parent, body frame; None where it was not kept


class KeptMotion:
    """Samples of a whole system as arrays, in the model's order; each is read when it is first asked for, then kept.

    Parameters
    ----------
    where : str
        Where the samples are, in words.
    read : callable
        Gives what samples have under a name of the output file; None if they don't.
    system : callable
        Gives what moved.
    """

    def __init__(self, where: str, read: Callable[[str], Floats | None], system: Callable[[], System]) -> None:
        self.where, self._read, self._make_system = where, read, system

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
    def q(self) -> Floats:
        """Coordinates [samples, nq]; rad, m, quaternions w x y z."""
        return self._array("q")

    @cached_property
    def u(self) -> Floats:
        """Generalized speeds [samples, nu]; rad/s, m/s."""
        return self._array("u")

    @cached_property
    def energy(self) -> Floats:
        """Kinetic and potential energy [samples, 2], J."""
        return self._array("energy")

    @cached_property
    def poses(self) -> Floats:
        """Position (m) and quaternion w x y z of each body in the world [samples, bodies, 7]; from q if not kept."""
        kept = self._read("poses")
        if kept is not None:
            return kept
        part = Subchain(self.system)
        return np.array([pose_numbers(*part.body_poses(q)) for q in self.q]).reshape(-1, part.n_bodies, 7)

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
        (q0, q1), (u0, u1) = self.system.offsets_of((k, k + 1))
        pose, load = self.poses[:, k], None if self.loads is None else self.loads[:, k]
        return BodyHistory(self.q[:, q0:q1], self.u[:, u0:u1], pose[:, :3], pose[:, 3:], load)

    def rod(self, name: str) -> RodHistory:
        """Give what a rod carries; InputError if there is none of that name, or loads were not kept."""
        return rod_history(self.system, self.loads, name)


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

    @property
    def system(self) -> System:
        """What moved, as it began."""
        return self.segments[0].system

    def _joined(self, name: str) -> Floats | None:
        """What samples have, of one segment behind that of the other."""
        parts = [getattr(segment, name) for segment in self.segments]
        return None if any(part is None for part in parts) else np.concatenate(parts)

    def _each(self, name: str) -> tuple[Any, ...]:
        return tuple(getattr(segment, name) for segment in self.segments)

    t = cached_property(lambda self: self._joined("t"))
    energy = cached_property(lambda self: self._joined("energy"))
    poses = cached_property(lambda self: self._joined("poses"))
    loads = cached_property(lambda self: self._joined("loads"))
    q = property(lambda self: self._each("q"))
    u = property(lambda self: self._each("u"))
    loop_violation = property(lambda self: self._each("loop_violation"))
    loop_loads = property(lambda self: self._each("loop_loads"))

    def body(self, name: str) -> BodyHistory:
        """Give the motion of one body, as `KeptMotion.body`."""
        parts = [segment.body(name) for segment in self.segments]
        q, u = tuple(part.q for part in parts), tuple(part.u for part in parts)
        load = None if any(part.load is None for part in parts) else np.concatenate([part.load for part in parts])
        position, quaternion = (np.concatenate([part[k] for part in parts]) for k in (2, 3))
        return BodyHistory(q, u, position, quaternion, load)

    def rod(self, name: str) -> RodHistory:
        """Give what a rod carries, as `KeptMotion.rod`."""
        return rod_history(self.system, self.loads, name)


def pose_numbers(rotations: Floats, positions: Floats) -> Floats:
    """Give poses of bodies, rotations [n, 3, 3] and positions [n, 3], as samples have them [n, 7]."""
    from scipy.spatial.transform import Rotation  # takes 0.2 s: where it is needed

    return np.hstack([positions, Rotation.from_matrix(rotations).as_quat()[:, [3, 0, 1, 2]]])


def motion_in_memory(
    samples: list[Sample], systems: list[Callable[[], System]], rows: list[int]
) -> KeptMotion | SegmentedMotion:
    """Give the motion of samples that are in memory: so many of each structure."""
    ends = np.cumsum(rows)
    parts = [samples[end - count : end] for end, count in zip(ends.tolist(), rows, strict=True)]
    return _of_segments(
        [
            KeptMotion("in memory", partial(_of_samples, part, samples[:1], system), system)
            for part, system in zip(parts, systems, strict=True)
        ]
    )


def _of_samples(
    samples: list[Sample], examples: list[Sample], system: Callable[[], System], name: str
) -> Floats | None:
    values = [getattr(sample, name) for sample in samples]
    if samples:
        return None if any(value is None for value in values) else np.array(values)
    widths = {"q": system().nq, "u": system().nu}  # of a segment between two samples
    example = getattr(examples[0], name)
    return None if example is None else np.empty((0, widths[name]) if name in widths else (0, *np.shape(example)))


def motion_in_file(path: Path, structures: int) -> KeptMotion | SegmentedMotion:
    """Give the motion in an output file, of so many structures one after the other."""
    where, first = f"in {path}", partial(_read_system, path)
    motions = [KeptMotion(where, partial(_read, path, ""), first)]
    for number in range(1, structures):
        place = f"{SEGMENTS}/{number}/"
        motions.append(KeptMotion(where, partial(_read, path, place), partial(_read_segment, path, place)))
    return _of_segments(motions)


def _of_segments(motions: list[KeptMotion]) -> KeptMotion | SegmentedMotion:
    return motions[0] if len(motions) == 1 else SegmentedMotion(motions)


def _read(path: Path, place: str, name: str) -> Floats | None:
    with open_run(path) as file:
        count = len(file[f"{place}time"])
        return np.asarray(file[place + name][:count], np.float64) if place + name in file else None


def _read_system(path: Path) -> System:
    with open_run(path) as file:
        return system_from_text(file["model"].attrs["toml"], path)


def _read_segment(path: Path, place: str) -> System:
    system = _read_system(path)
    with open_run(path) as file:
        cut, loops = (file[f"{place}model/{name}"].asstr()[:] for name in ("cut", "loop"))
    return connected(system, Connections(tuple(sorted(map(system.index_of, cut))), tuple(map(str, loops))))


def open_run(path: Path) -> h5py.File:
    """Open an output file for reading: complete, left by a run that was killed, or being written.

    Raises
    ------
    InputError
        There is none, or it is none.
    """
    try:
        file = open_output(path)
    except OSError as error:
        gone = f"is no readable HDF5 file ({reason_of(error)})" if path.exists() else "there is no such file"
        raise InputError(f"{path}: {gone}; give an output of mpimbs run") from None
    if file.attrs.get("format") != FORMAT or "time" not in file:
        file.close()
        raise InputError(f"{path}: is no output file of mpimbs; give what `run` or `simulate` has written")
    return file
