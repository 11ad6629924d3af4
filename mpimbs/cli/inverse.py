"""The command that gives forces for accelerations: `mpimbs inverse`."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from mpi4py import MPI

from mpimbs.cli.options import ARRAYS, forces_option, output_option, read, time_option, write_arrays
from mpimbs.cli.words import Command
from mpimbs.dynamics import Dynamics
from mpimbs.errors import SimulationError
from mpimbs.filesystem.places import check_new
from mpimbs.inverse import compile_inverse
from mpimbs.parallel.agreement import first_on_node, on_root, together


@click.command(cls=Command)
@click.argument("model")
@click.option("--state", type=Path, required=True, help=".npz file with q, u and udot, in the model's joint order.")
@output_option(ARRAYS, ".npz file to write: tau, in the model's joint order.")
@time_option
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@forces_option
@click.pass_obj
def inverse(
    comm: MPI.Comm, model: str, state: Path, output: Path, time: float, force: bool, forces: tuple[str, ...]
) -> None:
    """Evaluate inverse dynamics of MODEL once: the forces tau, on top of the model's, that accelerations need."""
    from mpimbs.simulation.state import PRESCRIBED, read_state

    system = read(comm, model, forces)
    whole = together(comm, lambda: read_state(state, system, PRESCRIBED))
    dynamics = Dynamics(system, comm)
    on_root(comm, lambda: check_new(output, force, instead="; from Python, Dynamics.inverse_dynamics writes none"))
    first_on_node(comm, compile_inverse)
    mine = dynamics.gather_u.part
    assert whole.udot is not None  # PRESCRIBED has it
    part = dynamics.inverse_dynamics(whole.q[dynamics.gather_q.part], whole.u[mine], whole.udot[mine], time)
    if not comm.allreduce(bool(np.isfinite(part).all()), MPI.LAND):
        raise SimulationError("the forces are not finite: the state is beyond the range of numbers")
    write_arrays(comm, output, {"tau": dynamics.gather_u(part)}, {})
    dynamics.close()
