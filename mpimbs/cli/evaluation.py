"""The commands that evaluate a state, `mpimbs acceleration | inverse | inertia`: forward and inverse dynamics, the
inertia matrix; and the one that closes its loops, `mpimbs assemble`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click
import numpy as np
from mpi4py import MPI

from mpimbs.cli.options import (
    ARRAYS,
    coupling_options,
    forces_option,
    note_lanes,
    output_option,
    read,
    time_option,
    write_arrays,
    write_state,
)
from mpimbs.cli.words import Command
from mpimbs.compiling import compile_evaluations, compile_inverse, compile_joint_space
from mpimbs.composites import DOUBLING, FORMS
from mpimbs.dynamics import Dynamics
from mpimbs.errors import InputError, SimulationError
from mpimbs.filesystem.places import check_new
from mpimbs.parallel.agreement import first_on_node, on_root, together

_NOWHERE = "; from Python, Dynamics.{} writes none"


@click.command(cls=Command)
@click.argument("model")
@click.option(
    "--state", type=Path, help=".npz file with q, u and optionally tau.  [default: the model's initial state]"
)
@output_option(ARRAYS, ".npz file to write: udot, in the model's joint order.")
@time_option
@click.option("--loads", is_flag=True, help="Write the loads through the joints too, and those of loops.")
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@forces_option
@click.pass_obj
@coupling_options
def acceleration(
    comm: MPI.Comm,
    model: str,
    forces: tuple[str, ...],
    state: Path | None,
    output: Path,
    time: float,
    loads: bool,
    force: bool,
    settings: dict[str, Any],
) -> None:
    """Evaluate forward dynamics of MODEL once."""
    from mpimbs.simulation.state import check_speeds, read_state

    system = read(comm, model, forces)
    note_lanes(comm, system, settings)
    whole = together(comm, lambda: read_state(state, system) if state else None)
    dynamics = Dynamics(system, comm, **settings)
    together(comm, lambda: check_speeds(dynamics.subchain))
    on_root(comm, lambda: check_new(output, force, instead=_NOWHERE.format("accelerations")))
    compile_evaluations(dynamics, loads, checked=True)
    mine: tuple[Any, ...] = dynamics.subchain.q, dynamics.subchain.u, None, time
    if whole is not None:
        ours = dynamics.gather_u.part
        mine = whole.q[dynamics.gather_q.part], whole.u[ours], None if whole.tau is None else whole.tau[ours], time
    parts, gathers = {"udot": dynamics.accelerations(*mine)}, {"udot": dynamics.gather_u}
    if loads:
        parts["loads"], gathers["loads"] = dynamics.joint_loads(*mine), dynamics.gather_bodies(6)
    if not comm.allreduce(all(bool(np.isfinite(part).all()) for part in parts.values()), MPI.LAND):
        raise SimulationError("the accelerations are not finite: the state is beyond the range of numbers")
    residual = dynamics.residual(mine[0], mine[1], parts["udot"], *mine[2:])
    if wrong := residual.judged(dynamics.coupling):
        raise SimulationError(f"{wrong}: this is wrong; please report the model")
    results: dict[str, Any] = {name: gathers[name](part) for name, part in parts.items()}
    if loads and dynamics.loops is not None:
        parts["loop_loads"] = results["loop_loads"] = dynamics.loops.loads
    if comm.rank == 0:
        click.echo(residual.told())
    write_arrays(comm, output, results, {name: part.shape[1:] for name, part in parts.items()})
    dynamics.close()


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
    on_root(comm, lambda: check_new(output, force, instead=_NOWHERE.format("inverse_dynamics")))
    first_on_node(comm, functools.partial(compile_inverse, dynamics.lanes))
    mine = dynamics.gather_u.part
    assert whole.udot is not None  # PRESCRIBED has it
    part = dynamics.inverse_dynamics(whole.q[dynamics.gather_q.part], whole.u[mine], whole.udot[mine], time)
    if not comm.allreduce(bool(np.isfinite(part).all()), MPI.LAND):
        raise SimulationError("the forces are not finite: the state is beyond the range of numbers")
    write_arrays(comm, output, {"tau": dynamics.gather_u(part)}, {})
    dynamics.close()


@click.command(cls=Command)
@click.argument("model")
@click.option("--state", type=Path, help=".npz file with q.  [default: the model's initial state]")
@output_option(ARRAYS, ".npz file to write: M, its rows and columns in the model's joint order.")
@click.option("--form", type=click.Choice(FORMS), default=DOUBLING, help="How ranks learn what hangs on their bodies.")
@click.option("--inverse", "inverted", is_flag=True, help="Write the inverse too, as M_inverse.")
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@click.pass_obj
def inertia(
    comm: MPI.Comm, model: str, state: Path | None, output: Path, form: str, inverted: bool, force: bool
) -> None:
    """Write the joint-space inertia matrix of MODEL, of its spanning tree."""
    from mpimbs.simulation.state import COORDINATES, read_state

    system = read(comm, model)
    whole = together(comm, lambda: read_state(state, system, COORDINATES) if state else None)
    dynamics = Dynamics(system, comm)
    on_root(comm, lambda: check_new(output, force, instead=_NOWHERE.format("inertia_matrix")))
    first_on_node(comm, compile_joint_space)
    q = dynamics.subchain.q if whole is None else whole.q[dynamics.gather_q.part]
    parts = {"M": dynamics.inertia_matrix(q, form)}
    if inverted:
        parts["M_inverse"] = dynamics.inverse_inertia_matrix(q)
    if not comm.allreduce(all(bool(np.isfinite(part).all()) for part in parts.values()), MPI.LAND):
        raise SimulationError("the matrix is not finite: the state is beyond the range of numbers")
    results = {name: dynamics.gather_rows(part) for name, part in parts.items()}
    write_arrays(comm, output, results, dict.fromkeys(parts, (system.nu,)))
    dynamics.close()


@click.command(cls=Command)
@click.argument("model")
@click.option("--state", type=Path, help=".npz file with q and u near them.  [default: the model's initial state]")
@output_option(ARRAYS, ".npz file to write: q and u, in the model's joint order.")
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@forces_option
@click.pass_obj
@coupling_options
def assemble(
    comm: MPI.Comm,
    model: str,
    forces: tuple[str, ...],
    state: Path | None,
    output: Path,
    force: bool,
    settings: dict[str, Any],
) -> None:
    """Close the loops of MODEL: write coordinates and speeds near the initial ones that all loops allow."""
    from mpimbs.simulation.projection import changes_told, closed, moved
    from mpimbs.simulation.state import MOVING, check_speeds, read_state

    system = read(comm, model, forces)
    if not system.loops:
        raise InputError(f"'{system.name}' has no loops: there is nothing to close")
    whole = together(comm, lambda: read_state(state, system, MOVING) if state else None)
    dynamics = Dynamics(system, comm, **settings)
    together(comm, lambda: check_speeds(dynamics.subchain))
    on_root(comm, lambda: check_new(output, force, instead=_NOWHERE.format("loops.close_places")))
    compile_evaluations(dynamics)
    mine = dynamics.subchain.q, dynamics.subchain.u
    if whole is not None:
        mine = whole.q[dynamics.gather_q.part], whole.u[dynamics.gather_u.part]
    mine = dynamics.followed(0.0, *mine)
    found = closed(dynamics, *mine)
    changes = moved(dynamics, mine, found)
    write_state(dynamics, output, *found)
    if comm.rank == 0:
        click.echo(changes_told(changes) or "loops: they were closed")
    dynamics.close()
