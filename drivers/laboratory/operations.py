"""Operations of what the algorithms are made of: a body swept or assembled, a join; counted from the kernels.

Frames are any. A body that is swept is counted as in lanes, where no column is spare; what is made of rows (leaves,
joins) as the code for doubles, in registers. `operation_models` makes costs of whole evaluations of these counts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from laboratory.counting import Counts
from laboratory.sweeps import PIECE, TIP, Chain, chain, count, count_sweeps, counts_per_body
from mpimbs.base.arrays import Floats
from mpimbs.model.contents import Contents
from mpimbs.parts.bodies.dca_bodies import LEAF_SCRATCH, Halving, assemble_bodies, inverse_inertias
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.six import EXTRA
from mpimbs.sweep.build import build
from mpimbs.sweep.motion import join_turn
from mpimbs.sweep.structure import BIAS, FIRST_U, LAST_U, PLACE, TURNING
from mpimbs.values.assembly import (
    ASSEMBLY,
    BLOCK,
    CONSTANT,
    CROSS,
    FREED,
    JOINT,
    RECORD,
    assemble_pair,
    disassemble_pair,
    far_acceleration,
    release,
)
from mpimbs.values.handles import RESPONSE, SCRATCH, SIZE, TRANSFER, between, combine, respond

# The sweeps that a body takes part in whether it is swept or a leaf: two passes over the kinematics, forces, rates.
KINEMATICS = ("joint places", "boundary turn", "velocity terms", "joint forces", "rates")
FAR_LOAD = np.array([1.0, -2.0, 3.0, -1.0, 2.0, -3.0])  # any
NO_LOAD = np.zeros(6)


class OperationCounts(NamedTuple):
    """Operations of the parts of the algorithms."""

    # a body that is swept, with one handle [Critchley 2007, eq. 44-49] and with both [eq. 53-71], all passes.
    tip: Counts
    piece: Counts
    turn: Counts  # join of two boundary turns, once in the scan of the velocities [eq. 6-11].
    # join of two subchains' handle equations: the response of what they share, the equations of both, and acceleration
    # and load at the shared point on the way back. Both handles.
    respond: Counts
    combine: Counts
    between: Counts
    respond_tip: Counts  # the same where nothing is outboard of the right
    combine_tip: Counts
    between_tip: Counts
    leaf: Counts  # a body that is a leaf of the divide and conquer: kinematics, its joint, its equations [eq. 12-16].
    # join of two assemblies [eq. 23-28; 29-42], the joint on the way back [eq. 23, 26], and the acceleration of handle
    # 2 [eq. 16].
    release: Counts
    assemble: Counts
    spread: Counts
    far: Counts

    @property
    def join(self) -> Counts:
        """Join of handle equations and the way back, both handles."""
        return self.respond + self.combine + self.between

    @property
    def join_tip(self) -> Counts:
        """The same without the outer handle."""
        return self.respond_tip + self.combine_tip + self.between_tip

    @property
    def assembly(self) -> Counts:
        """Join of two assemblies and the way back."""
        return self.release + self.assemble + self.spread


def operations_of(short: Contents, long: Contents) -> OperationCounts:
    """Count the useful operations of bodies and joins in chains of one kind.

    Spare columns and products with literal zeros are left out; see `laboratory.counting`.

    Parameters
    ----------
    short, long : Contents
        Two chains of the same kind, three bodies or more; the mean over the bodies is taken by which they differ.

    Raises
    ------
    ValueError
        Not chains, or `long` is not the longer one.
    InputError
        A body has no inverse inertia.
    """
    extra = range(short.n_bodies, long.n_bodies)
    if len(extra) == 0:
        raise ValueError(f"the second chain must be longer than the first, which has {short.n_bodies} bodies")
    per_body = counts_per_body(short, long, useful=True)
    a = chain(long)
    count_sweeps(a)

    def kernels(compiled: Any, *given: Any) -> Counts:
        return count(compiled, *given, useful=True)

    tip, piece, kinematics = (sum((per_body[name] for name in sweeps), Counts()) for sweeps in (TIP, PIECE, KINEMATICS))
    assembled = [_assembled(kernels, leaves_of(long, a), k) for k in extra]
    leaf, *joined = (sum(parts, Counts()) / len(extra) for parts in zip(*assembled, strict=True))
    turn = kernels(join_turn, 0.0, a.turn, a.turn, np.zeros(TURNING))
    return OperationCounts(
        tip, piece, turn, *_joined(kernels, True), *_joined(kernels, False), kinematics + leaf, *joined
    )


def spare(values: Floats, *columns: int, begin: int = 0, end: int | None = None) -> Floats:
    """Mask columns of an array of rows, in the rows from item `begin` to item `end`; the numbers are shared."""
    mask = np.ma.getmaskarray(values).copy()
    mask[begin:end].reshape(-1, ROW)[:, columns] = True
    return np.ma.array(np.ma.getdata(values), mask=mask)


def _joined(kernels: Any, two_handles: bool) -> tuple[Counts, Counts, Counts]:
    """Count `respond`, `combine`, `between` for two subchains of any kind: numbers without zeros, without exchanges."""

    def handles(values: Floats) -> Floats:
        return spare(spare(values, EXTRA + 1), EXTRA, begin=TRANSFER, end=TRANSFER + 6 * ROW)

    left, right, joined = (handles(values) for values in (_any_subchain(), _any_subchain(), np.zeros(SIZE)))
    response = spare(np.zeros(RESPONSE), EXTRA + 1)
    scratch = np.zeros(SCRATCH)
    load = FAR_LOAD if two_handles else NO_LOAD
    return (
        kernels(respond, left, right, response, scratch, two_handles),
        kernels(combine, left, right, response, joined, two_handles),
        kernels(between, right, response, np.ones(6), load, np.zeros(6), np.zeros(6)),
    )


def _any_subchain() -> Floats:
    """Handle equations [SIZE] of dense matrices; I and W are positive definite."""
    block = np.zeros((3, 6, ROW))
    close = 0.1 + 0.01 * np.add.outer(np.arange(6), np.arange(6))
    block[0, :, :6] = block[2, :, :6] = np.eye(6) + close
    block[1, :, :6] = close
    block[0, :, EXTRA] = block[2, :, EXTRA] = 1.0
    return block.ravel()


class _Leaves(NamedTuple):
    """What `assemble_bodies` is given for each body as a halving of its own, and the joints' degrees of freedom."""

    structures: list[Any]
    works: list[Any]
    halvings: list[Halving]
    freed: list[int]


