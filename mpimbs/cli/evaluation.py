"""The commands that evaluate a state, `mpimbs acceleration | inverse | inertia`; the one that closes its loops,
`mpimbs assemble`; those about equilibria, `mpimbs settle | modes`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mpimbs.base.errors import InputError, SimulationError
from mpimbs.base.places import check_new
from mpimbs.base.settings import DOUBLING, FORMS
from mpimbs.cli.options import (
    ARRAYS,
    coupling_options,
    forces_option,
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

    from mpimbs.dynamics import Dynamics
    from mpimbs.run.state import State, StateArrays

EXAMINED = 4000  # speeds, of which modes take a second or two
EXAMINED_LOOPED = 1000  # the same, with loops
_INITIAL = "  [default: the model's initial state]"


class Question(NamedTuple):
    """What is asked of MODEL in a state: what the commands here have in common."""

    comm: MPI.Comm
    model: str
    state: Path | None
    output: Path
    force: bool
    forces: tuple[str, ...]
    settings: dict[str, Any]

    def begin(self, needed: StateArrays, instead: str, also: Path | None = None) -> tuple[Dynamics, State]:
        """Give the `Dynamics` and this rank's part of the state; files are looked at before anything is compiled."""
        from mpimbs.dynamics import Dynamics
        from mpimbs.run.state import own_part, read_state

        system = read_model(self.comm, self.model, self.forces)
        whole = said_together(self.comm, lambda: read_state(self.state, system, needed) if self.state else None)
        dynamics = Dynamics(system, self.comm, **self.settings)

        def check() -> None:
            check_new(self.output, self.force, instead=f"; from Python, {instead} writes none")
            if also is not None:
                check_new(also, self.force)

        said_on_root(self.comm, check)
        return dynamics, own_part(dynamics, whole)

    def check_finite(self, what: str, *parts: Any) -> None:
        """Refuse results that are not finite, of all ranks."""
        import numpy as np
        from mpi4py import MPI

        if not self.comm.allreduce(all(bool(np.isfinite(part).all()) for part in parts), MPI.LAND):
            raise SimulationError(f"the {what} not finite: the state is beyond the range of numbers")


