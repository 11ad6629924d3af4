"""What a `Dynamics` knows of the space of generalized speeds: the inertia matrix, formed and applied, and Jacobians.

M is formed from composite inertias, rank by rank its rows [Amin-Javaheri & Orin 1989]. It is applied without being
formed: M v is inverse dynamics of accelerations v at rest, M^-1 f forward dynamics of forces f at rest, where nothing
else acts; both are O(n) sweeps, over any ranks. Loops are open here: M is that of the spanning tree.
"""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.sparse.linalg
from mpi4py import MPI

from mpimbs.arguments import check_array, doubles
from mpimbs.composites import DOUBLING, FORMS, Composites
from mpimbs.errors import InputError
from mpimbs.inverse import prescribed, required_forces
from mpimbs.parallel.agreement import together
from mpimbs.parallel.gather import Gather
from mpimbs.sweep.composite import FORCE_OF, POINT, SHIFT_OF, TURN_OF
from mpimbs.sweep.structure import BOUNDARY

if TYPE_CHECKING:
    from mpimbs.dynamics import Dynamics

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

ROWS, SPARSE, UPPER, AIJ, SBAIJ = LAYOUTS = ("rows", "csr", "upper", "aij", "sbaij")
PART, ALL, OWNER = PLACES = ("part", "all", "owner")
WORLD_FRAME, BODY_FRAME = FRAMES = ("world", "body")


class Point(NamedTuple):
    """A point of a body, as all ranks know it.

    Attributes
    ----------
    body : int
        By its place in the order of the ranks' bodies.
    owner : int
    position : array [3]
        In the world (m).
    rotation : array [3, 3]
        Body components to world components.
    """

    body: int
    owner: int
    position: Floats
    rotation: Floats


class _Pattern(NamedTuple):
    """Where the numbers of this rank's rows stand that are not always zero: as of compressed sparse rows."""

    begins: Integers  # [nu + 1]
    rows: Integers  # [count], by place
    columns: Integers  # [count], by place
    numbers: Integers  # [count]: columns of the matrix


