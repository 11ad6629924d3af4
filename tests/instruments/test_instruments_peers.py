"""Peers: the same accelerations as the dense oracle, and the comparison with what it says where there is no figure."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy.spatial.transform import Rotation

import mpimbs.instruments.peer as peer_module
import mpimbs.instruments.peer_pinocchio as peer_pinocchio
from mpimbs.errors import InputError
from mpimbs.instruments.peer import Peer, UnavailableError, plain_joint_forces
from mpimbs.instruments.peers import OURS, PEERS, compare, sentences, time_in_turns
from mpimbs.instruments.peers_apart import compare_apart
from mpimbs.model import JOINT_TYPES, Joint, Loop, System, system_from
from oracles.closure import accelerations_at_rest, relative_motion
from oracles.dense import Array, dense_accelerations, generalized_forces, kinematics
from oracles.random_systems import ALL, random_system
from tolerances import TOLERANCE, assert_close, error

FIGURES = {"version", "way", "us_min", "us_median", "us_p90", "ns_per_body_min", "difference", "ratio", "ways"}
NO_DRAKE = "Drake is an optional peer: pip install drake"
WITHOUT_CYLINDRICAL = [name for name in ALL if name != "cylindrical"]


@pytest.fixture(params=["pinocchio", "drake"])
def name(request: pytest.FixtureRequest) -> str:
    """A peer that is installed."""
    if request.param == "drake":
        pytest.importorskip("pydrake", reason=NO_DRAKE)
    return request.param


def assert_as_dense(name: str, system: System, q: Array, u: Array, tau: Array) -> None:
    reference = dense_accelerations(system, q, u, tau)
    peer = PEERS[name](system, q, u, tau, None)
    for way, evaluate in peer.ways.items():
        for _ in range(2):  # the second call begins with what the first one left
            assert_close(f"{name}, {way}", peer.in_our_order(evaluate()), reference, "pinocchio")


@pytest.mark.parametrize("kind", WITHOUT_CYLINDRICAL)
def test_one_joint_type(name: str, kind: str) -> None:
    if kind == "fixed" and name == "pinocchio":
        return  # nothing moves, and the model has no joint
    assert_as_dense(name, *random_system(7, 4, True, [kind]))


@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_mixed_joint_types(name: str, seed: int, chain: bool) -> None:
    assert_as_dense(name, *random_system(seed, 8, chain, WITHOUT_CYLINDRICAL))


@pytest.mark.parametrize("seed", range(6))
def test_joint_forces(seed: int) -> None:
    system, q, u, tau = random_system(seed, 12, False)
    kinds = [JOINT_TYPES[kind].nu for kind in system.columns().joint_type]
    system.set_torque(system.name_of(kinds.index(1)), lambda t: 3.0 + t)
    c = system.columns()
    assert_close("joint forces", plain_joint_forces(c, q, u, tau), generalized_forces(c, q, u, tau), "dense")


@pytest.mark.parametrize("spec", ["spatial_chain:20", "rope:12", "free_chain:9", "tree:3:2"])
def test_figures(name: str, spec: str) -> None:
    system = system_from(spec)
    rows = compare(system, 0.02, [name])
    assert list(rows) == [OURS, name]
    for row in rows.values():
        assert set(row) == FIGURES
        assert 0 < row["us_min"] <= row["us_median"]
        assert row["us_min"] == min(way["us_min"] for way in row["ways"].values())
        assert row["ns_per_body_min"] == pytest.approx(1e3 * row["us_min"] / system.n_bodies)
    assert rows[OURS]["ratio"] == 1.0 and rows[OURS]["difference"] == 0.0
    assert rows[name]["ratio"] == rows[name]["us_min"] / rows[OURS]["us_min"]
    assert 0 < rows[name]["difference"] <= 1e-8
    assert [line.split()[0] for line in sentences(rows)] == [OURS, name]


def test_each_call_does_the_work(name: str) -> None:
    """Were something kept from call to call, the time would not grow with the chain."""
    calls = {}
    for n in (8, 200):
        system = system_from(f"spatial_chain:{n}")
        peer = PEERS[name](system, system.columns().q, np.ones(n), None, None)
        calls |= {(way, n): evaluate for way, evaluate in peer.ways.items()}
    laps = time_in_turns(calls, 0.02)
    for way in peer.ways:
        assert laps[way, 200].min() > 5 * laps[way, 8].min()


@pytest.mark.parametrize(
    ("peer", "module", "package"), [("pinocchio", "pinocchio", "pin"), ("drake", "pydrake", "drake")]
)
def test_a_peer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, peer: str, module: str, package: str) -> None:
    for loaded in [m for m in sys.modules if m.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.delitem(sys.modules, f"mpimbs.instruments.peer_{peer}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    rows = compare(system_from("chain:3"), 0.01, [peer])
    assert rows[peer] == {"reason": f"not installed: pip install {package}"}
    assert set(rows[OURS]) == FIGURES
    assert sentences(rows)[1] == f"{peer}: not installed: pip install {package}"


def test_what_needs_too_much_memory_is_not_built(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*_: Any) -> None:
        raise AssertionError("it was built")

    builder = {"pinocchio": "PinocchioModel", "drake": "build_plant"}[name]
    monkeypatch.setattr(importlib.import_module(f"mpimbs.instruments.peer_{name}"), builder, built)
    monkeypatch.setattr(peer_module, "free_memory", lambda swap: 8e9)
    rows = compare(system_from("spatial_chain:16384"), 0.0, [name])
    assert rows[name]["reason"].startswith("out of memory (data grow as n^")
    assert rows[name]["reason"].endswith("GB of the 4 GB it may take")


def test_memory_of_pinocchio() -> None:
    """At n = 512 its four tensors are 4.29e9 bytes; the limit may be given."""
    assert 4.29e9 < peer_pinocchio.memory_needed(512) < 4.5e9
    system = system_from("chain:64")
    need = peer_pinocchio.memory_needed(64)
    assert "reason" in compare(system, 0.0, ["pinocchio"], memory=0.99 * need)["pinocchio"]
    assert "reason" not in compare(system, 0.0, ["pinocchio"], memory=1.01 * need)["pinocchio"]


def fake(off: dict[str, float], calls: dict[str, int], rough: dict[str, float] | None = None) -> Callable[..., Peer]:
    """A peer whose accelerations, by way, are off by a share of the largest; it counts its calls."""

    def make(system: System, q: Array, u: Array, tau: Array | None, memory: float | None) -> Peer:
        exact = dense_accelerations(system, q, u, tau)

        def evaluate(way: str) -> Array:
            calls[way] = calls.get(way, 0) + 1
            return exact + off[way] * np.abs(exact).max()

        return Peer("7.0", {way: (lambda way=way: evaluate(way)) for way in off}, lambda theirs: theirs, rough or {})

    return make


@pytest.mark.parametrize("off", [1e-7, 1.0, np.nan, np.inf])
def test_a_peer_that_disagrees_is_not_timed(monkeypatch: pytest.MonkeyPatch, off: float) -> None:
    calls: dict[str, int] = {}
    monkeypatch.setitem(PEERS, "fake", fake({"only": off}, calls))
    row = compare(system_from("chain:3"), 0.01, ["fake"])["fake"]
    assert set(row) == {"version", "reason"} and row["reason"].startswith("disagrees: accelerations differ by ")
    assert calls == {"only": 1}


def test_only_the_ways_that_agree_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[str, int] = {}
    monkeypatch.setitem(PEERS, "fake", fake({"wrong": 1e-6, "right": 1e-10}, calls))
    row = compare(system_from("chain:3"), 0.01, ["fake"])["fake"]
    assert row["way"] == "right" and row["difference"] == pytest.approx(1e-10, rel=0.01)
    assert calls["wrong"] == 1 and calls["right"] > 10


def test_a_way_that_is_known_to_be_rough_is_timed_and_says_how_rough(monkeypatch: pytest.MonkeyPatch) -> None:
    off = {"rough": 1e-5, "too rough": 1e-2, "right": 1e-10, "wrong": 1e-5}
    monkeypatch.setitem(PEERS, "fake", fake(off, {}, {"rough": 1e-4, "too rough": 1e-4}))
    row = compare(system_from("chain:3"), 0.01, ["fake"])["fake"]
    assert {way: figures["difference"] for way, figures in row["ways"].items()} == {
        "rough": pytest.approx(1e-5, rel=0.01), "right": pytest.approx(1e-10, rel=0.01)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("mass matrix\nsecond line"), "failed: RuntimeError mass matrix"),
        (MemoryError("std::bad_alloc"), "out of memory: more than was estimated"),
    ],
)
def test_a_peer_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str) -> None:
    def broken(*_: Any) -> Peer:
        raise error

    monkeypatch.setitem(PEERS, "broken", broken)
    rows = compare(system_from("chain:3"), 0.01, ["broken", "pinocchio"])
    assert rows["broken"] == {"reason": reason}
    assert set(rows["pinocchio"]) == FIGURES


def test_models_that_peers_cannot_take(name: str) -> None:
    system = system_from("chain:3")
    system.add_wrench(system.name_of(2), force=(0, 0, 1))
    assert "wrenches" in compare(system, 0.01, [name])[name]["reason"]
    with pytest.raises(UnavailableError, match=f"closes loops, and {name.capitalize()} none by a prismatic joint"):
        looped = system_from("chain:3")
        ends = {"bodies": ("world", looped.name_of(2)), "positions": ((0, 0, 0), (0, 1, 0))}
        looped.add_loop(Loop(name="closure", type="prismatic", **ends))
        PEERS[name](looped, np.zeros(3), np.zeros(3), None, None)
    if name == "drake":
        body = system_from("chain:1").body(0)
        cylinder = System()
        cylinder.add(body.model_copy(update={"joint": Joint(type="cylindrical")}))
        reason = "not comparable: Drake has no cylindrical joint"
        assert compare(cylinder, 0.01, [name])[name] == {"reason": reason}


def test_bad_input() -> None:
    system = system_from("chain:3")
    with pytest.raises(InputError, match=r"unknown peer 'pinochio'; did you mean 'pinocchio'\?"):
        compare(system, 0.01, ["pinochio"])
    with pytest.raises(InputError, match="seconds"):
        compare(system, float("nan"))


def test_one_rank_only(comm: MPI.Comm) -> None:
    if comm.size == 1:
        assert OURS in compare(system_from("chain:4"), 0.0, [], comm)
        return
    with pytest.raises(InputError, match=f"on 1 rank instead of {comm.size}"):
        compare(system_from("chain:4"), 0.0, [], comm)


def test_programs_take_turns() -> None:
    order: list[str] = []
    laps = time_in_turns({name: (lambda name=name: order.append(name)) for name in "ab"}, 0.0)
    rounds = "".join(order[6:])  # after three trials each
    assert all(len(values) >= 5 for values in laps.values())
    assert rounds.count("ab") == 5 and rounds.count("ba") == 4
    assert len(rounds) == sum(len(values) for values in laps.values()) + 2 * 5  # the first of a round is not counted


@pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="once is enough")
@pytest.mark.parametrize(
    ("spec", "limit", "reason"),
    [
        ("chain:3", 60.0, None),
        ("chain:3", 0.05, "out of time: no answer after 0.05 s, set-up included"),
        ("chian:3", 60.0, "failed: the process ended with exit code 1 mpimbs.errors.InputError: model 'chian:3'"),
    ],
)
def test_a_process_of_its_own(spec: str, limit: float, reason: str | None) -> None:
    rows = compare_apart(spec, 0.01, ["pinocchio"], limit=limit)
    assert list(rows) == [OURS, "pinocchio"]
    for row in rows.values():
        assert set(row) == FIGURES if reason is None else row["reason"].startswith(reason)


def tied_arms() -> System:
    """Two arms in space, on balls and hinges; one ends on the world by a ball joint, the other is fixed to its end."""
    system = System()
    for arm in ("a", "b"):
        joints: list[dict[str, Any]] = [{"type": "spherical", "q": (0.8, 0.6, 0, 0)}]
        joints += [{"type": "revolute", "axis": (1, k, 0), "position": (0, -1, 0), "q": 0.3 * k} for k in range(4)]
        for number, joint in enumerate(joints):
            parent = f"{arm}{number - 1}" if number else "world"
            inertia = (0.2, 0.1, 0.2, 0, 0, 0)
            system.add(name=f"{arm}{number}", parent=parent, mass=1 + number, inertia=inertia, joint=joint)
    system.add(system.body(4), name="c", parent="b4")
    q, u = system.initial_state(0, system.n_bodies)
    motion, onto = kinematics(system, q, u), (0.1, -1, 0.2)
    places = motion.origin[4] + motion.rotation[4] @ onto, onto
    system.add_loop(name="ball", type="spherical", bodies=("world", "a4"), positions=places)
    places = motion.rotation[4].T @ (motion.origin[10] - motion.origin[4]), (0, 0, 0)
    turned = Rotation.from_matrix(motion.rotation[4].T @ motion.rotation[10]).as_quat()[[3, 0, 1, 2]], (1, 0, 0, 0)
    system.add_loop(name="plate", type="fixed", bodies=("a4", "c"), positions=places, rotations=turned)
    return system


def assert_closed_as(what: str, system: System, q: Array, u: Array, tau: Array | None, reference: Array) -> None:
    """Each way to evaluate loops is as near to the reference as it is known to be, in each of two calls."""
    peer = PEERS["pinocchio"](system, q, u, tau, None)
    for _ in range(2):
        for way, evaluate in peer.ways.items():
            off = error(peer.in_our_order(evaluate()), reference)
            assert off <= peer.rough.get(way, TOLERANCE["pinocchio"][0]), f"{what}, {way}: {off}"


@pytest.mark.parametrize("n", [1, 2, 10, 40])
def test_loops_of_a_row_of_linkages(n: int) -> None:
    """Against the exact reduced equation, turning with -2 rad/s at 1 rad from the horizontal."""
    inertia, moment = (n + 1) / 3 + n, 9.81 * ((n + 1) / 2 + n)
    for tree in ("four_bar", "four_bar_chain"):
        system = system_from(f"{tree}:{n}")
        _, u = system.initial_state(0, system.n_bodies)
        cranks = np.arange(2 * n + 1) % 2 == 0
        q = np.where(cranks, 1.0, -1.0)
        if tree == "four_bar_chain":
            q[2:] += np.where(cranks[2:], -np.pi, np.pi)
        reference = -moment / inertia * np.cos(1.0) * np.where(cranks, 1.0, -1.0)
        assert_closed_as(tree, system, q, 2 * u, None, reference)


@pytest.mark.parametrize(
    "spec", ["five_bar", "coupled_loops", "parallelogram", "boom:3", "ring:6", "track:20", "tied arms"]
)
def test_loops_where_nothing_moves(spec: str) -> None:
    system = tied_arms() if spec == "tied arms" else system_from(spec)
    q, u = system.initial_state(0, system.n_bodies)
    tau = np.sin(1.0 + np.arange(system.nu))
    assert_closed_as(spec, system, q, 0 * u, tau, accelerations_at_rest(system, q, tau))


def test_what_acts_along_the_joints_of_loops() -> None:
    """Springs, dampers and torques turn the cranks of linkages against their couplers, which do not turn."""
    acting = [{"stiffness": 30, "rest": 0.4}, {"damping": 2}, {"torque": 5}, {"torque": lambda t: 3.0 + t}]
    system = system_from("four_bar:4")
    loops, system.loops = system.loops, []
    for loop, what in zip(loops, acting, strict=True):
        fields = {key: getattr(loop, key) for key in ("name", "type", "axis", "bodies", "positions")}
        system.loops.append(Loop(**(fields | what)))
    q, u = np.array([1.0, -1.0] * 4 + [1.0]), np.array([-2.0, 2.0] * 4 + [-2.0])
    torque = -9.81 * (5 / 2 + 4) * np.cos(1.0) - 30 * (1.0 - 0.4) + 2 * 2 + 5 + 3
    assert_closed_as("linkages", system, q, u, None, torque / (5 / 3 + 4) * np.sign(q))


def test_the_power_of_a_ball_joint_that_closes_a_loop() -> None:
    system = system_from("spatial_chain:6")
    rest = Rotation.from_rotvec((0.3, -0.2, 0.5))
    system.add_loop(
        name="ball",
        type="spherical",
        bodies=("z_link1", system.name_of(5)),
        positions=((0, 0, 0), (0, -1, 0)),
        rotations=((1, 0, 0, 0), (0.6, 0, 0.8, 0)),
        stiffness=7,
        damping=(1, 2, 3),
        torque=(0.1, 0.2, 0.3),
        rest=rest.as_quat()[[3, 0, 1, 2]],
    )
    q, u = np.linspace(0.2, 0.9, 6), np.linspace(-1, 2, 6)
    ((_, turned, _, turning, _),) = relative_motion(system, q, u)
    turning = turned.T @ turning
    moment = (0.1, 0.2, 0.3) - 7 * (rest.inv() * Rotation.from_matrix(turned)).as_rotvec() - (1, 2, 3) * turning
    built = peer_pinocchio.PinocchioModel(system)
    found = peer_pinocchio.loop_forces(system, built, built.q_of(q), built.u_of(u))
    assert_close("power", found @ built.u_of(u), moment @ turning, "dense")
