"""The inertia matrix in a state, factored: its inverse times any number of vectors, each by a load sweep.

Of chains, over any ranks and in lanes, and of trees on one rank. What the ranks have is joined by a butterfly as
handle equations are, once, and then their loads alone: 128 bytes at each of ceil(log2 P) exchanges. Of other systems
nothing is kept: there each answer is an evaluation at rest.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Protocol

import numpy as np
from mpi4py import MPI
from numba.core.errors import NumbaError

from mpimbs.arguments import check_array
from mpimbs.coupling.factored import FACTOR_IN, SOLVE_IN, FactorPlan
from mpimbs.errors import InputError
from mpimbs.model.resting import with_armature
from mpimbs.parallel.butterfly import Butterfly
from mpimbs.partition.lanes import chosen_width, cut_tiles
from mpimbs.spatial.handles import RESPONSE, SCRATCH, SIZE
from mpimbs.spatial.load_joins import LOADS_JOINED, PAIR
from mpimbs.spatial.memory import Floats, Table, aligned_zeros
from mpimbs.sweep.factored import FactoredTiles
from mpimbs.sweep.tiles import Tile, subchain_tiles

if TYPE_CHECKING:
    from mpimbs.dynamics import Dynamics


class Factor(Protocol):
    """The inertia matrix of the spanning tree in a state, with what joints are heavier by, in factors.

    `Dynamics.factor` makes it. All ranks call its methods together.
    """

    def at(self, q: Floats, armature: Floats | None = None) -> None:
        """Factor in another state, of which no factors are kept then.

        Parameters
        ----------
        q : array [nq]
            This rank's coordinates.
        armature : array [nu], optional
            What is added to the diagonal: rotors beside those of the model, and all that acts alike (kg m^2, kg).

        Raises
        ------
        InputError
            On all ranks: an array of another size; as `Dynamics.accelerations`.
        """
        ...

    def solve(self, f: Floats, out: Floats | None = None) -> Floats:
        """Give the accelerations [nu] (M + armature)^-1 f by generalized forces `f` [nu] (N m, N), this rank's parts.

        Parameters
        ----------
        f, out : array [nu]
            Contiguous doubles; `out` is written, and given back. They may be the same.

        Raises
        ------
        InputError
            On the rank that gave an array of another size or type; the others find accelerations that are not finite.
        """
        ...

    def close(self) -> None:
        """Free what MPI holds; `Dynamics.close` does, too."""
        ...


def factor_of(dynamics: Dynamics) -> Factor:
    """Make what factors the inertia matrix of a system; all ranks call."""
    return load_sweeps(dynamics) or AtRest(dynamics)


def load_sweeps(dynamics: Dynamics, apart: bool = False) -> LoadSweeps | None:
    """Make what factors the inertia matrix for load sweeps, where there are any; all ranks call. See `LoadSweeps`."""
    system = dynamics.subchain.system
    alone = dynamics.comm.size == 1 and dynamics.subchain.n_bodies == system.n_bodies
    return LoadSweeps(dynamics, apart) if system.is_chain or alone else None


class LoadSweeps:
    """A `Factor` by the factored load sweep.

    Parameters
    ----------
    dynamics : Dynamics
        Of a chain, or of a tree on one rank.
    apart : bool
        As `Contents.apart`.

    Attributes
    ----------
    joints : list of (Structure, Springs)
        What is factored; springs have no part in it.
    rotors : array [nu]
        Of the model's joints (kg m^2, kg).
    q, armature : array [nq], [nu]
        The state, and rotors and all else that joints are heavier by: for `take`.
    """

    def __init__(self, dynamics: Dynamics, apart: bool = False) -> None:
        comm, subchain = dynamics.comm, dynamics.subchain
        system, first, last = copy.copy(subchain.system), subchain.first, subchain.last
        system.apart = apart
        self._comm, self._nu, self._checked = comm, subchain.nu, dynamics.agreed
        self._still = np.zeros(self._nu)
        cut = [Tile(0, last - first, 1)]
        if system.is_chain:
            width = dynamics.division.width or chosen_width(last - first, None)
            cut = cut_tiles(system.joint_patterns(first, last), width)
        cut = [tile._replace(first=first + tile.first) for tile in cut]
        tiles = subchain_tiles(system, cut, subchain.tip, False, factored=True)
        self._tiles, self.joints = FactoredTiles(tiles, subchain.nq, self._nu), tiles.kinds.joints
        self.q, self.armature = self._tiles.q, self._tiles.armature
        rotors = subchain.structure.armature
        self.rotors = rotors if rotors.size else np.zeros(self._nu)
        self._butterflies = [Butterfly(comm, SIZE), Butterfly(comm, PAIR)]
        count = max(comm.size.bit_length(), 1)
        blocks, values = self._butterflies
        plan = FactorPlan(
            part=self._tiles.plan,
            blocks=blocks.plan,
            values=values.plan,
            block=self._tiles.block,
            value=self._tiles.value,
            outer=self._tiles.outer,
            responses=aligned_zeros(count * RESPONSE),
            joins=aligned_zeros(count * LOADS_JOINED),
            between=aligned_zeros(count * PAIR),
            shared=aligned_zeros(PAIR),
            copy=aligned_zeros(SIZE),
            scratch=aligned_zeros(SCRATCH),
            nu=self._nu,
        )
        self._table = Table(plan)
        self._plan = self._table.data
        self._run, self._answer = FACTOR_IN[tiles.width], SOLVE_IN[tiles.width]

    def at(self, q: Floats, armature: Floats | None = None) -> None:
        """As of `Factor`."""
        q, _, armature = self._checked(q, self._still, armature, "armature")
        self.q[:] = q
        if armature is not None:
            np.add(self.rotors, armature, out=self.armature)
        self.take(armature is not None)

    def take(self, heavier: bool) -> None:
        """Factor in the state `q`, with `armature` if `heavier`."""
        self._tiles.heavier = heavier
        self._run(self._plan)

    def solve(self, f: Floats, out: Floats | None = None) -> Floats:
        """As of `Factor`."""
        if out is None:
            out = np.empty(self._nu)
        try:
            if self._answer(self._plan, f, out):
                return out
        except (TypeError, NumbaError):
            pass
        if self._comm.size > 1:  # the others wait for this rank's part
            self._answer(self._plan, np.full(self._nu, np.nan), np.empty(self._nu))
        _refuse(f, out, self._nu)
        return out

    def close(self) -> None:
        """As of `Factor`."""
        for butterfly in self._butterflies:
            butterfly.close()
        self._butterflies.clear()


class AtRest:
    """A `Factor` that keeps nothing: each answer is an evaluation at rest.

    Parameters
    ----------
    dynamics : Dynamics
    """

    def __init__(self, dynamics: Dynamics) -> None:
        self._dynamics = self._heavier = dynamics
        self._still = np.zeros(dynamics.subchain.nu)
        self._added: Floats | None = None

    def at(self, q: Floats, armature: Floats | None = None) -> None:
        """As of `Factor`; for heavier joints all is made again."""
        dynamics = self._dynamics
        q, _, armature = dynamics.agreed(q, self._still, armature, "armature")
        self._q = q.copy()
        same = armature is None if self._added is None else np.array_equal(self._added, armature)
        if dynamics.comm.allreduce(bool(same), MPI.LAND):
            return
        self.close()
        if armature is not None:
            self._added = armature.copy()
            parts = dynamics.comm.allgather((np.arange(dynamics.system.nu)[dynamics.gather_u.part], armature))
            whole = np.empty(dynamics.system.nu)
            for places, own in parts:
                whole[places] = own
            self._heavier = dynamics.alike(with_armature(dynamics.system, whole))

    def solve(self, f: Floats, out: Floats | None = None) -> Floats:
        """As of `Factor`."""
        out = np.empty(len(self._still)) if out is None else out
        try:
            _refuse(f, out, len(self._still))
        except InputError:
            if self._dynamics.comm.size > 1:  # the others wait for this rank's part
                self._heavier.answer_at_rest(self._q, np.full(len(self._still), np.nan))
            raise
        out[:] = self._heavier.answer_at_rest(self._q, f)
        return out

    def close(self) -> None:
        """As of `Factor`."""
        if self._heavier is not self._dynamics:
            self._heavier.close()
        self._heavier, self._added = self._dynamics, None


def _refuse(f: Floats, out: Floats, size: int) -> None:
    """Refuse arrays that `solve` can't take; InputError."""
    check_array("f", f, (size,))
    check_array("out", out, (size,))