class JointSpace:
    """The inertia matrix of a system, what applies it, and Jacobians: methods of `Dynamics`; all ranks call together.

    Vectors and rows are the rank's own part, in the order of its vectors; columns are in that of all ranks' parts, one
    after the other: `gather_u` brings what is gathered into the model's order.
    """

    _self: Dynamics

    # --- the matrix

    def inertia_matrix(
        self: Any, q: Floats, form: str = DOUBLING, layout: str = ROWS, out: Floats | None = None
    ) -> Any:
        """Give the joint-space inertia matrix M [nu, nu of all]: this rank's rows [paper 001, tables 1 and 2].

        Parameters
        ----------
        q : array [nq]
        form : str
            How ranks learn what hangs on their bodies behind them: "doubling", in ceil(log2 P) exchanges, or
            "recursive", one after the other.
        layout : str
            "rows": dense. Without the zeros between branches: "csr", a `scipy.sparse.csr_array` of these rows, "upper",
            of their part from the diagonal on, "aij", "sbaij": PETSc matrices over the ranks, the second one symmetric.
        out : array [nu, nu of all], optional
            Written and given back, of "rows".

        Returns
        -------
        array, scipy.sparse.csr_array or PETSc.Mat
            kg m^2, kg m, kg: by the units of the speeds.

        Raises
        ------
        InputError
            On all ranks: q as of `accelerations`; an unknown form or layout.
        """
        _choose("form", form, FORMS)
        _choose("layout", layout, LAYOUTS)
        q = self._coordinates(q)
        if layout == ROWS:
            return self.composites.matrix(q, form, self._checked(out))
        self.composites.at(q, form)
        pattern = self._upper if layout in (UPPER, SBAIJ) else self._both
        data = self.composites.entries(pattern.rows, pattern.columns)
        if layout in (UPPER, SPARSE):
            shape = (self.subchain.nu, self.system.nu)
            return scipy.sparse.csr_array((data, pattern.numbers, pattern.begins), shape)
        return _petsc_matrix(self.comm, layout, pattern, data, self.subchain.nu)

    def inverse_inertia_matrix(self: Any, q: Floats) -> Floats:
        """Give the inverse of the inertia matrix: this rank's rows [nu, nu of all].

        On one rank by load sweeps of eight columns at a time, on several by an evaluation for each column. Arguments
        and InputError as of `inertia_matrix`.
        """
        q, first, last = self._coordinates(q), self.composites.first, self.composites.last
        if self.comm.size == 1:
            return self.composites.inverse(q)
        found = np.empty((last - first, self.system.nu))
        force = np.zeros(last - first)
        for column in range(self.system.nu):
            here = first <= column < last
            if here:
                force[column - first] = 1.0
            found[:, column] = self._solved(q, force)
            if here:
                force[column - first] = 0.0
        return found

    def gather_rows(self: Any, rows: Floats) -> Floats | None:
        """Give a matrix [nu of all, nu of all] of which each rank has its rows, on rank 0, in the model's order; None
        elsewhere. All ranks call."""
        columns = self.comm.gather(np.arange(self.system.nu)[self.gather_u.part])
        whole = Gather(self.comm, self.model_order["u"], self.system.nu)(rows)
        if whole is None:
            return None
        found = np.empty((self.system.nu, self.system.nu))
        found[:, np.concatenate(columns)] = whole.reshape(found.shape)
        return found

    # --- applied

    def multiply(self: Any, q: Floats, v: Floats) -> Floats:
        """Give M v [nu] without forming M: inverse dynamics at rest.

        `q`, `v` [nu]: this rank's parts. InputError as of `accelerations`.
        """
        q, v = self._pair(q, v, "v")
        return self._multiplied(q, v)

    def solve(self: Any, q: Floats, f: Floats) -> Floats:
        """Give M^-1 f [nu] without forming M: forward dynamics at rest of forces `f` [nu], by the coupling.

        InputError as of `accelerations`.
        """
        q, f = self._pair(q, f, "f")
        return self._solved(q, f)

    def inertia_operator(self: Any, q: Floats, inverse: bool = False) -> scipy.sparse.linalg.LinearOperator:
        """Give M, or its inverse, in a state as a scipy operator on this rank's vectors; all ranks apply it together.

        On several ranks products are of the parts: an iteration that takes norms needs `inertia_shell`.
        """
        q, n = self._coordinates(q).copy(), self.subchain.nu
        apply = self._solved if inverse else self._multiplied
        product = functools.partial(_applied, apply, q)
        return scipy.sparse.linalg.LinearOperator((n, n), matvec=product, rmatvec=product, dtype=np.float64)

    def inertia_shell(self: Any, q: Floats, inverse: bool = False) -> Any:
        """Give M, or its inverse, in a state as a PETSc shell matrix over the ranks; it can be solved with, too."""
        from mpimbs.petsc import PETSc

        q, n = self._coordinates(q).copy(), self.subchain.nu
        applied = [functools.partial(_applied, apply, q) for apply in (self._multiplied, self._solved)]
        given = _Shell(*applied[:: -1 if inverse else 1])
        shell = PETSc.Mat().createPython(((n, self.system.nu),) * 2, given, self.comm)
        shell.setOption(PETSc.Mat.Option.SPD, True)
        shell.setUp()
        return shell

    # --- Jacobians

    def jacobian(
        self: Any, q: Floats, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME, on: str = PART
    ) -> Floats:
        """Give the Jacobian J of a point of a body [6, nu]: J u is its angular velocity and the point's velocity.

        Parameters
        ----------
        q : array [nq]
        body : str
        point : array [3]
            In the body's frame (m).
        frame : str
            Whose components: "world" or "body".
        on : str
            "part": each rank gets the columns of its own speeds. "all": every rank all columns, in the order of
            the parts; "owner": the rank that has the body, others none [6, 0].

        Raises
        ------
        InputError
            On all ranks: q as of `accelerations`; an unknown body, frame or place; a point that is none.
        """
        _choose("on", on, PLACES)
        here, columns = self._jacobian(q, body, point, frame)
        if on == PART:
            return columns
        parts = self.comm.allgather(columns) if on == ALL else self.comm.gather(columns, here.owner)
        return np.zeros((6, 0)) if parts is None else np.concatenate(parts, axis=1)

    def jacobian_product(
        self: Any, q: Floats, u: Floats, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME
    ) -> Floats:
        """Give J u [6]: angular velocity (rad/s) of a body and velocity (m/s) of a point of it; on all ranks.

        Arguments as of `jacobian`.
        """
        q, u = self._pair(q, u, "u")
        found = self._jacobian(q, body, point, frame)[1] @ u
        self.comm.Allreduce(MPI.IN_PLACE, found)
        return found

    def jacobian_transpose(
        self: Any, q: Floats, wrench: Any, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME
    ) -> Floats:
        """Give J^T w [nu]: this rank's generalized forces of a wrench, moment (N m) and force (N) at a point of a body.

        `wrench` [6] is the same on all ranks; other arguments as of `jacobian`.
        """
        given = together(self.comm, lambda: doubles("wrench", wrench, 6))
        found: Floats = self._jacobian(q, body, point, frame)[1].T @ given
        return found

    def jacobian_bias(
        self: Any, q: Floats, u: Floats, body: str, point: Any = (0.0, 0.0, 0.0), frame: str = WORLD_FRAME
    ) -> Floats:
        """Give dJ/dt u [6]: what angular acceleration and acceleration of a point have beside J du/dt; on all ranks.

        Arguments as of `jacobian`; the rate of J in world components, turned where the body's are asked for.
        """
        q, u = self._pair(q, u, "u")
        here = self._point(q, body, point, frame)
        found = np.zeros(6)
        boundary = self.boundary_motion(q, u)
        no_forces = np.zeros(self.subchain.nu)
        accelerations = prescribed(self.comm, self.subchain, q, u, no_forces, boundary, np.zeros(6))[0]
        if self.comm.rank == here.owner:
            made = self.subchain.made
            step = made.body_step[here.body - self.subchain.first]
            motion = self.subchain.motions(q, u, boundary).reshape(-1, BOUNDARY)[step]
            to_step = motion[:9].reshape(3, 3)
            arm, w = to_step @ (here.position - motion[9:12]), motion[12:15]
            a = accelerations[step]
            linear = a[3:] + np.cross(a[:3], arm) + np.cross(w, np.cross(w, arm))
            found[:] = (np.stack((a[:3], linear)) @ to_step).ravel()
        self.comm.Allreduce(MPI.IN_PLACE, found)
        return _in_frame(found, here, frame)

    def center_of_mass(self: Any, q: Floats) -> tuple[Floats, Floats]:
        """Give the centre of mass of all bodies [3] (m), on all ranks, and its Jacobian [3, nu]: this rank's columns.

        InputError as of `accelerations`.
        """
        q = self._coordinates(q)
        lines = self.composites.at(q)
        columns = self.subchain.columns
        rotations, positions = self.subchain.poses_at(q, self.boundary_motion(q, np.zeros(self.subchain.nu)))
        centers = positions + np.einsum("nij,nj->ni", rotations, columns.center_of_mass)
        sums = np.array([*(columns.mass @ centers), columns.mass.sum()])
        self.comm.Allreduce(MPI.IN_PLACE, sums)
        return sums[:3] / sums[3], lines[FORCE_OF : FORCE_OF + 3, self.composites.places] / sums[3]

    def operational_inertia(self: Any, q: Floats, points: Any, frame: str = WORLD_FRAME) -> Floats:
        """Give J M^-1 J^T [6 k, 6 k] of points of bodies: its inverse is their operational-space inertia; on all ranks.

        `points`: names of bodies, or pairs of such a name and a point in the body's frame (m). Other arguments and
        InputError as of `jacobian`.
        """
        asked = [(name, (0.0, 0.0, 0.0)) if isinstance(name, str) else name for name in points]
        rows = np.concatenate([self._jacobian(q, *point, frame)[1] for point in asked])
        q = self._coordinates(q)
        found: Floats = rows @ np.array([self._solved(q, row) for row in np.ascontiguousarray(rows)]).T
        self.comm.Allreduce(MPI.IN_PLACE, found)
        return found

    # --- how

    @functools.cached_property
    def composites(self: Any) -> Composites:
        """What the ranks know of the inertias that each joint moves; made when first asked for."""
        return Composites(self)

    def _coordinates(self: Any, q: Floats) -> Floats:
        coordinates: Floats = self._agreed(q, np.zeros(self.subchain.nu))[0]
        return coordinates

    def _checked(self: Any, out: Floats | None) -> Floats | None:
        if out is not None:
            together(self.comm, lambda: check_array("out", out, (self.subchain.nu, self.system.nu)))
        return out

    def _pair(self: Any, q: Floats, vector: Floats, name: str) -> tuple[Floats, Floats]:
        q, _, given = self._agreed(q, np.zeros(self.subchain.nu), vector, name)
        return q, given

    def _multiplied(self: Any, q: Floats, v: Floats) -> Floats:
        still = np.zeros(self.subchain.nu)
        boundary = self.boundary_motion(q, still)
        return required_forces(self.comm, self.subchain, q, still, v, still, boundary, np.zeros(6), at_rest=True)

    def _solved(self: Any, q: Floats, f: Floats) -> Floats:
        return self._tree.accelerations_at_rest(q, f)

    @functools.cached_property
    def _tree(self: Any) -> Any:
        """Dynamics of the same bodies on the same ranks, with loops opened."""
        if not self.system.loops:
            return self
        opened = copy.deepcopy(self.system)
        for held in (opened.loops, opened.loop_bodies, opened.loop_names):
            held.clear()
        return self.with_same_division(opened)

    def _jacobian(self: Any, q: Floats, body: str, point: Any, frame: str) -> tuple[Point, Floats]:
        """A point, and this rank's columns of its Jacobian."""
        _choose("frame", frame, FRAMES)
        q = self._coordinates(q)
        here = self._point(q, body, point, frame)
        parts = self.composites
        lines = parts.at(q)[:, parts.places]
        moved = parts.moving(here.body)
        found = np.zeros((6, len(moved)))
        w, arms = lines[TURN_OF : TURN_OF + 3, moved], here.position[:, None] - lines[POINT : POINT + 3, moved]
        found[:3, moved], found[3:, moved] = w, lines[SHIFT_OF : SHIFT_OF + 3, moved] + np.cross(w, arms, axis=0)
        return here, _in_frame(found, here, frame)

    def _point(self: Any, q: Floats, body: str, point: Any, frame: str) -> Point:
        subchain = self.subchain

        def asked() -> tuple[int, Floats]:
            return int(subchain.system.index_of(body)), doubles("point", point, 3)

        place, local = together(self.comm, asked)
        owner = int(np.searchsorted(self.cuts, place, side="right")) - 1
        rotations, positions = subchain.poses_at(q, self.boundary_motion(q, np.zeros(subchain.nu)))
        found = np.zeros(12)
        if owner == self.comm.rank:
            k = place - subchain.first
            found[:3], found[3:] = positions[k] + rotations[k] @ local, rotations[k].ravel()
        self.comm.Bcast(found, owner)
        return Point(place, owner, found[:3], found[3:].reshape(3, 3))

    @functools.cached_property
    def _upper(self: Any) -> _Pattern:
        parts = self.composites
        mine = np.arange(parts.first, parts.last)
        rows, columns = _runs(mine, mine, parts.ends[mine] - mine)
        numbers = np.sort(np.stack((parts.numbers[rows], parts.numbers[columns])), axis=0)
        return _pattern(parts, rows, columns, *numbers)

    @functools.cached_property
    def _both(self: Any) -> _Pattern:
        parts, last = self.composites, self.composites.last
        above = np.arange(last)
        begin = np.maximum(above + 1, parts.first)
        columns, rows = _runs(above, begin, np.maximum(np.minimum(parts.ends[:last], last) - begin, 0))
        mine = np.arange(parts.first, last)
        ahead = _runs(mine, mine, parts.ends[mine] - mine)
        rows, columns = np.concatenate((ahead[0], rows)), np.concatenate((ahead[1], columns))
        return _pattern(parts, rows, columns, parts.numbers[rows], parts.numbers[columns])


