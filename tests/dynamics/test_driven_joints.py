"""Joints that follow given motions: in every coupling, tree, loop and run, against dense solutions and closed forms."""

import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy.integrate import solve_ivp

from cases import parts
from mpimbs.base.errors import InputError, InterruptionError, SimulationError
from mpimbs.coupling import COUPLINGS
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.statics.equilibrium import Equilibrium
from mpimbs.model import Joint, System, system_from, system_from_text, system_text
from mpimbs.model.motion import TableMotion
from mpimbs.run.restart import restart
from mpimbs.run.run import simulate
from mpimbs.stepping.settings import Checkpoints
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import random_system
from run.interruptions import differing, signalled
from tolerances import assert_close

PLAIN = ("revolute", "prismatic", "helical", "cylindrical", "universal", "planar")
TIME = 0.3  # s, at which random motions are asked for


def at_one_time(values: Array) -> Callable[[float], Array]:
    """A motion that is known at one time only."""

    def motion(t: float) -> Array:
        assert t == TIME
        return values

    return motion


def driven(system: System, q: Array, u: Array, every: int, seed: int = 0) -> tuple[System, Array, Array]:
    """The same system with motions of every so many joints; which speeds these are, and their accelerations."""
    rng, made = np.random.default_rng(seed), System(system.name, system.gravity)
    (at_q, at_u), held, udot = system.contents.offsets(), np.zeros(system.nu, bool), rng.uniform(-3, 3, system.nu)
    for k, body in enumerate(system.contents.bodies()):
        joint, speeds = body.joint, slice(*at_u[k : k + 2])
        if joint.type in PLAIN and k % every == 0:
            motion = at_one_time(np.stack((q[at_q[k] : at_q[k + 1]], u[speeds], udot[speeds])))
            joint = joint.model_copy(update={"motion": motion})
            held[speeds] = True
        made.add(body.model_copy(update={"joint": joint}))
    return made, held, udot


def oracle(system: System, held: Array, udot: Array, q: Array, u: Array, tau: Array) -> tuple[Array, Array]:
    """Accelerations where some are given, and the forces that drive these."""
    inertia, free = dense.mass_matrix(system, q), ~held
    forces = inertia @ dense.dense_accelerations(system, q, u, tau)  # what acts, less what speeds take
    found = np.where(held, udot, 0.0)
    found[free] = np.linalg.solve(inertia[np.ix_(free, free)], (forces - inertia @ found)[free])
    return found, np.where(held, inertia @ found - forces, 0.0)


def check(comm: MPI.Comm, seed: int, chain: bool, every: int, **settings: Any) -> None:
    """Accelerations and drives of a random system; what the state says of joints that follow doesn't count."""
    system, q, u, tau = random_system(seed, 16, chain, wrenches=True)
    moved, held, udot = driven(system, q, u, every, seed)
    tau = np.where(held, 0.0, tau)
    expected, _ = oracle(system, held, udot, q, u, tau)
    tolerance = "iterated" if settings["coupling"] in ("pcg", "augmented") else "driven"
    given, loads = "rounding", "iterated"
    if settings["coupling"] == "augmented":  # in which they are constraints
        given, loads = "iterated", "multipliers"
    with closing(Dynamics(moved, comm, **settings)) as dynamics:
        ours = dynamics.gather_u.part
        state = parts(dynamics, np.where(_of_coordinates(moved), 9.0, q), np.where(held, -9.0, u), tau)
        found = dynamics.accelerations(*state, t=TIME)
        size = float(np.abs(expected).max())
        assert_close("accelerations", found, expected[ours], tolerance, scale=size, comm=comm)
        assert_close("given ones", found[held[ours]], udot[ours][held[ours]], given, scale=3.0, comm=comm)
        _, drives = oracle(system, held, udot, q, u, 0 * tau)
        found = dynamics.loads.drive_forces(*state[:2], t=TIME)
        assert_close("drives", found, drives[ours], loads, scale=float(np.abs(drives).max()), comm=comm)


