"""The table of a rod: a flexible line, as rigid links with springs in the joints between them."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PlainValidator, field_validator, model_validator

from mpimbs.model.body import Body, Name
from mpimbs.model.joint import Joint
from mpimbs.model.names import DIGITS
from mpimbs.model.text import table
from mpimbs.model.text.table import CheckedTable, Unit, Vector

FIRST_BENDING = 3.5160152685  # frequency of the first mode of a rod held at one end, times L^2 sqrt(m' / EI)
THICKNESS = 0.1  # of a link, over its length, where nothing is said of the section


def _positive(value: Any) -> float | None:
    if value is None:
        return None
    number = table.number(value)
    if number <= 0:
        raise ValueError(f"must be positive, got {number:g}")
    return number


def _not_negative(value: Any) -> float | None:
    return None if value is None else table.not_negative(value)


def _pair(value: Any) -> tuple[float, ...] | None:
    if value is None:
        return None
    values = value if isinstance(value, list | tuple | np.ndarray) else (value, value)
    pair = table.numbers(list(values), 2, "about `axis`, and across it")
    if min(pair) < 0:
        raise ValueError(f"must not be negative, got {list(pair)}; give 0 for none")
    return pair


Positive = Annotated[float | None, PlainValidator(_positive)]
NotNegative = Annotated[float | None, PlainValidator(_not_negative)]
Pair = Annotated[tuple[float, ...] | None, PlainValidator(_pair)]
Direction = Annotated[tuple[float, ...], PlainValidator(table.direction), Unit("1", 3)]
Count = Annotated[int, Field(strict=True, ge=1, description="how many links it is cut into"), Unit("1")]


class Section(CheckedTable):
    """A cross section: its area (m^2), second moments about `axis` and across it, and for torsion (m^4)."""

    area: float
    bending: tuple[float, float]
    torsion: float

    @classmethod
    def round(cls, diameter: float) -> Section:
        """A full circle."""
        moment = math.pi * diameter**4 / 64
        return cls(area=math.pi * diameter**2 / 4, bending=(moment, moment), torsion=2 * moment)

    @classmethod
    def rectangle(cls, width: float, height: float) -> Section:
        """A full rectangle, `width` along the axis. Torsion by Roark's formula, to 0.5 %."""
        long, short = max(width, height), min(width, height)
        ratio = short / long
        torsion = long * short**3 * (1 / 3 - 0.21 * ratio * (1 - ratio**4 / 12))
        return cls(area=width * height, bending=(width * height**3 / 12, height * width**3 / 12), torsion=torsion)


