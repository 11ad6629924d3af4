"""What a body looks like: shapes in its frame, for pictures alone. Nothing that moves it depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, PlainValidator, ValidationInfo, field_validator, model_validator

from mpimbs.model.text import table
from mpimbs.model.text.table import CheckedTable, Quaternion, Unit, Units, Vector

_SIZES = {
    "box": "the lengths of its edges along x, y, z in m",
    "sphere": "its radius in m",
    "capsule": "its radius, and the length of its straight part along z, in m",
    "cylinder": "its radius, and its length along z, in m",
    "mesh": "factors by which what the file holds is scaled along x, y, z",
}
_NUMBERS = {"box": 3, "sphere": 1, "capsule": 2, "cylinder": 2, "mesh": 3}


def _color(value: Any) -> tuple[float, ...] | None:
    if value is None:
        return None
    color = table.numbers(value, 4, "red green blue alpha")
    if any(not 0 <= part <= 1 for part in color):
        raise ValueError(f"must have four parts from 0 to 1 (red green blue alpha), got {list(color)}")
    return color


class Shape(CheckedTable):
    """A shape that is drawn where a body is.

    Attributes
    ----------
    kind : {"box", "sphere", "capsule", "cylinder", "mesh"}
        Its center is the origin of its own frame; what is long is so along z.
    size : tuple of floats
        box: edges along x, y, z (m); sphere: radius (m); capsule: radius, length between the centers of its caps (m);
        cylinder: radius, length (m); mesh: factors along x, y, z by which the file is scaled, default 1.
    position, rotation : tuple of 3 floats, tuple of 4 floats
        Origin (m) and unit quaternion w x y z of its frame in the frame of the body.
    color : tuple of 4 floats, optional
        Red, green, blue and alpha, from 0 to 1.
    file : str
        Of a mesh alone: where its file (STL, OBJ, ...) is.

    Raises
    ------
    InputError
        A value is not allowed; the message names the key and the remedy.
    """

    model_config = ConfigDict(title="geometry")
    __init__ = CheckedTable.__init__

    decisive: ClassVar[str] = "kind"

    kind: Literal["box", "sphere", "capsule", "cylinder", "mesh"] = Field(description="what it is, such as 'box'")
    size: Annotated[tuple[float, ...], Unit("m")] = ()
    position: Annotated[Vector, Unit("m", 3)] = (0.0, 0.0, 0.0)
    rotation: Annotated[Quaternion, Unit("1", 4)] = (1.0, 0.0, 0.0, 0.0)
    color: Annotated[tuple[float, ...] | None, PlainValidator(_color), Unit("1", 4)] = None
    file: str = ""

    @property
    def pose(self) -> tuple[float, ...]:
        """Position (m), then unit quaternion, in the frame of the body: 7 numbers, as outputs have them."""
        return self.position + self.rotation

    @classmethod
    def units_of(cls, fields: Mapping[str, Any]) -> dict[str, Units]:
        return super().units_of(fields) | ({"size": "1"} if fields.get("kind") == "mesh" else {})

    @property
    def needed(self) -> frozenset[str]:
        return super().needed | ({"file"} if self.kind == "mesh" else {"size"})

    @field_validator("size", mode="plain")
    @classmethod
    def _check_size(cls, value: Any, info: ValidationInfo) -> tuple[float, ...]:
        if "kind" not in info.data:
            raise ValueError("needs a valid kind of shape")
        kind = info.data["kind"]
        mesh = kind == "mesh"
        if mesh and (value is None or len(value) == 0):
            return (1.0, 1.0, 1.0)
        single = _NUMBERS[kind] == 1 and not isinstance(value, list | tuple)
        size = (table.number(value),) if single else table.numbers(value, _NUMBERS[kind], _SIZES[kind])
        if any(x == 0 if mesh else x < 0 for x in size):
            raise ValueError(f"must not be {'zero' if mesh else 'negative'}, got {list(size)}; give {_SIZES[kind]}")
        return size

    @model_validator(mode="after")
    def _check_file(self) -> Shape:
        if self.kind == "mesh" and not self.file:
            raise ValueError("file is missing; give the file of the mesh")
        if self.kind != "mesh" and self.file:
            raise ValueError(f"file has no meaning for a {self.kind}; leave it out or make it a mesh")
        return self
