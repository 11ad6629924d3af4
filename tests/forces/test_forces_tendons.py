"""Tendons over joints: by hand, against MuJoCo, over ranks, in runs and at rest, in files; what makes no sense.

In implicit steps beside springs between bodies, which act along lengths, too.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy.linalg import null_space

import mpimbs
from cases import parts
from mpimbs import Batch, Dynamics, InputError, System, simulate
from mpimbs.cli import main
from mpimbs.dynamics.operators import lengths
from mpimbs.model import Event, Joint, Tendon, read_system, system_from_text, system_text
from mpimbs.model.summary import validate
from oracles import dense
from oracles.loops import closures, opened
from run.motions import alike_over_ranks_and_lanes
from tolerances import assert_close

alone = pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="one process does all of it")
BODY = {"mass": 0.5, "center_of_mass": (0.2, 0.0, 0.0), "inertia": (0.02, 0.02, 0.02, 0, 0, 0)}
OVER = {"joints": ["link1", "link4", "slide"], "ratios": [0.5, -1.5, 2.0]}
LAW = {"stiffness": 30.0, "damping": 2.0, "rest": 0.1}


def hand(*tendons: dict[str, Any]) -> System:
    """Six links on hinges across each other, in two fingers, whose second ends with a slide, with tendons."""
    system = System(name="hand", gravity=(0.0, 0.0, -9.81))
    for k in range(6):
        joint = {"type": "revolute", "axis": np.eye(3)[k % 3], "position": (0.3, 0.0, 0.0), "damping": 0.1}
        system.add(name=f"link{k}", parent="world" if k == 0 else f"link{max(k - 2, 0)}", **BODY, joint=joint)
    system.add(name="slide", **BODY, joint={"type": "prismatic", "axis": (0, 1, 0), "stiffness": 50.0})
    for k, tendon in enumerate(tendons):
        system.add_tendon(name=f"tendon{k}", **tendon)
    return system


def state(seed: int, system: System) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.uniform(-1, 1, system.nq), random.uniform(-1, 1, system.nu)


@pytest.mark.parametrize(("least", "most"), [(-np.inf, np.inf), (-3.0, 2.0), (5.0, 6.0)])
def test_the_law(comm: MPI.Comm, least: float, most: float) -> None:
    """As forces on the joints that the law gives by hand, on all ranks, cut anywhere."""
    system, free = hand(OVER | LAW | {"force": 4.0, "least": least, "most": most}), hand()
    q, u = state(3, system)
    at, ratios = [1, 4, 6], np.array(OVER["ratios"])
    force = np.clip(4.0 - 30.0 * (ratios @ q[at] - 0.1) - 2.0 * (ratios @ u[at]), least, most)
    tau = np.zeros(7)
    tau[at] = ratios * force
    with closing(Dynamics(system, comm)) as dynamics, closing(Dynamics(free, comm)) as plain:
        own, given = parts(dynamics, q, u), parts(dynamics, q, u, tau)
        still = np.zeros(len(own[1]))
        assert_close("udot", dynamics.accelerations(*own), plain.accelerations(*given), "dense", scale=100.0)
        assert_close("loads", dynamics.joint_loads(*own), plain.joint_loads(*given), "dense", scale=100.0)
        needed = plain.inverse_dynamics(*own, still) - given[2]
        assert_close("tau", dynamics.inverse_dynamics(*own, still), needed, "dense", scale=100.0)


@pytest.mark.parametrize("force", [1.0, [[0.0, 1.0], [0.3, -4.0]]])
def test_runs_over_ranks_and_copies(comm: MPI.Comm, force: Any) -> None:
    """What tendons do is work; the same on all ranks, cut or not, and for copies side by side."""
    alone = alike_over_ranks_and_lanes(hand(OVER | LAW | {"force": force}, OVER | {"damping": 0.5, "most": 0.2}), comm)
    assert alone.energy_change < 1e-6


@alone
def test_at_rest() -> None:
    """It settles where tendon and weight balance, and swings as its stiffness says, about one hinge by hand."""
    system = System(name="arm", gravity=(0.0, 0.0, -9.81))
    system.add(name="arm", **BODY, joint={"type": "revolute", "axis": (0, 1, 0)})
    system.add_tendon(name="tendon", joints=["arm"], ratios=[0.5], stiffness=40.0, rest=-0.1)
    settled = mpimbs.settle(system)
    q, weight = float(settled[0]), 0.5 * 9.81 * 0.2
    assert weight * np.cos(q) == pytest.approx(0.5 * 40.0 * (0.5 * q + 0.1), rel=1e-8)
    square = (0.25 * 40.0 + weight * np.sin(q)) / (0.02 + 0.5 * 0.04)
    assert mpimbs.modes(system, [q]).squares[0] == pytest.approx(square, rel=1e-8)


@alone
def test_files_and_what_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They come back from a file, with their ranges and over time."""
    system = hand(OVER | LAW | {"most": 3.0}, {"joints": ["slide"], "ratios": [1.0], "force": [[0, 1], [1, 2]]})
    read = system_from_text(system_text(system), "hand")
    assert read.contents.loads.tendons == system.contents.loads.tendons
    (tmp_path / "hand.toml").write_text(system_text(system))
    again = read_system(tmp_path / "hand.toml").contents.loads.tendons["tendon1"]
    assert callable(again.force) and float(np.ravel(again.force(0.5))[0]) == 1.5
    with pytest.raises(SystemExit, match="0"):
        main(["check", str(tmp_path / "hand.toml")])
    assert "tendon 'tendon0': over 'link1', 'link4', 'slide', length 0\n" in capsys.readouterr().out
    result = simulate(tmp_path / "hand.toml", 0.2, rtol=1e-8)
    copies = Batch([read] * 3).simulate(0.2, rtol=1e-8)
    assert_close("q", np.asarray(copies["q"])[:, 1], np.asarray(result["q"]), "adaptive steps")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"joints": ["link1"], "ratios": [1.0, 2.0]}, "needs a ratio for each of its joints, got 2 of 1"),
        ({"joints": ["link1", "link1"], "ratios": [1.0, 2.0]}, "joints names 'link1' twice; name it once"),
        ({"joints": ["link9"], "ratios": [1.0]}, "unknown body 'link9'"),
        ({"joints": ["link1"], "ratios": [1.0], "stiffness": -1.0}, "stiffness must not be negative"),
        ({"joints": ["link1"], "ratios": [1.0], "least": 1.0, "most": 0.0}, "least must not be above most"),
    ],
)
@alone
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        hand(fields)


