"""Energy and momentum of the bodies of a subchain: one outward sweep over poses and twists."""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.inertia import momentum
from mpimbs.spatial.lanes import load, width
from mpimbs.spatial.vectors import (
    add3,
    add6,
    cross,
    dot3,
    dot6,
    load3,
    load6,
    load9,
    motion_outward,
    rotate_back,
    scale3,
    store6,
)
from mpimbs.sweep.motion import MOTION, joint_twist
from mpimbs.sweep.structure import BODY, FIXED, JUNCTION, PLACE, SINK, SOURCE


@kernel
def totals(zero, structure, work, u, gravity, twist, pose):
    """Kinetic energy, potential energy of weight, linear and angular momentum.

    Parameters
    ----------
    gravity : 3-tuple
        In the inertial frame (m/s^2).
    twist : 6-tuple
        Twist of handle 1, in its frame.
    pose : array [m * PLACE]
        As `poses` writes it.

    Returns
    -------
    (kinetic, potential, linear, angular)
        J, J (zero at the inertial origin), N s and N m s about the inertial origin, in the inertial frame.
    """
    store6(zero, work.junction, MOTION, twist)
    v = twist
    kinetic = zero
    potential = zero
    linear = (zero, zero, zero)
    angular = (zero, zero, zero)
    for step in range(structure.steps.shape[0]):
        source = structure.steps[step, SOURCE]
        if source >= 0:
            v = load6(zero, work.junction, source * JUNCTION + MOTION)
        r = load9(zero, work.place, step * PLACE)
        p = load3(zero, work.place, step * PLACE + 9)
        v = add6(motion_outward(r, p, v), joint_twist(zero, structure, step, u))
        fixed = structure.steps[step, BODY] * FIXED
        a = load6(zero, structure.fixed, fixed + 12)
        h = load3(zero, structure.fixed, fixed + 18)
        m = load(zero, structure.fixed, (fixed + 21) * width(zero))
        body = momentum(a, h, m, v)
        kinetic = kinetic + 0.5 * dot6(v, body)
        rotation = load9(zero, pose, step * PLACE)
        position = load3(zero, pose, step * PLACE + 9)
        potential = potential - dot3(gravity, add3(scale3(m, position), rotate_back(rotation, h)))
        here = rotate_back(rotation, body[3:6])
        linear = add3(linear, here)
        angular = add3(angular, add3(rotate_back(rotation, body[0:3]), cross(position, here)))
        sink = structure.steps[step, SINK]
        if sink >= 0:
            store6(zero, work.junction, sink * JUNCTION + MOTION, v)
    return kinetic, potential, linear, angular
