"""The commands that evaluate a state, `mpimbs acceleration | inverse | inertia`; the one that closes its loops,
`mpimbs assemble`; those about equilibria, `mpimbs settle | modes`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpimbs.base.errors import InputError, SimulationError
from mpimbs.base.names import DOUBLING, FORMS
from mpimbs.base.places import check_new
from mpimbs.cli.options import (
    ARRAYS,
    coupling_options,
    forces_option,
    model_argument,
    note_lanes,
    output_option,
    read_model,
    time_option,
    write_arrays,
    write_state,
)
from mpimbs.cli.words import Command, said_on_root, said_together

if TYPE_CHECKING:
    from mpi4py import MPI

_NOWHERE = "; from Python, Dynamics.{} writes none"
EXAMINED = 4000  # speeds, of which modes take a second or two
EXAMINED_LOOPED = 1000  # the same, with loops


@click.command(cls=Command)
@model_argument
@click.option(
    "--state", type=Path, help=".npz file with q, u and optionally tau.  [default: the model's initial state]"
)
@output_option(ARRAYS, ".npz file to write: udot, in the model's joint order.")
@time_option
@click.option("--loads", is_flag=True, help="Write the loads through the joints too, and those of loops.")
@click.option("--close", is_flag=True, help="Close loops first, positions and speeds, as `assemble` does.")
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
    close: bool,
    force: bool,
    settings: dict[str, Any],
) -> None:
    """Evaluate forward dynamics of MODEL once."""
    import numpy as np
    from mpi4py import MPI

    from mpimbs.dynamics import Dynamics
    from mpimbs.dynamics.compiling import compile_evaluations
    from mpimbs.run.state import check_speeds, own_part, read_state

    system = read_model(comm, model, forces)
    note_lanes(comm, system, settings)
    whole = said_together(comm, lambda: read_state(state, system) if state else None)
    dynamics = Dynamics(system, comm, **settings)
    said_together(comm, lambda: check_speeds(dynamics.subchain))
    said_on_root(comm, lambda: check_new(output, force, instead=_NOWHERE.format("accelerations")))
    compile_evaluations(dynamics, loads, checked=True)
    own = own_part(dynamics, whole)
    mine: tuple[Any, ...] = own.q, own.u, own.tau, time
    if dynamics.loops is not None:
        mine = (*_fitting(dynamics, *dynamics.divided.followed(time, *mine[:2]), close), *mine[2:])
    parts, gathers = {"udot": dynamics.accelerations(*mine)}, {"udot": dynamics.gather_u}
    carried = dynamics.loads.joints_and_loops(*mine) if loads else None
    if carried is not None:
        parts["loads"], gathers["loads"] = carried.joints, dynamics.divided.gather_bodies(6)
    if not comm.allreduce(all(bool(np.isfinite(part).all()) for part in parts.values()), MPI.LAND):
        raise SimulationError("the accelerations are not finite: the state is beyond the range of numbers")
    residual = dynamics.loads.residual(mine[0], mine[1], parts["udot"], *mine[2:])
    if wrong := residual.judged(dynamics.divided.coupling):
        raise SimulationError(wrong)
    results: dict[str, Any] = {name: gathers[name](part) for name, part in parts.items()}
    if carried is not None and carried.loops is not None:
        parts["loop_loads"] = results["loop_loads"] = carried.loops
    if comm.rank == 0:
        click.echo(residual.told())
    write_arrays(comm, output, results, {name: part.shape[1:] for name, part in parts.items()})
    dynamics.close()


def _fitting(dynamics: Any, q: Any, u: Any, close: bool) -> tuple[Any, Any]:
    """Give the state, closed if that is asked for; refuse one that leaves loops open."""
    from mpimbs.stepping.projection import changes_told, closed, moved

    if close:
        found = closed(dynamics, q, u)
        if (told := changes_told(moved(dynamics, (q, u), found))) and dynamics.comm.rank == 0:
            click.echo(told)
        return found
    if wrong := dynamics.loops.opened(q, u):
        raise InputError(wrong)
    return q, u


@click.command(cls=Command)
@model_argument
@click.option("--state", type=Path, required=True, help=".npz file with q, u and udot, in the model's joint order.")
@output_option(ARRAYS, ".npz file to write: tau, in the model's joint order; with loops their loads, loop_loads, too.")
@time_option
@click.option(
    "--actuated", help="Bodies whose inboard joints have actuators, by commas: with loops, no others give any force."
)
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@forces_option
@click.pass_obj
def inverse(
    comm: MPI.Comm,
    model: str,
    state: Path,
    output: Path,
    time: float,
    actuated: str | None,
    force: bool,
    forces: tuple[str, ...],
) -> None:
    """Evaluate inverse dynamics of MODEL once: the forces tau, on top of the model's, that accelerations need."""
    import numpy as np
    from mpi4py import MPI

    from mpimbs.dynamics import Dynamics
    from mpimbs.dynamics.compiling import compile_evaluations, compile_inverse
    from mpimbs.parallel.agreement import first_on_node, greatest
    from mpimbs.run.state import PRESCRIBED, own_part, read_state

    system = read_model(comm, model, forces)
    whole = said_together(comm, lambda: read_state(state, system, PRESCRIBED))
    dynamics = Dynamics(system, comm)
    said_on_root(comm, lambda: check_new(output, force, instead=_NOWHERE.format("inverse_dynamics")))
    first_on_node(comm, functools.partial(compile_inverse, dynamics.divided.lanes))
    if system.loops:
        compile_evaluations(dynamics, loads=True, checked=True)
    q, u, _, udot = own_part(dynamics, whole)
    assert udot is not None  # PRESCRIBED has it
    named = None if actuated is None else [name.strip() for name in actuated.split(",")]
    asked = q, u, udot, time, named
    found = None if dynamics.loops is None else dynamics.loads.actuation(*asked)
    part = dynamics.inverse_dynamics(*asked) if found is None else found.tau
    if not comm.allreduce(bool(np.isfinite(part).all()), MPI.LAND):
        raise SimulationError("the forces are not finite: the state is beyond the range of numbers")
    results: dict[str, Any] = {"tau": dynamics.gather_u(part)}
    shapes: dict[str, tuple[int, ...]] = {}
    if found is not None:
        results["loop_loads"], shapes["loop_loads"] = found.loads, (6,)
        again = dynamics.accelerations(q, u, part, time) - udot
        left = greatest(comm, np.array([np.abs(x).max(initial=0.0) for x in (again, udot)]))
        if comm.rank == 0:
            of = "all joints" if named is None else "the actuated joints"
            click.echo(f"forces: of {of}, {'no others do' if found.unique else 'of least norm of those that do'}")
            click.echo(f"put back, they accelerate as asked for to {left[0] / (left[1] or 1.0):.1e} of the largest")
    write_arrays(comm, output, results, shapes)
    dynamics.close()


