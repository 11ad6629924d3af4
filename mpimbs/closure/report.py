"""What the loops of a model are at its start, for `mpimbs check`: numbers, and lines for people.

What they leave to move, and which of their loads are unique: a component is if and only if the rank is less without its
constraint [Wojtyra 2005: Joint reaction forces in multibody systems with redundant constraints, Multibody System
Dynamics 14]. In a singular position, where a linkage is stretched or folded flat, more can move at the moment than from
any state nearby: both are found.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.closure.assembly import allowed_by, close_loops
from mpimbs.closure.geometry import LoopJoints, body_motions
from mpimbs.closure.jacobian import LoopJacobian, TooLargeError
from mpimbs.model import JOINT_TYPES
from mpimbs.model.contents import Contents
from mpimbs.model.summary import comma_list

_MOST = 3  # loops that are named
_SAID = 1e-9  # of 1 rad, of the size of the system and of its speeds: less open counts as closed


@dataclass(frozen=True)
class Violation:
    """The largest of all loops: how far it is from closed, norm over its constraints, and which it is."""

    loop: str
    size: float


@dataclass(frozen=True)
class LoopReport:
    """A report on the loops of a system at its start."""

    joint_types: dict[str, int]  # how many loops are closed by joints of which type
    position_violation: Violation  # of the initial state as it is given (m and rad together; m/s and rad/s)
    velocity_violation: Violation
    open: bool  # whether that is more than numbers are rounded by
    unclosed: Violation | None = None  # what is left where loops can't be closed near the initial state
    # with all loops closed at the start, and in a state nearby; None where it is not known
    start: Mobility | None = None
    nearby: Mobility | None = None

    def numbers(self) -> dict[str, Any]:
        """All as plain numbers and texts; with the mobilities what follows from them."""
        found = asdict(self)
        for name, of_state in (("start", self.start), ("nearby", self.nearby)):
            if of_state is not None:
                found[name] |= {"mobility": of_state.mobility, "redundant": of_state.redundant}
        return found


def loop_report(system: Contents, state: tuple[Floats, Floats] | None = None) -> LoopReport:
    """Find what the loops of a system, of which there are some, are in a state; on one process.

    By default the initial one.
    """
    q, u = system.initial_state(0, system.n_bodies) if state is None else state
    joints, bodies = LoopJoints(system), body_motions(system, q, u)
    given = LoopReport(
        dict(Counter(loop.type for loop in system.loops)),
        _largest(joints.names, joints.position_violation(bodies)),
        _largest(joints.names, joints.velocity_violation(bodies)),
        bool(joints.opened(bodies, _SAID, float(np.linalg.norm(system.gravity)))),
    )
    try:
        loops = LoopJacobian(system)
        closed = close_loops(loops, q)
        if not closed.reached:
            return replace(given, unclosed=_largest(joints.names, joints.norms(closed.violation)))
        given = replace(given, start=mobility(loops, closed.q))
        there = nearby_state(loops, closed.q)
        return given if there is None else replace(given, nearby=mobility(loops, there))
    except TooLargeError:
        return given


def _largest(names: list[str], values: Floats) -> Violation:
    k = int(np.argmax(values))
    return Violation(names[k], float(values[k]))


def told_loops(report: LoopReport) -> Iterator[str]:
    """Say what the loops of a system are, line by line."""
    kinds = ", ".join(f"{count} {name}" for name, count in report.joint_types.items())
    here, there = report.start, report.nearby
    left = "how many degrees of freedom they leave is not determined"
    if report.unclosed is not None:
        left += ", since they can't be closed near the initial state"
    elif here is None:
        left += ": too many of them act on the same joints"
    else:
        left = (
            f"{_count(here.constraints, 'constraint')}, {here.redundant or 'none'} of them redundant; {_freedoms(here)}"
        )
    yield f"loops: {kinds}; {left}"
    if there is not None and here is not None and there.mobility != here.mobility:
        yield (
            f"note: the start is a singular position: in one nearby {there.redundant} constraints are redundant, and "
            f"{_freedoms(there)}"
        )
    if there is None and here is not None:
        yield "note: no closed state nearby was found, so that it is open whether the start is a singular position"
    usual = there or here
    if usual is not None and usual.undetermined:
        alike: dict[str, list[str]] = {}
        for name, components in usual.undetermined.items():
            alike.setdefault(", ".join(components), []).append(repr(name))
        loops = [f"{comma_list(names, _MOST)} ({components})" for components, names in alike.items()]
        yield f"loop loads that are not unique: {comma_list(loops, _MOST)}"
    if usual is not None and usual.undetermined_joints:
        yield f"nor are the loads through the joints of {comma_list(list(map(repr, usual.undetermined_joints)), _MOST)}"
    far, fast, still = report.position_violation, report.velocity_violation, report.unclosed
    if report.open:
        yield (
            f"loops at the start: open by up to {far.size:.3g} m and rad ({far.loop!r}), opening by up to "
            f"{fast.size:.3g} m/s and rad/s ({fast.loop!r})"
        )
    if still is not None:
        yield f"note: loop {still.loop!r} stays open by {still.size:.3g} m and rad wherever the bodies move from here"


def _freedoms(found: Mobility) -> str:
    left = found.mobility
    return f"{_count(left, 'degree')} of freedom {'is' if left == 1 else 'are'} left" if left else "nothing can move"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


if TYPE_CHECKING:
    from scipy.sparse import csr_array


VANISHING = 1e-9  # singular values of rows that vanish: the state is closed to 1e-11, and fronts add rounding
SHARE = 1e-6  # of a unit null vector, from which on a row has a part in it
SAMPLES = 6  # random null vectors: that all are small in a row that has a part in them is next to impossible
MOST_NUMBERS = 20_000_000  # of one front


class Dependence(NamedTuple):
    """The dependence of the rows of a Jacobian: its rank, and combinations of rows that vanish.

    Rows are eliminated in fronts, as a sparse QR factorization does, but for the left null space: of the rows of a
    front, only the combinations that don't touch the columns which are its own can vanish together with other rows;
    these go on. The combinations that vanish altogether are the null vectors of J^T. All changes of basis are
    orthogonal, so that each decision is one on singular values, of rows and columns scaled to sizes about one.
    """

    rank: int
    samples: Floats  # [rows, SAMPLES]: random combinations that vanish; a row in none of them is in none at all


@dataclass
class _Front:
    """Combinations of rows that may still depend on others, and how they were made of those that came in."""

    matrix: Floats  # [kept, columns]
    columns: Integers
    made_of: list[int]  # the fronts that came in, one below the other; none: rows of the Jacobian
    vanished: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # [in, found]
    kept: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # [in, kept]

    def reduce(self, own: npt.NDArray[np.bool_]) -> None:
        """Leave the combinations that don't touch the columns of its own, without those that vanish."""
        if self.matrix.size > MOST_NUMBERS:
            raise TooLargeError
        _, untouched = _left_spaces(self.matrix[:, own])
        self.matrix, self.columns = untouched.T @ self.matrix[:, ~own], self.columns[~own]
        independent, vanished = _left_spaces(self.matrix)
        self.vanished, self.kept = untouched @ vanished, untouched @ independent
        self.matrix = independent.T @ self.matrix


