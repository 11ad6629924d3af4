"""The command that says what a model is, `mpimbs check`."""

from __future__ import annotations

import bisect
import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpimbs.base.errors import InputError
from mpimbs.base.places import check_folder
from mpimbs.cli.options import read_model
from mpimbs.cli.words import Command, said_on_root, said_together
from mpimbs.coupling import COUPLINGS

if TYPE_CHECKING:
    from mpi4py import MPI

    from mpimbs.model.contents import Contents

TELLING = 1e8  # bytes, beyond which memory is spoken of
MOST_SPRINGS = 10  # that are told of one by one


@click.command(cls=Command)
@click.argument("model")
@click.option(
    "--accuracy",
    is_flag=True,
    help="Measure what accelerations leave of the equations of motion, and, without loops, what the couplings lose.",
)
@click.option("--ranks", type=click.IntRange(min=1), help="Say which bodies each of so many ranks would own.")
@click.option("--pictures", type=Path, help="Folder for a picture of that, partition.png.")
@click.option("--force", is_flag=True, help="Replace an existing picture.")
@click.option("--coordinates", is_flag=True, help="Say of each body which of q and u are its joint's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object of what the model is, and nothing else.")
@click.pass_obj
def check(
    comm: MPI.Comm,
    model: str,
    accuracy: bool,
    ranks: int | None,
    pictures: Path | None,
    force: bool,
    coordinates: bool,
    as_json: bool,
) -> None:
    """Validate MODEL, say what it is, and warn of couplings that are unfit for it."""
    from mpimbs.bench.accuracy import fitness
    from mpimbs.coupling import unavailable
    from mpimbs.dynamics.resources import ranks_on_node
    from mpimbs.model.summary import validate

    system = read_model(comm, model, need=None)
    said_together(comm, lambda: validate(system))
    if as_json:
        if accuracy or coordinates or ranks is not None or pictures is not None:
            more = "--accuracy, --coordinates, --ranks and --pictures"
            raise InputError(f"--json: gives what the model is; leave {more} out")
        if comm.rank == 0:
            click.echo(json.dumps(_facts(system)))
        return
    here = ranks_on_node(comm)
    owned = said_on_root(comm, lambda: _owned(system, ranks, pictures, force))
    measured = said_on_root(comm, lambda: fitness(system)) if accuracy and not system.loops else None
    residual = _residual(system, comm) if accuracy else ""
    if comm.rank == 0:
        for line in (*_description(system, comm.size, here), *_joints_read(system), *(owned or ())):
            click.echo(line)
        for row in measured or ():
            better = "--coupling dcae" if row.coupling != "dcae" else "--coupling lanes=1, which is the serial sweep"
            verdict = "" if row.fit else f"  UNFIT: choose {better}"
            click.echo(f"{row.coupling:13s} {row.shape:9s} differs from the serial sweep by {row.error:.1e}{verdict}")
        for name in () if measured is None else COUPLINGS:
            if reason := unavailable(name):
                click.echo(f"{name:13s} left out: {reason}")
        if residual:
            click.echo(residual)
        for line in _coordinates(system) if coordinates else ():
            click.echo(line)


def _residual(system: Contents, comm: MPI.Comm) -> str:
    """Say what accelerations leave of the equations of motion in the initial state, closed; all ranks call."""
    from mpimbs.dynamics import Dynamics
    from mpimbs.dynamics.compiling import compile_evaluations
    from mpimbs.stepping.projection import closed

    with contextlib.closing(Dynamics(system, comm)) as dynamics:
        compile_evaluations(dynamics, checked=True)
        q, u = dynamics.divided.followed(0.0, dynamics.subchain.q, dynamics.subchain.u)
        found = dynamics.loads.residual(*(closed(dynamics, q, u) if dynamics.loops is not None else (q, u)))
        wrong = found.judged(dynamics.divided.coupling)
        return f"note: {wrong}" if wrong else found.told()


def _coordinates(system: Contents) -> Iterator[str]:
    """Name the body of each coordinate and speed, in the order of vectors, with the units."""
    from mpimbs.model import JOINT_TYPES

    q, u = (offsets.tolist() for offsets in system.offsets())
    joints = {joint.u: joint.name for joint in system.coordinates}
    for k, kind in enumerate(system.joint_types().tolist()):
        joint = JOINT_TYPES[kind]
        parts = (("q", q, joint.q_units), ("u", u, joint.u_units))
        places = (
            f"{name}[{at[k]}{f':{at[k + 1]}' if len(units) > 1 else ''}] ({', '.join(units)})"
            for name, at, units in parts
            if units
        )
        named = ", ".join(joints[at] for at in range(u[k], u[k + 1]) if at in joints)
        title = f"body '{system.name_of(k)}', {joint.name}{f' ({named})' if named else ''}"
        yield f"{title}: {', '.join(places) or 'no coordinates'}"


def _joints_read(system: Contents) -> Iterator[str]:
    """A table of the joints of a robot's file: where each is in q and u, and what it has."""
    if not system.coordinates:
        return
    rows: list[tuple[str, ...]] = [
        ("joint", "kind", "body", "q", "u", "limits (rad, m)", "damping", "armature", "friction", "actuators")
    ]
    begins = system.offsets()[1].tolist()
    for read in system.coordinates:
        k = bisect.bisect_right(begins, read.u) - 1
        joint, first = system.body(k).joint, read.u - begins[k]
        own = slice(first, first + 1 if read.kind in ("hinge", "slide") else None)
        of_joint = (max(getattr(joint, name)[own], default=0.0) for name in ("damping", "armature"))
        limits = "-" if read.limits is None else "{:.4g} to {:.4g}".format(*read.limits)
        numbers = (f"{value:.4g}" if value else "-" for value in (*of_joint, read.friction))
        driven = ", ".join(read.actuators) or "-"
        rows.append((read.name, read.kind, system.name_of(k), str(read.q), str(read.u), limits, *numbers, driven))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _facts(system: Contents) -> dict[str, Any]:
    """Describe a model by plain numbers and texts."""
    from mpimbs.closure.report import loop_report
    from mpimbs.forces.motions import initial_motion
    from mpimbs.model.summary import summarise

    return asdict(summarise(system)) | (
        {"closure": loop_report(system, initial_motion(system)).numbers()} if system.loops else {}
    )