@click.command(cls=Command)
@model_argument
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
    import numpy as np
    from mpi4py import MPI

    from mpimbs.dynamics import Dynamics
    from mpimbs.dynamics.compiling import compile_joint_space
    from mpimbs.parallel.agreement import first_on_node
    from mpimbs.run.state import COORDINATES, own_part, read_state

    system = read_model(comm, model)
    whole = said_together(comm, lambda: read_state(state, system, COORDINATES) if state else None)
    dynamics = Dynamics(system, comm)
    said_on_root(comm, lambda: check_new(output, force, instead=_NOWHERE.format("inertia_matrix")))
    first_on_node(comm, compile_joint_space)
    q = own_part(dynamics, whole).q
    parts = {"M": dynamics.inertia_matrix(q, form)}
    if inverted:
        parts["M_inverse"] = dynamics.inertia.inverse_matrix(q)
    if not comm.allreduce(all(bool(np.isfinite(part).all()) for part in parts.values()), MPI.LAND):
        raise SimulationError("the matrix is not finite: the state is beyond the range of numbers")
    results = {name: dynamics.inertia.gather_rows(part) for name, part in parts.items()}
    write_arrays(comm, output, results, dict.fromkeys(parts, (system.nu,)))
    dynamics.close()


@click.command("assemble", cls=Command)
@model_argument
@click.option("--state", type=Path, help=".npz file with q and u near them.  [default: the model's initial state]")
@output_option(ARRAYS, ".npz file to write: q and u, in the model's joint order.")
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@forces_option
@click.pass_obj
@coupling_options
def assemble_command(
    comm: MPI.Comm,
    model: str,
    forces: tuple[str, ...],
    state: Path | None,
    output: Path,
    force: bool,
    settings: dict[str, Any],
) -> None:
    """Close the loops of MODEL: write coordinates and speeds near the initial ones that all loops allow."""
    from mpimbs.dynamics import Dynamics
    from mpimbs.dynamics.compiling import compile_evaluations
    from mpimbs.run.state import MOVING, check_speeds, own_part, read_state
    from mpimbs.stepping.projection import changes_told, closed, moved

    system = read_model(comm, model, forces)
    if not system.loops:
        raise InputError(f"'{system.name}' has no loops: there is nothing to close")
    whole = said_together(comm, lambda: read_state(state, system, MOVING) if state else None)
    dynamics = Dynamics(system, comm, **settings)
    said_together(comm, lambda: check_speeds(dynamics.subchain))
    said_on_root(comm, lambda: check_new(output, force, instead=_NOWHERE.format("loops.close_places")))
    compile_evaluations(dynamics)
    mine = dynamics.divided.followed(0.0, *own_part(dynamics, whole)[:2])
    found = closed(dynamics, *mine)
    changes = moved(dynamics, mine, found)
    write_state(dynamics, output, *found)
    if comm.rank == 0:
        click.echo(changes_told(changes) or "loops: they were closed")
    dynamics.close()


