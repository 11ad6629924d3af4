"""Systems of which only the inertia is left: what implicit steps are solved with, and factors without load sweeps."""

from __future__ import annotations

import copy
from itertools import pairwise

from mpimbs.model.body import Body, Loop
from mpimbs.model.joint import Joint
from mpimbs.model.system import System


def resting(system: System, apart: bool = False) -> System:
    """Give a copy on which nothing acts, whose joints have room for more inertia where they have springs or dampers.

    Weight, torques, wrenches, functions, springs between bodies, what drives loops and events are left out; springs and
    dampers of joints stay, to be read. Their coefficients are added to the rotors, which stand in place of the torques:
    numbers that are not to be used as they are (`implicit_matrix.ImplicitMatrix` overwrites them).

    `apart`: as `Contents.apart`.
    """
    left = copy.copy(system)
    left.apart = apart
    left.segments = system.segments.replaced(_with_room)
    left.gravity = (0.0, 0.0, 0.0)
    left.events, left.springs, left.spring_bodies = [], {}, []
    left.torques, left.wrenches = {}, {}
    left.joint_forces, left.body_forces, left.force_modules = [], [], []
    undriven = [loop.model_copy(update=_nothing(loop)) if isinstance(loop, Loop) else loop for loop in system.loops]
    left.hold(undriven, system.loop_bodies)
    return left


def numbered(system: System) -> System:
    """Give the same without loops and springs, whose speeds are told apart: the torque of each is its number, from 1.

    All joints have room for rotors: numbers that are not to be used as they are, nor are the torques.
    """
    left = resting(system)
    left.segments = system.segments.replaced(_with_rotors)
    left.hold([], [])
    ends = system.offsets()[1].tolist()
    left.torques = {k: tuple(map(float, range(a + 1, b + 1))) for k, (a, b) in enumerate(pairwise(ends)) if b > a}
    return left


def _with_room(body: Body) -> Body:
    joint = body.joint
    room = tuple(map(sum, zip(joint.armature, joint.stiffness, joint.damping, strict=True)))
    return _changed(body, {"armature": room, "torque": joint.armature})


def _with_rotors(body: Body) -> Body:
    return _changed(body, _nothing(body.joint) | {"armature": (1.0,) * body.joint.kind.nu})


def _nothing(joint: Joint | Loop) -> dict[str, tuple[float, ...]]:
    """The keys of what acts along a joint, for a joint along which nothing does."""
    return dict.fromkeys(("stiffness", "damping", "torque"), (0.0,) * joint.kind.nu) | {"cross_stiffness": ()}


def _changed(body: Body, joint: dict[str, tuple[float, ...]]) -> Body:
    return body.model_copy(update={"wrench": (), "joint": body.joint.model_copy(update=joint)})
