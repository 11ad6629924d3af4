"""The stiffness at rest against differences of the dense oracles, of all that acts; frequencies against formulas."""

from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pytest
import scipy.linalg
from mpi4py import MPI

import mpimbs.dynamics.statics.modes
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.statics.equilibrium import growth
from mpimbs.dynamics.statics.modes import Modes, modes
from mpimbs.dynamics.statics.stiffness import Stiffness
from mpimbs.model import Body, BodyMotion, Joint, System, system_from
from mpimbs.parts.subchain import Subchain
from oracles import dense
from oracles.loops import closed, opened
from oracles.random_loops import random_mechanism
from oracles.random_systems import random_system
from tolerances import assert_close

Array = np.ndarray
STEP = 2e-3  # rad and m, of differences of order six of an oracle that is right to rounding


def balanced(system: System, q: Array) -> System:
    """The same with torques along its joints that hold it still."""
    still = np.zeros(system.nu)
    force = dense.mass_matrix(opened(system), q) @ closed(system, q, still).udot
    held, offset = System(system.name, gravity=system.gravity), system.contents.offsets()[1]
    for k, body in enumerate(system.contents.bodies()):
        torque = np.array(body.joint.torque) - force[offset[k] : offset[k + 1]].astype(float)
        held.add(body, joint=body.joint.model_copy(update={"torque": tuple(torque.tolist())}))
    for spring in system.contents.springs.values():
        held.add_spring(spring)
    for loop in system.contents.loops:
        held.add_loop(loop)
    return held


def by_differences(system: System, q: Array, basis: Array) -> Array:
    """- dQ / dz along displacements that loops allow, by the dense oracle."""
    part, still = Subchain(system.contents), np.zeros(system.nu)
    inertia = dense.mass_matrix(opened(system), q)
    weights = (45 / 60, -9 / 60, 1 / 60)
    columns = []
    for z in basis.T:
        h = STEP / np.abs(z).sum()
        moved = [[closed(system, part.displaced(q, k * s * h * z), still).udot for s in (1, -1)] for k in (1, 2, 3)]
        columns.append(-sum(w * (a - b) for w, (a, b) in zip(weights, moved, strict=True)) / h)
    return basis.T @ inertia @ np.array(columns).T


def spring_about(system: System, seed: int) -> None:
    """Springs between points of random bodies, and the world; every second one a rope."""
    rng, names = np.random.default_rng(seed), [*(body.name for body in system.contents.bodies()), "world"]
    for k in range(4):
        first, second = rng.choice(len(names), 2, replace=False)
        ends = {"bodies": (names[first], names[second]), "positions": rng.normal(size=(2, 3)).tolist()}
        system.add_spring(
            name=f"s{k}", stiffness=rng.uniform(1, 50), rest=rng.uniform(0.2, 2), tension_only=k % 2 > 0, **ends
        )


def compare(system: System, q: Array) -> None:
    """All of K, that of forces without energy too, which is not symmetric."""
    system = balanced(system, q)
    loads, basis = None, np.eye(system.nu)
    with closing(Dynamics(system)) as dynamics:
        if system.contents.loops:
            loads = dynamics.loads.joints_and_loops(q, np.zeros(system.nu)).loops
            basis = scipy.linalg.null_space(dynamics.inertia.loop_jacobian(q).toarray(), rcond=1e-9)
    if not basis.shape[1]:
        return
    stiffness = Stiffness(system.contents, q, loads)
    ours, reference = basis.T @ (stiffness @ basis), by_differences(system, q, basis)
    assert_close("stiffness", ours, reference.astype(float), "difference")
    most = np.abs(system.contents.columns().torque).max() + np.abs(stiffness.forces).max()
    assert_close("forces in balance", basis.T @ stiffness.forces, np.zeros(basis.shape[1]), "loops", scale=most)


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(6))
def test_trees(seed: int) -> None:
    """Joints of all types with springs, weight, wrenches that turn and that don't, springs between bodies."""
    system, q, _, _ = random_system(seed, 6, seed % 2 > 0, wrenches=True)
    spring_about(system, seed)
    compare(system, q)


