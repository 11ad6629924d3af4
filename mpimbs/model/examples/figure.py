"""A human figure of 36 degrees of freedom: the crowd's member."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.model.body import Body
from mpimbs.model.joint import Joint
from mpimbs.model.system import System

Place = tuple[float, float, float]


class _Part(NamedTuple):
    """A body: a box; x is forward, y up, z to the right."""

    name: str
    parent: str
    joint: str
    position: Place  # m, in the parent
    half: Place  # m, half-sizes
    center: Place  # m
    mass: float  # kg


# Masses and lengths are about those of an adult of 75 kg and 1.75 m.
_TRUNK = (
    _Part("pelvis", "world", "free", (0, 0, 0), (0.10, 0.08, 0.16), (0, 0, 0), 11.0),
    _Part("chest", "pelvis", "spherical", (0, 0.10, 0), (0.11, 0.22, 0.17), (0, 0.22, 0), 26.0),
    _Part("head", "chest", "spherical", (0, 0.46, 0), (0.09, 0.12, 0.08), (0, 0.12, 0), 5.0),
)
_SIDE = (
    _Part("upper_arm", "chest", "spherical", (0, 0.40, 0.20), (0.04, 0.15, 0.04), (0, -0.15, 0), 2.1),
    _Part("forearm", "upper_arm", "revolute", (0, -0.30, 0), (0.035, 0.13, 0.035), (0, -0.13, 0), 1.2),
    _Part("hand", "forearm", "universal", (0, -0.26, 0), (0.02, 0.09, 0.04), (0, -0.09, 0), 0.5),
    _Part("thigh", "pelvis", "spherical", (0, -0.06, 0.10), (0.07, 0.21, 0.07), (0, -0.21, 0), 8.5),
    _Part("shank", "thigh", "revolute", (0, -0.42, 0), (0.05, 0.20, 0.05), (0, -0.20, 0), 3.4),
    _Part("foot", "shank", "universal", (0, -0.42, 0), (0.13, 0.035, 0.05), (0.06, -0.03, 0), 1.1),
)
_DAMPING = 2.0  # N m s/rad at the joints of the trunk; a quarter of it at the limbs


def figure() -> System:
    """Return a human figure of 15 bodies: pelvis free, spine, neck, shoulders and hips spherical, wrists and ankles
    universal, elbows and knees revolute; 36 degrees of freedom, falling."""
    system = System("human figure")
    for part in _TRUNK:
        _add(system, part)
    for side, sign in (("right", 1.0), ("left", -1.0)):
        for part in _SIDE:
            x, y, z = part.position
            parent = part.parent if part.parent in ("chest", "pelvis") else f"{side}_{part.parent}"
            _add(system, part._replace(name=f"{side}_{part.name}", parent=parent, position=(x, y, sign * z)))
    return system


def _add(system: System, part: _Part) -> None:
    a, b, c = (size**2 for size in part.half)
    xx, yy, zz = (part.mass / 3 * value for value in (b + c, a + c, a + b))
    joint = Joint(
        type=part.joint,
        axis=(0, 0, 1) if part.joint == "revolute" else None,
        position=part.position,
        damping=0.0 if part.joint == "free" else _DAMPING / (1 if part.parent in ("pelvis", "chest") else 4),
    )
    body = Body(name=part.name, mass=part.mass, center_of_mass=part.center, inertia=(xx, yy, zz, 0, 0, 0), joint=joint)
    system.add(body, parent=part.parent)
