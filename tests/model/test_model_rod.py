"""Rods: their links and springs against exact discrete equilibria, their damping, files, what they refuse."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy.spatial.transform import Rotation

from cases import parts
from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.files.rods import history_of, rods_of
from mpimbs.model import System, system_from_text, system_text
from mpimbs.model.rod import Rod
from mpimbs.run.run import simulate
from oracles.dense import Array
from tolerances import assert_close

# Cantilevers of rigid links under their weight: load, links, and where the tip is (m) and points to (rad).
CANTILEVERS = [
    (1, 4, (0.99045461, -0.13108364, -0.17014924)),
    (1, 64, (0.99124345, -0.12350116, -0.16513523)),
    (5, 8, (0.84410545, -0.50231108, -0.70047753)),
    (5, 256, (0.84665473, -0.49591131, -0.69700817)),
]


def bent(load: float, n: int) -> Array:
    """Angles [n] in the joints of a cantilever of n links, EI = length = 1, under its weight: Newton's method."""
    length, stiffness = 1 / n, np.full(n, float(n))
    stiffness[0] = 2 * n
    beyond = (n - np.arange(n) - 0.5) * load / n  # weight beyond the middle of each link
    angles = np.zeros(n)
    for _ in range(50):
        turned = np.cumsum(angles)
        levers, slopes = beyond * length * np.cos(turned), -beyond * length * np.sin(turned)
        wrong = stiffness * angles + np.cumsum(levers[::-1])[::-1]
        later = np.cumsum(slopes[::-1])[::-1]
        change = np.diag(stiffness) + later[np.maximum.outer(np.arange(n), np.arange(n))]
        angles = angles - np.linalg.solve(change, wrong)
    return angles


def coordinates(system: System, angles: Array) -> Array:
    """Coordinates of a rod whose joints are bent by some angles about its axis."""
    kind = system.contents.body(0).joint.type
    if kind == "revolute":
        return angles
    if kind == "universal":
        return np.stack((np.zeros_like(angles), angles), axis=1).ravel()
    half = angles / 2
    return np.stack((np.cos(half), 0 * half, np.sin(half), 0 * half), axis=1).ravel()


def cantilever(n: int, load: float, joint: str, **fields: Any) -> System:
    system = System("cantilever", gravity=(0, -1, 0))
    twist = {"GJ": 0.7} if joint == "spherical" else {}
    given = {"length": 1, "mass_per_length": load, "EI": (1, 3), "clamped": True, "joint": joint} | twist | fields
    system.add_rod(name="beam", count=n, **given)
    return system


@pytest.mark.parametrize("joint", ["revolute", "universal", "spherical"])
@pytest.mark.parametrize(("load", "n", "tip"), CANTILEVERS)
def test_cantilever_under_its_weight(comm: MPI.Comm, joint: str, load: int, n: int, tip: tuple[float, ...]) -> None:
    """Nothing moves in the exact equilibrium of the links, whose tip is where the table says."""
    system, angles = cantilever(n, load, joint), bent(load, n)
    turned = np.cumsum(angles)
    place = np.array([np.cos(turned).sum(), np.sin(turned).sum(), n * turned[-1]]) / n
    assert_close("tip", place, tip, "table", scale=1.0)
    q = coordinates(system, angles)
    with closing(Dynamics(system, comm)) as dynamics:
        ours, still = parts(dynamics, q, np.zeros(system.nu))
        falling = dynamics.accelerations(*parts(dynamics, coordinates(system, 0 * angles), np.zeros(system.nu)))
        largest = comm.allreduce(float(np.abs(falling).max()), MPI.MAX)
        assert_close(
            "accelerations", dynamics.accelerations(ours, still), 0 * still, "statics", scale=largest, comm=comm
        )
        rotations, positions = dynamics.poses(ours, still)
        loads = dynamics.divided.gather_bodies(6)(dynamics.joint_loads(ours, still))
        if comm.rank == comm.size - 1:
            end = positions[-1] + rotations[-1] @ (0, 0, 1 / n)
            assert_close("tip of the model", end, (*tip[:2], 0), "table", scale=1.0)
    if loads is not None:
        rod = history_of(system.contents, np.arange(n), loads.reshape(1, n, 6))
        weight = load * (1 - np.arange(n) / n)
        stiffness = np.full(n, float(n)) * np.where(np.arange(n), 1, 2)
        assert_close("places", rod.s, np.arange(n) / n, "rounding")
        assert_close("tension", rod.tension[0], -weight * np.sin(turned), "statics", scale=load)
        assert_close(
            "bending", rod.bending[0], np.stack((stiffness * angles, 0 * angles), axis=1), "statics", scale=load
        )
        assert_close("torsion", rod.torsion[0], 0 * angles, "statics", scale=load)


