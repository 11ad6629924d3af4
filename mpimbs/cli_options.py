"""What commands have in common: options of the couplings and of forces, the ranks that work, the model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click
from mpi4py import MPI

from mpimbs.coupling import COUPLINGS, LoadSolver
from mpimbs.coupling.solver import ESTIMATES, PRECONDITIONERS
from mpimbs.errors import InputError
from mpimbs.memory import EVALUATION, Need, check_memory, ranks_on_node
from mpimbs.model import System, system_from
from mpimbs.model.force_modules import add_forces
from mpimbs.parallel.agreement import together
from mpimbs.parallel.first_ranks import first_ranks


CHOICES = (*COUPLINGS, "auto")


def coupling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `Dynamics`; what they leave without a subchain of its own waits meanwhile."""

    @functools.wraps(command)
    def coupled(
        comm: MPI.Comm,
        cuts: int | None,
        preconditioner: str | None,
        estimate: str | None,
        load_rtol: float | None,
        **settings: Any,
    ) -> None:
        given: dict[str, Any] = {"preconditioner": preconditioner, "estimate": estimate, "rtol": load_rtol}
        given = {name: value for name, value in given.items() if value is not None}
        solver = LoadSolver(**given) if given else None
        count = comm.size if cuts is None else cuts + 1

        def work(part: MPI.Comm) -> None:
            if settings["coupling"] not in CHOICES:
                raise InputError(f"unknown coupling '{settings['coupling']}'; choose one of: {', '.join(CHOICES)}")
            if settings["coupling"] == "auto":
                settings["coupling"] = _chosen(part, cuts, solver, **settings)
            command(part, cuts=cuts, solver=solver, **settings)

        on_first_ranks(comm, count, work)

    for option in _COUPLING_OPTIONS:
        coupled = option(coupled)
    return coupled


def on_first_ranks(comm: MPI.Comm, count: int, work: Callable[[MPI.Comm], None]) -> None:
    """Work on as many ranks as there are subchains; an error of those who work is an error of all."""

    def action() -> None:
        with first_ranks(comm, count) as part:
            if part is None:
                return
            work(part)
            if part.size < comm.size and part.rank == 0:
                idle = f"{comm.size - part.size} of {comm.size} ranks had nothing to do"
                click.echo(f"{part.size} subchains (--cuts {count - 1}): {idle}", err=True)

    together(comm, action)


def _chosen(
    comm: MPI.Comm,
    cuts: int | None,
    solver: LoadSolver | None,
    *,
    model: str,
    forces: tuple[str, ...],
    tip_ratio: float | None,
    lanes: int | None,
    overlap: bool,
    **others: Any,
) -> str:
    """Name of the coupling that is the best for a model on these ranks; rank 0 says why."""
    from mpimbs.study.choice import choose_coupling

    if solver is not None:
        raise InputError("options of pcg's solver choose nothing: leave them out, or choose --coupling pcg")
    found = choose_coupling(read(comm, model, forces), comm, tip_ratio, lanes, cuts, overlap)
    if comm.rank == 0:
        click.echo(f"--coupling auto: {found.coupling}: {found.why}", err=True)
    return found.coupling


forces_option = click.option(
    "--forces", multiple=True, help="module:function that adds forces to the System; may be repeated."
)

_COUPLING_OPTIONS = (
    click.option("--load-rtol", type=float, help="pcg: tolerance of the constraint loads."),
    click.option("--estimate", help=f"pcg: where iterations begin, {', '.join(ESTIMATES)}."),
    click.option("--preconditioner", help=f"pcg: {', '.join(PRECONDITIONERS)}."),
    click.option("--overlap", is_flag=True, help="Sweep inertias while velocities are on the way: for slow networks."),
    click.option("--cuts", type=int, help="Number of cut joints.  [default: one less than ranks]"),
    click.option("--tip-ratio", type=float, help="How many times more bodies the last subchain gets."),
    click.option(
        "--lanes", type=int, help="Pieces of a subchain swept side by side: 1, 2, 4 or 8.  [default: the faster]"
    ),
    click.option("--coupling", default="dcae", help=f"How subchains are joined: {', '.join(CHOICES)}."),
)


def read(comm: MPI.Comm, model: str, forces: tuple[str, ...] = (), *, need: Need | None = EVALUATION) -> System:
    """Read a model on all ranks, have modules of the user's add their forces, and see whether memory suffices."""
    here = ranks_on_node(comm)

    def action() -> System:
        system = with_forces(system_from(model), forces)
        if need is not None:
            check_memory(system, need, comm.size, here)
        return system

    return together(comm, action)


def with_forces(system: System, forces: tuple[str, ...]) -> System:
    """Have functions, named as module:function, add their forces to a system; gives it back."""
    for given in forces:
        add_forces(system, given)
    return system


def numbers(text: str, option: str) -> list[int]:
    """Read whole numbers with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} '{text}': give whole numbers with commas between them, such as 1,16,256") from None
