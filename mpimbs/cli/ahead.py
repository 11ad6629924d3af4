"""The command that compiles before anyone waits for it: `mpimbs compile`, for containers and modules of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mpimbs.base.errors import InputError
from mpimbs.cli.options import coupling_options, forces_option, read_model
from mpimbs.cli.words import Command, said_together

if TYPE_CHECKING:
    from mpi4py import MPI


@click.command("compile", cls=Command)
@click.argument("models", nargs=-1)
@click.option("--integrator", help="That the runs will take.  [default: as of run]")
@forces_option
@click.pass_obj
@coupling_options
def compile_command(
    comm: MPI.Comm,
    models: tuple[str, ...],
    integrator: str | None,
    forces: tuple[str, ...],
    settings: dict[str, Any],
) -> None:
    """Compile what runs of MODELS with these options call, on as many ranks; without any what most systems need.

    The code goes to MPIMBS_CACHE_DIR, or to the user's cache. Where that can only be read later, it is read.
    """
    from mpimbs.coupling import solver_for
    from mpimbs.kernels.kernel_cache import cache_folder
    from mpimbs.parallel.agreement import first_on_node
    from mpimbs.run.run_segment import RunSegment
    from mpimbs.stepping.settings import SimulationSettings

    given = settings | {"t_end": 1.0} | ({} if integrator is None else {"integrator": integrator})
    if not models:
        if settings or forces or integrator is not None:
            raise InputError("options are those of runs of MODELS: name models, or leave them out")
        for name, action in usual():
            if comm.rank == 0:
                click.echo(f"{name} ...")
            first_on_node(comm, action)
    for model in models:
        if comm.rank == 0:
            click.echo(f"{model} ...")
        asked = said_together(comm, partial(SimulationSettings.asked, given))
        system = read_model(comm, model, forces)
        segment = RunSegment(system, comm, asked, solver_for(asked.coupling, asked.solver, asked.rtol))
        segment.compile()
        segment.dynamics.close()
    if comm.rank == 0:
        click.echo(f"compiled, or loaded: {cache_folder()}")


def usual() -> list[tuple[str, Callable[[], None]]]:
    """Give what most systems need, in words, and calls that compile it, or load it from the cache; no communication."""
    import numpy as np
    from mpi4py import MPI

    from mpimbs.dynamics.compiling import compile_inverse, compile_kernels
    from mpimbs.kernels.lanes import WIDTHS, native_width
    from mpimbs.model import system_from
    from mpimbs.run.ensembles.batch import Batch
    from mpimbs.stepping.stage_steps import compile_steps
    from mpimbs.values.handles import RESPONSE, SCRATCH, SIZE, join

    def joined() -> None:
        block = np.zeros(SIZE)
        join(block, block, block.copy(), np.zeros(RESPONSE), np.zeros(SCRATCH))

    def side_by_side(lanes: int) -> None:
        batch = Batch(system_from("chain:2"), lanes, MPI.COMM_SELF, lanes)
        batch.accelerations(batch.q, batch.u)

    found: list[tuple[str, Callable[[], None]]] = [("joints of subchains", joined), ("explicit steps", compile_steps)]
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
