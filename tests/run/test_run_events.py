"""Events: structures that vary during a run, momentum and energy across them, when they are found, what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from fault_subjects import PARTING
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.model import BodyMotion, Event, Joint, System, system_from_text
from mpimbs.model.connections import Connections, connected
from mpimbs.model.contents import Contents
from mpimbs.model.system import contents_of
from mpimbs.run.restart import restart
from mpimbs.run.result import load
from mpimbs.run.run import simulate
from mpimbs.run.structure_change import RunSegment, go_over
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.settings import Checkpoints, SimulationSettings
from oracles.dense import Array, dense_accelerations, energy, kinematics
from oracles.loops import allowed_speeds, closed, opened
from oracles.random_loops import random_mechanism
from oracles.random_systems import Seeded
from run.event_systems import at_a_third, flat, floating, gap, halting, steep, sticking
from tolerances import assert_close

TIGHT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
COUPLINGS: list[dict[str, Any]] = [{"coupling": "dcae"}, {"coupling": "pcg", "cuts": 3}, {"coupling": "dca"}]


def totals(system: System | Contents, q: Array, u: Array, bodies: range) -> Array:
    """Mass center [3], linear momentum [3], angular momentum about it [3] of some bodies, by the dense oracle."""
    moving, columns = kinematics(opened(system), q, u), contents_of(system).columns()
    mass = columns.mass[list(bodies)]
    center = mass @ moving.com[list(bodies)] / mass.sum()
    linear = mass @ moving.com_velocity[list(bodies)]
    spin = np.zeros(3)
    for k, m in zip(bodies, mass, strict=True):
        xx, yy, zz, xy, xz, yz = columns.inertia[k]
        turn = moving.rotation[k]
        own = turn @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ turn.T @ moving.omega[k]
        spin = spin + own + m * np.cross(moving.com[k] - center, moving.com_velocity[k])
    return np.concatenate([center, linear, spin]).astype(float)


@pytest.mark.parametrize("settings", COUPLINGS, ids=str)
def test_a_chain_that_is_cut_in_flight(comm: MPI.Comm, settings: dict[str, Any]) -> None:
    system = floating(8)
    system.add_event(time=0.25, cut=["b3"])
    result = simulate(system, 0.5, comm, every=0.05, integrator="dop853", dt=0.01, **settings)
    if comm.rank > 0:
        return
    whole = connected(system.contents, Connections((3,), ()))
    assert [len(q) for q in result.q] == [6, 5] and result.q[1].shape[1] == whole.nq
    assert len(result.t) == 11 and result.poses.shape == (11, 8, 7)
    assert abs(result.events[0]["energy_lost"]) < 1e-12
    gravity = np.array(system.gravity)
    for bodies in (range(3), range(3, 8)):
        mass = system.contents.columns().mass[list(bodies)].sum()
        begin = None
        for t, q, u in zip(result.t[6:], result.q[1], result.u[1], strict=True):
            found = totals(whole, q, u, bodies)
            begin = found if begin is None else begin
            dt = t - result.t[6]
            center = begin[:3] + begin[3:6] / mass * dt + gravity * dt**2 / 2
            assert_close("mass center", found[:3], center, "cut")
            assert_close("momentum", found[3:6], begin[3:6] + mass * gravity * dt, "cut")
            assert_close("angular momentum", found[6:], begin[6:], "cut", scale=10.0)


def test_a_swinging_chain_is_cut_and_caught_again(comm: MPI.Comm) -> None:
    system = System("rope", gravity=(0, -9.81, 0))
    for k in range(6):
        joint = Joint(type="revolute", position=(0, -0.2 if k else 0, 0), q=1.0 if k == 0 else 0.0)
        system.add(name=f"l{k}", mass=1, center_of_mass=(0, -0.1, 0), inertia=(0.01, 0.01, 0.01, 0, 0, 0), joint=joint)
    system.add_loop(
        name="again", type="revolute", bodies=("l2", "l3"), positions=((0, -0.2, 0), (0, 0, 0)), active=False
    )
    system.add_event(time=0.2, cut="l3")
    system.add_event(time=0.21, connect="again", gap="close")
    system.add_event(time=0.4, cut="again")
    result = simulate(system, 0.6, comm, every=0.01, **TIGHT)
    parallel_assert([event["time"] for event in result.events] == pytest.approx([0.2, 0.21, 0.4]))
    lost = [event["energy_lost"] for event in result.events]
    parallel_assert(abs(lost[0]) < 1e-9 and abs(lost[2]) < 1e-9 and abs(lost[1]) > 1e-9, str(lost))
    parallel_assert(result.energy_error < 1e-7, str(result.energy_error))
    parallel_assert(result.loops["sampled"]["positions"][0] < 1e-12, str(result.loops))
    if comm.rank == 0:
        held = (result.t > 0.215) & (result.t < 0.395)
        end = result.body("l2")
        w, z = end.quaternion[:, 0], end.quaternion[:, 3]
        ends = end.position + np.stack([0.4 * w * z, -0.2 + 0.4 * z**2, 0 * z], axis=1)
        apart = np.linalg.norm(result.body("l3").position - ends, axis=1)
        assert apart[held].max() < 1e-12 and apart[-1] > 1e-3


@pytest.mark.parametrize("settings", [*COUPLINGS[:1], {"coupling": "pcg"}], ids=str)
@pytest.mark.parametrize("when", [gap, "run.event_systems:gap"], ids=str)
def test_two_bodies_meet_and_stick(comm: MPI.Comm, settings: dict[str, Any], when: Any) -> None:
    system = sticking()
    system.add_event(when=when, bodies=("a", "b"), connect="stick")
    result = simulate(system, 1.0, comm, every=0.125, **settings)
    (event,) = result.events
    parallel_assert(abs(event["time"] - 0.3) < 1e-10, str(event))
    parallel_assert(abs(event["energy_lost"] - 0.5 * 0.75 * 3.0**2) < 1e-12, str(event))
    if comm.rank == 0:
        for name in ("a", "b"):
            assert_close("speed", result.body(name).u[1][:, 3], np.full(6, -0.25), "rounding")


def found_late(when: Callable[[float, BodyMotion], float], comm: MPI.Comm, steps: dict[str, Any]) -> float:
    """How much later than at a third of a second an event was found (s)."""
    system = floating(4)
    system.add_event(when=when, cut="b2")
    result = simulate(system, 0.5, comm, every=0.25, **steps)
    return float(result.events[0]["time"] - 1.0 / 3.0)


@pytest.mark.parametrize("when", [at_a_third, steep, flat, halting])
def test_moments_are_found(comm: MPI.Comm, when: Callable[[float, BodyMotion], float]) -> None:
    late = found_late(when, comm, {"rtol": 1e-6, "atol": 1e-6})
    parallel_assert(abs(late) <= 1e-10, str(late))


@pytest.mark.parametrize("name", ["dopri5", "petsc:4", "petsc:euler", "rosenbrock", "rosenbrock4", "petsc:bdf"])
def test_moments_are_found_with_fixed_steps(name: str) -> None:
    """Also where PETSc can't take steps back."""
    for when in (at_a_third, steep, flat, halting):
        assert abs(found_late(when, MPI.COMM_SELF, {"dt": 0.05, "integrator": name})) <= 1e-10


