"""Variants of a system by a table: repeated bodies that are changed stay repeated bodies."""

import numpy as np
import pytest

from mpimbs.files.rods import rods_of
from mpimbs.model import Body, System, system_from_text, system_text
from mpimbs.model.contents import Contents
from mpimbs.model.text.parameter_table import read_table
from mpimbs.model.variants import variants

BODY = {"mass": 1.0, "inertia": (0.1, 0.1, 0.1, 0, 0, 0), "center_of_mass": (0, 0, 0.5)}
HINGE = {"type": "revolute", "axis": (1, 0, 0), "position": (0, 0, 1)}


def crowd() -> System:
    """A rod, and ten copies of a tree on the world, each at a place of its own."""
    system = System("crowd")
    system.add_rod(name="cable", count=6, length=3.0, diameter=0.02, density=1000.0, youngs_modulus=1e7)
    limbs = [
        {**BODY, "name": "hip", "joint": HINGE},
        {**BODY, "name": "left", "joint": HINGE, "parent": "hip"},
        {**BODY, "name": "right", "joint": HINGE, "parent": "hip"},
    ]
    system.repeat(10, *(Body(**limb) for limb in limbs), parents="world", shifts=[(k, 0, 0) for k in range(10)])
    system.set_torque("left3", 7.0)
    return system


def changed(system: System, tmp_path, **columns: float) -> Contents:
    file = tmp_path / "table.csv"
    names = [name.replace("__", ".") for name in columns]
    file.write_text(f"{','.join(names)}\n{','.join(map(str, columns.values()))}\n")
    return variants(system, read_table(file))[0]


@pytest.mark.parametrize(
    ("columns", "templates", "segments"),
    [
        ({"cable2__mass": 9.0}, 6, 3),
        ({"left__mass": 9.0}, 5, 3),  # of all ten
        ({"left3__mass": 9.0, "left5__mass": 9.0}, 6, 3),  # both alike
        ({"left3__mass": 9.0, "left5__mass": 8.0, "hip2__mass": 9.0}, 8, 3),
        ({"left__torque": 5.0}, 6, 3),
        ({"hip4__position[1]": 5.0}, 6, 3),
    ],
)
def test_few_templates_and_other_numbers_as_asked(tmp_path, columns, templates, segments):
    system = crowd()
    other = changed(system, tmp_path, **columns)
    assert len(list(other.segments)) == segments
    assert sum(len(segment.bodies) for segment in other.segments) == templates
    assert rods_of(other).keys() == {"cable"}
    again = system_from_text(system_text(other), "text")
    for k in range(system.n_bodies):
        before, after = system.contents.body(k), other.body(k)
        expected = {**before.model_dump(), "parent": before.parent}
        for column, value in columns.items():
            name, _, key = column.partition("__")
            if before.name == name or (name[-1].isalpha() and before.name.startswith(name)):
                if key == "mass":
                    expected["mass"] = value
                else:
                    joint = expected["joint"]
                    key, _, part = key.partition("[")
                    values = list(joint[key] or (0.0,))
                    values[int(part[:-1]) if part else 0] = value
                    joint[key] = tuple(values)
        assert after.model_dump() == expected
        assert again.contents.body(again.contents.index_of(before.name)).mass == after.mass
    np.testing.assert_array_equal(other.parents(), system.contents.parents())
    assert all(
        system.contents.body(k).mass == crowd().contents.body(k).mass for k in range(system.n_bodies)
    )  # the first is as it was
