"""What compiles before anyone waits for it, for containers and clusters: `mpimbs --compile`, `run --compile`.

Code goes to MPIMBS_CACHE_DIR, or to the user's cache. Where that can only be read later, it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mpi4py import MPI

    from mpimbs.model.contents import Contents
    from mpimbs.stepping.settings import SimulationSettings


def compile_run(comm: MPI.Comm, system: Contents, settings: SimulationSettings) -> None:
    """Compile what a run calls, or load it; all ranks call."""
    from mpimbs.coupling import solver_for
    from mpimbs.run.structure_change import RunSegment

    segment = RunSegment(system, comm, settings, solver_for(settings.coupling, settings.solver, settings.rtol))
    segment.compile()
    segment.dynamics.close()
    _tell(comm)


def compile_usual(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    """Compile what most systems need, and end: a flag of the program."""
    if not asked or context.resilient_parsing:
        return
    from mpimbs.parallel.agreement import first_on_node

    comm = context.obj()
    for name, action in usual():
        if comm.rank == 0:
            click.echo(f"{name} ...")
        first_on_node(comm, action)
    _tell(comm)
    context.exit()


def _tell(comm: MPI.Comm) -> None:
    from mpimbs.kernels.kernel_cache import cache_folder

    if comm.rank == 0:
        click.echo(f"compiled, or loaded: {cache_folder()}")


def usual() -> list[tuple[str, Callable[[], None]]]:
    """Give what most systems need, in words, and calls that compile it, or load it from the cache; no communication."""
    import numpy as np

    from mpimbs.dynamics.compiling import compile_at_once, compile_inverse, compile_kernels
    from mpimbs.dynamics.side_by_side import SideBySide
    from mpimbs.kernels.lanes import WIDTHS, native_width
    from mpimbs.model import system_from
    from mpimbs.stepping.stage_steps import compile_steps
    from mpimbs.values.handles import RESPONSE, SCRATCH, SIZE, join

    def joined() -> None:
        block = np.zeros(SIZE)
        join(block, block, block.copy(), np.zeros(RESPONSE), np.zeros(SCRATCH))

    def side_by_side(lanes: int) -> None:
        SideBySide([system_from("chain:2").contents], lanes, lanes).compile(checked=True)

    found: list[tuple[str, Callable[[], None]]] = [
        ("joints of subchains", joined),
        ("explicit steps", partial(compile_steps, True, True)),
        ("springs, tendons and added masses", compile_at_once),
    ]
    for lanes in sorted({1, native_width()}):
        found += [
            (f"{kernels}{' with forces as functions' if staged else ''}, {lanes} lanes",
             partial(compile_kernels, kernels, lanes, staged, *more))
            for kernels, staged, *more in (
                ("dcae", False, True, True), ("dcae", True, True, True), ("pcg", False), ("dca-terminal", False),
            )
        ]  # fmt: skip
        found.append((f"copies, {lanes} lanes", partial(side_by_side, lanes)))
        found.append((f"inverse dynamics, {lanes} lanes", partial(compile_inverse, lanes)))
    found.append(("dca", partial(compile_kernels, "dca")))
    found.append(("trees", partial(compile_kernels, "intervals", 1, False, True, True)))
    for lanes in WIDTHS:
        if lanes <= native_width():
            found.append((f"trees, {lanes} lanes", partial(compile_kernels, "intervals", lanes)))
    found += [(f"trees by pcg, {lanes} lanes", partial(compile_kernels, "cut intervals", lanes)) for lanes in (1, 4)]
    return [*found, ("augmented", partial(compile_kernels, "augmented", loops=True))]
