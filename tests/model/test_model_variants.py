"""Tables of parameters and the variants of a system that they make; errors name file, line, column and remedy."""

import re
from pathlib import Path

import numpy as np
import pytest

from mpimbs.base.errors import InputError
from mpimbs.model import System, system_from
from mpimbs.model.summary import validate
from mpimbs.model.text.parameter_table import read_table, table_of
from mpimbs.model.variants import variants

TABLE = """\
# two ropes
name,link2.mass,u:link3[2],link.damping[1],gravity[1],s.stiffness,force:wind

thin,2.5,1,0.1,-1.6,7,0.5
thick,3.5,1,0.2,-9.8,8,0.6
"""


def sprung() -> System:
    system = system_from("rope:4")
    system.add_spring(name="s", bodies=("world", "link4"), positions=((1, 0, 0), (0, 0, 0)), stiffness=5, rest=1)
    system.add_wrench("link2", force=(1, 0, 0))
    system.set_torque("link2", (0.0, 0.5, 0.0))
    return system


def test_rows_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(TABLE, encoding="utf-8")
    table = read_table(path)
    assert table.names == ("thin", "thick") and table.lines == (4, 5) and table.head == 2
    system = sprung()
    made = variants(system, table)
    before = system.contents.columns()
    for k, other in enumerate(made):
        validate(other)
        columns = other.columns()
        assert columns.mass.tolist() == [before.mass[0], 2.5 + k, *before.mass[2:]]
        assert columns.damping.reshape(-1, 3)[:, 1].tolist() == [0.1 + 0.1 * k] * 4
        assert columns.u[8] == 1.0 and np.array_equal(columns.torque, before.torque)
        assert other.gravity[1] == (-1.6, -9.8)[k] and other.springs["s"].stiffness == 7 + k
        assert other.given == {"wind": 0.5 + 0.1 * k} and other.name_of(2) == "link3"
        assert len(columns.wrenches) == 1
    assert system.contents.columns().mass[1] == before.mass[1] and not system.contents.given  # which stays as it was


def test_rows_of_arrays(tmp_path: Path) -> None:
    arrays = {"name": np.array(["a", "b"]), "link1.mass": np.array([1.0, 2.0])}
    np.savez(tmp_path / "table.npz", **arrays)
    for table in (table_of(arrays), read_table(tmp_path / "table.npz")):
        assert [system.columns().mass[0] for system in variants(system_from("chain:2"), table)] == [1.0, 2.0]


def test_a_position_of_shifted_bodies_and_a_torque() -> None:
    system = system_from("crowd:4")
    system.set_torque("chest2", (1.0, 2.0, 3.0))
    table = table_of({"pelvis3.position[0]": [5.0], "chest2.torque[1]": [9.0]})
    (made,) = variants(system, table)
    k, chest = system.contents.index_of("pelvis3"), system.contents.index_of("chest2")
    assert made.columns().position[k].tolist() == [5.0, *system.contents.columns().position[k][1:]]
    rest = np.arange(system.n_bodies) != k
    assert np.array_equal(made.columns().position[rest], system.contents.columns().position[rest])
    offset = system.contents.offsets()[1][chest]
    assert made.columns().torque[offset : offset + 3].tolist() == [1.0, 9.0, 3.0]


def test_parameters_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "arm.toml").write_text(
        'name = "arm"\n[parameters]\nlength = 1.0\n[[body]]\nname = "upper"\nparent = "world"\nmass = 1.0\n'
        'center_of_mass = [0, "-length / 2", 0]\ninertia = [0.1, 0.1, 0.1, 0, 0, 0]\njoint = { type = "revolute" }\n',
        encoding="utf-8",
    )
    table = table_of({"length": [1.0, 4.0], "upper.mass": [1.0, 3.0]})
    made = variants(tmp_path / "arm.toml", table)
    assert [s.columns().center_of_mass[0, 1] for s in made] == [-0.5, -2.0]
    assert [s.columns().mass[0] for s in made] == [1.0, 3.0]
    with pytest.raises(InputError, match=r"line 1, column 'lenth': is no name.*or one of the parameters length"):
        variants(tmp_path / "arm.toml", table_of({"lenth": [1.0]}))


WRONG = {
    "": "table.csv: is empty; give a line with the names of columns",
    "link1.mass\n": "table.csv: has no rows; give one for each copy",
    "link1.mass,link1.mass\n1,2\n": "table.csv, line 1: column 'link1.mass' stands twice; give each its own",
    "link1.mass,\n1,2\n": "table.csv, line 1: a column has no name; give each its own",
    "link1.mass\n1\n\n2,3\n": "table.csv, line 4: has 2 values, and the table 1 columns; give as many",
    "link1.mass\n1\nheavy\n": "table.csv, line 3, column 'link1.mass': 'heavy' is no finite number; give one",
    "link1.mass\nnan\n": "table.csv, line 2, column 'link1.mass': 'nan' is no finite number; give one",
    "name,link1.mass\na,1\na,2\n": "table.csv, line 3, column 'name': the name 'a' is that of a copy above; give each",
    "link1.mss\n1\n": "table.csv, line 1, column 'link1.mss': unknown key 'mss'; did you mean 'mass'?",
    "lnk1.mass\n1\n": "table.csv, line 1, column 'lnk1.mass': unknown body 'lnk1'; did you mean 'link1'?",
    "mass\n1\n": "table.csv, line 1, column 'mass': is no name of a number; write BODY.KEY",
    "link1.inertia\n1\n": "table.csv, line 1, column 'link1.inertia': has 6 numbers; say which, from [0] to [5]",
    "q:link1[4]\n1\n": "table.csv, line 1, column 'q:link1[4]': has 4 numbers, counted from [0] on",
    "link1.mass[x]\n1\n": "table.csv, line 1, column 'link1.mass[x]': what stands in brackets must be a whole number",
    "link1.mass\n1\n-2\n": "table.csv, line 3, column 'link1.mass': body 'link1': mass must be positive, got -2; give",
    "q:link1[0],q:link1[1]\n2,0\n": "line 2, columns 'q:link1[0]', 'q:link1[1]': joint: q must be a unit quaternion",
    "s.stiffness\n-1\n": "table.csv, line 2, column 's.stiffness': spring 's': stiffness must not be negative",
    "s.length\n1\n": "table.csv, line 1, column 's.length': unknown key 'length'; choose one of stiffness",
}


@pytest.mark.parametrize("text", WRONG)
def test_errors_name_the_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(WRONG[text])):
        variants(sprung(), read_table(path))


def test_what_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file; give a table of parameters"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="is no readable table"):
        read_table(tmp_path / "bad.npz")
    with pytest.raises(InputError, match=re.escape("parameters: column 'b' has the shape [1]; give an array")):
        table_of({"a": [1, 2], "b": [1]})
    with pytest.raises(InputError, match="column 'a' holds other than finite numbers"):
        table_of({"a": ["x"]})