@click.command("settle", cls=Command)
@model_argument
@click.option("--state", type=Path, help=".npz file with q, near which to look.  [default: the model's initial state]")
@output_option(ARRAYS, ".npz file to write: q and u, which are zero, in the model's joint order.")
@time_option
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@forces_option
@click.pass_obj
@coupling_options
def settle_command(
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
    import numpy as np

    from mpimbs.dynamics import Dynamics
    from mpimbs.dynamics.compiling import compile_evaluations, compile_implicit
    from mpimbs.dynamics.statics.equilibrium import growth, settle
    from mpimbs.run.state import COORDINATES, check_system, own_part, read_state

    system = read_model(comm, model, forces)
    said_together(comm, lambda: check_system(system))
    whole = said_together(comm, lambda: read_state(state, system, COORDINATES) if state else None)
    dynamics = Dynamics(system, comm, **settings)
    said_on_root(
        comm,
        lambda: check_new(
            output, force, instead="; from Python, mpimbs.dynamics.statics.equilibrium.settle writes none"
        ),
    )
    compile_evaluations(dynamics, loads=True)
    compile_implicit(dynamics)
    q = own_part(dynamics, whole).q
    found = settle(dynamics, q, time)
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


@click.command(cls=Command, name="modes")
@model_argument
@click.option("--state", type=Path, help=".npz file with q, an equilibrium.  [default: the model's initial state]")
@output_option(ARRAYS, ".npz file to write: frequencies (Hz), squares (1/s^2), shapes, residuals, q.")
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
    import numpy as np

    from mpimbs.dynamics import Dynamics
    from mpimbs.dynamics.compiling import compile_evaluations, compile_joint_space
    from mpimbs.dynamics.statics.modes import modes
    from mpimbs.parallel.agreement import first_on_node
    from mpimbs.run.state import COORDINATES, own_part, read_state

    system = read_model(comm, model, forces)
    whole = said_together(comm, lambda: read_state(state, system, COORDINATES) if state else None)
    dynamics = Dynamics(system, comm)

    def check() -> None:
        check_new(output, force, instead="; from Python, modes writes none")
        if picture is not None:
            check_new(picture, force)

    said_on_root(comm, check)
    compile_evaluations(dynamics, loads=bool(system.loops))
    first_on_node(comm, compile_joint_space)
    q = own_part(dynamics, whole).q
    found = modes(dynamics, q, count)
    gathered = dynamics.gather_q(dynamics.divided.followed(0.0, q, np.zeros(dynamics.subchain.nu))[0])
    if comm.rank == 0:
        numbers = zip(found.frequencies, found.squares, found.residuals, strict=True)
        for number, (frequency, square, residual) in enumerate(numbers, 1):
            told = f"{frequency:.9g} Hz" if square >= 0 else f"grows, rate {(-square) ** 0.5:.6g} 1/s"
            told += f", residual {residual:.1e}" if residual < 1.0 else ": zero, to rounding; nothing holds it"
            click.echo(f"mode {number}: {told}")
        click.echo("residual: |K x - w^2 M x| of w^2, which bounds by how much the square w^2 is wrong")
        for line in found.told:
            click.echo(f"note: {line}")
    arrays = {"frequencies": found.frequencies, "squares": found.squares, "shapes": found.shapes, "q": gathered}
    arrays["residuals"] = found.residuals
    write_arrays(comm, output, arrays, {"shapes": (system.nu,)})

    def draw() -> None:
        if picture is not None and gathered is not None:
            from mpimbs.plots.curves import draw_modes, save

            click.echo(f"drew {save(draw_modes(system, gathered, found), picture)}")

    said_on_root(comm, draw)
    dynamics.close()
