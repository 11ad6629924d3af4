"""The bodies of a rank, halved down to single ones: for the divide and conquer over them what `Subchains` is to sweeps.

No MPI.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.model import System
from mpimbs.spatial.assembly import ASSEMBLY, BLOCK, JOINT, RECORD
from mpimbs.spatial.memory import Table, aligned_zeros
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import build
from mpimbs.sweep.halved_passes import HALVED_ITEMS, halved_inward, halved_motion, halved_outward
from mpimbs.sweep.leaves import LEAF_SCRATCH, Halving
from mpimbs.sweep.motion import join_turn
from mpimbs.sweep.structure import BODY, FIXED, TURNING, Structure, workspace
from mpimbs.sweep.subchain import Subchain
from mpimbs.sweep.subchains import Subchains
from mpimbs.sweep.tiles import boundary_frame

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


def inverse_inertias(system: System, first: int, structure: Structure, last_step: Integers) -> Floats:
    """Inverse inertias of the different bodies of a structure, as six rows each; zeros where a step carries none.

    Raises
    ------
    InputError
        One is not positive definite.
    """
    fixed = structure.fixed.reshape(-1, FIXED)
    made_by = structure.steps[last_step, BODY]
    inverses = np.zeros((len(fixed), 6, ROW))
    for number, body in zip(*np.unique(made_by, return_index=True), strict=True):
        xx, xy, xz, yy, yz, zz, hx, hy, hz, mass = fixed[number, 12:]
        h = np.array([[0.0, -hz, hy], [hz, 0.0, -hx], [-hy, hx, 0.0]])
        inertia = np.block([[np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), h], [h.T, mass * np.eye(3)]])
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


class HalvedBodies:
    """Consecutive bodies of a chain, halved down to single ones: the leaves.

    Where they end at the tip, the last may be swept instead.

    It is used as `Subchains` of one subchain are; its equations are those of the acceleration form, with the inboard
    joint behind them [1, ASSEMBLY].

    Parameters
    ----------
    system : System
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
    loads : array [1, 12]
        (A1, f2), as last given to `outward`.

    Raises
    ------
    InputError
        A body has no inverse inertia.
    """

    plan = None

    def __init__(self, system: System, first: int, last: int, terminal: Subchain | None = None) -> None:
        leaves = last if terminal is None else terminal.first
        self._whole = Subchain(system, first, last)
        self._terminal = None if terminal is None else Subchains([terminal])
        self.width = 1 if self._terminal is None else self._terminal.width
        self.nq, self.nu = system.sizes(first, leaves)
        made = build(system.columns(first, leaves), boundary_frame(system, first))
        self._steps = len(made.structure.steps)
        wrenches = system.has_wrenches(first, leaves)
        work = workspace(self._steps, self.nu, made.junctions, wrenches=wrenches)
        self._wrench = work.wrench
        count = self.leaves = leaves - first
        halving = Halving(
            halves(count),
            made.body_step,
            inverse_inertias(system, first, made.structure, made.body_step),
            aligned_zeros((2 * count - 1) * BLOCK),
            aligned_zeros(count * JOINT),
            aligned_zeros(count * RECORD),
            np.zeros((count + 1) * 6),
            np.zeros(self.nu),
            aligned_zeros(LEAF_SCRATCH),
            aligned_zeros(BLOCK),
        )
        self._turn, self._inner = np.zeros(TURNING), np.zeros(TURNING)
        self._assembly = aligned_zeros(ASSEMBLY).reshape(1, ASSEMBLY)
        self._none = np.zeros(0)
        self.loads = np.zeros((1, 12))
        self._inboard = np.zeros((1, 12))  # acceleration of the last leaf, and no load: A1 and f2 of the terminal part
        table = Table(HALVED_ITEMS)
        given = {"turn": self._turn, "assembly": self._assembly, "inboard": self._inboard}
        parts = (made.structure, made.springs, work, halving)
        for name, values in {**{k: v for part in parts for k, v in part._asdict().items()}, **given}.items():
            table.add(name, values.ravel())
        self._table = table  # it keeps the arrays alive whose addresses the compiled passes are given
        self._passes = table.data

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Subchain]:
        return iter((self._whole,))

    def __getitem__(self, number: int) -> Subchain:
        return (self._whole,)[number]

    def set_wrenches(self, wrenches: Floats) -> None:
        """Set the external wrenches on the steps in sequence [m * 6], as `Subchain.wrenches`."""
        if self._wrench.size:
            self._wrench[:] = wrenches[: 6 * self._steps]
        if self._terminal is not None:
            self._terminal.set_wrenches(wrenches[6 * self._steps :])

    def start(self, q: Floats, u: Floats) -> Floats:
        """Write the joint frames; give the boundary turn [TURNING], as `Subchains.start`."""
        halved_motion(self._passes, q[: self.nq], u[: self.nu])
        if self._terminal is not None:
            self._terminal.start(q[self.nq :], u[self.nu :])
        return self._turn

    def inward(self, q: Floats, u: Floats, tau: Floats, turn: Floats) -> Floats:
        """Assemble the bodies [1, ASSEMBLY]; arguments as of `Subchains.inward`."""
        block = self._none
        if self._terminal is not None:
            join_turn(0.0, turn, self._turn, self._inner)
            block = self._terminal.inward(q[self.nq :], u[self.nu :], tau[self.nu :], self._inner)[0]
        halved_inward(self._passes, q[: self.nq], u[: self.nu], tau[: self.nu], turn, block)
        return self._assembly

    def outward(self, q: Floats, u: Floats, loads: Floats, udot: Floats, rates: Floats) -> None:
        """Find accelerations [nu] and coordinate rates [nq], from A1 and f2 in `loads` [1, 12]."""
        self.loads[:] = loads
        halved_outward(self._passes, q[: self.nq], u[: self.nu], self.loads[0], udot[: self.nu], rates[: self.nq])
        if self._terminal is not None:
            self._terminal.outward(q[self.nq :], u[self.nu :], self._inboard, udot[self.nu :], rates[self.nq :])
