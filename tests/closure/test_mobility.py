"""What loops leave to move, and which loads are unique, by dense decompositions and for known mechanisms."""

import numpy as np
import pytest

from mpimbs.closure.jacobian import LoopJacobian
from mpimbs.closure.report import Mobility, loop_report, mobility, nearby_state, told_loops
from mpimbs.model import Body, Joint, System, contents_from
from mpimbs.model.system import contents_of, system_holding
from oracles import mechanisms
from oracles.dense import Array, Snapshot
from oracles.loops import closed, closures, opened
from oracles.random_loops import planar_mechanism, random_mechanism

HINGE = ("moment across the axis", "force along the axis")


def found_for(system: System, q: Array | None = None) -> Mobility:
    return mobility(
        LoopJacobian(contents_of(system)), contents_of(system).initial_state(0, system.n_bodies)[0] if q is None else q
    )


def state_of(system: System, q: Array) -> Snapshot:
    return Snapshot(opened(system), q, np.zeros(system.nu))


@pytest.mark.cases(3)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("loops", [2, 8, 25])
def test_random_mechanisms(seed: int, loops: int) -> None:
    for system, q, u, _ in (
        random_mechanism(seed, 30, loops, doubled=seed % 3, reach=8 if seed % 2 else None),
        planar_mechanism(seed, 30, loops),
    ):
        ours, dense = found_for(system, q), closed(system, q, u)
        assert dense.gap < 1e-8
        assert (ours.constraints, ours.rank) == (len(dense.jacobian), dense.rank)
        null = np.linalg.svd(dense.jacobian.T)[2][dense.rank :]
        begin, undetermined = 0, []
        carried = np.zeros((system.n_bodies, len(null), 6))  # by the joints of the tree, about the world's origin
        parent = system.contents.parents()
        for loop, at, ends in zip(
            system.contents.loops, closures(system, state_of(system, q)), system.contents.loops.bodies, strict=True
        ):
            rows = slice(begin, begin + 6 - loop.kind.nu)
            if np.linalg.norm(null[:, rows]) > 1e-6:
                undetermined.append(loop.name)
            begin = rows.stop
            load = null[:, rows] @ at.constrained.T.astype(float)
            load[:, :3] += np.cross(at.origin.astype(float), load[:, 3:])
            for end, sign in zip(ends, (-1, 1), strict=True):
                body = end
                while body >= 0:
                    carried[body] += sign * load
                    body = int(parent[body])
        assert list(ours.undetermined) == undetermined
        joints = [
            system.contents.name_of(k) for k in range(system.n_bodies) if np.abs(carried[k]).max(initial=0.0) > 1e-7
        ]
        assert list(ours.undetermined_joints) == joints


@pytest.mark.parametrize("seed", range(4))
def test_a_load_is_unique_if_the_rank_falls_without_it(seed: int) -> None:
    """Loop by loop: what is left of the others when all of one go."""
    system, q, _, _ = random_mechanism(seed, 15, 5, loop_types=["spherical", "fixed", "universal"], doubled=1)
    whole = found_for(system, q)
    for loop in system.contents.loops:
        less = system_holding(opened(system))
        for other in system.contents.loops:
            if other is not loop:
                less.add_loop(other)
        lost = whole.rank - found_for(less, q).rank
        assert (lost == 6 - loop.kind.nu) == (loop.name not in whole.undetermined)


@pytest.mark.parametrize("as_chain", [False, True])
@pytest.mark.parametrize("n", [1, 2, 10])
def test_four_bar(n: int, as_chain: bool) -> None:
    """3 redundant constraints for each loop; folded flat, where each crank can move by itself, one more."""
    ours = found_for(mechanisms.four_bar(n, 1.0, 0.0, as_chain))
    assert (ours.mobility, ours.redundant, ours.constraints) == (1, 3 * n, 5 * n)
    assert ours.undetermined == {f"loop{k}": HINGE for k in range(1, n + 1)}
    flat = mechanisms.four_bar(n, 0.0, 0.0, as_chain)
    ours = found_for(flat)
    assert (ours.mobility, ours.redundant) == (n + 1, 4 * n)
    assert "force across the axis" in ours.undetermined["loop1"]
    loops = LoopJacobian(flat.contents)
    there = nearby_state(loops, flat.contents.initial_state(0, flat.n_bodies)[0])
    assert there is not None
    assert (mobility(loops, there).mobility, mobility(loops, there).redundant) == (1, 3 * n)
    assert loops.joints.position_violation(loops.bodies(there)).max() < 1e-10


