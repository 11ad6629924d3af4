"""Peers: the same accelerations as the dense oracle, and the comparison with what it says where there is no figure."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy.spatial.transform import Rotation

import laboratory.peer as peer_module
import laboratory.peer_pinocchio as peer_pinocchio
from laboratory.peer import Peer, UnavailableError, plain_joint_forces
from laboratory.peers import OURS, PEERS, compare, compare_apart, time_in_turns
from mpimbs.base.errors import InputError
from mpimbs.model import JOINT_TYPES, Joint, Loop, System, system_from
from oracles.dense import Array, Snapshot, dense_accelerations, generalized_forces
from oracles.loops import closed, closures, opened
from oracles.mechanisms import four_bar_acceleration
from oracles.random_loops import random_mechanism
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


@pytest.mark.parametrize("spec", ["four_bar:5", "boom:3"])
def test_figures_of_systems_with_loops(spec: str) -> None:
    """In the order of the model, where the solver's is another; each way as near to ours as it is known to be."""
    rows = compare(system_from(spec), 0.02, ["pinocchio"])
    assert set(rows["pinocchio"]) == FIGURES
    ways = rows["pinocchio"]["ways"]
    assert set(ways) == set(peer_pinocchio.LOOP_WAYS)
    assert ways["constraintDynamics"]["difference"] < 1e-8
    assert ways["constraintDynamics"]["difference"] < ways["lcaba, 1 iteration"]["difference"]


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
    monkeypatch.delitem(sys.modules, f"laboratory.peer_{peer}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    rows = compare(system_from("chain:3"), 0.01, [peer])
    assert rows[peer] == {"reason": f"not installed: pip install {package}"}
    assert set(rows[OURS]) == FIGURES


def test_what_needs_too_much_memory_is_not_built(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*_: Any) -> None:
        raise AssertionError("it was built")

    builder = {"pinocchio": "PinocchioModel", "drake": "build_plant"}[name]
    monkeypatch.setattr(importlib.import_module(f"laboratory.peer_{name}"), builder, built)
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
        ("chian:3", 60.0, "failed: the process ended with exit code 1 mpimbs.base.errors.InputError: model 'chian:3'"),
    ],
)
def test_a_process_of_its_own(spec: str, limit: float, reason: str | None) -> None:
    rows = compare_apart(spec, 0.01, ["pinocchio"], limit=limit)
    assert list(rows) == [OURS, "pinocchio"]
    for row in rows.values():
        assert set(row) == FIGURES if reason is None else row["reason"].startswith(reason)


def assert_closed_as(what: str, system: System, q: Array, u: Array, tau: Array | None, reference: Array) -> None:
    """`constraintDynamics` is exact, in each of two calls, and where all hinges are parallel `lcaba` as it is known."""
    peer = PEERS["pinocchio"](system, q, u, tau, None)
    plane = {"revolute", "prismatic", "fixed"}.issuperset(system.summary().joint_types)
    for _ in range(2):
        for way, evaluate in peer.ways.items():
            off, allowed = error(peer.in_our_order(evaluate()), reference), TOLERANCE["pinocchio"][0]
            assert off <= (peer.rough.get(way, allowed) if plane or way not in peer.rough else np.inf), f"{what}, {way}"


LINKAGES = ["four_bar:2", "four_bar:5", "four_bar_chain:5", "five_bar", "coupled_loops", "parallelogram", "boom:3"]


@pytest.mark.parametrize("spec", [*LINKAGES, "track:9"])
def test_loops_of_mechanisms(spec: str) -> None:
    system = system_from(spec)
    q, u = system.initial_state(0, system.n_bodies)
    tau = np.sin(1.0 + np.arange(system.nu))
    assert_closed_as(spec, system, q, u, tau, closed(system, q, u, tau).udot)


@pytest.mark.parametrize("kind", ["spherical", "fixed"])
@pytest.mark.parametrize("seed", range(4))
def test_loops_in_space(seed: int, kind: str) -> None:
    types = ["spherical", "free", "planar", "helical", "universal"]
    system, q, u, tau = random_mechanism(seed, 9, 2, types, [kind], chain=True, to_world=0.5, wrenches=False)
    assert_closed_as(kind, system, q, u, tau, closed(system, q, u, tau).udot)


@pytest.mark.parametrize("tree", ["four_bar", "four_bar_chain"])
def test_loops_of_a_long_row_of_linkages(tree: str) -> None:
    system = system_from(f"{tree}:60")
    _, u = system.initial_state(0, system.n_bodies)
    q = np.where(np.arange(121) % 2 == 0, 1.0, -1.0)
    if tree == "four_bar_chain":
        q[2:] += np.where(q[2:] > 0, -np.pi, np.pi)
    assert_closed_as(tree, system, q, 2 * u, None, -u * four_bar_acceleration(60, 1.0))


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
    (loop,) = closures(system, Snapshot(opened(system), q, u))
    turned, turning = rest.inv() * Rotation.from_matrix(loop.motion.rotation.astype(float)), loop.speeds
    moment = (0.1, 0.2, 0.3) - 7 * turned.as_rotvec() - (1, 2, 3) * turning
    built = peer_pinocchio.PinocchioModel(system)
    found = peer_pinocchio.loop_forces(system, built, built.q_of(q), built.u_of(u))
    assert_close("power", found @ built.u_of(u), moment @ turning, "dense")