def test_curved_at_rest() -> None:
    """A rod that is curved in space at rest begins in that shape, at rest, as a helix of its links."""
    count, length, curvature = 12, 3.0, np.array([0.4, -0.7, 0.5])
    fields = {"length": length, "EI": (1, 2), "GJ": 3, "mass_per_length": 1.0, "clamped": True, "joint": "spherical"}
    system = System("curl", gravity=(0, 0, 0))
    system.add_rod(name="curl", count=count, curvature=curvature, direction=(0, 0, 1), axis=(0, 1, 0), **fields)
    turn = Rotation.from_rotvec(curvature[[1, 0, 2]] * length / count)
    turned, place = Rotation.from_rotvec(curvature[[1, 0, 2]] * length / count / 2), np.zeros(3)
    with closing(Dynamics(system)) as dynamics:
        q, u = dynamics.subchain.q, dynamics.subchain.u
        assert_close("accelerations", dynamics.accelerations(q, u), 0 * u, "statics", scale=1.0)
        rotations, positions = dynamics.poses(q, u)
    for k in range(count):
        assert_close("positions", positions[k], place, "rounding", scale=length)
        assert_close("rotations", rotations[k], turned.as_matrix(), "rounding", scale=10.0)
        place, turned = place + turned.apply((0, 0, length / count)), turned * turn


def test_material_and_section() -> None:
    """Stiffness, mass and inertia from a material and a section are those that are given as such."""
    steel = {"youngs_modulus": 2e11, "shear_modulus": 8e10, "density": 7850.0}
    for section, area, bending, torsion in (
        ({"diameter": 0.02}, np.pi * 1e-4, (np.pi * 1e-8 / 4,) * 2, np.pi * 1e-8 / 2),
        ({"width": 0.02, "height": 0.02}, 4e-4, (1.6e-7 / 12,) * 2, 0.1406 * 1.6e-7),
        ({"width": 0.05, "height": 0.02}, 1e-3, (0.05 * 8e-6 / 12, 0.02 * 1.25e-4 / 12), 0.249 * 0.05 * 8e-6),
    ):
        rod = Rod(name="r", count=5, length=2, joint="spherical", clamped=True, **steel, **section)
        first, other = rod.bodies()
        stiffness = np.array([2e11 * bending[1], 2e11 * bending[0], 8e10 * torsion]) / 0.4
        assert_close("mass", [other.mass], [7850 * area * 0.4], "rounding")
        assert_close("bending", other.joint.stiffness[:2], stiffness[:2], "rounding")
        assert abs(other.joint.stiffness[2] / stiffness[2] - 1) < 5e-3  # Roark's formula against the series
        assert_close("clamp", first.joint.stiffness, 2 * np.array(other.joint.stiffness), "rounding")
        across = 7850 * 0.4 * bending[0] + other.mass * 0.16 / 12
        assert_close("inertia", [other.inertia[1]], [across], "rounding")


def test_damping_ratio() -> None:
    """The first mode of a rod dies away as its ratio says, by a dense linearisation."""
    n, ratio = 16, 0.03
    system = cantilever(n, 1, "revolute", damping_ratio=ratio)
    system.gravity = (0, 0, 0)
    c = system.contents.columns()
    with closing(Dynamics(system)) as dynamics:
        inverse = np.linalg.inv(dynamics.inertia_matrix(np.zeros(n)))
    whole = np.block([[np.zeros((n, n)), np.eye(n)], [-inverse * c.stiffness, -inverse * c.damping]])
    found = np.linalg.eigvals(whole)
    slowest = found[np.argmin(np.abs(found))]
    assert abs(-slowest.real / abs(slowest) / ratio - 1) < 0.01


