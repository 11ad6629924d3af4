"""Operations of one evaluation of a chain of n bodies on p processors, by algorithm: the paper's and ours.

All have the form of equations 43 and 72 of Critchley 2007,

    level log2(p / 2) + body m + constant

for the processor that has the most to do: m is its number of bodies. With as many bodies for each m = n / p; where
bodies at the tip cost less, the last processor gets r times as many, and m = n / (p - 1 + r), which is not rounded.
Communication costs nothing here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from mpimbs.instruments.counts import Counts
from mpimbs.instruments.operations import OperationCounts


class OperationModel(NamedTuple):
    """Operations against bodies and processors.

    Attributes
    ----------
    alone : Counts
        Per body on one processor.
    body, level, constant : Counts
        On several processors; no `body` for an algorithm that can use but one.
    tip_ratio : float
        r: how many times more bodies the last processor gets.
    whole_levels : bool
        Take ceil(log2 p) - 1 for log2(p / 2): what any number of processors takes that join two by two.
    """

    alone: Counts
    body: Counts | None = None
    level: Counts = Counts()
    constant: Counts = Counts()
    tip_ratio: float = 1.0
    whole_levels: bool = True

    def __call__(self, n: int, p: int = 1) -> Counts:
        """Count the operations of the processor that has the most to do.

        Parameters
        ----------
        n, p : int
            Bodies, processors.
        """
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
    """Make the models of this package's algorithms, for chains of one kind: aba, dca, dca-terminal, dcae-even, dcae.

    The velocity scan takes two joins of boundary turns a level, but one at the last. m bodies of a processor have m - 1
    joins, so that dca has m + log2(p / 2) of them in all; its constant has what else the last level takes, and the
    joints of the processor's first body and of the world, which are solved without a join. Of dcae, the constant is the
    last level, where only the response is wanted.

    Parameters
    ----------
    counts : OperationCounts
        Of `operations_of`.
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
