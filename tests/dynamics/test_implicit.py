"""Linearly implicit steps: their matrix against the dense oracle, their order where it is stiff, and what they bear."""

import gc
import math
import weakref
from contextlib import closing
from typing import Any

import numba
import numpy as np
import pytest
from mpi4py import MPI

from cases import moving_state, parts
from documents import PAGES, block
from mpi_helpers import parallel_assert
from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.operators.tension import BodyResistance
from mpimbs.model import Body, BodyMotion, Joint, System, system_from
from mpimbs.run.run import simulate
from mpimbs.stepping.newton import Newton
from oracles import dense
from oracles.dense import Array
from oracles.loops import closed, opened
from oracles.random_systems import random_system
from tolerances import assert_close

H = 0.3  # s
SPECS = ("mixed", "mixed tree", "rope:35", "free_chain:6", "figure", "crowd:2", "random_tree:40:3")


def system_of(spec: str) -> System:
    """A system, of all joint types if it is a mixed one, with springs and dampers."""
    if spec.startswith("mixed"):
        return random_system(4, 11, spec == "mixed", wrenches=True)[0]
    return system_from(spec)


def solved(comm: MPI.Comm, system: System, q: Array, r: Array, **settings: object) -> Array:
    """x of (1 - h J) x = r by the ranks, in the model's order, on all of them."""
    with closing(Dynamics(system, comm, **settings)) as dynamics:
        mine_q, _ = parts(dynamics, q, np.zeros(system.nu))
        own = np.concatenate(parts(dynamics, r[: system.nq], r[system.nq :]))
        x = np.empty_like(own)
        for step in (1.0, H):  # the second one is to leave nothing of the first
            dynamics.inertia.implicit_matrix.at(mine_q, step)
            dynamics.inertia.implicit_matrix.solve(own, x)
        nq = dynamics.subchain.nq
        found = dynamics.gather_q(x[:nq]), dynamics.gather_u(x[nq:])
    return np.concatenate(comm.bcast(found))


def as_it_turns(system: System, q: Array) -> Array:
    """G [nq, nu], the rates of the coordinates by the speeds."""
    return np.array([dense.coordinate_rates(system, q, unit) for unit in np.eye(system.nu)], float).T


@pytest.mark.cases(2)
@pytest.mark.parametrize("coupling", ["dcae", "pcg", "dca"])
@pytest.mark.parametrize("spec", SPECS)
def test_stages_are_solved(comm: MPI.Comm, spec: str, coupling: str) -> None:
    """x_q = r_q + h G x_u and M x_u + h (D x_u + K G^+ x_q) = M r_u, by the dense oracle."""
    system = system_of(spec)
    if coupling == "dca" and not system.contents.is_chain:
        return
    q, _, _ = moving_state(system, 2)
    r = np.random.default_rng(5).uniform(-1, 1, system.nq + system.nu)
    x = solved(comm, system, q, r, coupling=coupling)
    (r_q, r_u), (x_q, x_u) = np.split(r, [system.nq]), np.split(x, [system.nq])
    turning, inertia = as_it_turns(system, q), dense.mass_matrix(system, q).astype(float)
    stiffness, damping = dense.resistance(system.contents.columns(), q)
    assert_close("coordinates", x_q, r_q + H * turning @ x_u, "dense", comm=comm)
    along = np.linalg.lstsq(turning, x_q)[0]
    forces = H * (damping * x_u + stiffness * along)
    left = np.linalg.solve(inertia + np.diag(H * damping + H**2 * stiffness), inertia @ (x_u - r_u) + forces)
    assert_close("speeds", x_u, x_u - left, "dense", comm=comm)


def at_rest(body: Body) -> Body:
    """A body on which nothing acts, of whose joint only rotors are left: those that an implicit step adds, too."""
    joint = body.joint
    rotors = np.array(joint.armature) + H * np.array(joint.damping) + H**2 * np.array(joint.stiffness)
    rotors += (H * np.array(joint.stop_damping) + H**2 * np.array(joint.stop_stiffness)) * (joint.q > joint.upper)
    none = (0.0,) * joint.kind.nu
    acting = ("stiffness", "damping", "torque", "stop_stiffness", "stop_damping")
    still = joint.model_copy(update=dict.fromkeys(acting, none) | {"armature": tuple(rotors)})
    return body.model_copy(update={"joint": still, "wrench": ()})