def leaves_of(system: Contents, a: Chain) -> _Leaves:
    """Make a halving of one leaf for each body of a chain, whose kinematics `a` holds."""
    last_step = build(system.columns()).body_step
    inverses = inverse_inertias(system, 0, a.structure, last_step)
    found = _Leaves([], [], [], [])
    for k, last in enumerate(last_step):
        first = last_step[k - 1] + 1 if k else 0
        steps = a.structure.steps[first : last + 1]
        found.structures.append(a.structure._replace(steps=steps))
        found.works.append(a.work._replace(place=a.work.place[first * PLACE :], bias=a.work.bias[first * BIAS :]))
        found.halvings.append(
            Halving(
                np.zeros((0, 5), np.int64),
                np.array([last - first]),
                spare(inverses, EXTRA, EXTRA + 1),
                spare(np.zeros(BLOCK), EXTRA + 1),
                spare(np.zeros(JOINT), EXTRA + 1),
                np.zeros(0),
                np.zeros(0),
                a.total,
                np.zeros(LEAF_SCRATCH),
                np.zeros(0),
            )
        )
        found.freed.append(int(steps[-1, LAST_U] - steps[0, FIRST_U]))
    return found


def _assembled(kernels: Any, leaves: _Leaves, k: int) -> tuple[Counts, ...]:
    """Count body k as a leaf, and its joint: `release`, `assemble`, `spread`, `far_acceleration`."""
    made = []
    for body in (k - 1, k):
        halving, none = leaves.halvings[body], np.zeros(0)
        given = (leaves.structures[body], leaves.works[body], halving)
        made.append(kernels(assemble_bodies, 0.0, *given, none, np.zeros(ASSEMBLY)))
    # What a leaf keeps in column 6 of P12 for a while is gone now.
    left, right = (spare(leaves.halvings[b].nodes, EXTRA, begin=CROSS, end=CROSS + 6 * ROW) for b in (k - 1, k))
    joint, freed = leaves.halvings[k].joints, leaves.freed[k]
    record = spare(np.zeros(RECORD), EXTRA + 1, end=FREED)
    record = spare(record, EXTRA, begin=CONSTANT, end=FREED)
    f1, acceleration = np.ones(6), np.zeros(6)
    return (
        made[1],
        kernels(release, left, right, joint, freed, record),
        kernels(assemble_pair, left, right, record, spare(np.zeros(BLOCK), EXTRA + 1)),
        kernels(disassemble_pair, left, right, joint, freed, record, f1, FAR_LOAD, np.zeros(6), np.zeros(freed)),
        kernels(far_acceleration, left, f1, FAR_LOAD, acceleration),
    )