@alone
def test_what_it_can_not_run_over() -> None:
    """Joints of several coordinates, those that are cut; and a name may stand once."""
    system = hand(OVER)
    with pytest.raises(InputError, match="tendon 'tendon0': the name is taken"):
        system.add_tendon(name="tendon0", **OVER)
    system.add(name="ball", **BODY, joint={"type": "spherical"})
    with pytest.raises(InputError, match="the joint of body 'ball' is spherical, and tendons run over revolute"):
        system.add_tendon(Tendon(name="other", joints=("ball",), ratios=(1.0,)))
    system.add_event(Event(time=1.0, cut=("link4",)))
    with pytest.raises(InputError, match="an event cuts 'link4', over which tendon 'tendon0' runs"):
        validate(system.contents)


@pytest.mark.parametrize("side", [-1.0, 0.0, 1.0])
def test_stops_of_tendons(comm: MPI.Comm, side: float) -> None:
    """As those of a joint that goes as far: beyond either end, and between, where nothing acts."""
    stops = {"lower": -0.4, "upper": 0.3, "stop_stiffness": 60.0, "stop_damping": 1.5}
    system, other = hand({"joints": ["slide"], "ratios": [1.0]} | stops), hand()
    joint = {"type": "prismatic", "axis": (0, 1, 0), "stiffness": 50.0} | stops
    slide = other.contents.segments.template(6)
    stopped = slide.model_copy(update={"joint": Joint(**joint)})
    other.contents.segments = other.contents.segments.replaced(lambda body: stopped if body is slide else body)
    q, u = state(4, system)
    q[6] = side * 0.7
    with closing(Dynamics(system, comm)) as dynamics, closing(Dynamics(other, comm)) as as_joint:
        for u[6] in (-8.0, -0.1, 0.1, 8.0):  # as fast as neither holds nor jumps, and slower
            own = parts(dynamics, q, u)
            assert_close("udot", dynamics.accelerations(*own), as_joint.accelerations(*own), "dense", scale=1e3)