def _owned(system: Contents, ranks: int | None, pictures: Path | None, force: bool) -> list[str]:
    """Say which bodies each of so many ranks would own, and draw it in a folder; nothing where neither is asked for."""
    if ranks is None:
        if pictures is not None:
            raise InputError("--pictures: what is drawn is which rank owns what; say of how many with --ranks")
        return []
    from mpimbs.partition.shares import shares, table_of_shares

    found = shares(system, ranks)
    if pictures is None:
        return table_of_shares(system, *found)
    from mpimbs.plots.curves import save
    from mpimbs.plots.partition_pictures import PARTITION_FILE, draw_partition

    check_folder(pictures, [PARTITION_FILE], force, "pictures")
    drawn = save(draw_partition(system, *found), pictures / PARTITION_FILE)
    return [*table_of_shares(system, *found), f"drew {drawn}"]


def _description(system: Contents, ranks: int, here: int) -> Iterator[str]:
    """Describe a model in lines: its parts, defaults that it relies on, memory, and what is rarely meant."""
    from mpimbs.bench.accuracy import notes
    from mpimbs.bench.motionless import motionless
    from mpimbs.dynamics.resources import EVALUATION, SIMULATION, free_memory, gigabytes
    from mpimbs.model.summary import comma_list, nothing_acts, summarise

    found = summarise(system)
    kinds = ", ".join(f"{count} {name}" for name, count in found.joint_types.items())
    opened = " with its loops opened" if found.loops else ""
    freedoms = f"{found.degrees_of_freedom} degrees of freedom{opened}"
    yield f"{found.name}: {found.topology} of {found.bodies} bodies, {freedoms}"
    yield f"joints: {kinds}; longest branch: {found.depth} bodies; mass: {found.total_mass:.6g} kg"
    yield f"gravity: {' '.join(f'{g:g}' for g in found.gravity)} m/s^2"
    yield from _springs(system)
    yield from _tendons(system)
    yield from _loops(system)
    yield from (f"event: {event.told}" for event in system.events)
    if found.default_axes:
        yield f"axis left out, so z of the joint frame: {comma_list(found.default_axes)}"
    evaluation, simulation, left = EVALUATION.of(system, ranks), SIMULATION.of(system, ranks), free_memory()
    if simulation * here > min(left, TELLING):
        each = f"on each of {ranks} ranks" if ranks > 1 else "on 1 rank"
        yield (
            f"memory: about {gigabytes(evaluation)} for an evaluation, {gigabytes(simulation)} to simulate, {each}; "
            f"this machine has {gigabytes(left)} left"
        )
        if simulation * here > left:
            yield f"note: too large to {'evaluate' if evaluation * here > left else 'simulate'} here on {ranks} rank(s)"
    never = [] if nothing_acts(system) else motionless(system)
    if never:
        yield (
            f"note: these joints never move, whatever the others do: {comma_list(never)}; if that isn't meant, look at "
            "gravity, axis, q and u"
        )
    for warning in (*found.warnings, *notes(system)):
        yield f"note: {warning}"


def _loops(system: Contents) -> Iterator[str]:
    """The loops of a system, as they begin."""
    if system.loops:
        from mpimbs.closure.report import loop_report, told_loops
        from mpimbs.forces.motions import initial_motion

        yield from told_loops(loop_report(system, initial_motion(system)))


def _tendons(system: Contents) -> Iterator[str]:
    """The tendons over joints of a system, as they begin."""
    from mpimbs.forces.tendons import initial_lengths

    tendons = list(system.loads.tendons.values())
    lengths = initial_lengths(system).tolist() if tendons else []
    for tendon, length in zip(tendons[:MOST_SPRINGS], lengths, strict=False):
        yield f"tendon {tendon.name!r}: over {', '.join(map(repr, tendon.joints))}, length {length:.6g}"
    if len(tendons) > MOST_SPRINGS:
        yield f"{len(tendons) - MOST_SPRINGS} more tendons"


def _springs(system: Contents) -> Iterator[str]:
    """The springs between bodies of a system, as they begin."""
    from mpimbs.forces.springs import initial_springs
    from mpimbs.model.summary import comma_list

    found = initial_springs(system) if system.springs else []
    for spring, length, tension in found[:MOST_SPRINGS]:
        between = " to ".join(map(repr, spring.bodies))
        yield f"spring {spring.name!r}: {between}, length {length:.6g} m, tension {tension:.6g} N"
    more = found[MOST_SPRINGS:]
    if more:
        (shortest, longest), (least, most) = ((min(v), max(v)) for v in list(zip(*more, strict=True))[1:])
        yield f"{len(more)} more springs: length {shortest:.6g} to {longest:.6g} m, tension {least:.6g} to {most:.6g} N"
    at_one = [repr(spring.name) for spring, length, _ in found if length == 0 and spring.has_force_at_zero]
    if at_one:
        yield (
            f"note: the points of spring {comma_list(at_one)} coincide, where it has no direction and no force; begin "
            "with them apart, or give rest = 0"
        )