def pressed(body: Body) -> dict[str, tuple[float, ...]]:
    """A stop that every joint of one coordinate is pressed against, where the mechanism begins."""
    if body.joint.kind.nu != 1:
        return {}
    return {"upper": (body.joint.q[0] - 0.1,), "stop_stiffness": (30.0,), "stop_damping": (0.7,)}


@pytest.mark.parametrize("spec", ["four_bar:12", "five_bar", "boom:2", "track:9"])
def test_stages_are_solved_with_loops_closed(comm: MPI.Comm, spec: str) -> None:
    """The heavier system's accelerations by the dense oracle, which go along with the loops."""
    system = system_from(spec)
    system.contents.segments = system.contents.segments.replaced(
        lambda body: body.model_copy(
            update={"joint": body.joint.model_copy(update={"stiffness": (2.0,) * body.joint.kind.nu} | pressed(body))}
        )
    )
    c = system.contents.columns()
    stiffness, damping = dense.resistance(c, c.q)
    assert stiffness.max() > 2.0
    r = np.random.default_rng(5).uniform(-1, 1, system.nq + system.nu)
    x = solved(comm, system, c.q, r)
    r_q, r_u = np.split(r, [system.nq])
    heavier = system_from(spec)
    heavier.contents.segments, heavier.gravity = system.contents.segments.replaced(at_rest), (0.0, 0.0, 0.0)
    along = np.linalg.lstsq(as_it_turns(opened(system), c.q), r_q)[0]
    tau = -H * ((damping + H * stiffness) * r_u + stiffness * along)
    z = closed(heavier, c.q, np.zeros(system.nu), tau).udot.astype(float)
    assert_close("speeds", x[system.nq :], r_u + z, "dense", comm=comm)


class Resisting:
    """A body force that gives damping and stiffness, any of the bodies' own, in the world frame about a point."""

    def __init__(self, n: int) -> None:
        roots = np.random.default_rng(7).uniform(-1, 1, (2, n, 6, 6))
        self.given = np.swapaxes(roots, 2, 3) @ roots
        self.given[:, ::3] = 0.0

    def __call__(self, t: float, motion: BodyMotion) -> tuple[object, ...]:
        return 0.0, np.zeros_like(motion.velocity), *self.given[:, motion.body]


@pytest.mark.cases(1)
@pytest.mark.parametrize("spec", ["mixed", "mixed tree", "rope:35", "random_tree:40:3"])
def test_what_acts_on_bodies_is_solved_with(comm: MPI.Comm, spec: str) -> None:
    """As `test_stages_are_solved`, with damping and stiffness that a function gives, and added mass."""
    system, point = system_of(spec), (0.1, -0.2, 0.3)
    wet = tuple(map(tuple, np.diag((0.1, 0.2, 0.3, 1.0, 2.0, 3.0)).tolist()))
    system.contents.segments = system.contents.segments.replaced(
        lambda body: body.model_copy(update={"added_mass": wet})
    )
    act = Resisting(system.n_bodies)
    system.add_body_force(None, act, point=point, vectorized=True)
    q, u, _ = moving_state(system, 2)
    r = np.random.default_rng(5).uniform(-1, 1, system.nq + system.nu)
    with closing(Dynamics(system, comm)) as dynamics:
        mine_q, mine_u = parts(dynamics, q, u)
        own = np.concatenate(parts(dynamics, r[: system.nq], r[system.nq :]))
        resistance = BodyResistance(dynamics.divided)
        dynamics.accelerations(mine_q, mine_u)
        stiffness, damping = resistance.take(False)
        x, nq = np.empty_like(own), dynamics.subchain.nq
        for step in (1.0, H):
            dynamics.inertia.implicit_matrix_of_bodies.at(mine_q, step, stiffness, damping)
            dynamics.inertia.implicit_matrix_of_bodies.solve(own, x)
        x = np.concatenate(comm.bcast((dynamics.gather_q(x[:nq]), dynamics.gather_u(x[nq:]))))
    (r_q, r_u), (x_q, x_u) = np.split(r, [system.nq]), np.split(x, [system.nq])
    moved = [dense.Snapshot(system, q, unit) for unit in np.eye(system.nu)]
    stiff, damped = map(np.diag, dense.resistance(system.contents.columns(), q))
    for k in range(system.n_bodies):
        twists = np.array([[*state.kinematics.omega[k], *state.point(k, point)[1]] for state in moved], float)
        damped, stiff = (
            total + twists @ own[k] @ twists.T for total, own in zip((damped, stiff), act.given, strict=True)
        )
    turning, inertia = as_it_turns(system, q), dense.mass_matrix(system, q).astype(float)
    assert_close("coordinates", x_q, r_q + H * turning @ x_u, "dense", comm=comm)
    along = np.linalg.lstsq(turning, r_q)[0]
    left = inertia + H * damped + H**2 * stiff
    right = inertia @ r_u - H * stiff @ along
    assert_close("speeds", x_u, np.linalg.solve(left, right), "iterated", comm=comm)


