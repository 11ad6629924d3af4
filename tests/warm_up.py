"""Compile what most tests need: python tests/warm_up.py [backwards].

Two processes that begin at opposite ends meet in the middle: what one has compiled, the other loads.
"""

import sys
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from mpimbs.dynamics.compiling import compile_inverse, compile_kernels
from mpimbs.kernels.lanes import WIDTHS, native_width
from mpimbs.model import system_from
from mpimbs.run.ensembles.batch import Batch
from mpimbs.values.handles import RESPONSE, SCRATCH, SIZE, join


def side_by_side(lanes: int) -> None:
    """What copies in lanes take."""
    batch = Batch(system_from("chain:2"), lanes, MPI.COMM_SELF, lanes)
    batch.accelerations(batch.q, batch.u)


def joined() -> None:
    """What joins two subchains."""
    block = np.zeros(SIZE)
    join(block, block, block.copy(), np.zeros(RESPONSE), np.zeros(SCRATCH))


def main(backwards: bool) -> None:
    """Compile, or load, one after the other."""
    actions: list[Callable[[], None]] = [joined]
    for lanes in {1, native_width()}:
        actions += [partial(compile_kernels, "dcae", lanes, staged, True, True) for staged in (False, True)]
        actions += [partial(compile_kernels, kernels, lanes) for kernels in ("pcg", "dca-terminal")]
        actions += [partial(side_by_side, lanes), partial(compile_inverse, lanes)]
    actions += [partial(compile_kernels, "dca"), partial(compile_kernels, "intervals", 1, False, True, True)]
    actions += [partial(compile_kernels, "intervals", lanes) for lanes in WIDTHS if lanes <= native_width()]
    actions += [partial(compile_kernels, "cut intervals", lanes) for lanes in (1, 4)]
    actions += [partial(compile_kernels, "augmented", loops=True)]
    for action in reversed(actions) if backwards else actions:
        action()


if __name__ == "__main__":
    main("backwards" in sys.argv)