def pull(length: float, rate: float) -> float:
    """Tension of a spring (N)."""
    return 3.0 * length - 0.1 * rate


def rates(system: System, q: np.ndarray, u: np.ndarray) -> list[float]:
    """How the lengths of springs between bodies change, by dense numpy."""
    snapshot = dense.Snapshot(opened(system), q, u)
    ends = ([snapshot.point(k, p) for k, p in zip(b, s.positions, strict=True)] for s, b in snapshot.springs)
    return [float((b - a) @ (vb - va) / np.linalg.norm(b - a)) for (a, va), (b, vb) in ends]


@pytest.mark.parametrize("coupling", ["dcae", "pcg"])
@pytest.mark.parametrize("closed", [False, True])
def test_the_matrix_of_implicit_steps(comm: MPI.Comm, coupling: str, closed: bool) -> None:
    """z of (M + h D + h^2 K) z = -h (D + h K) r_u - h K r_q, along what loops allow, by dense numpy.

    Of four tendons one is at an end of its range, where it has no stiffness, and one is pressed against its stop; of
    four springs between bodies one is slack, and one a function.
    """
    over = {"joints": ["link0", "link5"], "ratios": [1.0, -0.7]}
    stop = {"joints": ["link2", "slide"], "ratios": [3.0, 1.0], "stop_stiffness": 90.0, "stop_damping": 0.5}
    given = (
        over | {"stiffness": 200.0, "damping": 1.0},
        over | LAW | {"force": 1e3, "most": 5.0},
        stop | {"upper": -9.0},
    )
    system = hand(OVER | LAW, *given)
    spring = {"bodies": ("link4", "slide"), "positions": ((0.1, 0.2, 0.0), (0.0, 0.3, 0.1)), "rest": 0.1}
    system.add_spring(name="across", **spring, stiffness=300.0, damping=2.0)
    system.add_spring(name="slack", **spring | {"rest": 9.0}, stiffness=1e4, tension_only=True)
    system.add_spring(name="own", bodies=spring["bodies"], positions=((0, 1, 0), (0, 0, 0)), force=pull)
    system.add_spring(name="stay", **spring | {"bodies": ("world", "link3")}, stiffness=80.0, tension_only=True)
    if closed:
        system.add_loop(name="tie", type="cylindrical", bodies=("link3", "link5"), positions=((0.1, 0, 0), (0.2, 0, 0)))
    (q, u), h = state(3, system), 0.3
    r_q, r_u = state(7, system)
    c, along = system.contents.columns(), np.zeros((5, 7))
    along[0, [1, 4, 6]], along[1, [0, 5]], along[2, [2, 6]] = OVER["ratios"], over["ratios"], stop["ratios"]
    along[3:] = np.transpose([rates(system, q, one) for one in np.eye(7)])[[0, 3]]
    stiffness = np.diag(c.stiffness) + along.T @ np.diag([30.0, 200.0, 90.0, 300.0, 80.0]) @ along
    damping = np.diag(c.damping) + along.T @ np.diag([2.0, 1.0, 0.5, 2.0, 0.0]) @ along
    inertia = dense.mass_matrix(opened(system), q).astype(float)
    rows = [loop.rows() for loop in closures(system, dense.Snapshot(opened(system), q, u))]
    allowed = null_space(np.vstack(rows).astype(float)) if closed else np.eye(7)
    matrix = allowed.T @ (inertia + h * damping + h**2 * stiffness) @ allowed
    forces = -h * ((damping + h * stiffness) @ r_u + stiffness @ r_q)
    z = allowed @ np.linalg.solve(matrix, allowed.T @ forces)
    with closing(Dynamics(system, comm, coupling)) as dynamics:
        (own_q, own_u), own = parts(dynamics, q, u), np.concatenate(parts(dynamics, r_q, r_u))
        x = np.empty_like(own)
        for step in (1.0, h):  # the second one is to leave nothing of the first
            dynamics.inertia.implicit_matrix.at(own_q, step, u=own_u)
            dynamics.inertia.implicit_matrix.solve(own, x)
        found = dynamics.gather_q(x[: len(own_q)]), dynamics.gather_u(x[len(own_q) :])
    x_q, x_u = comm.bcast(found)
    assert_close("speeds", x_u, r_u + z, "dense", comm=comm)
    assert_close("coordinates", x_q, r_q + h * x_u, "dense", comm=comm)