def test_two_events_in_one_step(comm: MPI.Comm) -> None:
    """Functions that pass zero one soon after the other: each event has its own moment."""
    system, first, second = floating(4), 0.21, 0.2103
    system.add_event(when=lambda t, motion: t - second, cut="b2")
    system.add_event(when=lambda t, motion: t - first, cut="b3")
    result = simulate(system, 0.5, comm, every=0.25, integrator="rk4", dt=0.125)
    found = [(event["cut"], event["time"]) for event in result.events]
    parallel_assert([cut for cut, _ in found] == [["b3"], ["b2"]], str(found), comm)
    parallel_assert(max(abs(found[0][1] - first), abs(found[1][1] - second)) <= 1e-10, str(found), comm)


def test_events_go_to_and_fro(comm: MPI.Comm) -> None:
    """A hand that holds a swinging body while its angle is positive; twice there and back."""
    system = System("pendulum", gravity=(0, 0, 0))
    fields: dict[str, Any] = {"mass": 1, "center_of_mass": (1, 0, 0), "inertia": (1, 1, 1, 0, 0, 0)}
    system.add(name="arm", joint=Joint(type="revolute", stiffness=2 * np.pi**2 * 4, q=0.5), **fields)
    load = {"mass": 1.0, "inertia": (1, 1, 1, 0, 0, 0)}
    for k in range(2):
        system.add(name=f"far{k}", parent="world", joint=Joint(type="free"), **fields)
    system.add(name="load", parent="world", joint=Joint(type="free", q=(1, 0, 0, 0, 0, 0, 0)), **load)
    system.add_loop(
        name="hold", type="spherical", bodies=("arm", "load"), positions=((0, 0, 0), (0, 0, 0)), active=False
    )

    def angle(t: float, motion: BodyMotion) -> float:
        return float(motion.rotation[0, 1, 0])

    system.add_event(when=angle, bodies="arm", connect="hold")
    system.add_event(when=lambda t, motion: angle(t, motion) + 0.1, bodies="arm", cut="hold")
    result = simulate(system, 2.0, comm, every=0.5, **TIGHT)
    done = [("connect" if event["connected"] else "cut") for event in result.events]
    parallel_assert(done[:4] == ["connect", "cut", "connect", "cut"], str(done))


