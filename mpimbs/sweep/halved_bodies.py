"""The bodies of a rank, halved down to single ones: for the divide and conquer over them what `Subchains` is to sweeps.

No MPI.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.model.contents import Contents
from mpimbs.spatial.assembly import ASSEMBLY, BLOCK, JOINT, RECORD
from mpimbs.spatial.memory import Table, aligned_zeros
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import build, inboard_bodies
from mpimbs.sweep.halved_passes import Halved
from mpimbs.sweep.leaves import LEAF_SCRATCH, Halving
from mpimbs.sweep.part import PartByHandles, PartOfOne
from mpimbs.sweep.structure import ADDED, BODY, FIXED, TURNING, Handles, Structure, workspace
from mpimbs.sweep.subchain import Subchain
from mpimbs.sweep.subchains import Subchains
from mpimbs.sweep.tiles import boundary_frames

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def halves(count: int) -> Integers:
    """Give the joins of a sequence halved down to its leaves, each after those that it needs, from left to right.

    Parameters
    ----------
    count : int
        Leaves; the left half is the larger by at most one.

    Returns
    -------
    array [count - 1, 5]
        Numbers of the left and the right node, first leaf of the left, first leaf of the right, leaf after the last of
        the right. Leaves are the nodes 0 to count - 1, join k makes node count + k.
    """
    spans = [np.array([[0, count]])]
    while len(wide := spans[-1][spans[-1][:, 1] - spans[-1][:, 0] > 1]):
        middle = (wide.sum(axis=1) + 1) // 2
        halved = np.stack([wide[:, 0], middle, middle, wide[:, 1]], axis=1)
        spans.append(halved.reshape(-1, 2))
    begin, end = np.concatenate(spans).T
    joined = end - begin > 1
    begin, end = begin[joined], end[joined]
    order = np.lexsort((end - begin, end))
    begin, end = begin[order], end[order]
    middle = (begin + end + 1) // 2
    # The number of the node over a span: a leaf, or found among the spans, which are sorted by (end, length).
    key = end * (count + 1) + (end - begin)

    def node(first: Integers, last: Integers) -> Integers:
        found = np.searchsorted(key, last * (count + 1) + (last - first))
        return np.where(last - first == 1, first, count + found)

    return np.stack([node(begin, middle), node(middle, end), begin, middle, end], axis=1).astype(np.int64)


def inverse_inertias(system: Contents, first: int, structure: Structure, last_step: Integers) -> Floats:
    """Inverse inertias of the different bodies of a structure, as six rows each; zeros where a step carries none.

    Raises
    ------
    InputError
        One is not positive definite.
    """
    fixed, added = structure.fixed.reshape(-1, FIXED), structure.added.reshape(-1, ADDED)
    made_by = structure.steps[last_step, BODY]
    inverses = np.zeros((len(fixed), 6, ROW))
    for number, body in zip(*np.unique(made_by, return_index=True), strict=True):
        xx, xy, xz, yy, yz, zz, hx, hy, hz, mass = fixed[number, 12:]
        h = np.array([[0.0, -hz, hy], [hz, 0.0, -hx], [-hy, hx, 0.0]])
        inertia = np.block([[np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), h], [h.T, mass * np.eye(3)]])
        if len(added):
            own = np.zeros((6, 6))
            own[np.triu_indices(6)] = added[number]
            inertia += own + np.triu(own, 1).T
        try:
            factor = np.linalg.inv(np.linalg.cholesky(inertia))
        except np.linalg.LinAlgError:
            raise InputError(
                f"body '{system.name_of(first + int(body))}' of system '{system.name}' has no inverse inertia, which "
                "the coupling dca needs of each: give it mass and moments of inertia about all axes, or choose "
                "`coupling='dcae'`"
            ) from None
        inverses[number, :, :6] = factor.T @ factor
    return inverses.ravel()


class HalvedBodies(PartOfOne, PartByHandles):
    """Consecutive bodies of a chain, halved down to single ones: the leaves.

    Where they end at the tip, the last may be swept instead.

    It is used as `Subchains` of one subchain are; its equations are those of the acceleration form, with the inboard
    joint behind them [1, ASSEMBLY].

    Parameters
    ----------
    system : Contents
        A chain.
    first, last : int
        The bodies.
    terminal : Subchain, optional
        Swept in O(n), in place of leaves: those of the bodies that end at the tip.

    Attributes
    ----------
    leaves : int
        Number of bodies that are leaves.
    width : int
        Lanes in which the terminal subchain is swept.
    plan : int64 array
        What the compiled passes are given (`sweep.halved_passes`).
    blocks, loads : array [1, ASSEMBLY], [1, 12]
        See `sweep.structure.Handles`.

    Raises
    ------
    InputError
        A body has no inverse inertia.
    """

    def __init__(self, system: Contents, first: int, last: int, terminal: Subchain | None = None) -> None:
        leaves = last if terminal is None else terminal.first
        super().__init__(Subchain(system, first, last))
        self._terminal = None if terminal is None else Subchains([terminal])
        self.width = 1 if self._terminal is None else self._terminal.width
        nq, nu = system.sizes(first, leaves)
        columns = system.columns(first, leaves)
        made = build(columns, boundary_frames(system, inboard_bodies(columns)))
        self._steps = len(made.structure.steps)
        wrenches = system.has_wrenches(first, leaves)
        work = workspace(self._steps, nu, made.junctions, wrenches=wrenches)
        self._wrench = work.wrench
        count = self.leaves = leaves - first
        halving = Halving(
            np.pad(halves(count), ((0, 0), (0, 3))),
            made.body_step,
            inverse_inertias(system, first, made.structure, made.body_step),
            aligned_zeros((2 * count - 1) * BLOCK),
            aligned_zeros(count * JOINT),
            aligned_zeros(count * RECORD),
            np.zeros((count + 1) * 6),
            np.zeros(nu),
            aligned_zeros(LEAF_SCRATCH),
            aligned_zeros(BLOCK),
        )
        self.blocks = aligned_zeros(ASSEMBLY).reshape(1, ASSEMBLY)
        self.loads = np.zeros((1, 12))
        halved = Halved(
            Handles(np.zeros(TURNING), self.blocks, self.loads),
            made.structure,
            made.springs,
            work,
            halving,
            coordinates=nq,
            nothing=np.zeros(0),
            terminal=np.zeros(0, np.int64) if self._terminal is None else self._terminal.plan,
            inner=np.zeros(TURNING),
            inboard=np.zeros(12),
        )
        self._table = Table(halved)
        self.plan = self._table.data

    def handle_loads(self) -> tuple[Floats, Floats]:
        """Acceleration A1 of handle 1 [1, 6] and load f2 on handle 2 [1, 6], as they stand."""
        return self.loads[:, :6].copy(), self.loads[:, 6:].copy()

    def set_wrenches(self, wrenches: Floats) -> None:
        """Set the external wrenches on the steps in sequence [m * 6], as `Subchain.wrenches`."""
        if self._wrench.size:
            self._wrench[:] = wrenches[: 6 * self._steps]
        if self._terminal is not None:
            self._terminal.set_wrenches(wrenches[6 * self._steps :])
