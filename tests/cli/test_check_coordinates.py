"""`mpimbs check --coordinates` names the body of each number of q and u."""

import re

import numpy as np
from click.testing import CliRunner
from mpi4py import MPI

from mpimbs.cli.check import check
from mpimbs.model import System, write_system

BODY = {"mass": 1.0, "inertia": (0.1, 0.1, 0.1, 0, 0, 0)}


def test_each_number_has_its_body(tmp_path):
    system = System("mixed")
    system.add(name="base", joint={"type": "free"}, **BODY)
    system.add(name="knee", joint={"type": "revolute", "axis": (1, 0, 0)}, **BODY)
    system.add(name="plate", joint={"type": "fixed"}, **BODY)
    system.add(name="ball", joint={"type": "spherical"}, **BODY)
    file = tmp_path / "mixed.toml"
    write_system(system, file)
    out = CliRunner().invoke(check, [str(file), "--coordinates"], obj=MPI.COMM_SELF, catch_exceptions=False).output
    assert "body 'knee', revolute: q[7] (rad), u[6] (rad/s)" in out
    assert "body 'plate', fixed: no coordinates" in out
    q, u = np.zeros(system.nq), np.zeros(system.nu)
    for vector, name in ((q, "q"), (u, "u")):
        for first, _, last in re.findall(rf" {name}\[(\d+)(:(\d+))?\]", out):
            vector[int(first) : int(last or int(first) + 1)] += 1
    assert (q == 1).all() and (u == 1).all()
