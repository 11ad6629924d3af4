"""What is asked of a model in one call: of the whole system, on every rank, beside dense solutions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs
from mpi_helpers import parallel_assert
from mpimbs import InputError, Joint, System
from mpimbs.closure.geometry import LoopJoints, body_motions
from oracles import dense
from oracles.random_systems import random_system
from tolerances import assert_close


@pytest.mark.parametrize("chain", [True, False], ids=["chain", "tree"])
def test_dynamics_of_the_whole_system(comm: MPI.Comm, chain: bool) -> None:
    system, q, u, tau = random_system(7, 9, chain, wrenches=True)
    udot = mpimbs.accelerations(system, q, u, tau, comm=comm)
    right = dense.dense_accelerations(system, q, u, tau)
    assert_close("accelerations", udot, right, "dense", comm=comm)
    assert_close(
        "matrix", mpimbs.inertia_matrix(system, q, comm=comm), dense.mass_matrix(system, q), "dense", comm=comm
    )
    forces = mpimbs.inverse_dynamics(system, q, u, right, comm=comm)
    assert_close("forces", forces, dense.inverse_dynamics(system, q, u, right), "dense", comm=comm)
    held = mpimbs.inverse_dynamics(system, q, 0 * u, comm=comm)
    assert_close("at rest", held, dense.inverse_dynamics(system, q, 0 * u, 0 * u), "dense", comm=comm)
    others = mpimbs.accelerations(system, q, u, tau, comm=comm, coupling="assembly")
    assert_close("by another coupling", others, right, "dense", comm=comm)


def test_the_state_of_the_model_is_the_default(comm: MPI.Comm) -> None:
    by_name, system = mpimbs.accelerations("chain:5", comm=comm), mpimbs.read("chain:5")
    q, u = system.contents.initial_state(0, 5)
    assert_close("chain:5", by_name, dense.dense_accelerations(system, q, u), "dense", comm=comm)


def test_loops_are_closed(comm: MPI.Comm) -> None:
    system = mpimbs.read("four_bar:2")
    q, u = system.contents.initial_state(0, system.n_bodies)
    q[0] += 0.05
    found = mpimbs.assemble(system, q, u, comm=comm)
    bodies = body_motions(system.contents, found.q, found.u)
    parallel_assert(LoopJoints(system.contents).opened(bodies, 1e-9, 9.81) == "", "they hold", comm)
    with pytest.raises(InputError, match="has no loops: there is nothing to close"):
        mpimbs.assemble("chain:3", comm=comm)


def test_equilibrium_and_its_modes(comm: MPI.Comm) -> None:
    """A pendulum: it hangs, and swings with the frequency of the textbook."""
    system = System("pendulum", gravity=(0, -9.81, 0))
    for k in range(2):  # a second one, so that there is a body for each of two ranks
        joint = Joint(type="revolute", axis=(0, 0, 1), q=0.4, position=(k, 0, 0))
        system.add(
            name=f"bob{k}", parent="world", mass=1 + k, inertia=(1e-9, 1e-9, 1e-9, 0, 0, 0),
            center_of_mass=(0, -0.5, 0), joint=joint,
        )  # fmt: skip
    q = mpimbs.settle(system, comm=comm)
    assert np.abs(q).max() < 1e-9
    found = mpimbs.modes(system, q, 2, comm=comm)
    assert found.frequencies == pytest.approx(np.sqrt(9.81 / 0.5) / (2 * np.pi), rel=1e-6)


def test_models_are_read(tmp_path: Path) -> None:
    robot = tmp_path / "arm.urdf"
    inertia = '<mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>'
    link = f'<link name="{{}}"><inertial>{inertia}</inertial></link>'
    robot.write_text(
        f'<robot name="arm">{link.format("base")}{link.format("tip")}<joint name="hinge" type="continuous">'
        '<parent link="base"/><child link="tip"/><axis xyz="0 1 0"/></joint></robot>',
        encoding="utf-8",
    )
    assert mpimbs.read(robot).nu == 1 and mpimbs.read(robot, free=True).nu == 7
    with pytest.raises(InputError, match="are for robots' files, and 'chain:3' is none"):
        mpimbs.read("chain:3", free=True)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "short": ({"q": [1.0]}, r"state: 'q' has shape \(1,\)"),
    "not finite": ({"q": [np.nan] * 3}, "'q' is not finite"),
    "setting": ({"couplings": "dcae"}, "there is no setting `couplings`; is `coupling` meant"),
    "time": ({"t": np.inf}, "t must be"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(comm: MPI.Comm, name: str) -> None:
    given, words = REFUSED[name]
    with pytest.raises(InputError, match=words):
        mpimbs.accelerations("chain:3", comm=comm, **given)