def frame() -> System:
    """A bar on a hinge, whose end is held in place two times: nothing can move."""
    system = System("frame")
    rod = {"mass": 1, "center_of_mass": (0.5, 0, 0), "inertia": (0.1, 0.1, 0.1, 0, 0, 0)}
    system.add(Body(name="bar", joint=Joint(type="revolute"), **rod))
    for name in ("one", "two"):
        system.add_loop(name=name, type="fixed", bodies=("bar", "world"), positions=((1, 0, 0), (1, 0, 0)))
    return system


def test_a_frame_that_cannot_move() -> None:
    system = frame()
    ours = found_for(system)
    assert (ours.mobility, ours.rank, ours.redundant) == (0, 1, 11)
    lines = list(told_loops(loop_report(system.contents)))
    assert lines[0] == "loops: 2 fixed; 12 constraints, 11 of them redundant; nothing can move"
    assert "'one', 'two' (moment about x" in lines[1]


@pytest.mark.parametrize("name", ["boom:4", "track:12", "five_bar", "coupled_loops"])
def test_generated(name: str) -> None:
    system = contents_from(name)
    q, u = system.initial_state(0, system.n_bodies)
    ours, dense = found_for(system, q), closed(system, q, u)
    assert (ours.rank, ours.redundant) == (dense.rank, dense.redundant)
    assert 0 < ours.rank <= system.nu


def test_report() -> None:
    system = mechanisms.four_bar(2, 1.0, -2.0)
    report = loop_report(system.contents)
    assert max(report.position_violation.size, report.velocity_violation.size) < 1e-15
    assert report.start == report.nearby
    assert report.numbers()["start"]["mobility"] == 1
    flat = list(told_loops(loop_report(mechanisms.four_bar(2, 0.0, -2.0).contents)))
    assert "8 of them redundant; 3 degrees of freedom are left" in flat[0]
    assert flat[1].endswith("in one nearby 6 constraints are redundant, and 1 degree of freedom is left")


def apart(distance: float, turn: float = 0.0) -> System:
    """Two cranks of 1 m, both along x, whose tips a loop joins."""
    system = System("apart")
    rod = {"mass": 1, "center_of_mass": (0.5, 0, 0), "inertia": (0.1, 0.1, 0.1, 0, 0, 0)}
    for name, place in (("left", 0.0), ("right", distance)):
        joint = Joint(type="revolute", position=(place, 0, 0), q=turn)
        system.add(Body(name=name, parent="world", joint=joint, **rod))
    system.add_loop(name="gap", type="spherical", bodies=("left", "right"), positions=((1, 0, 0), (1, 0, 0)))
    return system


@pytest.mark.cases(1)
@pytest.mark.parametrize("turn", [0.0, 0.5])
def test_report_of_loops_that_are_open(turn: float) -> None:
    """Too far apart; or not, where all of it can begin in one line, from which no step of a Newton's method leads."""
    report = loop_report(apart(3.0, turn).contents)
    assert report.position_violation.size == pytest.approx(3.0)
    assert report.start is None and report.unclosed is not None
    assert report.unclosed.size == pytest.approx(1.0, abs=1e-3)
    assert "'gap' stays open by 1 m" in list(told_loops(report))[-1]
    report = loop_report(apart(1.0, turn).contents)
    assert report.unclosed is None and report.start is not None
    assert (report.start.mobility, report.start.redundant) == (0, 1)
    assert "open by up to 1 m and rad ('gap')" in list(told_loops(report))[-1]


def test_what_is_too_large_is_not_determined(monkeypatch: pytest.MonkeyPatch) -> None:
    system = mechanisms.four_bar(2, 1.0, 0.0)
    for name, what in (("jacobian.MOST_ENTRIES", 10), ("report.MOST_NUMBERS", 3), ("assembly.MOST_PRODUCTS", 10)):
        with monkeypatch.context() as context:
            context.setattr(f"mpimbs.closure.{name}", what)
            report = loop_report(system.contents)
            lines = list(told_loops(report))
        if name == "assembly.MOST_PRODUCTS":  # which is for the state nearby
            assert report.start is not None and report.nearby is None
            assert lines[1].startswith("note: no closed state nearby was found")
        else:
            assert report.start is None
            assert lines == ["loops: 2 revolute; how many degrees of freedom they leave is not determined: "
                             "too many of them act on the same joints"]  # fmt: skip
        assert report.position_violation.size < 1e-15
