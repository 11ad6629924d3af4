"""A loop joint that follows a given motion, as a joint of the tree that does, and a loop that is rigid."""

from __future__ import annotations

from mpimbs.base.errors import InputError
from mpimbs.model.body import Body, Loop
from mpimbs.model.joint import Joint

ORIGIN, STRAIGHT = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
NO_INERTIA = (0.0,) * 6


def driven_parts(loop: Loop) -> tuple[Body, Loop]:
    """Give what follows the motion, a body without mass on the loop's first, and what holds the second to it.

    Raises
    ------
    InputError
        The loop does not hold from the begin on.
    """
    if not loop.active:
        raise InputError(
            f"loop {loop.name!r}: has a motion, and is not active from the begin on; leave one of them out"
        )
    (first, second), (here, there), (turned, other) = loop.bodies, loop.positions, loop.rotations
    keys = ("type", "axis", "pitch", "stiffness", "cross_stiffness", "damping", "rest", "torque", "motion")
    given = {key: getattr(loop, key) for key in keys if key in loop.model_fields_set}
    joint = Joint(**given, position=here, rotation=turned)
    name = f"{loop.name} drive"
    body = Body(name=name, parent=first, mass=0, inertia=NO_INERTIA, joint=joint)
    ends = {"bodies": (name, second), "positions": (ORIGIN, there), "rotations": (STRAIGHT, other)}
    return body, Loop(name=loop.name, type="fixed", **ends)
