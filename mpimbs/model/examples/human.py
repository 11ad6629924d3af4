"""Human figures of 34 and of 48 degrees of freedom, from measured bodies [de Leva 1996].

P. de Leva: Adjustments to Zatsiorsky-Seluyanov's segment inertia parameters. Journal of Biomechanics 29, 1223-1230
(1996), table 4, men: the mean of 100 of them, of 73.0 kg and 1.741 m. From it are the masses, lengths, centers of mass
and radii of gyration of all segments. Assumed are where the shoulders and hips lie beside the middle, where the ankle
lies in the foot, and how the figure of 48 degrees of freedom divides head and foot: see `_ASSUMED`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats
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


_MASS = 73.0  # kg


class _Segment(NamedTuple):
    """A row of the table; lengths of segments in m, all else of the whole mass and of that length."""

    length: float
    mass: float
    center: float  # from the upper end; of the foot from the heel
    sagittal: float  # radius of gyration about the axis that points forward; of the foot upward
    transverse: float  # about the axis that points to the side
    longitudinal: float


_HEAD = _Segment(0.2429, 0.0694, 0.5002, 0.303, 0.315, 0.261)  # with the neck: vertex to seventh cervical vertebra
_UPPER_TRUNK = _Segment(0.2421, 0.1596, 0.5066, 0.505, 0.320, 0.465)  # from there to the end of the breastbone
_MIDDLE_TRUNK = _Segment(0.2155, 0.1633, 0.4502, 0.482, 0.383, 0.468)  # to the navel
_LOWER_TRUNK = _Segment(0.1457, 0.1117, 0.6115, 0.615, 0.551, 0.587)  # to the middle of the hips
_UPPER_ARM = _Segment(0.2817, 0.0271, 0.5772, 0.285, 0.269, 0.158)
_FOREARM = _Segment(0.2689, 0.0162, 0.4574, 0.276, 0.265, 0.121)
_HAND = _Segment(0.0862, 0.0061, 0.7900, 0.628, 0.513, 0.401)  # to the third knuckle
_THIGH = _Segment(0.4222, 0.1416, 0.4095, 0.329, 0.329, 0.149)
_SHANK = _Segment(0.4403, 0.0433, 0.4395, 0.251, 0.246, 0.102)  # to the center of the ankle
_FOOT = _Segment(0.2581, 0.0137, 0.4415, 0.257, 0.245, 0.124)  # heel to tip


class _Assumed(NamedTuple):
    """Assumptions where the table is silent, in m and parts of a segment."""

    shoulder: float = 0.18  # m beside the middle
    shoulder_drop: float = 0.05  # m below the seventh cervical vertebra
    hip: float = 0.09  # m beside the middle
    heel: float = 0.06  # m behind the ankle
    sole: float = 0.08  # m below the ankle
    neck: float = 0.2  # of the mass of head and neck: a cylinder
    neck_length: float = 0.09  # m
    neck_radius: float = 0.06  # m
    toes: float = 0.1  # of the mass of the foot: a box as wide as the foot
    toes_length: float = 0.06  # m, the last part of the foot
    toes_width: float = 0.09  # m
    toes_height: float = 0.025  # m


_ASSUMED = _Assumed()


class _Solid(NamedTuple):
    """Mass (kg), center of mass (m) and moments of inertia about it (kg m^2) along x forward, y up, z to the right."""

    mass: float
    center: Floats
    moments: Floats

    def moved(self, x: float, y: float) -> _Solid:
        """Give the same solid elsewhere."""
        return self._replace(center=self.center + (x, y, 0.0))

    def joined(self, other: _Solid, sign: float = 1.0) -> _Solid:
        """Join both to a solid, their centers side by side along one axis; with the sign -1, this without the other."""
        mass = self.mass + sign * other.mass
        center = (self.mass * self.center + sign * other.mass * other.center) / mass
        moments = self._about(center) + sign * other._about(center)
        return _Solid(mass, center, moments)

    def _about(self, point: Floats) -> Floats:
        d = (self.center - point) ** 2
        return self.moments + self.mass * (d.sum() - d)


def _upright(segment: _Segment, upward: bool = False) -> _Solid:
    """A segment along y: down from the origin, or up from it."""
    mass = _MASS * segment.mass
    radii = np.array([segment.sagittal, segment.longitudinal, segment.transverse]) * segment.length
    height = segment.length * (1 - segment.center if upward else -segment.center)
    return _Solid(mass, np.array([0.0, height, 0.0]), mass * radii**2)


def _foot() -> _Solid:
    """The foot from the center of the ankle, along x."""
    mass = _MASS * _FOOT.mass
    radii = np.array([_FOOT.longitudinal, _FOOT.sagittal, _FOOT.transverse]) * _FOOT.length
    center = np.array([_FOOT.center * _FOOT.length - _ASSUMED.heel, -_ASSUMED.sole / 2, 0.0])
    return _Solid(mass, center, mass * radii**2)


def _neck() -> _Solid:
    a, mass = _ASSUMED, _MASS * _HEAD.mass * _ASSUMED.neck
    across = (3 * a.neck_radius**2 + a.neck_length**2) / 12
    return _Solid(mass, np.array([0, a.neck_length / 2, 0]), mass * np.array([across, a.neck_radius**2 / 2, across]))


def _toes() -> _Solid:
    """The toes, in the frame of the foot and at the height of its center."""
    a, mass = _ASSUMED, _MASS * _FOOT.mass * _ASSUMED.toes
    x, y, z = a.toes_length**2, a.toes_height**2, a.toes_width**2
    tip = _FOOT.length - a.heel
    return _Solid(
        mass, np.array([tip - a.toes_length / 2, -a.sole / 2, 0]), mass / 12 * np.array([y + z, x + z, x + y])
    )


class _Figure:
    """A system that is filled part by part, each with the joint to its parent at a position (m) in the parent."""

    def __init__(self, name: str) -> None:
        self.system = System(name)

    def add(self, name: str, parent: str, joint: str, position: tuple[float, float, float], solid: _Solid) -> None:
        """Add a part; hinges bend about z, to the right."""
        self.system.add(
            name=name,
            parent=parent,
            mass=solid.mass,
            center_of_mass=solid.center,
            inertia=(*solid.moments, 0, 0, 0),
            joint=Joint(type=joint, axis=(0, 0, 1) if joint == "revolute" else None, position=position),
        )

    def leg(self, side: str, sign: float) -> None:
        """Add thigh, shank and foot: hip and ankle spherical, the knee a hinge."""
        self.add(f"{side}_thigh", "pelvis", "spherical", (0, 0, sign * _ASSUMED.hip), _upright(_THIGH))
        self.add(f"{side}_shank", f"{side}_thigh", "revolute", (0, -_THIGH.length, 0), _upright(_SHANK))

    def arm(self, side: str, sign: float, chest: str, height: float, forearm: _Solid) -> None:
        """Add upper arm and forearm: the shoulder spherical, the elbow a hinge."""
        a = _ASSUMED
        place = (0, height - a.shoulder_drop, sign * a.shoulder)
        self.add(f"{side}_upper_arm", chest, "spherical", place, _upright(_UPPER_ARM))
        self.add(f"{side}_forearm", f"{side}_upper_arm", "revolute", (0, -_UPPER_ARM.length, 0), forearm)


_SIDES = (("right", 1.0), ("left", -1.0))


def figure34() -> System:
    """Return a human figure of 34 degrees of freedom, falling: the smaller of Yamane & Nakamura, table 2.

    They don't say which joints it has. Here 13 bodies: the pelvis free (6), the trunk on it, the head on that,
    shoulders, hips and ankles spherical (3 each), elbows and knees hinges (1 each); hands are one with the forearms.
    Masses and lengths are of the table of de Leva (1996): 73 kg, 1.741 m.
    """
    made = _Figure("human figure of 34 degrees of freedom")
    made.add("pelvis", "world", "free", (0, 0, 0), _upright(_LOWER_TRUNK, upward=True))
    for side, sign in _SIDES:
        made.leg(side, sign)
        made.add(f"{side}_foot", f"{side}_shank", "spherical", (0, -_SHANK.length, 0), _foot())
    middle, upper = _upright(_MIDDLE_TRUNK, upward=True), _upright(_UPPER_TRUNK, upward=True)
    trunk = middle.joined(upper.moved(0, _MIDDLE_TRUNK.length))
    height = _MIDDLE_TRUNK.length + _UPPER_TRUNK.length
    made.add("trunk", "pelvis", "spherical", (0, _LOWER_TRUNK.length, 0), trunk)
    made.add("head", "trunk", "spherical", (0, height, 0), _upright(_HEAD, upward=True))
    forearm = _upright(_FOREARM).joined(_upright(_HAND).moved(0, -_FOREARM.length))
    for side, sign in _SIDES:
        made.arm(side, sign, "trunk", height, forearm)
    return made.system


def figure48() -> System:
    """Return a human figure of 48 degrees of freedom, falling: the larger of Yamane & Nakamura, table 2.

    They don't say which joints it has. Here 19 bodies: those of `figure34` with the trunk in two, a neck, hands and
    toes; the pelvis free (6), abdomen, chest, neck, head, shoulders, wrists (which turn the forearm too), hips and
    ankles spherical (3 each), elbows, knees and toes hinges (1 each). Mass and inertia of head and neck together, and
    of foot and toes, are those of the table.
    """
    a = _ASSUMED
    made = _Figure("human figure of 48 degrees of freedom")
    made.add("pelvis", "world", "free", (0, 0, 0), _upright(_LOWER_TRUNK, upward=True))
    base = _FOOT.length - a.heel - a.toes_length  # of the toes, in front of the ankle
    for side, sign in _SIDES:
        made.leg(side, sign)
        made.add(f"{side}_foot", f"{side}_shank", "spherical", (0, -_SHANK.length, 0), _foot().joined(_toes(), -1.0))
        made.add(f"{side}_toes", f"{side}_foot", "revolute", (base, -a.sole / 2, 0), _toes().moved(-base, a.sole / 2))
    made.add("abdomen", "pelvis", "spherical", (0, _LOWER_TRUNK.length, 0), _upright(_MIDDLE_TRUNK, upward=True))
    made.add("chest", "abdomen", "spherical", (0, _MIDDLE_TRUNK.length, 0), _upright(_UPPER_TRUNK, upward=True))
    made.add("neck", "chest", "spherical", (0, _UPPER_TRUNK.length, 0), _neck())
    head = _upright(_HEAD, upward=True).joined(_neck(), -1.0).moved(0, -a.neck_length)
    made.add("head", "neck", "spherical", (0, a.neck_length, 0), head)
    for side, sign in _SIDES:
        made.arm(side, sign, "chest", _UPPER_TRUNK.length, _upright(_FOREARM))
        made.add(f"{side}_hand", f"{side}_forearm", "spherical", (0, -_FOREARM.length, 0), _upright(_HAND))
    return made.system