class Rod(CheckedTable):
    """A flexible line that neither stretches nor shears, as `count` rigid links of equal length.

    Links lie along z of their frames, y is `axis`. The joint between two links has the stiffness EI / l about y and x,
    and GJ / l about z; a clamped root, which has half a link's length to bend in, twice that [second order in l].

    Attributes
    ----------
    name : str
        Links are called name1, name2, ...; it ends with no digit.
    parent : str
        The body that it begins on, or "world".
    count : int
        Number of links.
    length : float
        m, of all of it.
    position : tuple of 3 floats
        Where it begins, m, in the parent's frame.
    direction, axis : tuple of 3 floats
        Along which it begins, and about which it bends as `joint` "revolute", in the parent's frame. What of `axis` is
        along the direction doesn't count.
    diameter : float
        m, of a round section; or
    width, height : float
        m, of a rectangular one: along `axis`, and across it.
    density : float
        kg/m^3; or
    mass_per_length : float
        kg/m.
    youngs_modulus, shear_modulus : float
        Pa; or
    EI, GJ : float, or 2 floats for EI
        Bending stiffness about `axis` and across it, and torsional stiffness, N m^2.
    damping_ratio : float
        Of the first bending mode, as if it were held at one end; of higher ones more, as their frequencies. Or
    damping : float
        N m s/rad, of each joint.
    joint : {"universal", "spherical", "revolute"}
        Between links: bending, bending and torsion, or bending about `axis` alone.
    clamped : bool
        Whether the first link is held by such springs too, and the rod begins in its `direction`; else it hangs on a
        joint of the same type, without springs.
    floating : bool
        Whether nothing holds it.
    curvature : tuple of 3 floats
        At rest, 1/m: about `axis`, across it, and twist. It begins in that shape.

    Raises
    ------
    InputError
        A value is not allowed or missing; the message names the rod, the key and the remedy.
    """

    __init__ = CheckedTable.__init__

    name: Name = Field(description="a unique name of the rod")
    parent: str = "world"
    count: Count
    length: Annotated[Positive, Unit("m")] = Field(description="the length of the rod in m")
    position: Annotated[Vector, Unit("m", 3)] = (0.0, 0.0, 0.0)
    direction: Direction = (1.0, 0.0, 0.0)
    axis: Direction = (0.0, 0.0, 1.0)
    diameter: Annotated[Positive, Unit("m")] = None
    width: Annotated[Positive, Unit("m")] = None
    height: Annotated[Positive, Unit("m")] = None
    density: Annotated[Positive, Unit("kg/m^3")] = None
    mass_per_length: Annotated[Positive, Unit("kg/m")] = None
    youngs_modulus: Annotated[Positive, Unit("N/m^2")] = None
    shear_modulus: Annotated[Positive, Unit("N/m^2")] = None
    EI: Annotated[Pair, Unit("N m^2")] = None
    GJ: Annotated[NotNegative, Unit("N m^2")] = None
    damping_ratio: Annotated[NotNegative, Unit("1")] = None
    damping: Annotated[NotNegative, Unit("N m s/rad")] = None
    joint: Literal["universal", "spherical", "revolute"] = "universal"
    clamped: bool = Field(default=False, strict=True)
    floating: bool = Field(default=False, strict=True)
    curvature: Annotated[Vector, Unit("1/m", 3)] = (0.0, 0.0, 0.0)

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if value.endswith(tuple(DIGITS)):
            raise ValueError(f"must not end with a digit, got {value!r}: its links are numbered")
        return value

    @model_validator(mode="after")
    def _check_whole(self) -> Rod:
        _either(self, "diameter", "width and height")
        if (self.width is None) != (self.height is None):
            raise ValueError("width and height belong together; give both")
        for either, other in (
            ("density", "mass_per_length"),
            ("youngs_modulus", "EI"),
            ("shear_modulus", "GJ"),
            ("damping_ratio", "damping"),
        ):
            _either(self, either, other)
        needs = [("density", "mass_per_length"), ("youngs_modulus", "EI")]
        for modulus, direct in [*needs, ("shear_modulus", "GJ")][: 3 if self.joint == "spherical" else 2]:
            if getattr(self, modulus) is None and getattr(self, direct) is None:
                raise ValueError(f"{direct} is missing; give it, or {modulus} and the section")
            if getattr(self, modulus) is not None and self.section is None:
                raise ValueError(f"{modulus} needs a section; give diameter, or width and height")
        if self.clamped and self.floating:
            raise ValueError("clamped and floating exclude each other; give one of them")
        if np.linalg.norm(np.cross(self.direction, self.axis)) < 1e-6:
            raise ValueError("axis must not be along direction; give one across it")
        follows = {"revolute": 1, "universal": 2, "spherical": 3}[self.joint]
        if any(self.curvature[follows:]):
            words = "about `axis` alone" if follows == 1 else "without twist"
            raise ValueError(f"curvature of {self.joint} joints is {words}, got {list(self.curvature)}")
        return self

    @property
    def section(self) -> Section | None:
        """The cross section, if anything is said of it."""
        if self.width is not None and self.height is not None:
            return Section.rectangle(self.width, self.height)
        return None if self.diameter is None else Section.round(self.diameter)

    def bodies(self) -> tuple[Body, Body]:
        """Give the first link, and one of the others."""
        assert self.length is not None
        link = self.length / self.count
        section = self.section
        per_length = self.mass_per_length or (self.density or 0.0) * (section.area if section else 0.0)
        shape = section or Section.round(THICKNESS * link)
        along_axis, across = (moment / shape.area for moment in shape.bending)  # squares of radii of gyration
        mass = per_length * link
        inertia = (mass * (link**2 / 12 + across), mass * (link**2 / 12 + along_axis), mass * (along_axis + across))
        given = {"mass": mass, "center_of_mass": (0, 0, link / 2), "inertia": (*inertia, 0, 0, 0), "name": self.name}
        stiff = self._stiffness(section)
        decay = self._decay(stiff, per_length)
        inner = self._joint(stiff, decay, link, (0, 0, link), (1, 0, 0, 0), 1.0)
        frame = {"position": self.position, "rotation": self._frame()}
        if self.floating:
            root = Joint(type="free", **frame)
        elif self.clamped:
            root = self._joint(stiff, decay, link, self.position, self._frame(), 0.5)
        else:
            root = Joint(type=self.joint, **frame, **self._about())
        return Body(joint=root, parent=self.parent, **given), Body(joint=inner, **given)

    def _about(self) -> dict[str, Any]:
        return {"axis": (0, 1, 0)} if self.joint == "revolute" else {}

    def _stiffness(self, section: Section | None) -> tuple[float, float, float]:
        """Bending stiffness about `axis` and across it, and torsional stiffness (N m^2)."""
        about, across = self.EI or (0.0, 0.0)
        twist = self.GJ or 0.0
        if self.youngs_modulus is not None and section is not None:
            about, across = (self.youngs_modulus * moment for moment in section.bending)
        if self.shear_modulus is not None and section is not None:
            twist = self.shear_modulus * section.torsion
        return about, across, twist

    def _decay(self, stiff: tuple[float, float, float], per_length: float) -> float | None:
        """Damping over stiffness (s) by which the first mode has its ratio; None where dampers are given."""
        assert self.length is not None
        softest = stiff[0] if self.joint == "revolute" else min(stiff[:2])
        if self.damping is not None:
            return None
        if not softest or not self.damping_ratio:
            return 0.0
        return 2 * self.damping_ratio / (FIRST_BENDING * math.sqrt(softest / per_length) / self.length**2)

    def _joint(
        self,
        stiff: tuple[float, float, float],
        decay: float | None,
        link: float,
        position: tuple[float, ...],
        rotation: tuple[float, ...],
        part: float,
    ) -> Joint:
        """A joint with springs, in which a `part` of a link's length bends."""
        about, across, twist = (value / (part * link) for value in stiff)
        bent, aside, twisted = (value * part * link for value in self.curvature)
        springs, rest = {
            "revolute": ((about,), (bent,)),
            "universal": ((across, about), (aside, bent)),
            "spherical": ((across, about, twist), _turn((aside, bent, twisted))),
        }[self.joint]
        damping = [self.damping if decay is None else decay * k for k in springs]
        given = {"type": self.joint, "position": position, "rotation": rotation, **self._about()}
        return Joint(**given, stiffness=springs, damping=damping, rest=rest, q=rest)

    def _frame(self) -> tuple[float, ...]:
        """The quaternion that takes the link's axes to those of the parent's frame: z along, y about `axis`."""
        from scipy.spatial.transform import Rotation  # takes 0.2 s: where it is needed

        z, across = np.array(self.direction), np.array(self.axis)
        y = across - (across @ z) * z
        y /= np.linalg.norm(y)
        x, y, z, w = Rotation.from_matrix(np.stack((np.cross(y, z), y, z), axis=1)).as_quat().tolist()
        return w, x, y, z


def _either(rod: Rod, one: str, other: str) -> None:
    """ValueError if keys that say the same are both given."""
    both = (any(getattr(rod, key) is not None for key in keys.split(" and ")) for keys in (one, other))
    if all(both):
        raise ValueError(f"{one} and {other} say the same; give one of them")


def _turn(vector: tuple[float, ...]) -> tuple[float, ...]:
    """The unit quaternion of a rotation vector (rad)."""
    angle = math.hypot(*vector)
    share = 0.5 if angle == 0 else math.sin(angle / 2) / angle
    return math.cos(angle / 2), *(share * value for value in vector)
