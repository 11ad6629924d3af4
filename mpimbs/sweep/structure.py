"""The arrays that the sweeps run over: what is fixed of a subchain, and what an evaluation writes.

A body is one step, or several where its joint turns about axes of more than one frame (a universal joint: x, then y). A
step is a frame, the unit axes freed in it, and the body that it carries (none, for all but the last step of a joint).
Steps are in depth-first order: a step's parent is the step before it, or else a junction: the boundary (junction 0,
handle 1 of the subchain) or a step with several children, whose motion and gathered loads are kept in a slot.
Arrays are flat; for W lanes every number is W doubles, [item, lane].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.memory import Rows, schema

# Numbers per step or degree of freedom in the flat arrays.
FIXED = 22  # joint frame in the parent's: rotation 9, position 3; body: A 6, h 3, m 1
ADDED = 21  # inertia that is no rigid body's: the upper triangle of a symmetric 6x6 matrix
PLACE = 12  # rotation 9, position 3: the frame change from the parent's frame to the step's
BIAS = 12  # velocity-dependent acceleration 6, bias force 6
PIVOT = 16  # U 6, 1 / D, u, s 6 and the two spare numbers of a row
ELIMINATED = 21  # articulated inertia after the elimination of the step's axes
JUNCTION = 45  # articulated inertia 21 and bias force 6 of the children; motion 6; pose 12
GATHERED = 27  # what hangs on a body hands to it: articulated inertia 21, bias force 6
TURNING = 12  # boundary turn: rotation 9, angular velocity 3
BOUNDARY = 18  # boundary motion, for output: rotation 9, position 3, twist 6

# Columns of `Structure.steps`.
TURN, SLIDES, FIRST_Q, FIRST_U, LAST_U, SOURCE, SINK, BODY = range(8)
HELD = 2.0**100  # kg m^2 or kg: armature of an axis that follows a given motion; others vanish beside it
FROM_BEFORE = -1  # SOURCE: the parent is the step before


class Structure(NamedTuple):
    """The joints and bodies of a subchain of m steps and nu degrees of freedom, which never change during a run."""

    steps: Rows  # [m, 8]: the columns above; BODY is the item of `fixed` that a step is made by
    axes: Integers  # [nu]: unit axis of each degree of freedom, 0..5
    fixed: Floats  # [different bodies * FIXED]
    pitch: Floats  # [nu]: m/rad
    armature: Floats  # [nu]: kg m^2 or kg, HELD of an axis that follows; empty where there is none at all
    path: Integers  # the steps from handle 1 to handle 2, of a chain all
    added: Floats  # [different bodies * ADDED]: what bodies are heavier by, as steps feel it; empty where none is


class Springs(NamedTuple):
    """Joint forces of the model, per generalized speed; empty arrays where there are none at all."""

    stiffness: Floats  # [nu]: N m/rad or N/m
    rest: Floats  # [nq]: the coordinates at which the springs are at ease; empty with `stiffness`
    damping: Floats  # [nu]: N m s/rad or N s/m
    torque: Floats  # [nu]: N m or N; empty with `damping`
    cross: Floats  # [nu]: xy, xz, yz of the stiffness about a ball (N m/rad); empty where it is diagonal everywhere
    lower: Floats  # [nu]: where the way of each coordinate ends, rad or m; infinite where it doesn't
    upper: Floats  # [nu]
    stop_stiffness: Floats  # [nu]: N m/rad or N/m; empty with `lower` and `upper`
    stop_damping: Floats  # [nu]: N m s/rad or N s/m
    servo_torque: Floats  # [nu]: N m or N; 0, without ends of their range, of servos whose torque is a function of time
    servo_stiffness: Floats  # [nu]: N m/rad or N/m; empty with `servo_torque`, as all below
    servo_damping: Floats  # [nu]: N m s/rad or N s/m
    servo_least: Floats  # [nu]: N m or N; infinite where the range has no end
    servo_most: Floats  # [nu]
    friction: Floats  # [nu]: N m or N
    rubbing: Floats  # [nu]: its damping at low speeds, N m s/rad or N s/m


class Workspace(NamedTuple):
    """The arrays that an evaluation writes, allocated once."""

    place: Floats  # [m * PLACE]
    bias: Floats  # [m * BIAS]
    pivot: Floats  # [nu * PIVOT]
    wrench: Floats  # [m * 6]: external wrench at the step's origin, in its frame (N m, N); empty where none acts
    junction: Floats  # [junctions * JUNCTION]


class Handles(NamedTuple):
    """The first fields of every part's table: what the part gives to the scan and the coupling, and is given by
    them."""

    turn: Floats  # [TURNING], written: boundary turn of the whole part
    blocks: Floats  # [count * SIZE], written: handle equations of its subchains, in the form that its coupling joins
    loads: Floats  # [count * 12]: A1 and f2 of each


class BeginOfPart(NamedTuple):
    """The begin of the table of every part."""

    handles: Handles


HANDLES = schema(BeginOfPart).handles


def workspace(
    steps: int, speeds: int, junctions: int, width: int = 1, dtype: npt.DTypeLike = np.float64, wrenches: bool = True
) -> Workspace:
    """Allocate the arrays that an evaluation writes.

    Parameters
    ----------
    steps, speeds, junctions : int
        Sizes of the structure.
    width : int
        Doubles per number: 1, or the number of lanes.
    dtype : numpy dtype
        float64, or object for uncompiled kernels with other numbers.
    wrenches : bool
        Whether wrenches act on bodies.
    """
    sizes = (steps * PLACE, steps * BIAS, speeds * PIVOT, steps * 6 * wrenches, junctions * JUNCTION)
    return Workspace(*(np.zeros(size * width, dtype) for size in sizes))