def question(
    state: str, written: str, name: str | None = None, coupled: bool = True, required: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function of a `Question` and of options of its own; texts say what its files hold."""

    def make(action: Callable[..., None]) -> click.Command:
        @functools.wraps(action)
        def asked(comm: MPI.Comm, settings: dict[str, Any] | None = None, **given: Any) -> None:
            common = {key: given.pop(key) for key in ("model", "state", "output", "force", "forces")}
            action(Question(comm, **common, settings=settings or {}), **given)

        made: Any = click.pass_obj(coupling_options(asked) if coupled else asked)
        made = click.option("--force", is_flag=True, help="Replace existing files.")(forces_option(made))
        made = output_option(ARRAYS, f".npz file to write: {written}.")(made)
        made = click.option(
            "--state", type=Path, required=required, help=f".npz file, or output of a run, with {state}"
        )(made)
        return click.command(name, cls=Command)(click.argument("model")(made))

    return make


@question(f"q, u and optionally tau.{_INITIAL}", "udot, in the model's joint order")
@time_option
@click.option("--loads", is_flag=True, help="Write the loads through the joints too, and those of loops.")
@click.option("--close", is_flag=True, help="Close loops first, positions and speeds, as `assemble` does.")
def acceleration(asked: Question, time: float, loads: bool, close: bool) -> None:
    """Evaluate forward dynamics of MODEL once."""
    from mpimbs.dynamics.compiling import compile_evaluations
    from mpimbs.run.state import WITH_FORCES, check_speeds

    dynamics, own = asked.begin(WITH_FORCES, "Dynamics.accelerations")
    said_together(asked.comm, lambda: check_speeds(dynamics.subchain))
    note_lanes(asked.comm, dynamics.system, asked.settings)
    compile_evaluations(dynamics, loads, checked=True)
    mine: tuple[Any, ...] = own.q, own.u, own.tau, time
    if dynamics.loops is not None:
        mine = (*_fitting(dynamics, *dynamics.divided.followed(time, *mine[:2]), close), *mine[2:])
    parts, gathers = {"udot": dynamics.accelerations(*mine)}, {"udot": dynamics.gather_u}
    carried = dynamics.loads.joints_and_loops(*mine) if loads else None
    if carried is not None:
        parts["loads"], gathers["loads"] = carried.joints, dynamics.divided.gather_bodies(6)
    asked.check_finite("accelerations are", *parts.values())
    residual = dynamics.loads.residual(mine[0], mine[1], parts["udot"], *mine[2:])
    if wrong := residual.judged(dynamics.divided.coupling):
        raise SimulationError(wrong)
    results: dict[str, Any] = {name: gathers[name](part) for name, part in parts.items()}
    if carried is not None and carried.loops is not None:
        parts["loop_loads"] = results["loop_loads"] = carried.loops
    if asked.comm.rank == 0:
        click.echo(residual.told())
    write_arrays(asked.comm, asked.output, results, {name: part.shape[1:] for name, part in parts.items()})
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


@question(
    "q, u and udot, in the model's joint order.",
    "tau, in the model's joint order; with loops their loads, loop_loads, too",
    coupled=False,
    required=True,
)
@time_option
@click.option(
    "--actuated", help="Bodies whose inboard joints have actuators, by commas: with loops, no others give any force."
)
def inverse(asked: Question, time: float, actuated: str | None) -> None:
    """Evaluate inverse dynamics of MODEL once: the forces tau, on top of the model's, that accelerations need."""
    import numpy as np

    from mpimbs.dynamics.compiling import compile_evaluations, compile_inverse
    from mpimbs.parallel.agreement import first_on_node, greatest
    from mpimbs.run.state import PRESCRIBED

    comm = asked.comm
    dynamics, (q, u, _, udot) = asked.begin(PRESCRIBED, "Dynamics.inverse_dynamics")
    first_on_node(comm, functools.partial(compile_inverse, dynamics.divided.lanes))
    if dynamics.loops is not None:
        compile_evaluations(dynamics, loads=True, checked=True)
    assert udot is not None  # PRESCRIBED has it
    named = None if actuated is None else [name.strip() for name in actuated.split(",")]
    given = q, u, udot, time, named
    found = None if dynamics.loops is None else dynamics.loads.actuation(*given)
    part = dynamics.inverse_dynamics(*given) if found is None else found.tau
    asked.check_finite("forces are", part)
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
    write_arrays(comm, asked.output, results, shapes)
    dynamics.close()


@question(f"q.{_INITIAL}", "M, its rows and columns in the model's joint order", coupled=False)
@click.option("--form", type=click.Choice(FORMS), default=DOUBLING, help="How ranks learn what hangs on their bodies.")
@click.option("--inverse", "inverted", is_flag=True, help="Write the inverse too, as M_inverse.")
def inertia(asked: Question, form: str, inverted: bool) -> None:
    """Write the joint-space inertia matrix of MODEL, of its spanning tree."""
    from mpimbs.dynamics.compiling import compile_joint_space
    from mpimbs.parallel.agreement import first_on_node
    from mpimbs.run.state import COORDINATES

    dynamics, (q, *_) = asked.begin(COORDINATES, "Dynamics.inertia_matrix")
    first_on_node(asked.comm, compile_joint_space)
    parts = {"M": dynamics.inertia_matrix(q, form)}
    if inverted:
        parts["M_inverse"] = dynamics.inertia.inverse_matrix(q)
    asked.check_finite("matrix is", *parts.values())
    results = {name: dynamics.inertia.gather_rows(part) for name, part in parts.items()}
    write_arrays(asked.comm, asked.output, results, dict.fromkeys(parts, (dynamics.system.nu,)))
    dynamics.close()


@question(f"q and u near them.{_INITIAL}", "q and u, in the model's joint order", "assemble")
def assemble_command(asked: Question) -> None:
    """Close the loops of MODEL: write coordinates and speeds near the initial ones that all loops allow."""
    from mpimbs.dynamics.compiling import compile_evaluations
    from mpimbs.run.state import MOVING, check_speeds
    from mpimbs.stepping.projection import changes_told, closed, moved

    dynamics, own = asked.begin(MOVING, "Dynamics.loops.close_places")
    if dynamics.loops is None:
        raise InputError(f"'{dynamics.system.name}' has no loops: there is nothing to close")
    said_together(asked.comm, lambda: check_speeds(dynamics.subchain))
    compile_evaluations(dynamics)
    mine = dynamics.divided.followed(0.0, *own[:2])
    found = closed(dynamics, *mine)
    changes = moved(dynamics, mine, found)
    write_state(dynamics, asked.output, *found)
    if asked.comm.rank == 0:
        click.echo(changes_told(changes) or "loops: they were closed")
    dynamics.close()


@question(f"q, near which to look.{_INITIAL}", "q and u, which are zero, in the model's joint order", "settle")
@time_option
def settle_command(asked: Question, time: float) -> None:
    """Find a static equilibrium of MODEL near its initial state."""
    import numpy as np

    from mpimbs.dynamics.compiling import compile_evaluations, compile_implicit
    from mpimbs.dynamics.statics.equilibrium import growth, settle
    from mpimbs.run.state import COORDINATES, check_system

    dynamics, (q, *_) = asked.begin(COORDINATES, "mpimbs.dynamics.statics.equilibrium.settle")
    system = dynamics.system
    said_together(asked.comm, lambda: check_system(system))
    compile_evaluations(dynamics, loads=True)
    compile_implicit(dynamics)
    found = settle(dynamics, q, time)
    most = EXAMINED_LOOPED if system.loops else EXAMINED
    unstable = growth(dynamics, found.q) if system.nu <= most else None
    write_state(dynamics, asked.output, found.q, np.zeros(dynamics.subchain.nu))
    if asked.comm.rank == 0:
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


@question(
    f"q, an equilibrium.{_INITIAL}", "frequencies (Hz), squares (1/s^2), shapes, residuals, q", "modes", coupled=False
)
@click.option("-k", "--count", type=click.IntRange(min=1), default=10, help="How many of the lowest modes.")
@click.option("--picture", type=Path, help="PNG file to draw the shapes in.")
def modes_command(asked: Question, count: int, picture: Path | None) -> None:
    """Find the lowest natural frequencies of MODEL about an equilibrium, and the shapes of these modes."""
    import numpy as np

    from mpimbs.dynamics.compiling import compile_evaluations, compile_joint_space
    from mpimbs.dynamics.statics.modes import modes
    from mpimbs.parallel.agreement import first_on_node
    from mpimbs.run.state import COORDINATES

    comm = asked.comm
    dynamics, (q, *_) = asked.begin(COORDINATES, "modes", picture)
    system = dynamics.system
    compile_evaluations(dynamics, loads=bool(system.loops))
    first_on_node(comm, compile_joint_space)
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
    write_arrays(comm, asked.output, arrays, {"shapes": (system.nu,)})

    def draw() -> None:
        if picture is not None and gathered is not None:
            from mpimbs.plots.curves import draw_modes, save

            click.echo(f"drew {save(draw_modes(system, gathered, found), picture)}")

    said_on_root(comm, draw)
    dynamics.close()