@pytest.mark.cases(1)
@pytest.mark.parametrize("driven", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_loops(seed: int, driven: bool) -> None:
    """Loops that carry loads, also with springs along their joints, turn with their bodies."""
    system, q, _, _ = random_mechanism(100 + seed, 7, 2, driven=driven)
    compare(system, q)


@pytest.mark.parametrize("seed", [0, 3])
def test_loops_that_slide_against_springs(seed: int) -> None:
    """Forces along the sliding axes: it counts with which body their point moves."""
    system, q, _, _ = random_mechanism(seed, 8, 1, loop_types=("planar",), driven=True)
    compare(system, q)


def pushed(t: float, motion: BodyMotion) -> tuple[Array, Array]:
    """A field of springs to the world, and a moment that turns the body upright."""
    return 0.3 * np.cross(motion.rotation[:, 2], (0.0, 0.0, 1.0)), -np.array([1.0, 2.0, 3.0]) * motion.position


def test_functions() -> None:
    """Forces on bodies and joints that functions give, by differences with an error; against those of all at once."""
    system, q, _, _ = random_system(3, 5, False)
    system.add_body_force(["b1", "b4"], pushed, point=(0.1, 0.2, -0.3))
    system.add_joint_force(["b2"], lambda t, q, u: -4.0 * np.sin(q[-1]) * np.ones(len(u)))
    still, changes = np.zeros(system.nu), []
    with closing(Dynamics(system)) as dynamics:
        for z in np.eye(system.nu):
            ahead, behind = (dynamics.subchain.displaced(q, s * 1e-5 * z) for s in (1, -1))
            changes.append(
                (dynamics.inverse_dynamics(ahead, still, still) - dynamics.inverse_dynamics(behind, still, still))
                / 2e-5
            )
        given = dynamics.inverse_dynamics(q, still, still)
    found = Stiffness(system.contents, q)
    plain = np.array(
        [kind in (1, 2, 3, 4, 5, 7) for kind in system.contents.columns().joint_type]
    )  # of no balls, unbalanced
    here = np.repeat(plain, np.diff(system.contents.offsets()[1]))
    ours, reference = found @ np.eye(system.nu), np.array(changes).T
    assert_close("stiffness", ours[np.ix_(here, here)], reference[np.ix_(here, here)], "difference")
    assert_close("forces", -found.forces, given, "dense")
    assert 0.0 < found.doubt.error < 1e-6


# --- formulas


def at_origin(system: System, comm: MPI.Comm, count: int = 3) -> Modes:
    with closing(Dynamics(system, comm)) as dynamics:
        return modes(dynamics, dynamics.subchain.q, count)


def between(length: float, tension: float, stiffness: float, axis: Sequence[float], mass: float = 0.01) -> System:
    """A bead on a rail between two pretensioned ropes along x."""
    system = System("bead", gravity=(0, 0, 0))
    inertia = (1e-3 * mass * length**2,) * 3 + (0, 0, 0)
    system.add(name="bead", mass=mass, inertia=inertia, joint=Joint(type="prismatic", axis=axis))
    for name, x in (("left", -length), ("right", length)):
        ends = {"bodies": ("world", "bead"), "positions": ((x, 0, 0), (0, 0, 0))}
        system.add_spring(name=name, stiffness=stiffness, rest=length - tension / stiffness, tension_only=True, **ends)
    return system


@pytest.mark.parametrize("length", [1e3, 1.0, 1e-2, 1e-5])
def test_a_bead_between_springs_of_any_size(length: float) -> None:
    """Across: sqrt(2 T / (L m))."""
    found = at_origin(between(length, 10.0, 2000.0 / length, (0, 1, 0)), MPI.COMM_SELF)
    assert_close("square", found.squares, [2.0 * 10.0 / (length * 0.01)], "modes")
    assert found.residuals[0] < 1e-12 and not found.told


@pytest.mark.parametrize("stretched", [0.2, 1e-2, 1e-4, 1e-7])
def test_a_bead_between_ropes_however_little_stretched(stretched: float) -> None:
    """Along: sqrt(2 k / m), as long as both pull."""
    found = at_origin(between(1.0, 1e5 * stretched, 1e5, (1, 0, 0)), MPI.COMM_SELF)
    assert_close("square", found.squares, [2e5 / 0.01], "modes")


def test_ropes_at_their_rest_length_are_told() -> None:
    found = at_origin(between(1.0, 0.0, 1e5, (1, 0, 0)), MPI.COMM_SELF)
    assert found.squares[0] == 0.0 and "2 ropes are at rest length ('left')" in found.told[0]


def test_a_mast_with_guys(comm: MPI.Comm) -> None:
    """Guys of length l at height h: horizontal stiffness 3/2 (k c^2 + T/l (1 + s^2)); down they pull 3 T s."""
    height, at, radius, mass, tension, area = 20.0, 18.0, 12.0, 900.0, 5e3, 1e7
    moment = mass * height**2 / 12.0
    system = System("mast", gravity=(0, 0, -9.81))
    for name, kind, z in (("lower", "spherical", 0.0), ("upper", "fixed", height / 2)):  # of one half each
        half = (moment / 8, moment / 8, 1.0, 0, 0, 0)
        joint = Joint(type=kind, position=(0, 0, z))
        system.add(name=name, mass=mass / 2, center_of_mass=(0, 0, height / 4), inertia=half, joint=joint)
    length = float(np.hypot(at, radius))
    stiffness = area / (length * (1.0 - tension / area))
    for k in range(3):
        x, y = radius * np.cos(2 * np.pi * k / 3), radius * np.sin(2 * np.pi * k / 3)
        ends = {"bodies": ("world", "upper"), "positions": ((x, y, 0), (0, 0, at - height / 2))}
        system.add_spring(
            name=f"guy{k}", stiffness=stiffness, rest=length - tension / stiffness, tension_only=True, **ends
        )
    c, s = radius / length, at / length
    across = 1.5 * (stiffness * c**2 + tension / length * (1.0 + s**2))
    held = across * at**2 - 3.0 * tension * s * at - mass * 9.81 * height / 2
    found = at_origin(system, comm)
    assert_close("squares", found.squares[1:], 2 * [held / (moment + mass * height**2 / 4)], "modes")
    assert found.residuals[1:].max() < 1e-12


@pytest.mark.parametrize("push", [1.0, 2.2])
def test_zieglers_column(comm: MPI.Comm, push: float) -> None:
    """Two links, masses 2 and 1, hinges of stiffness 1, pushed along the last link: it swings up to 2.086, and flutters
    beyond [Ziegler 1952]; M = [[3, 1], [1, 1]], K = [[2 - P, P - 1], [-1, 1]] in angles from the vertical."""
    system = System("column", gravity=(0, 0, 0))
    for k, mass in enumerate((2.0, 1.0)):
        joint = Joint(type="revolute", position=(0, k, 0), stiffness=(1.0,))
        wrench = ({"force": (0, -push, 0), "point": (0, 1, 0)},) if k else ()
        body = Body(
            name=f"b{k}",
            mass=mass,
            center_of_mass=(0, 1, 0),
            inertia=(1e-13,) * 3 + (0,) * 3,
            joint=joint,
            wrench=wrench,
        )
        system.add(body)
    inertia, stiffness = np.array([[3.0, 1.0], [1.0, 1.0]]), np.array([[2 - push, push - 1], [-1.0, 1.0]])
    squares = np.sort_complex(scipy.linalg.eigvals(stiffness, inertia))
    if push < 2.0:
        found = at_origin(system, comm)
        assert_close("squares", found.squares, squares.real, "statics")
        assert "unsymmetric" in found.told[0]
        return
    rate = float(np.sqrt(-squares).real.max())
    with pytest.raises(InputError, match=rf"make 'column' flutter at .* Hz, growing at {rate:.3g}"):
        at_origin(system, comm)
    with closing(Dynamics(system, comm)) as dynamics:
        assert_close("rate", growth(dynamics, dynamics.subchain.q), rate, "statics")


def test_large_systems_with_forces_that_follow(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations that take K for symmetric are not used, nor believed: dense matrices are, while they may be formed."""
    system = System("column", gravity=(0, 0, 0))
    for k in range(6):
        joint = Joint(type="revolute", position=(0, 1 if k else 0, 0), stiffness=(1.0,))
        wrench = ({"force": (0, -0.01, 0), "point": (0, 1, 0)},) if k == 5 else ()
        given = {"mass": 1.0, "center_of_mass": (0, 1, 0), "inertia": (0.1,) * 3 + (0,) * 3, "wrench": wrench}
        system.add(Body(name=f"b{k}", joint=joint, **given))
    reference = at_origin(system, comm)
    monkeypatch.setattr(mpimbs.dynamics.statics.modes, "DENSE", 1)
    assert_close("squares", at_origin(system, comm).squares, reference.squares, "exact")
    monkeypatch.setattr(mpimbs.dynamics.statics.modes, "MOST", 1)
    with pytest.raises(SimulationError, match="forces that follow bodies make the stiffness unsymmetric"):
        at_origin(system, comm)


@pytest.mark.parametrize("length", [1e-5, 1.0, 1e5])
def test_loops_of_any_size_have_as_many_modes(comm: MPI.Comm, length: float) -> None:
    """A row of four-bar linkages has one mode, whatever its size."""
    given, n = system_from("four_bar:5"), 5
    system = System("cranks", gravity=(0, 9.81 * length, 0))
    for body in given.contents.bodies():
        joint = body.joint.model_copy(update={"u": (0.0,), "position": tuple(length * x for x in body.joint.position)})
        center = tuple(length * x for x in body.center_of_mass)
        inertia = tuple(length**2 * x for x in body.inertia)
        system.add(body.model_copy(update={"center_of_mass": center, "inertia": inertia}), joint=joint)
    for loop in given.contents.loops:
        system.add_loop(
            loop.model_copy(update={"positions": tuple(tuple(length * x for x in p) for p in loop.positions)})
        )
    found = at_origin(system, comm)
    assert_close("squares", found.squares, [((n + 1) / 2 + n) * 9.81 / ((n + 1) / 3 + n)], "modes")