def _left_spaces(matrix: Floats) -> tuple[Floats, Floats]:
    """Orthonormal bases of the combinations of rows that count, and of those that vanish."""
    rows, columns = matrix.shape
    if not columns or not rows:
        return np.zeros((rows, 0)), np.eye(rows)
    left, values, _ = np.linalg.svd(_short(matrix))
    rank = int(np.sum(values > VANISHING))
    return left[:, :rank], left[:, rank:]


def dependence(jacobian: csr_array, first: Integers) -> Dependence:
    """Find what of the rows of a Jacobian is independent.

    Parameters
    ----------
    jacobian : sparse [rows, columns]
        Scaled to sizes about one.
    first : int64 [blocks + 1]
        Where blocks of rows begin that share columns: the loops.

    Raises
    ------
    TooLargeError
        A front would have more than `MOST_NUMBERS` numbers.
    """
    fronts = _fronts(jacobian, first)
    rank = jacobian.shape[0] - sum(front.vanished.shape[1] for front in fronts)
    return Dependence(rank, _samples(fronts, first))


def _fronts(jacobian: csr_array, first: Integers) -> list[_Front]:
    """All fronts: first the blocks, then what they were merged to."""
    fronts, users = [], [set[int]() for _ in range(jacobian.shape[1])]
    for k, (begin, end) in enumerate(zip(first[:-1].tolist(), first[1:].tolist(), strict=True)):
        block = jacobian[begin:end].tocoo()
        columns, place = np.unique(block.col, return_inverse=True)
        matrix = np.zeros((end - begin, len(columns)))
        matrix[block.row, place] = block.data
        fronts.append(_Front(matrix, columns.astype(np.int64), []))
        for column in columns.tolist():
            users[column].add(k)
    for k, front in enumerate(fronts):
        _reduce(fronts, k, users, front.columns)

    def touching(column: int) -> int:
        return sum(len(fronts[k].matrix) for k in users[column])

    waiting = [(touching(column), column) for column, used in enumerate(users) if used]
    heapq.heapify(waiting)
    while waiting:
        expected, column = heapq.heappop(waiting)
        if not users[column]:
            continue
        if (now := touching(column)) > expected:
            heapq.heappush(waiting, (now, column))
            continue
        _merge(fronts, sorted(users[column]), users)
    return fronts


def _merge(fronts: list[_Front], merged: list[int], users: list[set[int]]) -> None:
    """Put fronts into one, and reduce it."""
    columns = np.unique(np.concatenate([fronts[k].columns for k in merged]))
    rows = [len(fronts[k].matrix) for k in merged]
    if sum(rows) * len(columns) > MOST_NUMBERS:
        raise TooLargeError
    matrix, begin = np.zeros((sum(rows), len(columns))), 0
    for k, count in zip(merged, rows, strict=True):
        matrix[begin : begin + count, np.searchsorted(columns, fronts[k].columns)] = fronts[k].matrix
        begin += count
    fronts.append(_Front(matrix, columns, merged))
    for column in columns.tolist():
        users[column].difference_update(merged)
        users[column].add(len(fronts) - 1)
    _reduce(fronts, len(fronts) - 1, users, columns)
    for k in merged:
        fronts[k].matrix = fronts[k].matrix[:, :0]  # only its number of rows is wanted from here on