def _of_coordinates(system: System) -> Array:
    """Which coordinates are of joints that follow."""
    found, at = np.zeros(system.nq, bool), system.contents.offsets()[0]
    for k, _ in system.contents.columns().motions:
        found[at[k] : at[k + 1]] = True
    return found


@pytest.mark.cases(2)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("coupling", sorted(COUPLINGS))
@pytest.mark.parametrize("every", [1, 3])
def test_chains(comm: MPI.Comm, coupling: str, every: int) -> None:
    for seed in range(2):
        check(comm, seed, True, every, coupling=coupling)


@pytest.mark.cases(1)
@pytest.mark.parametrize("coupling", ["dcae", "pcg", "assembly", "augmented"])
def test_trees(comm: MPI.Comm, coupling: str) -> None:
    for seed in range(2):
        check(comm, seed, False, 3, coupling=coupling)


def wave(t: float) -> tuple[float, float, float]:
    """0.2 m sin 3 t."""
    return 0.2 * np.sin(3 * t), 0.6 * np.cos(3 * t), -1.8 * np.sin(3 * t)


def cart(motion: Any) -> System:
    """A pendulum on a cart that is driven along x, and two bodies that don't move, for other ranks."""
    system = System("cart", gravity=(0, -9.81, 0))
    rail = Joint(type="prismatic", axis=(1, 0, 0), motion=motion, damping=2.0, stiffness=3.0, armature=0.4)
    system.add(name="cart", mass=2, inertia=(1, 1, 1, 0, 0, 0), joint=rail)
    hinge = Joint(type="revolute", q=0.7)
    system.add(name="bob", mass=0.5, center_of_mass=(0, -0.8, 0), inertia=(0.1, 0.1, 0.1, 0, 0, 0), joint=hinge)
    for name in ("wall", "floor"):
        system.add(name=name, parent="world", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=Joint(type="fixed"))
    return system


def swinging(t_end: float, motion: Callable[[float], Any]) -> tuple[float, float, float]:
    """Angle of that pendulum, its acceleration, and the force that drives the cart: their equations by scipy."""
    inertia, mass, length = 0.1 + 0.5 * 0.64, 0.5, 0.8

    def acceleration(t: float, angle: float) -> float:
        return -mass * length * (9.81 * np.sin(angle) + motion(t)[2] * np.cos(angle)) / inertia

    given = {"rtol": 1e-12, "atol": 1e-12, "method": "DOP853"}
    found = solve_ivp(lambda t, y: (y[1], acceleration(t, y[0])), (0, t_end), (0.7, 0.0), **given).y[:, -1]
    angle, speed, turn = *found, acceleration(t_end, found[0])
    value, velocity, push = motion(t_end)
    pull = mass * length * (turn * np.cos(angle) - speed**2 * np.sin(angle))
    return angle, turn, (2.5 + 0.4) * push + pull + 2.0 * velocity + 3.0 * value


def test_a_driven_pendulum(comm: MPI.Comm) -> None:
    """The motion, what drives it, and its work: energy is accounted for."""
    system = cart(wave)
    result = simulate(system, 1.0, comm, rtol=1e-10, atol=1e-10, loads=True)
    angle, turn, force = swinging(1.0, wave)
    assert result.energy_change < 1e-8
    with closing(Dynamics(system, comm)) as dynamics:
        state = [np.zeros(2), np.zeros(2)] if comm.rank else [result.q[-1], result.u[-1]]
        for values in state:
            comm.Bcast(values)
        assert_close("cart", state[0][:1], [wave(1.0)[0]], "exact")
        assert_close("angle", state[0][1:], [angle], "runs", scale=1.0)
        udot = np.array(dynamics.gather_u(dynamics.accelerations(*parts(dynamics, *state), t=1.0)))
        drive = dynamics.gather_u(dynamics.loads.drive_forces(*parts(dynamics, *state), t=1.0))
    if comm.rank == 0:
        assert_close("accelerations", udot, [wave(1.0)[2], turn], "runs", scale=1.0)
        assert_close("drive", drive, [force, 0.0], "runs", scale=1.0)