# --- against the dense oracle ----------------------------------------------------------------------------------------


def random_event(seed: int) -> tuple[System, Connections, Connections, Event, Array, Array]:
    """A random system as it holds together before and after a random event, and a state with its loops closed."""
    source = Seeded(seed)
    system, q, u, _ = random_mechanism(seed, 3 + source.index(6), 1 + source.index(3), wrenches=False)
    loops = [loop.name for loop in system.contents.loops]
    held = Connections((), tuple(name for name in loops if source.index(2)))
    cut = [system.contents.name_of(k) for k in range(system.n_bodies) if source.index(4) == 0]
    free = [
        k
        for k in map(system.contents.index_of, cut)
        if system.contents.body(k).joint.type == "free" and system.contents.body(k).parent == "world"
    ]
    cut = [name for name in cut if system.contents.index_of(name) not in free]
    cut += [name for name in held.loops if source.index(3) == 0]
    connect = [name for name in loops if name not in held.loops and source.index(3)]
    if not cut and not connect:
        cut = [
            name
            for name in map(system.contents.name_of, range(system.n_bodies))
            if system.contents.index_of(name) not in free
        ][:1]
    event = Event(time=1.0, cut=cut, connect=connect)
    speeds = u + 0.1 * np.array([source.uniform(-1, 1) for _ in range(len(u))])
    before = connected(system.contents, held)
    speeds = allowed_speeds(before, q, speeds) if before.loops else speeds
    return system, held, held.after(system.contents, event), event, q, np.asarray(speeds, float)


