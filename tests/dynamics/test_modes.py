"""Natural frequencies and shapes: hanging chains, beams, loops, over ranks, by either method."""

from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs.dynamics.statics.modes
from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.statics.equilibrium import settle
from mpimbs.dynamics.statics.modes import Modes, modes
from mpimbs.model import Body, Joint, System, system_from
from mpimbs.plots.curves import draw_modes
from oracles import dense
from tolerances import assert_close

BEAM = 410.480735  # rad/s, of the first mode of a steel beam as a continuum
STIFFNESS, PER_LENGTH, LENGTH = 2300.0, 2.7, 0.5  # N m^2, kg/m, m


def found(system: System, comm: MPI.Comm, count: int = 10) -> Modes:
    with closing(Dynamics(system, comm)) as dynamics:
        return modes(dynamics, dynamics.subchain.q, count)


def hanging(n: int) -> System:
    """Point masses on massless links, all 1."""
    system = System("chain", gravity=(0, -1, 0))
    joint = Joint(type="revolute", position=(0, -1, 0))
    system.repeat(
        n, Body(name="link", mass=1, center_of_mass=(0, -1, 0), inertia=(1e-13,) * 3 + (0, 0, 0), joint=joint)
    )
    return system


def beam(n: int, joint: str = "revolute") -> System:
    system = System("beam", gravity=(0, 0, 0))
    fields = {"EI": STIFFNESS, "GJ": 800.0, "mass_per_length": PER_LENGTH, "joint": joint, "clamped": True}
    system.add_rod(name="beam", count=n, length=LENGTH, **fields)
    return system