def test_a_motion_that_changes(comm: MPI.Comm) -> None:
    """What it gives now counts, also at a time that was asked for before."""
    given = [0.1, 0.2, 0.3]
    with closing(Dynamics(cart(lambda t: given), comm)) as dynamics:
        state = parts(dynamics, np.array([0.0, 0.7]), np.zeros(2))
        for given[2] in (0.3, -2.0):
            udot = dynamics.gather_u.everywhere(dynamics.accelerations(*state, None, 0.5))
            assert_close("given", udot[:1], [given[2]], "rounding")
            assert_close("swinging", udot[1:], [swinging(1e-12, lambda t: given)[1]], "rounding")


def test_statics_and_implicit_steps(comm: MPI.Comm) -> None:
    """At rest the joint stays where it is at the begin, whatever its speed; implicit steps follow it, too."""
    system = cart(lambda t: tuple(value + 0.1 * (k == 0) for k, value in enumerate(wave(t))))
    with closing(Dynamics(system, comm)) as dynamics:
        settled = np.array(dynamics.gather_q(Equilibrium(dynamics).find(dynamics.subchain.q).q))
    if comm.rank == 0:
        assert_close("cart and bob", settled, [0.1, 0.0], "statics", scale=1.0)
    result = simulate(cart(wave), 1.0, comm, integrator="rosenbrock", dt=2e-3)
    if comm.rank == 0:
        assert_close("cart", result.q[-1, :1], [wave(1.0)[0]], "exact")
        assert abs(result.q[-1, 1] - swinging(1.0, wave)[0]) < 1e-5


def crank_motion(t: float) -> tuple[float, float, float]:
    return np.pi / 2 - 1.3 * t, -1.3, 0.0


@pytest.mark.parametrize("closing_joint", [False, True])
def test_a_driven_crank(comm: MPI.Comm, closing_joint: bool) -> None:
    """A four-bar linkage of equal cranks at constant speed: all turn alike, whichever joint of the loop is driven."""
    given, system = system_from("four_bar:2"), System("cranks")
    for body in given.contents.bodies():
        crank = not closing_joint and body.name == "crank_0"
        system.add(body, joint=body.joint.model_copy(update={"motion": crank_motion if crank else None}))
    for loop in given.contents.loops:
        driven_pin = closing_joint and loop.name == given.contents.loops[0].name
        turn = loop.model_copy(update={"motion": crank_motion}) if driven_pin else loop
        system.add_loop(turn)
    result = simulate(system, 0.5, comm, rtol=1e-9, atol=1e-9)
    assert result.energy_change < 1e-7
    with closing(Dynamics(system, comm)) as dynamics:
        q = np.zeros(system.nq) if comm.rank else result.q[-1].copy()
        comm.Bcast(q)
        rotations, _ = dynamics.poses(*parts(dynamics, q, np.zeros(system.nu)))
        for body, rotation in zip(dynamics.bodies.tolist(), rotations, strict=True):
            angle = crank_motion(0.5)[0] if "crank" in system.contents.name_of(body) else 0.0
            if "drive" not in system.contents.name_of(body):
                assert_close(
                    system.contents.name_of(body), rotation[:2, 0], (np.cos(angle), np.sin(angle)), "runs", scale=1.0
                )