class OperationModel(NamedTuple):
    """Operations against bodies and processors."""

    alone: Counts  # per body on one processor
    body: Counts | None = None  # on several processors; no `body` for an algorithm that can use but one
    level: Counts = Counts()
    constant: Counts = Counts()
    tip_ratio: float = 1.0  # r: how many times more bodies the last processor gets
    # take ceil(log2 p) - 1 for log2(p / 2): what any number of processors takes that join two by two
    whole_levels: bool = True

    def __call__(self, n: int, p: int = 1) -> Counts:
        """Count the operations of the processor that has the most to do, of p with n bodies in all."""
        if p == 1 or self.body is None:
            return self.alone * n
        levels = math.log2(p)
        if self.whole_levels:
            levels = math.ceil(levels)
        return self.level * (levels - 1) + self.body * (n / (p - 1 + self.tip_ratio)) + self.constant


def arithmetic(counts: Counts) -> float:
    """Multiplications and additions, which are all that the paper counts."""
    return counts.multiplications + counts.additions


def _of(multiplications: float, additions: float) -> Counts:
    return Counts(multiplications=multiplications, additions=additions)


_ABA, _DCA = _of(300, 279), _of(1150, 937)
_LEVEL = _of(928, 812)
_DCA_CONSTANT = _of(-1041, -845)
_DCAE, _DCAE_CONSTANT = _of(637, 548), _of(-495, -446)

# The counts of Critchley 2007, after Featherstone 1999, by the names that `models` has too. aba: the articulated-body
# algorithm on one processor. dca: the divide and conquer down to single bodies, equation 43; 1150 + 937 a body on one
# processor. dca-terminal: its last processor sweeps its bodies, 3.6 times as many ("approximately four to one"); the
# paper draws it in figure 4 and does not write it down. dcae-even: equation 72. dcae: twice as many bodies at the tip.
PAPER = {
    "aba": OperationModel(_ABA),
    "dca": OperationModel(_DCA, _DCA, _LEVEL, _DCA_CONSTANT, whole_levels=False),
    "dca-terminal": OperationModel(
        _ABA, _DCA, _LEVEL, _DCA_CONSTANT, arithmetic(_DCA) / arithmetic(_ABA), whole_levels=False
    ),
    "dcae-even": OperationModel(_ABA, _DCAE, _LEVEL, _DCAE_CONSTANT, whole_levels=False),
    "dcae": OperationModel(_ABA, _DCAE, _LEVEL, _DCAE_CONSTANT, 2.0, whole_levels=False),
}


def models(counts: OperationCounts) -> dict[str, OperationModel]:
    """Make the models of this package's algorithms, for chains of one kind, from what `operations_of` has counted.

    The velocity scan takes two joins of boundary turns a level, but one at the last. m bodies of a processor have m - 1
    joins, so that dca has m + log2(p / 2) of them in all; its constant has what else the last level takes, and the
    joints of the processor's first body and of the world, which are solved without a join. Of dcae, the constant is the
    last level, where only the response is wanted.
    """
    c = counts
    leaf = c.leaf + c.assembly
    level = c.turn * 2 + c.assembly + c.far
    constant = c.turn + (c.release + c.spread + c.far) * 2
    dca = OperationModel(leaf, leaf, level, constant)
    dcae = OperationModel(c.tip, c.piece, c.turn * 2 + c.join, c.turn + c.respond + c.between_tip)
    return {
        "aba": OperationModel(c.tip),
        "dca": dca,
        "dca-terminal": dca._replace(alone=c.tip, tip_ratio=arithmetic(leaf) / arithmetic(c.tip)),
        "dcae-even": dcae,
        "dcae": dcae._replace(tip_ratio=arithmetic(c.piece) / arithmetic(c.tip)),
    }
