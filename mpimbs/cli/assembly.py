"""The command that closes the loops of a model's initial state, `mpimbs assemble`."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from mpi4py import MPI

from mpimbs.cli.options import ARRAYS, output_option, read, write_arrays
from mpimbs.cli.words import Command
from mpimbs.filesystem.places import check_new
from mpimbs.parallel.agreement import on_root, together


@click.command(cls=Command)
@click.argument("model")
@click.option("--state", type=Path, help=".npz file with q and u to begin with.  [default: the model's initial state]")
@output_option(ARRAYS, ".npz file to write: q and u, in the model's joint order.")
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@click.pass_obj
def assemble(comm: MPI.Comm, model: str, state: Path | None, output: Path, force: bool) -> None:
    """Close the loops of MODEL, moving its joints the least, and make its speeds ones that the loops allow."""
    from mpimbs.closure.assembly import Assembled
    from mpimbs.closure.assembly import assemble as close
    from mpimbs.model.summary import listed
    from mpimbs.simulation.state import MOVING, read_state

    system = read(comm, model)
    together(comm, system.validate)
    given = together(comm, lambda: read_state(state, system, MOVING) if state else None)
    on_root(comm, lambda: check_new(output, force, instead="; from Python, closure.assembly.assemble writes none"))

    def work() -> Assembled:
        q, u = (given.q, given.u) if given else system.initial_state(0, system.n_bodies)
        found = close(system, q, u)
        order = np.argsort(-found.moved, kind="stable")
        moved = [f"{system.name_of(k)!r} by {found.moved[k]:.3g}" for k in order.tolist() if found.moved[k] > 1e-9]
        click.echo(f"joints moved (rad and m): {listed(moved) or 'none'}")
        click.echo(f"speeds changed by {np.abs(found.u - u).max(initial=0.0):.3g} rad/s and m/s at the most")
        return found

    closed = on_root(comm, work)
    write_arrays(comm, output, {"q": closed.q, "u": closed.u} if closed else {}, {})