def _reduce(fronts: list[_Front], k: int, users: list[set[int]], columns: Integers) -> None:
    """Reduce a front, and tell the columns that it doesn't use any longer."""
    own = np.array([len(users[column]) == 1 for column in columns.tolist()], bool)
    fronts[k].reduce(own)
    for column in (columns if not len(fronts[k].matrix) else columns[own]).tolist():
        users[column].discard(k)


def _samples(fronts: list[_Front], first: Integers) -> Floats:
    """Random combinations that vanish [rows, SAMPLES]: of an orthonormal basis, taken back to the rows."""
    draw, samples = np.random.default_rng(1), np.zeros((int(first[-1]), SAMPLES))
    parts: dict[int, Floats] = {}  # [kept, SAMPLES]: of what vanished later
    for k in range(len(fronts) - 1, -1, -1):
        front = fronts[k]
        found = front.vanished @ draw.standard_normal((front.vanished.shape[1], SAMPLES))
        if k in parts:
            found += front.kept @ parts.pop(k)
        begin = 0
        for child in front.made_of:
            end = begin + fronts[child].kept.shape[1]
            parts[child] = found[begin:end]
            begin = end
        if not front.made_of:
            samples[first[k] : first[k + 1]] = found
    samples[np.abs(samples).max(axis=1) < SHARE] = 0.0
    return samples


def _short(matrix: Floats) -> Floats:
    """A matrix with as many columns as rows at the most, whose rows have the same products."""
    rows, columns = matrix.shape
    return np.asarray(np.linalg.qr(matrix.T, mode="r")).T if columns > rows else matrix


_NAMES = tuple(f"{what} {axis}" for what in ("moment about", "force along") for axis in "xyz")
_WAYS = ("across", "across", "about"), ("across", "across", "along")
_NAMES_ON_AXIS = tuple(
    f"{what} {way} the axis" for what, ways in zip(("moment", "force"), _WAYS, strict=True) for way in ways
)
_STEPS = (1e-2, 1e-2, 1e-3, 1e-3)  # to states nearby, rad and m in units of a loop's size
_STUCK = 1e-6  # of a displacement of about one, what is left where nothing can move


@dataclass(frozen=True)
class Mobility:
    """The motions that the loops of a system leave in a state."""

    freedoms: int  # degrees of freedom of the tree, with its loops opened, but for joints that follow given motions
    constraints: int  # equations of the loops
    rank: int  # independent ones among them
    # the loops whose loads are not unique, and which of their components; x, y, z those of the joint frame, which turns
    # with the first axis of a universal joint
    undetermined: dict[str, tuple[str, ...]]
    undetermined_joints: tuple[str, ...]  # the bodies whose joints to their parents carry loads that are not unique

    @property
    def mobility(self) -> int:
        """Degrees of freedom with the loops closed."""
        return self.freedoms - self.rank

    @property
    def redundant(self) -> int:
        """Constraints that repeat what others say."""
        return self.constraints - self.rank


def mobility(loops: LoopJacobian, q: Floats) -> Mobility:
    """Find what loops leave to move in a state, whose loops are closed.

    Raises
    ------
    TooLargeError
        Too many joints and loops depend on one another.
    """
    joints = loops.joints
    here = loops.at(q)
    found = dependence(here.matrix, joints.first)
    undetermined: dict[str, dict[str, None]] = {}
    for row in np.flatnonzero(found.samples.any(axis=1)).tolist():
        loop, axis = joints.loop[row], joints.axis[row]
        on_axis = JOINT_TYPES[joints.kind[loop]].takes_axis
        name = (_NAMES_ON_AXIS if on_axis else _NAMES)[axis]
        undetermined.setdefault(joints.names[loop], {})[name] = None
    named = {name: tuple(components) for name, components in undetermined.items()}
    bodies = np.flatnonzero(loops.passes_on(q, here, found.samples)).tolist()
    on_joints = tuple(map(loops.system.name_of, bodies))
    return Mobility(int(loops.moves.sum()), len(joints.loop), found.rank, named, on_joints)


def nearby_state(loops: LoopJacobian, q: Floats) -> Floats | None:
    """Coordinates near to some for which all loops are closed, where these can move there; None if none are found.

    Raises
    ------
    TooLargeError
        As `close_loops`.
    """
    draw, columns = np.random.default_rng(1), loops.at(q).columns
    for step in _STEPS:
        move = allowed_by(loops, q, columns * loops.moves * draw.uniform(-1, 1, loops.system.nu))
        largest = np.abs(move / columns).max(initial=0.0)
        if largest < _STUCK:
            return q
        found = close_loops(loops, loops.subchain.displaced(q, step / largest * move))
        if found.reached:
            return found.q
    return None