def test_drag_and_ground_take_long_steps(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the documentation, where explicit steps are limited to an eighth, and lands as those do."""
    code = block(PAGES / "howto/fluids.md", "Stiff forces on bodies")
    if comm.size > 1:
        return  # as long steps as on one rank: `test_what_acts_on_bodies_is_solved_with`
    scope: dict[str, Any] = {}
    exec(code, scope)
    landed, dragged = scope["landed"], scope["dragged"]
    assert landed.steps < 80 and dragged.steps < 200
    lying = np.tile([1.0, 0, 0, 0], 8)
    assert_close("landed", np.append(landed.q[-1, :4], landed.q[-1, 7:]), lying, "statics")
    weight = 9.81 / 1e7
    assert_close("sunk in", landed.q[-1, 5], -weight, "settled", scale=1.0)
    followed = simulate(scope["line"](), 2.0, every=2.0, rtol=1e-7, atol=1e-7)
    assert followed.steps > 8 * dragged.steps
    assert np.abs(dragged.q[-1] - followed.q[-1]).max() < 1e-4


WRONG = {
    "needs an array of shape": lambda n: np.zeros((n, 3, 3)),
    "damping is not finite": lambda n: np.full((n, 6, 6), np.nan),
    "damping is negative": lambda n: -np.eye(6),
}


@pytest.mark.parametrize("message", WRONG)
def test_damping_that_is_none(message: str) -> None:
    system = system_from("chain:3")
    system.add_body_force(None, lambda t, motion: (0.0, 0.0, WRONG[message](3)), vectorized=True)
    with pytest.raises(SimulationError, match=message), closing(Dynamics(system)) as dynamics:
        dynamics.accelerations(dynamics.subchain.q, dynamics.subchain.u)


def test_damping_that_a_function_no_longer_gives(comm: MPI.Comm) -> None:
    def sometimes(t: float, motion: BodyMotion) -> tuple[object, ...]:
        none = np.zeros_like(motion.velocity)
        return (0.0, none, np.eye(6)) if t < 1.0 else (0.0, none)

    system = system_from("rope:9")
    system.add_body_force(None, sometimes, vectorized=True)
    with closing(Dynamics(system, comm)) as dynamics:
        resistance, state = BodyResistance(dynamics.divided), (dynamics.subchain.q, dynamics.subchain.u)
        given = []
        for t in (0.0, 2.0):
            dynamics.accelerations(*state, t=t)
            given.append([values is not None for values in resistance.take(False)])
    parallel_assert(given == [[False, True], [False, False]], f"{given}", comm)


@pytest.mark.parametrize(
    ("rows", "message"), [(6, "on body 'link1': its damping is negative"), (3, "shape \\[3, 3\\] as")]
)
def test_damping_that_is_none_in_compiled_steps(rows: int, message: str) -> None:
    """What compiled code calls is told of as Python would."""

    @numba.njit
    def wrong(t, motion):  # type: ignore[no-untyped-def]
        damping = np.eye(6)
        if t >= 0.01:
            damping = np.ones((rows, rows))
            damping[1, 1] = -1.0
        return 0.0, -motion.velocity, damping

    system = system_from("rope:3")
    system.add_body_force(None, wrong, vectorized=True)
    with pytest.raises(SimulationError, match=message):
        simulate(system, 0.02, integrator="rosenbrock", rtol=1e-4)


def rod(n: int, bending: float) -> System:
    """A horizontal rod of 1 m and 50 g that is clamped at one end, of a bending stiffness (N m^2)."""
    system, length = System("rod"), 1.0 / n
    turn = 0.05 / n * length**2 / 12
    for k in range(n):
        joint = Joint(
            type="revolute", axis=(0, 0, 1), position=(length if k else 0, 0, 0),
            stiffness=bending / length * (1 if k else 2),
        )  # fmt: skip
        system.add(
            name=f"link{k}", mass=0.05 / n, center_of_mass=(length / 2, 0, 0), inertia=(turn,) * 3 + (0,) * 3,
            joint=joint,
        )  # fmt: skip
    return system


def tip(q: Array) -> Array:
    """Where the rod ends (m)."""
    angles = np.cumsum(q)
    return np.array([np.cos(angles).sum(), np.sin(angles).sum()]) / len(q)


def test_ranks_take_the_same_steps(comm: MPI.Comm) -> None:
    settings = {"every": 0.05, "integrator": "rosenbrock", "rtol": 1e-4, "atol": 1e-4}
    for spec in ("rope:9", "random_tree:9:3", "four_bar:4"):
        system = system_from(spec)
        alone, together = simulate(system, 0.1, **settings, comm=MPI.COMM_SELF), simulate(system, 0.1, comm, **settings)
        if comm.rank == 0:
            assert_close(spec, together.q, alone.q, "ranks")
        parallel_assert(together.steps == alone.steps, f"{spec}: steps", comm)


@pytest.mark.parametrize("integrator", ["petsc:bdf", "petsc:arkimex3"])
def test_stages_by_newton(comm: MPI.Comm, integrator: str) -> None:
    """Chains, trees and loops on any ranks; a stiff rod as rosenbrock has it, whose matrix leaves out more."""
    settings = {"every": 0.05, "integrator": integrator, "dt": 0.01}
    for spec in ("rope:9", "random_tree:9:3", "four_bar:4"):
        system = system_from(spec)
        alone, together = simulate(system, 0.1, **settings, comm=MPI.COMM_SELF), simulate(system, 0.1, comm, **settings)
        if comm.rank == 0:
            assert_close(spec, together.q, alone.q, "runs")
    stiff, step = rod(16, 200.0), {"every": 0.1, "dt": 0.01}
    found = simulate(stiff, 0.1, comm, integrator=integrator, **step)
    if comm.rank == 0:
        other = simulate(stiff, 0.1, integrator="rosenbrock", **step, comm=MPI.COMM_SELF)
        bent = 0.05 * 9.81 / 8 / 200.0  # m, by its weight
        assert np.linalg.norm(tip(found.q[-1]) - tip(other.q[-1])) < 0.1 * bent


def hammer(metre: float, kilogram: float, second: float) -> System:
    """A damped pendulum on a sprung slide, in units in which a metre, a kilogram and a second are these numbers."""
    system = System("hammer", gravity=(0.0, -9.81 * metre / second**2, 0.0))
    force, moment = kilogram * metre / second**2, kilogram * metre**2 / second**2
    slide = Joint(type="prismatic", axis=(1, 0, 0), stiffness=80 * force / metre, damping=2 * force / metre * second)
    swing = Joint(type="revolute", axis=(0, 0, 1), q=(1.0,), damping=0.3 * moment * second)
    round_ = (0.1 * kilogram * metre**2,) * 3 + (0.0,) * 3
    system.add(name="cart", mass=2 * kilogram, inertia=round_, joint=slide)
    center = (0, -metre, 0)
    system.add(name="arm", parent="cart", mass=kilogram, center_of_mass=center, inertia=round_, joint=swing)
    return system


@pytest.mark.cases(1)
@pytest.mark.parametrize("integrator", ["petsc:bdf", "petsc:arkimex3"])
def test_stages_by_newton_in_any_units(integrator: str) -> None:
    """The same motion, work included, as with metres, kilograms and seconds, and with an explicit integrator."""
    found = {}
    for units in ((1.0, 1.0, 1.0), (1e3, 1e-3, 1.0), (1e-6, 1e-12, 1e-3), (100.0, 1e9, 10.0), (1e6, 1e6, 1e6)):
        metre, kilogram, second = units
        step = {"every": 0.5 * second, "integrator": integrator, "dt": 0.005 * second}
        result = simulate(hammer(*units), 2.0 * second, **step)
        found[units] = np.column_stack((result.q / (metre, 1.0), result.energy / (kilogram * metre**2 / second**2)))
        assert result.energy_change < 1e-3
    plain = found[1.0, 1.0, 1.0]
    for units, values in found.items():
        assert_close(f"{units}", values, plain, "stages in units", comm=MPI.COMM_SELF)
    right = simulate(hammer(1.0, 1.0, 1.0), 2.0, every=0.5, rtol=1e-10, atol=1e-10).q
    assert np.abs(plain[:, :2] - right).max() < 2e-3


def test_newtons_method_is_freed(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """PETSc holds it, which it holds: 0.2 MB a run stayed behind."""
    made: list[weakref.ref[Newton]] = []
    begin: Any = Newton.__init__

    def noted(self: Newton, *given: Any) -> None:
        made.append(weakref.ref(self))
        begin(self, *given)

    monkeypatch.setattr(Newton, "__init__", noted)
    simulate("rope:4", 0.02, comm, integrator="petsc:bdf", dt=0.01, every=0.02)
    gc.collect()
    parallel_assert(made and all(one() is None for one in made), "it is still there", comm)


def test_stages_that_newton_does_not_solve() -> None:
    def jumping(t: float, q: Array, u: Array) -> Array:
        return np.where(u > 0, -1e6, 1e6)

    system = System("jumping")
    system.add(name="wheel", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=Joint(type="revolute"))
    system.add_joint_force("wheel", jumping)
    with pytest.raises(
        SimulationError, match=r"t = 0 s, step 0\.1 s: Newton's method does not converge; give a smaller"
    ):
        simulate(system, 1.0, integrator="petsc:bdf", dt=0.1)


@pytest.mark.parametrize("looped", [False, True], ids=["chain", "loop"])
def test_rotors_beside_stiff_springs(comm: MPI.Comm, looped: bool) -> None:
    """A light body with a small rotor and a very stiff spring: the rotor counts to the last digit, from step 0 on."""
    rotor, stiffness, inertia = 1.1e-6, 1e8, 1e-9
    system = System(gravity=(0.0, 0.0, 0.0))
    for k in range(4):
        joint = Joint(type="revolute", axis=(0, 0, 1), armature=rotor, stiffness=stiffness, damping=1e3)
        inertias = (inertia,) * 3 + (0.0,) * 3
        system.add(name=f"b{k}", parent="world", mass=1e-9, inertia=inertias, joint=joint)
    if looped:
        free = Joint(type="free")
        system.add(name="free", parent="world", mass=1.0, inertia=(1, 1, 1, 0, 0, 0), joint=free)
        system.add_loop(name="held", type="spherical", bodies=("world", "free"), positions=((0, 0, 0), (0, 0, 0)))
    with closing(Dynamics(system, comm)) as dynamics:
        matrix, tau = dynamics.inertia.implicit_matrix, np.zeros(system.nu)
        tau[:4] = 1e-6
        own, z = tau[dynamics.gather_u.part], np.empty(dynamics.subchain.nu)
        for h in (0.0, 1e-3, 0.0):
            matrix.at(dynamics.subchain.q, h)
            matrix.heavier(own, z)
            right = 1e-6 / (inertia + rotor + h * 1e3 + h**2 * stiffness) * (tau[dynamics.gather_u.part] > 0.0)
            assert_close(f"z at {h}", z, right, "dense", scale=float(right.max(initial=1e-300)), comm=comm)


@pytest.mark.ranks(1)
@pytest.mark.parametrize(
    ("name", "order", "gamma", "stages"), [("rosenbrock2", 2, 1 - 0.5**0.5, 2), ("rosenbrock", 3, 0.435866521508459, 4)]
)
def test_a_step_multiplies_by_the_stability_function(name: str, order: int, gamma: float, stages: int) -> None:
    """R(z) = P(z) / (1 - gamma z)^s, P the begin of exp(z) (1 - gamma z)^s: the error of the step is its own alone.

    Of degree s - 1, L-stable; of two stages the coefficient of z is that of order 2, of four that of z^3 of order 3.
    """
    system, stiffness, damping, size = System("spring"), 30.0, 2.0, 0.5
    joint: dict[str, Any] = {"type": "revolute", "stiffness": stiffness, "damping": damping, "q": 0.3, "u": -0.2}
    system.add(name="wheel", mass=1.0, inertia=(1.0, 1.0, 1.0, 0, 0, 0), joint=joint)
    found = simulate(system, size, integrator=name, dt=size, every=size)
    below = np.polynomial.Polynomial([1.0, -gamma]) ** stages
    exponential = np.polynomial.Polynomial([1 / math.factorial(k) for k in range(stages + 1)])
    above = (exponential * below).cutdeg(stages - 1)
    z = size * np.array([[0.0, 1.0], [-stiffness, -damping]])

    def of(polynomial: np.polynomial.Polynomial) -> Array:
        return sum(c * np.linalg.matrix_power(z, k) for k, c in enumerate(polynomial.coef))

    assert order == stages - (stages == 4)
    assert_close(
        "state", [found.q[-1, 0], found.u[-1, 0]], np.linalg.solve(of(below), of(above) @ (0.3, -0.2)), "statics"
    )
