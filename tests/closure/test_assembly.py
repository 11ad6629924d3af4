"""Loops closed from states in which they are open."""

import numpy as np
import pytest

from mpimbs.base.errors import InputError
from mpimbs.closure.assembly import allowed_by, assemble, close_loops
from mpimbs.closure.jacobian import LoopJacobian, displacements
from mpimbs.model import Body, Joint, System
from mpimbs.parts.subchain import Subchain
from oracles import mechanisms
from oracles.loops import closed, position_violation
from oracles.random_loops import LOOP_TYPES, planar_mechanism, random_mechanism
from tolerances import assert_close


@pytest.mark.cases(2)
@pytest.mark.parametrize("seed", range(8))
def test_random_mechanisms(seed: int) -> None:
    """Redundant ones, too: from up to some centimetres and degrees away."""
    draw = np.random.default_rng(seed)
    for system, q, _, tau in (random_mechanism(seed, 20, 5, doubled=2), planar_mechanism(seed, 12, 4)):
        start = Subchain(system.contents).displaced(q, 0.03 * draw.uniform(-1, 1, system.nu))
        assert position_violation(system, start).max() > 1e-3
        found = assemble(system.contents, start, tau)
        assert position_violation(system, found.q).max() < 1e-10
        jacobian = closed(system, found.q, found.u).jacobian
        assert np.abs(jacobian @ found.u).max() < 1e-10 * np.abs(tau).max()
        assert found.moved.max() < 1.0


@pytest.mark.parametrize("kind", LOOP_TYPES)
def test_steps_are_of_least_norm(kind: str) -> None:
    """To first order: what was moved has no part in what the loops allow."""
    system, q, _, tau = random_mechanism(2, 8, 2, ("spherical", "planar", "universal"), [kind])
    loops = LoopJacobian(system.contents)
    start = Subchain(system.contents).displaced(q, 1e-4 * np.sin(np.arange(system.nu)))
    found = close_loops(loops, start)
    assert found.reached
    columns = loops.at(q).columns
    move = displacements(system.contents.columns(), start, found.q) / columns
    allowed = allowed_by(loops, q, tau) / columns
    assert np.linalg.norm(allowed) > 0.1
    assert abs(move @ allowed) < 1e-2 * np.linalg.norm(move) * np.linalg.norm(allowed)


def test_displacements_are_those_that_were_made() -> None:
    system, q, u, _ = random_mechanism(4, 20, 1)
    move = 1e-4 * u
    assert_close(
        "displacements",
        displacements(system.contents.columns(), q, Subchain(system.contents).displaced(q, move)),
        move,
        "difference",
    )


def test_closed_loops_stay_where_they_are() -> None:
    system = mechanisms.four_bar(3, 1.0, -2.0)
    q, u = system.contents.initial_state(0, system.n_bodies)
    found = assemble(system.contents, q, u)
    assert_close("q", found.q, q, "rounding")
    assert_close("u", found.u, u, "rounding")
    assert found.moved.max() < 1e-14


def test_a_row_of_linkages_that_begins_with_all_angles_wrong() -> None:
    system = mechanisms.four_bar(50, 1.0, -2.0)
    q, u = system.contents.initial_state(0, system.n_bodies)
    found = assemble(system.contents, q + 0.2 * np.sin(np.arange(system.nu)), u)
    assert position_violation(system, found.q).max() < 1e-10


def rods(distance: float) -> System:
    """Two rods of 1 m on hinges so far apart, both along y, with a ball joint between their tips."""
    system = System("rods")
    rod = {"mass": 1, "center_of_mass": (0, 0.5, 0), "inertia": (0.1, 0.1, 0.1, 0, 0, 0)}
    for name, place in (("left", 0.0), ("right", distance)):
        system.add(Body(name=name, parent="world", joint=Joint(type="revolute", position=(place, 0, 0)), **rod))
    system.add_loop(name="gap", type="spherical", bodies=("left", "right"), positions=((0, 1, 0), (0, 1, 0)))
    return system


def test_the_place_is_the_nearest() -> None:
    """Both rods turn by 30 degrees."""
    found = assemble(rods(1.0).contents, np.zeros(2), np.ones(2))
    assert_close("q", found.q, np.radians([-30.0, 30.0]), "solved on ranks")
    assert_close("moved", found.moved, np.radians([30.0, 30.0]), "solved on ranks")
    assert np.abs(found.u).max() < 1e-9


@pytest.mark.parametrize("distance, left", [(2.5, "0.5 m"), (13.0, "11 m")])
def test_a_loop_that_can_not_be_closed_is_named(distance: float, left: str) -> None:
    with pytest.raises(InputError, match=f"loop 'gap' can't be closed: it stays open by {left}, wherever"):
        assemble(rods(distance).contents, np.zeros(2), np.zeros(2))


def test_without_loops_there_is_nothing_to_close() -> None:
    with pytest.raises(InputError, match="system 'chain' has no loops to close"):
        assemble(System("chain").contents, np.zeros(0), np.zeros(0))
