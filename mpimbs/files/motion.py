"""The motion that runs and ensembles have kept, as arrays: from samples in memory, or from an output file when asked
for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import h5py
import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.dynamics.quantities import CALLED, OF_JOINTS, OF_STRUCTURE, QUANTITIES
from mpimbs.dynamics.resources import free_memory, gigabytes
from mpimbs.dynamics.selection import Selection
from mpimbs.files.output_layout import SAMPLED, SEGMENTS
from mpimbs.files.reading import open_run
from mpimbs.files.rods import RodHistory, rod_history
from mpimbs.model import system_from_text, system_text
from mpimbs.model.connections import Connections, connected
from mpimbs.model.contents import Contents
from mpimbs.model.text.table import suggest
from mpimbs.model.text.toml import Source
from mpimbs.model.text.writing import holds_functions
from mpimbs.parts.kinematics import kinematics, pose_numbers
from mpimbs.parts.subchain import Subchain

if TYPE_CHECKING:
    from mpimbs.files.samples import Samples

Place = tuple[Any, ...]  # in an array: samples, a slice or numbers, then bodies; of an ensemble the copy between
Read = Callable[[str, Place | None], Floats | None]
ALL = slice(None)
_NO_ROWS = (slice(0, 0),)


class BodyHistory(NamedTuple):
    """The motion of one body and of its inboard joint, a row for each sample; None of what was not kept."""

    q: Any  # [samples, nq]: rad, m, or quaternion w x y z; through changes of structure a tuple, one for each
    u: Any  # [samples, nu]: rad/s or m/s; likewise
    position: Floats | None  # [samples, 3]: m, of the body frame's origin in the world
    quaternion: Floats | None  # [samples, 4]: w x y z, of the body frame in the world
    load: Floats | None  # [samples, 6]: moment (N m), force (N) by the parent, body frame


class Sampled:
    """Samples as arrays in the model's order, each read when it is first asked for, then kept.

    Each quantity (`mpimbs.dynamics.quantities`) is an attribute, by its name or what users call it: `t`, `q`, `u`,
    `energy`, `work`, `poses`, `loads`, `power`, `tension`, `loop_violation`, ...; None where it was not kept, or the
    motion is on another rank. Poses follow from q, tension and moment from loads.

    A row is a sample. Of an ensemble the next axis is that of the copies, NaN of one behind the time at which it
    failed, and of coordinates of a joint that an event has cut. Where events change the structure of a run, `q`, `u`
    and what loops have are tuples of arrays, one for each structure; all else has one row for each sample throughout.

    Arrays are shared by all that is made of them: numpy refuses to write into them; copy them to change numbers.
    """

    def array(self, name: str) -> Any:
        """Give the samples of a quantity, by its name; None if there are none, or the motion is on another rank."""
        raise NotImplementedError

    @property
    def there(self) -> Motion:
        """The motion; InputError on other ranks than 0."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """The samples of a quantity [samples, ...], by its name or what users call it."""
        if name not in CALLED:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return self.array(CALLED[name].name)

    def __dir__(self) -> Iterable[str]:
        """Quantities too."""
        return sorted({*super().__dir__(), *CALLED})

    def __getitem__(self, name: Any) -> Any:
        """The motion of the body of that name, as `body`; or of a quantity the samples, as `Motion.column`."""
        if name in CALLED and self.there.system.names.find(name) is None:
            return self.there.column(name)
        return self.body(name)

    def body(self, name: str) -> BodyHistory:
        """Give the motion of one body, on rank 0; InputError with close matches if there is none of that name."""
        motion = self.there
        k = motion.system.index_of(name)
        q, u, pose, load = (motion.of_body(what, k) for what in ("q", "u", "poses", "loads"))
        position, quaternion = (None, None) if pose is None else (pose[..., :3], pose[..., 3:])
        return BodyHistory(q, u, position, quaternion, load)

    def rod(self, name: str) -> RodHistory:
        """Give what a rod carries along it, on rank 0, where loads were kept; InputError if there is no such rod."""
        motion = self.there
        loads = motion.loads if len(motion.kept("loads")) == motion.system.n_bodies else None
        return rod_history(motion.system, loads, name)


class MotionSegment:
    """The samples from one change of structure to the next.

    Parameters
    ----------
    read : callable
        Gives what samples have under a name of the output file, all or at a place of the array; None if they don't.
    system : callable
        Gives what moved, of a copy by its number.
    partial : callable
        Gives by quantity the bodies [n] of which samples have it, where these are not all.
    title : callable, optional
        Gives the name of what moved, of a copy by its number, where that takes less than the whole system.
    copies : bool
        Whether arrays have an axis of copies behind that of the samples: all of them are meant by places.
    """

    def __init__(
        self,
        read: Read,
        system: Callable[[int], Contents],
        partial: Callable[[], dict[str, Integers]],
        title: Callable[[int], str] | None = None,
        copies: bool = False,
    ) -> None:
        self._copies = copies
        self._read, self._system, self._partial = read, system, partial
        self._title = title or (lambda copy: system(copy).name)
        self._found: dict[str, Floats | None] = {}

    def arrays(self, copies: int) -> tuple[Any, ...]:
        """Give the arrays that were kept by name, the systems of so many copies without functions, and `partial`."""
        kept = {name: self.read(name) for name in QUANTITIES}
        systems = {id(system): system for k in range(copies) for system in (self._system(k),)}
        plain = {number: _without_functions(system) for number, system in systems.items()}
        order = [plain[id(self._system(k))] for k in range(copies)] if len(plain) > 1 else list(plain.values())
        return {name: values for name, values in kept.items() if values is not None}, order, self.partial, self._copies

    @classmethod
    def of_arrays(
        cls, kept: dict[str, Floats], systems: list[Contents], bodies: dict[str, Integers], copies: bool
    ) -> MotionSegment:
        """Make it of what `arrays` gave."""

        def read(name: str, at: Place | None) -> Floats | None:
            return kept[name][at or ALL] if name in kept else None

        return cls(read, lambda k: systems[k % len(systems)], lambda: bodies, copies=copies)

    @cached_property
    def system(self) -> Contents:
        """The system that moved, of copies the first."""
        return self._system(0)

    @cached_property
    def title(self) -> str:
        """Name of what moved, of copies the first."""
        return self._title(0)

    @cached_property
    def partial(self) -> dict[str, Integers]:
        """By quantity the bodies [n] of which samples have it, where these are not all."""
        return self._partial()

    def read(self, name: str, at: Place | None = None) -> Floats | None:
        """Read the samples of a name, all or at a place of the array."""
        if at is not None and self._copies and QUANTITIES[name].copied:
            at = (at[0], ALL, *at[1:])
        return self._look(name, at)

    def _look(self, name: str, at: Place | None) -> Floats | None:
        """Read the samples of a name at a place that says which copies are meant."""
        if at is None and name not in self._found:
            self._found[name] = _read_only(self._read(name, None))
        if name in self._found:
            found = self._found[name]
            return found if found is None or at is None else found[at]
        return self._read(name, at)

    def array(self, name: str, at: Place | None = None) -> Floats | None:
        """Read the samples of a name, or derive them: poses from q, tension from loads."""
        if (derived := QUANTITIES[name].derived) is not None:
            return self._derived(*derived, at)
        if (found := self.read(name, at)) is not None or name != "poses" or "q" in self.partial:
            return found
        if at is None or "_poses" in vars(self) or (isinstance(at[0], slice) and at[0] == ALL):
            found, rows = self._poses, ALL if at is None else at[0]
        else:
            found, rows = self._poses_from(self.read("q", at[:1])), ALL
        if found is None or at is None:
            return found
        return found[(rows, ALL, *at[1:]) if self._copies else (rows, *at[1:])]

    def _derived(self, base: str, derive: Callable[[Floats, Floats], Floats], at: Place | None) -> Floats | None:
        """Derive a quantity from that of bodies and their centers of mass: of copies from each one's own."""

        def centers(k: int) -> Floats:
            system = self._system(k) if k else self.system
            found = system.columns().center_of_mass[self.partial.get(base, ALL)]
            return found if at is None or len(at) < 2 else found[at[1]]

        values = self.read(base, at)
        if values is None or not self._copies:
            return values if values is None else derive(values, centers(0))
        return np.stack([derive(values[:, k], centers(k)) for k in range(values.shape[1])], axis=1)

    @cached_property
    def _poses(self) -> Floats | None:
        return self._poses_from(self.read("q"))

    def _poses_from(self, q: Floats | None) -> Floats | None:
        """NaN of a copy that has failed."""
        if q is None:
            return None
        found = np.full((*q.shape[:-1], self.system.n_bodies, 7), np.nan)
        for k in range(q.shape[1] if q.ndim > 2 else 1):
            states, poses = (q, found) if q.ndim == 2 else (q[:, k], found[:, k])
            part = Subchain(self._system(k) if k else self.system)
            for row in np.flatnonzero(np.isfinite(states).all(axis=1)):
                _, rotation, position, *_ = kinematics(part, states[row])
                poses[row] = pose_numbers(rotation, position)
        return _read_only(found)

    def of_body(self, name: str, k: int) -> Floats | None:
        """Give the samples of one quantity of body `k`; None if that was not kept."""
        kept = self.partial.get(name)
        place = k if kept is None else int(np.searchsorted(kept, k))
        if kept is not None and (place == len(kept) or kept[place] != k):
            return None
        if name not in OF_JOINTS:
            return self.array(name, (ALL, place))
        offset = self.system.offsets()[OF_JOINTS.index(name)]
        begin = int(offset[k] if kept is None else np.diff(offset)[kept[:place]].sum())
        return self.array(name, (ALL, slice(begin, begin + int(offset[k + 1] - offset[k]))))

    def copy(self, k: int) -> MotionSegment:
        """Give the segment of a copy alone."""

        def read(name: str, at: Place | None) -> Floats | None:
            shared = not QUANTITIES[name].copied
            if at is None:
                found = self.read(name)
                return found if found is None or shared else found[:, k]
            return self._look(name, at if shared else (at[0], k, *at[1:]))

        return MotionSegment(read, lambda _: self._system(k), lambda: self.partial, lambda _: self._title(k))


