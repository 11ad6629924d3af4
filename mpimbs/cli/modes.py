"""The command `mpimbs modes`: natural frequencies about an equilibrium, and their shapes."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from mpi4py import MPI

from mpimbs.cli.options import ARRAYS, forces_option, output_option, read, write_arrays
from mpimbs.cli.words import Command
from mpimbs.compiling import compile_evaluations, compile_joint_space
from mpimbs.dynamics import Dynamics
from mpimbs.filesystem.places import check_new
from mpimbs.parallel.agreement import first_on_node, on_root, together

_NOWHERE = "; from Python, modes writes none"


@click.command(cls=Command, name="modes")
@click.argument("model")
@click.option("--state", type=Path, help=".npz file with q, an equilibrium.  [default: the model's initial state]")
@output_option(ARRAYS, ".npz file to write: frequencies (Hz), squares (1/s^2), shapes, q.")
@click.option("-k", "--count", type=click.IntRange(min=1), default=10, help="How many of the lowest modes.")
@click.option("--picture", type=Path, help="PNG file to draw the shapes in.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@forces_option
@click.pass_obj
def modes_command(
    comm: MPI.Comm,
    model: str,
    state: Path | None,
    output: Path,
    count: int,
    picture: Path | None,
    force: bool,
    forces: tuple[str, ...],
) -> None:
    """Find the lowest natural frequencies of MODEL about an equilibrium, and the shapes of these modes."""
    from mpimbs.modes import modes
    from mpimbs.simulation.state import COORDINATES, read_state

    system = read(comm, model, forces)
    whole = together(comm, lambda: read_state(state, system, COORDINATES) if state else None)
    dynamics = Dynamics(system, comm)

    def check() -> None:
        check_new(output, force, instead=_NOWHERE)
        if picture is not None:
            check_new(picture, force)

    on_root(comm, check)
    compile_evaluations(dynamics)
    first_on_node(comm, compile_joint_space)
    q = dynamics.subchain.q if whole is None else whole.q[dynamics.gather_q.part]
    found = modes(dynamics, q, count)
    gathered = dynamics.gather_q(dynamics.followed(0.0, q, np.zeros(dynamics.subchain.nu))[0])
    if comm.rank == 0:
        for number, (frequency, square) in enumerate(zip(found.frequencies, found.squares, strict=True), 1):
            told = f"{frequency:.9g} Hz" if square >= 0 else f"grows, rate {(-square) ** 0.5:.6g} 1/s"
            click.echo(f"mode {number}: {told}")
    arrays = {"frequencies": found.frequencies, "squares": found.squares, "shapes": found.shapes, "q": gathered}
    write_arrays(comm, output, arrays, {"shapes": (system.nu,)})

    def draw() -> None:
        if picture is not None and gathered is not None:
            from mpimbs.study.axes import save
            from mpimbs.study.mode_pictures import draw_modes

            click.echo(f"drew {save(draw_modes(system, gathered, found), picture)}")

    on_root(comm, draw)
    dynamics.close()
