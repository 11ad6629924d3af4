"""Peers: the same accelerations as the dense oracle, and the comparison with what it says where there is no figure."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import laboratory.peer_pinocchio as peer_pinocchio
from laboratory.peers import OURS, PEERS, Peer, compare, compare_apart
from mpimbs import accelerations
from mpimbs.model import JOINT_TYPES, Joint, System, system_from
from oracles.dense import Array, dense_accelerations, generalized_forces
from oracles.loops import closed
from oracles.random_loops import random_mechanism
from oracles.random_systems import ALL, random_system
from tolerances import TOLERANCE, assert_close, error

FIGURES = {"version", "way", "us_min", "us_median", "us_p90", "ns_per_body_min", "difference", "ratio", "ways"}


def assert_as_dense(system: System, q: Array, u: Array, tau: Array) -> None:
    reference = dense_accelerations(system, q, u, tau)
    peer = PEERS["pinocchio"](system.contents, q, u, tau, None)
    for way, evaluate in peer.ways.items():
        for _ in range(2):  # the second call begins with what the first one left
            assert_close(way, peer.in_our_order(evaluate()), reference, "pinocchio")


@pytest.mark.parametrize("kind", [name for name in ALL if name != "fixed"])  # of which it would have no joint
def test_one_joint_type(kind: str) -> None:
    assert_as_dense(*random_system(7, 4, True, [kind]))


@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_mixed_joint_types(seed: int, chain: bool) -> None:
    assert_as_dense(*random_system(seed, 8, chain))


@pytest.mark.parametrize("seed", range(6))
def test_joint_forces(seed: int) -> None:
    system, q, u, tau = random_system(seed, 12, False)
    kinds = [JOINT_TYPES[kind].nu for kind in system.contents.columns().joint_type]
    system.set_torque(system.contents.name_of(kinds.index(1)), lambda t: 3.0 + t)
    c = system.contents.columns()
    assert_close(
        "joint forces", peer_pinocchio.plain_joint_forces(c, q, u, tau), generalized_forces(c, q, u, tau), "dense"
    )


def test_servos_and_friction() -> None:
    """Within their ranges and at both ends, as `Dynamics` has them."""
    system, source = System(gravity=(0.0, 0.0, -9.81)), np.random.default_rng(5)
    for k in range(9):
        servo = {"servo_stiffness": 20.0, "servo_damping": 2.0, "servo_torque": 3.0 - k, "friction": 0.5 * (k % 3)}
        joint = Joint(
            type="revolute", axis=(0, 1, 0), position=(0.2, 0.1 * k, 0.0), servo_least=-4.0, servo_most=5.0,
            friction_speed=0.7, **servo,
        )  # fmt: skip
        inertia = (0.1, 0.2, 0.3, 0.0, 0.0, 0.0)
        system.add(name=f"b{k}", parent=f"b{k - 1}" if k else "world", mass=1.0, inertia=inertia, joint=joint)
    q, u, tau = source.uniform(-0.4, 0.4, 9), source.normal(size=9), source.normal(size=9)
    peer = PEERS["pinocchio"](system.contents, q, u, tau, None)
    expected = accelerations(system, q, u, tau, comm=MPI.COMM_SELF)
    for way, evaluate in peer.ways.items():
        assert_close(way, peer.in_our_order(evaluate()), expected, "pinocchio")


@pytest.mark.parametrize("spec", ["four_bar:5", "boom:3"])
def test_figures_of_systems_with_loops(spec: str) -> None:
    """In the order of the model, where the solver's is another; each way as near to ours as it is known to be."""
    rows = compare(system_from(spec).contents, 0.02, ["pinocchio"])
    assert set(rows["pinocchio"]) == FIGURES
    ways = rows["pinocchio"]["ways"]
    assert set(ways) == set(peer_pinocchio.LOOP_WAYS)
    assert ways["constraintDynamics"]["difference"] < 1e-8
    assert ways["constraintDynamics"]["difference"] < ways["lcaba, 1 iteration"]["difference"]


def test_a_peer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [m for m in sys.modules if m.split(".")[0] == "pinocchio"]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.delitem(sys.modules, "laboratory.peer_pinocchio", raising=False)
    monkeypatch.setitem(sys.modules, "pinocchio", None)
    rows = compare(system_from("chain:3").contents, 0.01)
    assert rows["pinocchio"] == {"reason": "not installed: pip install pin"}
    assert set(rows[OURS]) == FIGURES


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
    row = compare(system_from("chain:3").contents, 0.01, ["fake"])["fake"]
    assert set(row) == {"version", "reason"} and row["reason"].startswith("disagrees: accelerations differ by ")
    assert calls == {"only": 1}


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
    rows = compare(system_from("chain:3").contents, 0.01, ["broken", "pinocchio"])
    assert rows["broken"] == {"reason": reason}
    assert set(rows["pinocchio"]) == FIGURES


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
    peer = PEERS["pinocchio"](system.contents, q, u, tau, None)
    plane = {"revolute", "prismatic", "fixed"}.issuperset(system.summary().joint_types)
    for _ in range(2):
        for way, evaluate in peer.ways.items():
            off, allowed = error(peer.in_our_order(evaluate()), reference), TOLERANCE["pinocchio"][0]
            assert off <= (peer.rough.get(way, allowed) if plane or way not in peer.rough else np.inf), f"{what}, {way}"


LINKAGES = ["four_bar:2", "four_bar:5", "four_bar_chain:5", "five_bar", "coupled_loops", "parallelogram", "boom:3"]


@pytest.mark.parametrize("spec", [*LINKAGES, "track:9"])
def test_loops_of_mechanisms(spec: str) -> None:
    system = system_from(spec)
    q, u = system.contents.initial_state(0, system.n_bodies)
    tau = np.sin(1.0 + np.arange(system.nu))
    assert_closed_as(spec, system, q, u, tau, closed(system, q, u, tau).udot)


@pytest.mark.parametrize("kind", ["spherical", "fixed"])
@pytest.mark.parametrize("seed", range(4))
def test_loops_in_space(seed: int, kind: str) -> None:
    types = ["spherical", "free", "planar", "helical", "universal"]
    system, q, u, tau = random_mechanism(seed, 9, 2, types, [kind], chain=True, to_world=0.5, wrenches=False)
    assert_closed_as(kind, system, q, u, tau, closed(system, q, u, tau).udot)
