"""A system of which only the inertia is left: what implicit steps are solved with."""

from __future__ import annotations

import copy

from mpimbs.model.body import Body
from mpimbs.model.system import System


def resting(system: System, apart: bool = False) -> System:
    """Give a copy on which nothing acts, whose joints have room for more inertia where they have springs or dampers.

    Weight, torques, wrenches, functions, springs between bodies, what drives loops and events are left out; springs and
    dampers of joints stay, to be read. Their coefficients are added to the rotors: numbers that are not to be used as
    they are (`implicit_matrix.ImplicitMatrix` overwrites them).

    `apart`: as `Contents.apart`.
    """
    left = copy.copy(system)
    left.apart = apart
    left.segments = system.segments.replaced(_resting)
    left.gravity = (0.0, 0.0, 0.0)
    left.events, left.springs, left.spring_bodies = [], {}, []
    left.torques, left.wrenches = {}, {}
    left.joint_forces, left.body_forces, left.force_modules = [], [], []
    acting = "stiffness", "damping", "torque"
    left.hold(
        [loop.model_copy(update=dict.fromkeys(acting, (0.0,) * loop.kind.nu)) for loop in system.loops],
        system.loop_bodies,
    )
    return left


def _resting(body: Body) -> Body:
    joint = body.joint
    heavier = tuple(map(sum, zip(joint.armature, joint.stiffness, joint.damping, strict=True)))
    still = joint.model_copy(update={"armature": heavier, "torque": (0.0,) * joint.kind.nu})
    return body.model_copy(update={"joint": still, "wrench": ()})