@pytest.mark.parametrize("limit", [1000, 1])
@pytest.mark.parametrize("n", [4, 8, 16])
def test_hanging_chains(comm: MPI.Comm, n: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares of the frequencies are the zeros of Laguerre polynomials; shapes solve the equations of the oracle."""
    monkeypatch.setattr(mpimbs.dynamics.statics.modes, "DENSE", limit)
    system, n_modes = hanging(n), n if limit > n else n // 2
    given = found(system, comm, n_modes)
    zeros = np.polynomial.laguerre.lagroots([0.0] * n + [1.0])[:n_modes]
    assert_close("squares", given.squares / zeros, np.ones(n_modes), "modes")
    inertia = dense.mass_matrix(system, np.zeros(n))
    assert_close("energies", given.shapes @ inertia @ given.shapes.T, np.eye(n_modes), "modes")


def test_branches(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree without springs where it hangs at rest, by either method."""
    with closing(Dynamics(system_from("random_tree:30:3"), comm)) as dynamics:
        q = settle(dynamics, dynamics.subchain.q).q
        dense_squares = modes(dynamics, q, 3).squares
        monkeypatch.setattr(mpimbs.dynamics.statics.modes, "DENSE", 1)
        assert_close("squares by Lanczos", modes(dynamics, q, 3).squares, dense_squares, "modes")


def test_large_ones_that_are_not_stable(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanczos does not find them: dense matrices do, while these are formed."""
    monkeypatch.setattr(mpimbs.dynamics.statics.modes, "DENSE", 1)
    system = hanging(4)
    system.gravity = (0, 1, 0)
    assert_close("squares", -found(system, comm).squares[:0:-1], found(hanging(4), comm, 3).squares, "modes")


def test_a_beam_by_either_method(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first frequency comes to that of the continuum as the square of the links' length."""
    errors = []
    for n in (16, 32, 64):
        given = found(beam(n), comm, 3)
        errors.append(np.sqrt(given.squares[0]) / BEAM - 1)
        with monkeypatch.context() as patch:
            patch.setattr(mpimbs.dynamics.statics.modes, "DENSE", 1)
            other = found(beam(n), comm, 3)
        assert_close("squares by Lanczos", other.squares, given.squares, "modes")
        signs = np.sign(np.sum(other.shapes * given.shapes, axis=1))
        assert_close("shapes by Lanczos", signs[:, None] * other.shapes, given.shapes, "shapes")
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.all(np.abs(orders - 2.0) < 0.01)
    assert abs(errors[-1]) < 1.2e-4


def test_balls_and_free_rods(comm: MPI.Comm) -> None:
    """Joints with quaternions: both bending planes and torsion; a rod that nothing holds has six modes at zero."""
    plane, space = found(beam(12), comm, 1), found(beam(12, "spherical"), comm, 2)
    assert_close("bending", space.squares, np.repeat(plane.squares, 2), "modes")
    system = System("free", gravity=(0, 0, 0))
    system.add_rod(name="rod", count=12, length=1, EI=1, GJ=1, joint="spherical", floating=True, mass_per_length=1)
    squares = found(system, comm, 8).squares
    assert np.all(np.abs(squares[:6]) < 1e-6)
    assert abs(np.sqrt(squares[6]) / 22.3733 - 1) < 1e-3


def four_bars(n: int, gravity: float) -> System:
    given = system_from(f"four_bar:{n}")
    system = System("cranks", gravity=(0, gravity, 0))
    for body in given.contents.bodies():
        system.add(body, joint=body.joint.model_copy(update={"u": (0.0,)}))
    for loop in given.contents.loops:
        system.add_loop(loop)
    return system


def test_loops(comm: MPI.Comm) -> None:
    """A row of four-bar linkages has one mode, in closed form; upside down it grows as fast."""
    n = 3
    square = ((n + 1) / 2 + n) * 9.81 / ((n + 1) / 3 + n)
    assert_close("hanging", found(four_bars(n, 9.81), comm).squares, [square], "modes")
    given = found(four_bars(n, -9.81), comm)
    assert_close("upright", given.squares, [-square], "modes")
    assert_close("its rate", given.frequencies, [-np.sqrt(square) / (2 * np.pi)], "modes")


def test_driven_joints_stay(comm: MPI.Comm) -> None:
    """A chain whose upper joint follows a motion hangs, as one link shorter, where that is at the begin."""
    system = System("driven", gravity=(0, -1, 0))
    template = hanging(1).contents.segments.template(0)
    joint = template.joint.model_copy(update={"motion": lambda t: (2.0 * t, 2.0, 3.0)})
    system.add(template, name="drive", parent="world", joint=joint)
    system.repeat(4, template)
    assert_close("squares", found(system, comm).squares, found(hanging(4), comm).squares, "modes")


def test_what_is_refused(comm: MPI.Comm) -> None:
    falling = beam(8)
    falling.gravity = (0, -9.81, 0)
    loose = System("loose", gravity=(0, 0, 0))
    loose.repeat(3, hanging(1).contents.segments.template(0))
    loose.set_torque(loose.contents.name_of(1), 1.0)
    with pytest.raises(
        InputError, match=rf"nothing resists what acts on the joint of body '{loose.contents.name_of(1)}'; give it"
    ):
        found(loose, comm)
    with pytest.raises(InputError, match=r"no equilibrium: the joint of body 'beam2' is about .* settle it first"):
        found(falling, comm)
    stuck = System("stuck")
    for k in range(4):
        stuck.add(name=f"b{k}", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=Joint(type="fixed"))
    with pytest.raises(InputError, match="system 'stuck' has no modes: nothing can move"):
        found(stuck, comm)


@pytest.mark.parametrize("size", [1.0, 1e-5])
def test_small_systems_are_as_near_to_equilibrium(size: float) -> None:
    """A slider of some size, a twentieth of it from where its spring is at ease, is not there; a millionth will do."""
    system = System("slider", gravity=(0, 0, 0))
    joint = Joint(type="prismatic", axis=(1, 0, 0), stiffness=2.0)
    system.add(name="m", mass=1, inertia=(1, 1, 1, 0, 0, 0), center_of_mass=(size, 0, 0), joint=joint)
    with closing(Dynamics(system, MPI.COMM_SELF)) as dynamics:
        assert_close("squares", modes(dynamics, np.array([1e-7 * size])).squares, [2.0], "modes")
        with pytest.raises(InputError, match="no equilibrium"):
            modes(dynamics, np.array([0.05 * size]))


def test_a_picture() -> None:
    system = beam(6)
    figure = draw_modes(system.contents, system.contents.initial_state(0, 6)[0], found(system, MPI.COMM_SELF, 3))
    assert len(figure.axes) == 3