class _Shell:
    """What PETSc calls of a shell matrix."""

    def __init__(self, product: Any, solution: Any) -> None:
        self._product, self._solution = product, solution

    def mult(self, matrix: Any, x: Any, y: Any) -> None:
        y.getArray()[:] = self._product(x.getArray(readonly=True))

    multTranspose = mult  # noqa: N815 (PETSc's name)

    def solve(self, matrix: Any, b: Any, x: Any) -> None:
        x.getArray()[:] = self._solution(b.getArray(readonly=True))


def _applied(apply: Any, q: Floats, v: Floats) -> Floats:
    found: Floats = apply(q, np.require(v, np.float64, "CW").reshape(-1))
    return found


def _choose(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InputError(f"{name}: {given!r} is none of {', '.join(known)}")


def _in_frame(found: Floats, here: Point, frame: str) -> Floats:
    """Numbers [6, ...] in world components, or in those of the body."""
    if frame == WORLD_FRAME:
        return found
    turned: Floats = np.einsum("ji,pj...->pi...", here.rotation, found.reshape(2, 3, *found.shape[1:]))
    return turned.reshape(found.shape)


def _runs(numbers: Integers, begins: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Each number as often as its count says, beside so many that follow one another from where it begins."""
    ends = np.cumsum(counts)
    count = int(ends[-1]) if len(ends) else 0
    return np.repeat(numbers, counts), np.arange(count) + np.repeat(begins - ends + counts, counts)


def _pattern(parts: Composites, rows: Integers, columns: Integers, at: Integers, across: Integers) -> _Pattern:
    """The pattern of numbers at some places, which are those of the rows `at` and the columns `across`."""
    order = np.lexsort((across, at))
    counts = np.bincount(at - parts.first, minlength=parts.last - parts.first)
    return _Pattern(np.concatenate(([0], np.cumsum(counts))), rows[order], columns[order], across[order])


def _petsc_matrix(comm: MPI.Comm, layout: str, pattern: _Pattern, data: Floats, n: int) -> Any:
    from mpimbs.petsc import PETSc

    total = comm.allreduce(n)
    kinds = {AIJ: PETSc.Mat.Type.AIJ, SBAIJ: PETSc.Mat.Type.SBAIJ}
    matrix = PETSc.Mat().create(comm)
    matrix.setSizes(((n, total), (n, total)))
    matrix.setType(kinds[layout])
    matrix.setUp()
    matrix.setPreallocationCSR((pattern.begins.astype(PETSc.IntType), pattern.numbers.astype(PETSc.IntType), data))
    matrix.setOption(PETSc.Mat.Option.SYMMETRIC, True)
    matrix.assemble()
    return matrix