def test_what_a_run_keeps(comm: MPI.Comm) -> None:
    """A rod that hangs at rest carries its weight; `rod` gives it by name."""
    system = System("line", gravity=(0, 0, -9.81))
    fields = {"direction": (0, 0, -1), "EI": 0.1, "mass_per_length": 0.5, "axis": (1, 0, 0)}
    system.add_rod(name="line", count=6, length=3, **fields)
    result = simulate(system, 0.01, comm, loads=True)
    if comm.rank == 0:
        assert_close("tension", result.rod("line").tension[-1], 9.81 * 0.5 * (3 - np.arange(6) / 2), "rounding")
        with pytest.raises(InputError, match=r"unknown rod 'lime'; did you mean 'line'"):
            result.rod("lime")


def test_a_file_holds_rods() -> None:
    keys = 'count = 7\nlength = 2.0\nEI = [1.0, 2.0]\nmass_per_length = 0.1\njoint = "universal"\nclamped = true\n'
    system = system_from_text(f'[[rod]]\nname = "whip"\nparent = "world"\n{keys}', "model.toml")
    made = System("system")
    made.add_rod(name="whip", count=7, length=2, EI=(1, 2), mass_per_length=0.1, clamped=True)
    assert system_text(system) == system_text(made) == system_text(system_from_text(system_text(system), "again"))
    assert list(rods_of(system.contents)) == ["whip"]
    with pytest.raises(InputError, match=r"model.toml:1: \[\[rod\]\] 1 'whip': EI is missing"):
        system_from_text(f'[[rod]]\nname = "whip"\n{keys.replace("EI", "#")}', "model.toml")


GOOD = {"name": "rod", "count": 3, "length": 1.0, "EI": 1.0, "mass_per_length": 1.0}
REFUSED = [
    ({"name": "rod1"}, "rod 'rod1': name must not end with a digit, got 'rod1': its links are numbered"),
    ({"count": 0}, "count"),
    ({"length": -1}, "length must be positive, got -1"),
    ({"EI": -1}, "EI must not be negative, got [-1.0, -1.0]"),
    ({"youngs_modulus": 1e9}, "youngs_modulus and EI say the same; give one of them"),
    ({"EI": None}, "EI is missing; give it, or youngs_modulus and the section"),
    ({"EI": None, "youngs_modulus": 1e9}, "youngs_modulus needs a section; give diameter, or width and height"),
    ({"joint": "spherical"}, "GJ is missing; give it, or shear_modulus and the section"),
    ({"mass_per_length": None}, "mass_per_length is missing; give it, or density and the section"),
    ({"width": 1.0}, "width and height belong together; give both"),
    ({"diameter": 1.0, "width": 1.0, "height": 1}, "diameter and width and height say the same"),
    ({"clamped": True, "floating": True}, "clamped and floating exclude each other"),
    ({"axis": (2, 0, 0)}, "axis must not be along direction; give one across it"),
    ({"curvature": (0, 0, 1)}, "curvature of universal joints is without twist, got [0.0, 0.0, 1.0]"),
    ({"joint": "revolute", "curvature": (0, 1, 0)}, "curvature of revolute joints is about `axis` alone"),
    ({"damping": 1, "damping_ratio": 0.1}, "damping_ratio and damping say the same"),
    ({"joint": "ball"}, "joint"),
    ({"stiffness": 3}, "unknown key 'stiffness'"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_a_rod_refuses(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        System().add_rod(**(GOOD | fields))
    assert message in str(caught.value)


def test_names_that_are_taken() -> None:
    system = System()
    system.add_rod(**GOOD)
    with pytest.raises(InputError, match="rod 'rod': the name is taken; give each its own"):
        system.add_rod(**GOOD)
    with pytest.raises(InputError, match="body 'other': parent 'nobody' is neither 'world' nor a body"):
        system.add_rod(**GOOD | {"name": "other", "parent": "nobody"})