class Motion(Sampled):
    """The motion of a run or of the copies of an ensemble, from samples in memory or from an output file.

    Parameters
    ----------
    where : str
        Where the samples are, in words.
    parts : sequence of MotionSegment
        One for each structure.
    names : sequence of str
        What copies are called; none of a run.
    parameters : dict of arrays [copies]
        By column of the table that has made copies differ.

    Attributes
    ----------
    where, names, parameters
        As given.
    """

    def __init__(
        self,
        where: str,
        parts: Sequence[MotionSegment],
        names: Sequence[str] = (),
        parameters: dict[str, Floats] | None = None,
    ) -> None:
        self.where, self._parts, self.names, self.parameters = where, list(parts), tuple(names), parameters or {}
        self._joined: dict[str, Floats | None] = {}
        self._file: tuple[Path, str, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Give another process path and run of a file; of memory the arrays, and the system without its functions."""
        if self._file is not None:
            return Motion.in_file, (*self._file, self.names, self.parameters)
        parts = [part.arrays(max(len(self.names), 1)) for part in self._parts]
        return _of_arrays, (self.where, parts, self.names, self.parameters)

    @classmethod
    def in_memory(
        cls,
        samples: Samples,
        systems: Sequence[Callable[[int], Contents]],
        rows: list[int],
        selection: Selection,
        names: Sequence[str] = (),
        parameters: dict[str, Floats] | None = None,
    ) -> Motion:
        """Make the motion of samples in memory: so many of each structure of a run, or of the copies of an ensemble."""
        parts = [
            MotionSegment(partial(of_one.read, count), system, lambda: selection.partial, copies=bool(names))
            for of_one, count, system in zip(samples.all, rows, systems, strict=True)
        ]
        return cls("in memory", parts, names, parameters)

    @classmethod
    def in_file(
        cls,
        path: Path,
        run: str,
        structures: int = 1,
        names: Sequence[str] = (),
        parameters: dict[str, Floats] | None = None,
    ) -> Motion:
        """Make the motion of an output file: of structures one after the other, or of the copies of an ensemble."""
        file = RunFile(path, run)
        places = ["", *(f"{SEGMENTS}/{number}/" for number in range(1, structures))]
        parts = [
            MotionSegment(partial(file.read, place), partial(file.system, place), file.partial, file.title, bool(names))
            for place in places
        ]
        motion = cls(f"in {path}", parts, names, parameters)
        motion._file = path, run, structures
        return motion

    def __repr__(self) -> str:
        structures, t = f"{len(self._parts)} structures, " if len(self._parts) > 1 else "", self.t
        copies = f"{len(self.names)} copies, " if self.names else ""
        told = f"{len(t)} samples of {t[0]:g} to {t[-1]:g} s" if len(t) else "no samples"
        return f"Motion({self.title} {self.where}: {copies}{structures}{told})"

    @property
    def there(self) -> Motion:
        """This."""
        return self

    @property
    def title(self) -> str:
        """Name of what moved, of copies of the first."""
        return self._parts[0].title

    @property
    def system(self) -> Contents:
        """The system as it began, of copies the first; of an output file without the forces that are functions."""
        return self._parts[0].system

    @property
    def segments(self) -> list[Motion]:
        """The parts of it in which the structure stays: one or several."""
        return [Motion(self.where, [part], self.names, self.parameters) for part in self._parts]

    def array(self, name: str) -> Any:
        """Give the samples of a name of the output file, or of `tension`; None if there are none."""
        if len(self._parts) == 1:
            return self._parts[0].array(name)
        if QUANTITIES[name].of in OF_STRUCTURE:
            return tuple(part.array(name) for part in self._parts)
        if name not in self._joined:
            self._joined[name] = _throughout([part.array(name) for part in self._parts])
        return self._joined[name]

    def column(self, name: str) -> Column:
        """Give the samples of a quantity, by its name or what users call it: read where they are indexed, no others.

        Raises
        ------
        InputError
            There is no such quantity, or samples have none.
        """
        if name not in CALLED:
            raise InputError(f"unknown quantity {name!r}{suggest(name, CALLED)}")
        found = CALLED[name]
        base = found.derived[0] if found.derived else "q" if name in ("pose", "poses") else found.name
        if not self.holds(found.name) and not self.holds(base):
            raise InputError(f"the run {self.where} has kept no {base}; run it again with {base} among its samples")
        if len(self._parts) > 1 and found.of in OF_STRUCTURE:
            raise InputError(f"{name}: its columns change with the structure; see the `segments` of the motion")
        return Column(self, found.name)

    def some(self, name: str, samples: slice | Integers, *bodies: int | Integers | slice) -> Any:
        """Give a quantity of some samples, all or ascending numbers, and of some bodies, without reading the others.

        Of an array whose columns are the same for all structures.
        """
        begin, found = 0, []
        for part in self._parts:
            end = begin + len(np.asarray(part.read("time")))
            own = samples if isinstance(samples, slice) else _of_segment(samples, begin, end)
            found.append(part.array(name, (own, *bodies)))
            begin = end
        return _throughout(found)

    def holds(self, name: str) -> bool:
        """Whether samples have something under a name of the output file."""
        return any(part.read(name, _NO_ROWS) is not None for part in self._parts)

    def kept(self, name: str) -> Integers:
        """Numbers of the bodies [n] of which samples have q, u, poses or loads, in the order of their columns."""
        first = self._parts[0]
        if name in first.partial:
            return first.partial[name]
        there = self.holds(name) or (name == "poses" and "q" not in first.partial and self.holds("q"))
        return np.arange(self.system.n_bodies if there else 0)

    def of_all(self, name: str) -> Floats | None:
        """Poses, loads or tension of all bodies [samples, bodies, ...]: not a number of those that were not kept."""
        values = self.array(name)
        kept = self.kept("loads" if name == "tension" else name)
        if values is None or len(kept) == self.system.n_bodies:
            return values
        rest = values.shape[2:]
        whole = np.full((len(values), self.system.n_bodies, *rest), np.nan)
        whole[:, kept] = values
        return whole

    def of_body(self, name: str, k: int) -> Any:
        """Give the samples of one quantity, as `array` names them, of body `k`; None if that was not kept."""
        found = [part.of_body(name, k) for part in self._parts]
        if len(found) == 1:
            return found[0]
        return tuple(found) if name in OF_JOINTS else _throughout(found)

    def copy(self, copy: int | str) -> Motion:
        """Give the motion of a copy, by number or name; InputError if there is none."""
        k = self._number(copy)
        return Motion(f"{self.where}, copy {self.names[k]}", [part.copy(k) for part in self._parts])

    def _number(self, copy: int | str) -> int:
        if isinstance(copy, str):
            if copy not in self.names:
                raise InputError(f"unknown copy {copy!r}{suggest(copy, self.names)}")
            return self.names.index(copy)
        if not -len(self.names) <= copy < len(self.names):
            raise InputError(f"there is no copy {copy}: give one from 0 to {len(self.names) - 1}")
        return copy % len(self.names)

    def one(self, copy: str | None = None) -> Motion:
        """Give the motion of a run, or of the copy of that name of an ensemble.

        Raises
        ------
        InputError
            There are several copies, or none where one was asked for.
        """
        if copy is None:
            if self.names:
                raise InputError(
                    f"the motion {self.where} is of {len(self.names)} copies, and one is needed: choose it by `copy`"
                )
            return self
        if not self.names:
            raise InputError(f"the motion {self.where} is of a run, not of an ensemble; leave `copy` out")
        return self.copy(copy)


class Column:
    """The samples of one quantity of a motion: what is indexed is read, no more.

    Parameters
    ----------
    motion : Motion
    name : str
        Of the quantity.
    """

    def __init__(self, motion: Motion, name: str) -> None:
        self._motion, self._name = motion, name

    def __len__(self) -> int:
        return len(self._motion.t)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Give all of the samples."""
        return np.array(self._motion.array(self._name), dtype)

    def __getitem__(self, at: Any) -> Any:
        """Give some samples, by a number or slice; behind it those of columns, copies, bodies, as of an array."""
        rows, *columns = at if isinstance(at, tuple) else (at,)
        if isinstance(rows, int | np.integer):
            return self[(slice(int(rows), int(rows) + 1 or None), *columns)][0]
        if not isinstance(rows, slice) or (rows.step or 1) < 0:
            return self._motion.array(self._name)[at]
        samples = np.arange(len(self))[rows]
        if self._motion.names:  # of all copies
            return self._motion.some(self._name, samples)[(ALL, *columns)]
        return self._motion.some(self._name, samples, *columns)


def _of_segment(samples: Integers, begin: int, end: int) -> slice | Integers:
    """Give the samples, of ascending numbers, that lie in a segment, by their numbers in it."""
    own = samples[(begin <= samples) & (samples < end)] - begin
    if len(own) and own[-1] - own[0] == len(own) - 1:  # which a file gives at once
        return slice(int(own[0]), int(own[-1]) + 1)
    return own


def _of_arrays(where: str, parts: Sequence[tuple[Any, ...]], *more: Any) -> Motion:
    return Motion(where, [MotionSegment.of_arrays(*part) for part in parts], *more)


def _without_functions(system: Contents) -> Contents:
    """The system as an output file has it: functions can't go to another process."""
    if not holds_functions(system):
        return system
    return system_from_text(system_text(system, functions=True), "a pickle").contents


def _read_only(values: Floats | None) -> Floats | None:
    """Let nobody write into an array [any shape] that is read once and given to all; None stays None."""
    if values is not None:
        values.flags.writeable = False
    return values


def _throughout(parts: list[Any]) -> Any:
    """Join the samples of structures, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    return None if any(part is None for part in parts) else _read_only(np.concatenate(parts))


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
        return open_run(self.path, run=self.run)

    def read(self, place: str, name: str, at: Place | None = None) -> Floats | None:
        """Read what samples have under a name, all or at a place of the array; None if they don't.

        So many samples as there were at the first look.
        """
        with self.open() as file:
            count = self._counts.setdefault(place, len(file[f"{place}time"]))
            if place + name not in file:
                return None
            data = file[place + name]
            rows, *rest = at or (ALL,)
            if isinstance(rows, slice) or not len(rows):  # HDF5 takes no empty list
                rows = slice(*rows.indices(count)[:2]) if isinstance(rows, slice) else slice(0)
            number = rows.stop - (rows.start or 0) if isinstance(rows, slice) else len(rows)
            size = 8.0 * number * math.prod(map(np.size, rest)) * math.prod(data.shape[1 + len(rest) :])
            if size > free_memory():
                raise InputError(
                    f"{self.path}: {name} of all samples takes {gigabytes(size)}, more than this machine has left; "
                    "read parts of it from the file that `mpimbs.open_output` gives"
                )
            if len(data) < count:
                raise InputError(f"{self.path}: its run began anew at an earlier time since; see it by `mpimbs.load`")
            return np.asarray(data[(rows, *rest)], np.float64)

    def partial(self) -> dict[str, Integers]:
        """Which bodies [n] samples have quantities of, where these are not all."""
        with self.open() as file:
            return {name: bodies[:] for name, bodies in file.get(SAMPLED, {}).items()}

    def title(self, copy: int) -> str:
        """Name of what moved, with which the text of every model begins."""
        with self.open() as file:
            heading, _, _ = _model_text(file, copy).partition("\n")
            return str(Source(str(self.path), heading).contents()["name"])

    def system(self, place: str, copy: int) -> Contents:
        """Read the system that moved; in a later segment as it held together then."""
        with self.open() as file:
            system = system_from_text(_model_text(file, copy), self.path).contents
            if not place or "copies" in file:
                return system
            model = file[f"{place}model"]
            cut, loops = (model[name].asstr()[:] for name in ("cut", "loop"))
            kept = (
                zip(map(str, model["kept"].asstr()[:]), map(tuple, model["kept_frame"][:].tolist()), strict=True)
                if "kept" in model
                else ()
            )
            now = Connections(tuple(sorted(map(system.index_of, cut))), tuple(map(str, loops)), tuple(kept))
        return connected(system, now)


def _model_text(file: h5py.File, copy: int) -> str:
    """The text of what moved, or of a copy of it."""
    if "copies" in file:
        models = file["copies/model"].asstr()
        return str(models[copy % len(models)])
    return str(file["model"].attrs["toml"])