def stays() -> System:
    """Six links with three stiff springs between them."""
    system = System(name="stays", gravity=(0.0, 0.0, -9.81))
    for k in range(6):
        joint = {"type": "revolute", "axis": np.eye(3)[1 + k % 2], "position": (0.3, 0.0, 0.0), "damping": 0.3}
        system.add(name=f"link{k}", parent=f"link{k - 1}" if k else "world", **BODY, joint=joint)
    law = {"positions": ((0.0, 0.1, 0.2), (0.1, 0.0, 0.1)), "stiffness": 1e5, "damping": 600.0}
    for first, second, rest in (("link0", "link3", 1.01), ("link5", "link2", 0.81), ("world", "link4", 1.61)):
        system.add_spring(name=f"{first} {second}", bodies=(first, second), rest=rest, **law)
    return system


def test_steps_that_stiff_springs_between_bodies_do_not_shorten(comm: MPI.Comm) -> None:
    """Fixed ones, at which all blows up where the springs are followed explicitly, beside short explicit ones."""
    short = simulate(stays(), 0.5, comm, integrator="dopri5", rtol=1e-8)
    long = simulate(stays(), 0.5, comm, integrator="rosenbrock", dt=5e-3)
    if comm.rank == 0:
        np.testing.assert_allclose(long.q[-1], short.q[-1], atol=2e-3)


def test_too_many_stiff_springs(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are followed explicitly, which is said, once, and by adaptive steps as right."""
    monkeypatch.setattr(lengths, "MANY", 2)
    short = simulate(stays(), 0.05, comm, integrator="dopri5", rtol=1e-8)
    said = (
        pytest.warns(UserWarning, match="3 springs between bodies are stiff .* know 2 at the most")
        if comm.rank == 0
        else nullcontext()
    )
    with said:
        found = simulate(stays(), 0.05, comm, integrator="rosenbrock4", rtol=1e-4, atol=1e-6)
    if comm.rank == 0:
        np.testing.assert_allclose(found.q[-1], short.q[-1], atol=1e-4)


def test_stiff_tendons_take_long_steps(comm: MPI.Comm) -> None:
    """Of a motion that does not tell what the tendon is made of; by steps that its stiffness does not shorten."""
    found = {}
    for stiffness in (1e5, 1e7):
        system = hand(OVER | {"stiffness": stiffness, "damping": 2.0 * stiffness**0.5})
        found[stiffness] = simulate(system, 1.0, comm, integrator="rosenbrock4", rtol=1e-5, atol=1e-7)
        assert found[stiffness].steps < 500
    if comm.rank == 0:
        np.testing.assert_allclose(found[1e5].q[-1], found[1e7].q[-1], atol=1e-4)
