"""What samples have: each quantity declared once, for memory, output files, checkpoints of them, pictures and tables.

One more is one more `Quantity` in `DECLARED`: what has a row of it, its unit, and how a rank computes its part. All
else (datasets, `run --sample`, arrays of a `Motion`, `plot`, `export`) comes from that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats

SYSTEM, Q, U, PER_BODY, PER_LOOP, SEPARATED = "system", "q", "u", "body", "loop", "separated joint"  # what has a row
OF_JOINTS = (Q, U)
OF_STRUCTURE = (*OF_JOINTS, PER_LOOP)  # of which there are others after a change of structure


class Kind(NamedTuple):
    """Numbers of a quantity that share axes in a picture."""

    name: str
    unit: str
    labels: tuple[str, ...] = ("",)  # of each number of a row, if these are several
    of: Callable[[Floats], Floats] = lambda rows: rows  # takes them from rows [..., numbers]
    logarithmic: bool = False  # of these the order of magnitude matters


@dataclass(frozen=True, eq=False)
class Quantity:
    """A quantity of samples."""

    name: str  # of its dataset, and of the array that a `Motion` has
    # what has a row: `SYSTEM` (all ranks know it), `Q` or `U` (a number for each), `PER_BODY`, `PER_LOOP` (rank 0 has
    # all of them), `SEPARATED`
    of: str
    unit: str
    about: str
    parts: tuple[str, ...] = ()  # names of the numbers of a row, if these are several
    asked: str = ""  # what users call it; `name` by default. Both serve everywhere.
    kinds: tuple[Kind, ...] = ()  # how it is drawn and named in tables; of `Q` and `U` by unit. Empty: not at all.
    # computes this rank's part [states, ...] of `instants.States`, rows in the order of its bodies; what is there of
    # samples of runs alone is not `copied`. None of what follows from others.
    take: Callable[[Any], Any] | None = None
    evaluates: bool = False  # whether that takes an evaluation of each state
    of_copies: bool = False  # whether ensembles keep it of each copy; see `copied`
    chosen: bool = False  # samples have it where it is asked for; else always, or where `needs` says so
    # what there must be: "loops", "witness", "iterative" (a coupling that solves for constraint loads), "loads" (where
    # these are asked for)
    needs: tuple[str, ...] = ()
    integral_of: str = ""  # of an integral over time the quantity, with a number for each body, that is integrated
    # the quantity from which a motion has it, and how: of rows [..., bodies, numbers] and the centers of mass of these
    # bodies [bodies, 3] (m)
    derived: tuple[str, Callable[[Floats, Floats], Floats]] | None = None

    @property
    def asked_for(self) -> str:
        """The name by which users ask for it."""
        return self.asked or self.name

    @property
    def copied(self) -> bool:
        """Whether ensembles keep it, of each copy."""
        return self.take is not None and (self.of_copies or self.of in (Q, U, PER_BODY, PER_LOOP))

    @property
    def row(self) -> tuple[int, ...]:
        """Shape of the numbers of one row."""
        return (len(self.parts),) if self.parts else ()


def tension(loads: Floats, centers: Floats) -> Floats:
    """Give the pull along each body: of the force by its parent, what points away from the center of mass.

    Parameters
    ----------
    loads : array [..., n, 6]
        Moment and force on each body by its parent, in the body's frame (N m, N).
    centers : array [n, 3]
        Center of mass, from the joint (m). Where it is at the joint there is no direction: the magnitude then.

    Returns
    -------
    array [..., n]
        N; negative for a push.
    """
    force, reach = loads[..., 3:], np.linalg.norm(centers, axis=-1)
    along = -np.einsum("...i,...i->...", force, centers) / np.where(reach > 0, reach, 1.0)
    return np.asarray(np.where(reach > 0, along, np.linalg.norm(force, axis=-1)))


def moment(loads: Floats, centers: Floats) -> Floats:
    """Give the magnitudes [..., n] (N m) of the moments of loads [..., n, 6]."""
    return np.asarray(np.linalg.norm(loads[..., :3], axis=-1))


def _power(at: Any) -> Floats:
    """Give the power of each joint: the forces that drive it times its speeds."""
    bodies, n = np.repeat(np.arange(at.columns.n), np.diff(at.columns.u_offset)), at.columns.n
    return np.array([np.bincount(bodies, row, minlength=n).astype(float) for row in at.joint_forces * at.u])


_NEWTONS = "N m, N m, N m, N, N, N"
_PLACE, _TURN, _LOAD = ("x", "y", "z"), ("qw", "qx", "qy", "qz"), ("mx", "my", "mz", "fx", "fy", "fz")
_AXES = ("x", "y", "z")
_OPEN = ("position", "speed")

DECLARED = (
    Quantity("time", SYSTEM, "s", "time of the sample", asked="t", take=lambda at: at.t),
    Quantity(
        "q", Q, "rad, m, or quaternion w x y z", "joint coordinates, in the model's order", chosen=True,
        take=lambda at: at.q,
        kinds=(Kind("angles", "rad"), Kind("displacements", "m"), Kind("quaternions w x y z", "1")),
    ),
    Quantity(
        "u", U, "rad/s or m/s", "generalized speeds, in the model's order", chosen=True,
        take=lambda at: at.u,
        kinds=(Kind("angular velocities", "rad/s"), Kind("velocities", "m/s")),
    ),
    Quantity(
        "poses", PER_BODY, "m, quaternion w x y z", "position and orientation of each body", _PLACE + _TURN, "pose",
        chosen=True, take=lambda at: at.poses,
        kinds=(
            Kind("position", "m", _AXES, lambda rows: rows[..., :3]),
            Kind("quaternion w x y z", "1", ("w", "x", "y", "z"), lambda rows: rows[..., 3:]),
        ),
    ),
    Quantity(
        "loads", PER_BODY, _NEWTONS,
        "load on each body by its parent through its inboard joint, reaction and what drives the joint together: "
        "moment about the origin of the body frame, then force, in body frame components; the parent receives the "
        "opposite",
        _LOAD, "load", chosen=True, take=lambda at: at.joint_loads, evaluates=True,
        kinds=(
            Kind("force at the joint", "N", _AXES, lambda rows: rows[..., 3:]),
            Kind("moment at the joint", "N m", _AXES, lambda rows: rows[..., :3]),
        ),
    ),
    Quantity(
        "power", PER_BODY, "W",
        "of all that drives the joint (spring, damper, torques, given motion) at its speed: what flows through it into "
        "the motion; negative where it takes energy out",
        chosen=True, take=_power, evaluates=True, kinds=(Kind("power of the joint", "W"),),
    ),
    Quantity(
        "joint_work", PER_BODY, "J",
        "done so far by all that drives the joint: the integral of its power, by Simpson's rule over steps",
        chosen=True, take=lambda at: at.integral("joint_work"), integral_of="power",
        kinds=(Kind("work of the joint", "J"),),
    ),
    Quantity(
        "tension", PER_BODY, "N", "pull along each body, negative for a push", derived=("loads", tension),
        kinds=(Kind("tension", "N"),),
    ),
    Quantity(
        "moment", PER_BODY, "N m", "magnitude of the moment at each joint", derived=("loads", moment),
        kinds=(Kind("moment at the joint", "N m"),),
    ),
    Quantity(
        "energy", SYSTEM, "J", "kinetic, potential (weight from the inertial origin, springs)",
        ("kinetic", "potential"),
        take=lambda at: at.energy, of_copies=True,
        kinds=(
            Kind(
                "energy", "J", ("kinetic", "potential", "total"),
                lambda rows: np.concatenate([rows, rows.sum(axis=-1, keepdims=True)], axis=-1),
            ),
        ),
    ),
    Quantity(
        "work", SYSTEM, "J",
        "done so far by dampers, joint torques, wrenches and functions: energy changes by it",
        take=lambda at: at.work, kinds=(Kind("work", "J"),),
    ),
    Quantity(
        "step_size", SYSTEM, "s",
        "of the step that follows, if the next sample does not shorten it; of copies the smallest",
        take=lambda at: at.step_size, kinds=(Kind("step size", "s", logarithmic=True),),
    ),
    Quantity(
        "constraint_violation", SYSTEM, "1", "largest | |quaternion| - 1 | left by a step, before it was removed",
        take=lambda at: at.norm_error, kinds=(Kind("largest error of a quaternion's norm", "1", logarithmic=True),),
    ),
    Quantity(
        "equation_residual", SYSTEM, "1",
        "largest so far in a sample that was checked: generalized force that accelerations leave over, relative to "
        "those that act on that joint; acceleration that they leave along a constraint of a loop, relative to its "
        "terms",
        ("motion", "loops"), needs=("witness",), take=lambda at: at.residual,
        kinds=(Kind("largest residual so far", "1", ("motion", "loops"), logarithmic=True),),
    ),
    Quantity(
        "loop_violation", PER_LOOP, "m and rad together, m/s and rad/s together",
        "how far each loop is from closed: norm over what its joint holds, of positions and of velocities",
        _OPEN, "violation", needs=("loops",), take=lambda at: at.violations,
        kinds=(
            Kind("how far loops are from closed", "m and rad", of=lambda rows: rows[..., :1], logarithmic=True),
            Kind("speed at which they open", "m/s and rad/s", of=lambda rows: rows[..., 1:], logarithmic=True),
        ),
    ),
    Quantity(
        "loop_loads", PER_LOOP, _NEWTONS,
        "load on the second body of each loop by its joint, reaction and what drives the joint together: moment about "
        "the origin of the joint's frame there, then force, in the components of that body's frame; the first receives "
        "the opposite; where constraints are redundant, of all that do the same the one of least norm",
        _LOAD, "loop_load", needs=("loops", "loads"), take=lambda at: at.loop_loads, evaluates=True,
        kinds=(
            Kind("force of the loop's joint", "N", _AXES, lambda rows: rows[..., 3:]),
            Kind("moment of the loop's joint", "N m", _AXES, lambda rows: rows[..., :3]),
        ),
    ),
    Quantity(
        "iterations", SYSTEM, "1", "iterations of an evaluation, on average since the sample before",
        needs=("iterative",), take=lambda at: [found.iterations for found in at.solutions],
        evaluates=True, kinds=(Kind("iterations", "1"),),
    ),
    Quantity(
        "residual", SYSTEM, "1", "residual of the constraint-load equations over the right-hand side",
        needs=("iterative",), take=lambda at: [found.residual for found in at.solutions], evaluates=True,
        kinds=(Kind("residual of the constraint loads", "1", logarithmic=True),),
    ),
    Quantity(
        "condition", SYSTEM, "1", "estimated condition number of the constraint-load equations",
        needs=("iterative",), take=lambda at: [found.condition for found in at.solutions], evaluates=True,
        kinds=(Kind("condition of the constraint loads", "1", logarithmic=True),),
    ),
    Quantity(
        "constraint_loads", SEPARATED, "N m or N", "constraint loads at the separated joints, as the model says",
        needs=("iterative",), take=lambda at: [found.constraint_loads for found in at.solutions], evaluates=True,
    ),
)  # fmt: skip
QUANTITIES = {quantity.name: quantity for quantity in DECLARED}
CALLED = {quantity.asked_for: quantity for quantity in DECLARED} | QUANTITIES  # by any name that serves
