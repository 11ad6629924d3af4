"""The command that looks for a static equilibrium, `mpimbs settle`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from mpi4py import MPI

from mpimbs.cli.options import ARRAYS, coupling_options, forces_option, output_option, read, time_option, write_state
from mpimbs.cli.words import Command
from mpimbs.compiling import compile_evaluations, compile_implicit
from mpimbs.dynamics import Dynamics
from mpimbs.filesystem.places import check_new
from mpimbs.parallel.agreement import on_root, together

EXAMINED = 4000  # speeds, of which modes take a second or two
EXAMINED_LOOPED = 1000  # the same, with loops


@click.command(cls=Command)
@click.argument("model")
@click.option("--state", type=Path, help=".npz file with q, near which to look.  [default: the model's initial state]")
@output_option(ARRAYS, ".npz file to write: q and u, which are zero, in the model's joint order.")
@time_option
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@forces_option
@click.pass_obj
@coupling_options
def settle(
    comm: MPI.Comm,
    model: str,
    forces: tuple[str, ...],
    state: Path | None,
    output: Path,
    time: float,
    force: bool,
    settings: dict[str, Any],
) -> None:
    """Find a static equilibrium of MODEL near its initial state."""
    from mpimbs.equilibrium import Equilibrium, growth
    from mpimbs.simulation.state import COORDINATES, check_system, read_state

    system = read(comm, model, forces)
    together(comm, lambda: check_system(system))
    whole = together(comm, lambda: read_state(state, system, COORDINATES) if state else None)
    dynamics = Dynamics(system, comm, **settings)
    on_root(comm, lambda: check_new(output, force, instead="; from Python, mpimbs.equilibrium.settle writes none"))
    compile_evaluations(dynamics, loads=True)
    compile_implicit(dynamics)
    q = dynamics.subchain.q if whole is None else whole.q[dynamics.gather_q.part]
    search = Equilibrium(dynamics, time)
    found = search.find(q)
    search.close()
    most = EXAMINED_LOOPED if system.loops else EXAMINED
    unstable = growth(dynamics, found.q) if system.nu <= most else None
    write_state(dynamics, output, found.q, np.zeros(dynamics.subchain.nu))
    if comm.rank == 0:
        click.echo(
            f"equilibrium: {found.steps} steps, {found.products} products; largest acceleration left "
            f"{found.acceleration:.2e} rad/s^2 or m/s^2, last change {found.change:.2e} rad or m"
        )
        if unstable is None:
            click.echo(f"stability: not examined, of more than {most} speeds")
        elif unstable > 0.0:
            click.echo(f"stability: it is not stable: left alone, it departs at a rate of {unstable:.4g} 1/s")
        else:
            click.echo("stability: stable")
    dynamics.close()