def test_a_table(comm: MPI.Comm) -> None:
    """Between its rows a table has continuous accelerations; a run follows it, and a file holds it."""
    times = np.linspace(0, 1, 21)
    rows = np.stack((times, np.sin(3 * times)), axis=1)
    motion = TableMotion(tuple(map(tuple, rows.tolist())))
    for t in (0.0, 0.32, 0.35, 1.0):
        exact = np.sin(3 * t), 3 * np.cos(3 * t), -9 * np.sin(3 * t)
        np.testing.assert_allclose(np.ravel(motion(t)), exact, atol=0.05)
    for below, above in ((motion(0.35 - 1e-13), motion(0.35 + 1e-13)),):
        np.testing.assert_allclose(np.ravel(below), np.ravel(above), atol=1e-10)
    system = cart(rows)
    assert system_text(system_from_text(system_text(system), "again")) == system_text(system)
    result = simulate(system, 1.0, comm, every=0.5)
    if comm.rank == 0:
        assert_close("cart", result.body("cart").q[:, 0], np.sin([0, 1.5, 3]), "rounding")
    with pytest.raises(InputError, match=r"body 'cart': motion goes from 0 to 1 s, and the run from 0 to 1.5 s"):
        simulate(system, 1.5, comm)


def test_motions_that_jump(comm: MPI.Comm) -> None:
    """What accelerations don't account for is an error, with its time; a jump of accelerations is none."""

    def step(t: float) -> tuple[float, float, float]:
        return (0.0, 0.0, 0.0) if t < 0.5 else (t - 0.5, 1.0, 0.0)

    def push(t: float) -> tuple[float, float, float]:
        return (0.0, 0.0, 0.0) if t < 0.5 else ((t - 0.5) ** 2 / 2, t - 0.5, 1.0)

    def leap(t: float) -> tuple[float, float, float]:
        return (0.0, 0.0, 0.0) if t < 0.5 else (1.0, 0.0, 0.0)

    for settings in ({"rtol": 1e-6, "atol": 1e-6}, {"integrator": "rk4", "dt": 0.03}):
        for motion in (step, leap):
            with pytest.raises(SimulationError, match=r"t = 0.[45].* s.*: the motion of body 'cart' jumps"):
                simulate(cart(motion), 1.0, comm, **settings)
        assert simulate(cart(push), 1.0, comm, **settings).status == "complete"


def test_a_restart(comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of a module is kept by name: the run goes on without being told of it again, with the same bits."""
    folder, given, system = comm.bcast(tmp_path), system_from("chain:6"), System("driven")
    for body in given.contents.bodies():
        motion = "force_functions:wave" if body.name == "link1" else None
        system.add(body, joint=body.joint.model_copy(update={"motion": motion}))
    times = {"t_end": 0.4, "every": 0.1}
    simulate(system, comm=comm, output=folder / "whole.h5", **times)
    with signalled(comm, monkeypatch, 6, signal.SIGUSR2), pytest.raises(InterruptionError):
        simulate(system, comm=comm, output=folder / "out.h5", checkpoints=Checkpoints(), signals=True, **times)
    comm.Barrier()
    restart(folder / "out.checkpoint.h5", comm)
    comm.Barrier()
    assert not differing(folder / "whole.h5", folder / "out.h5")


REFUSED = [
    ({"type": "spherical", "motion": wave}, "motion is not for spherical joints; use joints about single axes"),
    ({"type": "fixed", "motion": wave}, "motion has nothing to move in a fixed joint; leave it out"),
    ({"type": "revolute", "motion": "hand"}, "motion must be module:function, such as hand:wave"),
    ({"type": "revolute", "motion": [[0, 1]]}, "motion must be a function, module:function, or two or more rows"),
    ({"type": "revolute", "motion": [[0, 1], [1]]}, "motion needs 2 numbers (a time in s, and of the revolute joint"),
    ({"type": "revolute", "motion": [[0, 1], [0, 2]]}, "motion must be in order of time: row 2 is at 0 s, after 0 s"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_a_joint_refuses(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Joint(**fields)
    assert message in str(caught.value)


def test_functions_that_are_not_there(comm: MPI.Comm) -> None:
    with pytest.raises(InputError, match=r"body 'cart': motion 'force_functions:nothing'.*no function 'nothing'"):
        Dynamics(cart("force_functions:nothing"), comm)
    system = cart(lambda t: (0.0, 1.0))
    with pytest.raises(SimulationError, match=r"the motion of body 'cart' gave \(0.0, 1.0\) at t = 0 s, needs value"):
        simulate(system, 0.1, comm)
