"""Systems of which only the inertia is left: what implicit steps are solved with, and factors without load sweeps."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

from mpimbs.model.between import SystemSprings
from mpimbs.model.body import Body, Loop
from mpimbs.model.contents import Contents
from mpimbs.model.joint import Joint
from mpimbs.model.loads import SystemLoads

_ACTING = ("stiffness", "damping", "torque")
_OF_BODIES = ("stop_stiffness", "stop_damping", "servo_stiffness", "servo_damping", "servo_torque", "friction")


def resting(system: Contents, loops: bool = True, apart: bool = False) -> Contents:
    """Give a copy on which nothing acts, whose speeds are told apart: the torque of each is its number, from 1.

    Weight, torques, wrenches, functions, springs and dampers of joints and between bodies, stops, servos, friction,
    what drives loops, and events are left out; loops, too, if not `loops`. All joints have room for rotors: numbers
    that are not to be used as they are, nor are the torques.

    `apart`: as `Contents.apart`.
    """
    left = copy.copy(system)
    left.apart = apart
    left.segments = system.segments.replaced(_with_rotors)
    left.gravity = (0.0, 0.0, 0.0)
    left.events, left.springs = [], SystemSprings()
    kept = system.loops if loops else []
    undriven = [loop.model_copy(update=_nothing(loop)) if isinstance(loop, Loop) else loop for loop in kept]
    left.loops = system.loops.holding(undriven, system.loops.bodies if loops else [])
    ends = system.offsets()[1].tolist()
    told: dict[int, Any] = {
        k: tuple(map(float, range(a + 1, b + 1))) for k, (a, b) in enumerate(pairwise(ends)) if b > a
    }
    left.loads = SystemLoads(torques=told, before_modules=system.loads.before_modules)
    return left


def _with_rotors(body: Body) -> Body:
    return _changed(body, _nothing(body.joint) | {"armature": (1.0,) * body.joint.kind.nu})


def _nothing(joint: Joint | Loop) -> dict[str, tuple[float, ...]]:
    """The keys of what acts along a joint, for a joint along which nothing does."""
    acting = (*_ACTING, *(_OF_BODIES if isinstance(joint, Joint) else ()))
    return dict.fromkeys(acting, (0.0,) * joint.kind.nu) | {"cross_stiffness": ()}


def _changed(body: Body, joint: dict[str, tuple[float, ...]]) -> Body:
    return body.model_copy(update={"wrench": (), "joint": body.joint.model_copy(update=joint)})