def check_random_event(comm: MPI.Comm, seed: int) -> None:
    """Poses, twists, speeds, energies, momenta and accelerations before and after one."""
    system, held, then, event, q, u = random_event(seed)
    settings = SimulationSettings(t_end=1.0, projection="velocities")
    now = connected(system.contents, held)
    before = RunSegment(now, comm, settings, None) if now.n_bodies >= comm.size else None
    if before is None:
        return
    after = RunSegment(connected(system.contents, then), comm, settings, None)
    ours = before.dynamics
    part = q[ours.gather_q.part].copy(), u[ours.gather_u.part].copy()
    then_state = go_over(ours, after, *part, [event])
    results = []
    for dynamics, state in ((ours, part), (after.dynamics, then_state[:2])):
        udot = dynamics.gather_u(dynamics.accelerations(*state))
        udot = None if udot is None else udot.copy()
        told = dynamics.energy_and_momentum(*state)
        whole = [None if v is None else v.copy() for v in (dynamics.gather_q(state[0]), dynamics.gather_u(state[1]))]
        results.append((dynamics.system, *whole, udot, told))
    if comm.rank == 0:
        where = f"seed {seed}"
        (one, q1, u1, *_), (two, q2, u2, *_) = results
        for shape, (structure, q0, u0, udot, told) in enumerate(results):
            free, found = dense_accelerations(opened(structure), q0, u0), closed(structure, q0, u0)
            holds = np.abs(found.jacobian).max(initial=0.0) > 1e-9  # else only bodies that can't move apart
            size = np.abs(free).max()  # loops may hold all
            wanted = found.udot if holds else free
            assert_close(f"{where}: accelerations {shape}", udot, wanted, "random events", scale=size)
            assert_close(f"{where}: energy {shape}", told[:2], energy(opened(structure), q0, u0), "random events")
        there, here = kinematics(opened(one), q1, u1), kinematics(opened(two), q2, u2)
        for name in ("rotation", "origin"):
            assert_close(f"{where}: {name}", getattr(here, name), getattr(there, name), "carried over", scale=1.0)
        # the speeds that the bodies had, in the coordinates that there are now
        carried = RunSegment(connected(system.contents, Connections(then.cut, ())), MPI.COMM_SELF, settings, None)
        alone = Dynamics(now, MPI.COMM_SELF)
        loose = go_over(alone, carried, q1, u1, [Event(time=1.0, cut=event.cut, connect=event.connect)])
        holds = event.connect and np.abs(closed(two, q2, u2).jacobian).max() > 1e-9
        wanted = allowed_speeds(two, q2, loose[1]) if holds else loose[1]
        assert_close(f"{where}: speeds", u2, wanted, "random events", scale=1.0)
        alone.close()
        carried.dynamics.close()
    before.dynamics.close()
    after.dynamics.close()


def test_random_events(comm: MPI.Comm) -> None:
    for seed in range(24 if comm.size == 1 else 8):
        check_random_event(comm, seed)


def hand(gap: str = "keep", joint: str = "fixed") -> System:
    """A hand of 2 kg on a rail takes a part of 1 kg that lies beside it, askew."""
    system = System("hand", gravity=(0, 0, 0))
    inertia = (0.02,) * 3 + (0, 0, 0)
    system.add(name="hand", mass=2, inertia=inertia, joint=Joint(type="prismatic", axis=(1, 0, 0), u=(0.5,)))
    at = (0.9689124217106447, 0, 0, 0.24740395925452294, 0.7, 0.1, 0.02)
    inertia = (0.004, 0.005, 0.006, 0, 0, 0)
    system.add(name="part", parent="world", mass=1, inertia=inertia, joint=Joint(type="free", q=at))
    for k in range(2):  # for ranks
        system.add(name=f"other{k}", parent="world", mass=1, inertia=inertia, joint=Joint(type="revolute", u=(1.0,)))
    frames = ((np.sqrt(0.5), np.sqrt(0.5), 0, 0), (np.sqrt(0.5), 0, np.sqrt(0.5), 0))
    ends = {"bodies": ("hand", "part"), "positions": ((0.3, 0, 0), (0, 0.05, 0)), "rotations": frames}
    system.add_loop(name="grip", type=joint, active=False, **ends)
    system.add_event(time=0.5, connect=["grip"], gap=gap)
    system.add_event(time=1.25, cut=["grip"])
    system.add_event(time=1.5, connect=["grip"], gap=gap)
    return system


