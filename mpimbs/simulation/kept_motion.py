"""The motion that a run has kept, as arrays: from its samples in memory, or from its output file when asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.filesystem.disk import reason_of
from mpimbs.model import System, system_from_text
from mpimbs.simulation.reading import open_output
from mpimbs.sweep.subchain import Subchain

if TYPE_CHECKING:
    from mpimbs.simulation.samples import Sample

Floats = npt.NDArray[np.float64]
FORMAT = "mpimbs 1"


class BodyHistory(NamedTuple):
    """The motion of one body and of its inboard joint, a row for each sample."""

    q: Floats  # [samples, nq]: rad, m, or quaternion w x y z
    u: Floats  # [samples, nu]: rad/s or m/s
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


def pose_numbers(rotations: Floats, positions: Floats) -> Floats:
    """Give poses of bodies, rotations [n, 3, 3] and positions [n, 3], as samples have them [n, 7]."""
    from scipy.spatial.transform import Rotation  # takes 0.2 s: where it is needed

    return np.hstack([positions, Rotation.from_matrix(rotations).as_quat()[:, [3, 0, 1, 2]]])


def motion_in_memory(samples: list[Sample], system: System) -> KeptMotion:
    """Give the motion of samples that are in memory."""

    def read(name: str) -> Floats | None:
        values = [getattr(sample, name) for sample in samples]
        return None if any(value is None for value in values) else np.array(values)

    return KeptMotion("in memory", read, lambda: system)


def motion_in_file(path: Path) -> KeptMotion:
    """Give the motion in an output file."""
    return KeptMotion(f"in {path}", partial(_read, path), partial(_read_system, path))


def _read(path: Path, name: str) -> Floats | None:
    with open_run(path) as file:
        count = len(file["time"])
        return np.asarray(file[name][:count], np.float64) if name in file else None


def _read_system(path: Path) -> System:
    with open_run(path) as file:
        return system_from_text(file["model"].attrs["toml"], path)


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