@pytest.mark.parametrize("joint", ["fixed", "revolute"])
def test_a_part_is_held_as_it_lies(comm: MPI.Comm, joint: str) -> None:
    """It stays where it is in the hand, both go on with the momentum of the hand; taken again, too."""
    result = simulate(hand(joint=joint), 2.0, comm, every=0.25, **TIGHT)
    if comm.rank > 0:
        return
    places, turns = result.poses[:, :2, :3], result.poses[:, 1, 3:]
    after = result.t >= 0.5
    expected = np.where(after, 0.25 + (result.t - 0.5) / 3.0, 0.5 * result.t)
    if joint == "fixed":
        assert_close("hand", places[:, 0, 0], expected, "runs")
        beside = places[:, 1] - places[:, 0]
        assert_close("beside", beside[after], np.tile((0.45, 0.1, 0.02), (after.sum(), 1)), "runs")
        assert_close("turn", turns, np.tile(turns[0], (len(turns), 1)), "runs")
    assert [event["moved"] for event in result.events] == [0.0] * 3
    assert "connect 'grip' as they lie at t = 0.5 s" in result.events[0]["told"]


def test_what_lies_is_kept_by_checkpoints(comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that died behind the event goes on with the same, on one rank; its file gives the joint of that moment."""
    folder, step = comm.bcast(tmp_path), Integrator.step_towards
    reference = simulate(hand(joint="spherical"), 2.0, comm, every=0.25, dt=0.01)

    def dies(self: Integrator, target: float, *_: float) -> bool:
        if target > 1.0:
            raise SimulationError("died")
        return step(self, target)

    with monkeypatch.context() as patch, pytest.raises(SimulationError, match="died"):
        patch.setattr(Integrator, "step_towards", dies)
        kept, output = Checkpoints(steps=10), folder / "run.h5"
        simulate(hand(joint="spherical"), 2.0, comm, every=0.25, dt=0.01, output=output, checkpoints=kept)
    if comm.rank == 0:
        restart(folder / "run.checkpoint.h5", comm=MPI.COMM_SELF)
        found = load(folder / "run.h5")
        assert_close("poses", found.poses, reference.poses, "runs on ranks")
        with h5py.File(folder / "run.h5") as file:
            assert file["segments/1/model/kept"].asstr()[:].tolist() == ["grip"]
            frame = file["segments/1/model/kept_frame"][0]
        turn = 2 * np.arctan2(0.24740395925452294, 0.9689124217106447)
        c, s = np.cos(turn), np.sin(turn)
        x, y, z = 0.25 + 0.3 - 0.7, -0.1, -0.02  # the hand's joint frame in the part's, which is turned about z
        assert_close("frame", frame[:3], (c * x + s * y, -s * x + c * y, z), "runs")
    comm.Barrier()


def test_gears_are_not_kept() -> None:
    system = hand()
    system.add_gear(name="gear", joint="other1", of="other0", ratio=2.0, active=False)
    with pytest.raises(InputError, match="connects gear 'gear' with gap = \"keep\""):
        system.add_event(time=1.0, connect=["gear"], gap="keep")
        simulate(system, 2.0)


@pytest.mark.parametrize(("body", "when"), [(1, 0.1198), (6, 0.1198), (1, 0.21), (6, 0.21), (1, 0.019)])
def test_loads_beyond_all_numbers_near_samples_and_events(comm: MPI.Comm, body: int, when: float) -> None:
    """Whose squares overflow: the run says so, whatever looks at the state first; it is no bad input."""
    system = system_from_text(PARTING, "parting.toml")
    system.add_joint_force(system.contents.name_of(body), lambda t, q, u: 1e200 * (t > when))
    with np.errstate(all="ignore"), pytest.raises(SimulationError, match=r"no longer|too large"):
        simulate(system, 0.25, comm, dt=0.001, integrator="rk4", every=0.01)
