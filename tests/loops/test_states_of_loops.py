"""States that don't fit together are told; inverse dynamics through loops and gears, put back into forward dynamics."""

import warnings
from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.statics.modes import modes
from mpimbs.model import Joint, System
from mpimbs.stepping.projection import closed
from oracles.descriptor import Descriptor
from oracles.loops import closed as dense
from oracles.random_loops import random_mechanism
from oracles.structured_systems import case_of
from tolerances import assert_close

SPEED, ANGLE = 3.0, 0.3
LENGTHS = 0.5, 1.2, 0.8  # of crank, coupler, rocker; ground 1


def crank_rocker(driven: bool, unit: float = 1.0) -> System:
    """The linkage of a user, whose crank was driven while the other joints began at rest; lengths in some unit (m)."""
    system = System("crank rocker", gravity=(0.0, -9.81 * unit, 0.0))
    moments = ((0.001, 0.020833333333333332), (0.001, 0.288), (0.001, 0.08533333333333336))
    begin = (ANGLE, -0.002622065131697271, 0.6741346369557145)
    places = ((0, 0, 0), (0.5, 0, 0), (1, 0, 0))
    rows = zip(("crank", "coupler", "rocker"), LENGTHS, (1.0, 2.4, 1.6), moments, begin, places, strict=True)
    for k, (name, length, mass, (x, y), q, at) in enumerate(rows):
        joint = {"type": "revolute", "position": [unit * p for p in at], "q": q}
        if driven and k == 0:
            joint = {"type": "revolute", "motion": lambda t: (ANGLE + SPEED * t, SPEED, 0.0)}
        center, inertia = (unit * length / 2, 0, 0), tuple(unit**2 * v for v in (x, y, y, 0, 0, 0))
        parent = "crank" if name == "coupler" else "world"
        system.add(name=name, parent=parent, mass=mass, center_of_mass=center, inertia=inertia, joint=Joint(**joint))
    ends = ((1.2 * unit, 0, 0), (0.8 * unit, 0, 0))
    system.add_loop(name="pin", type="revolute", bodies=("coupler", "rocker"), positions=ends)
    return system


def test_a_driven_crank_with_open_speeds_is_told(comm: MPI.Comm) -> None:
    """The torque of a crank that the open speeds give is wrong, 0.127 for 11.318 N m, and that is said once."""
    with closing(Dynamics(crank_rocker(True), comm)) as dynamics:
        q, u = dynamics.subchain.q, dynamics.subchain.u
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dynamics.loads.drive_forces(q, u)
            dynamics.accelerations(q, u)
        told = [str(w.message) for w in caught]
        assert len(told) == (comm.rank == 0), told
        assert comm.rank or "the ends of loop 'pin' part at 5.1 m per second; close it first" in told[0], told
        with warnings.catch_warnings(action="error"):
            given = closed(dynamics, *dynamics.divided.followed(0.0, q, u))
            torque = comm.allreduce(float(dynamics.loads.drive_forces(*given).sum()))
            dynamics.accelerations(*given)
        assert_close("torque", round(torque, 3), 11.318, "exact", comm=comm)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_open_places_are_told_in_any_unit(unit: float) -> None:
    with closing(Dynamics(crank_rocker(False, unit))) as dynamics:
        q, u = dynamics.subchain.q, dynamics.subchain.u
        assert dynamics.loops is not None and dynamics.loops.opened(q, u) == ""
        for size in (1e-5, 0.2):
            apart = q + np.array([0.0, 0.0, size])
            told = f"loop 'pin' is open by {0.8 * unit * size:.2g}"[:-1]
            assert told in dynamics.loops.opened(apart, u), dynamics.loops.opened(apart, u)
            with pytest.raises(InputError, match="loop 'pin' is open by"):
                modes(dynamics, apart)
        speeds = np.array([0.0, 0.0, 1e-3])
        assert "the ends of loop 'pin' part" in dynamics.loops.opened(q, speeds)
        assert dynamics.loops.opened(q, dynamics.loops.close_speeds(q, speeds)) == ""


LOADED = {"all": None, "enough": ("b0", "b1", "b2", "b3", "b4")}


@pytest.mark.parametrize("named", LOADED)
@pytest.mark.parametrize("seed", range(4))
def test_forces_put_back(comm: MPI.Comm, seed: int, named: str) -> None:
    """Loops of all types, with springs along them: accelerations of the dense oracle under random forces come again."""
    system, q, u, tau = random_mechanism(seed, 7, 2, driven=True)
    names: Sequence[str] | None = LOADED[named]
    if names is not None:  # forces of these joints alone
        offset = system.contents.offsets()[1]
        mine = np.concatenate([np.arange(offset[k], offset[k + 1]) for k in map(system.contents.index_of, names)])
        tau = np.where(np.isin(np.arange(system.nu), mine), tau, 0.0)
    asked = dense(system, q, u, tau).udot.astype(float)
    with closing(Dynamics(system, comm)) as dynamics:
        at, here = dynamics.gather_q.part, dynamics.gather_u.part
        found, loads, _ = dynamics.loads.actuation(q[at], u[here], asked[here], actuated=names)
        again = dynamics.accelerations(q[at], u[here], found)
        assert_close("again", again, asked[here], "iterated", scale=float(np.abs(asked).max()), comm=comm)
        carried = dynamics.loads.joints_and_loops(q[at], u[here], found)
        assert_close("loads", loads, carried.loops, "iterated", comm=comm)
        if names is not None:
            idle = ~np.isin(np.arange(system.nu)[here], mine)
            assert not found[idle].any()


@pytest.mark.parametrize("seed", [1821, 2363])
def test_speeds_where_constraints_hardly_differ(comm: MPI.Comm, seed: int) -> None:
    """A single projection leaves 1e-4 to 1e-6 of the speeds of these along constraints; none is left."""
    case = case_of(seed, most=60)
    given = np.random.default_rng(seed).normal(size=case.system.nu)
    oracle = Descriptor(case.system, case.q, given)
    assert oracle.allow() < 1e-15
    with closing(Dynamics(case.system, comm)) as dynamics:
        q, own = case.q[dynamics.gather_q.part], dynamics.gather_u.part
        found = dynamics.loops.close_speeds(q, given[own])
        left = dynamics.loops.apart(q, found)[1].max()
        speeds = dynamics.gather_u.everywhere(found)
    assert left < 1e-11 * np.abs(given).max()
    right = oracle.u.astype(float)
    scale = 100 * float(np.abs(right).max())  # rounding moves them along what hardly resists: 1e-7 on 2 ranks
    assert_close("speeds", speeds, right, "units", scale=scale, comm=comm)


def test_speeds_beyond_all_numbers_are_not_those_given() -> None:
    """What projection makes of them is given, finite or not, never what it was asked of."""
    system, given = crank_rocker(False), np.array([1.0, 0.0, 0.0])
    with closing(Dynamics(system)) as dynamics:
        q = dynamics.subchain.q
        right = dynamics.loops.close_speeds(q, given)
        for size in (1e50, 1e200, 1e300, 1.7e308):
            found = dynamics.loops.close_speeds(q, size * given)
            assert np.allclose(found / size, right, rtol=1e-12, atol=0.0) or not np.isfinite(found).all(), size


def test_least_norm() -> None:
    """One crank of a four-bar drives it alone; of all three joints the forces are shared, and smaller together."""
    system = crank_rocker(False)
    with closing(Dynamics(system)) as dynamics:
        assert dynamics.loops is not None
        q, still = dynamics.subchain.q, np.zeros(3)
        u = dynamics.loops.close_speeds(q, np.array([SPEED, 0.0, 0.0]))
        asked = dynamics.accelerations(q, u, np.array([4.0, 0.0, 0.0]))
        alone = dynamics.loads.actuation(q, u, asked, actuated=["crank"])
        assert alone.unique
        assert_close("crank", alone.tau, [4.0, 0.0, 0.0], "iterated")
        shared = dynamics.loads.actuation(q, u, asked)
        assert not shared.unique and np.linalg.norm(shared.tau) < 4.0
        rows = dynamics.inertia.loop_jacobian(q).toarray()
        assert_close("of least norm", rows @ shared.tau, np.zeros(len(rows)), "loops", scale=4.0)
        with pytest.raises(InputError, match="open loop 'pin', by"):
            dynamics.inverse_dynamics(q, u, asked + np.array([0.0, 0.0, 1.0]))
        with pytest.raises(InputError, match="actuated must be a list of names"):
            dynamics.inverse_dynamics(q, still, still, actuated="crank")


def test_gears_share_the_work() -> None:
    """Two fingers tied by a gear: one motor makes both move, and what it takes is what Lagrange's equation says."""
    system = System("fingers", gravity=(0, 0, 0))
    for name, moment in (("left", 2.0), ("right", 3.0)):
        inertia = (moment,) * 3 + (0, 0, 0)
        system.add(name=name, parent="world", mass=1, inertia=inertia, joint=Joint(type="revolute", axis=(0, 0, 1)))
    system.add_gear(name="tie", joint="right", of="left", ratio=-0.5)
    with closing(Dynamics(system)) as dynamics:
        q, still, udot = np.zeros(2), np.zeros(2), np.array([1.0, -0.5])
        tau = dynamics.inverse_dynamics(q, still, udot, actuated=["left"])
        assert_close("motor", tau, [2.0 + 0.25 * 3.0, 0.0], "dense")
        tau = dynamics.inverse_dynamics(q, still, udot)  # along (1, -0.5), that does the same
        assert_close("both", tau, 2.75 / 1.25 * np.array([1.0, -0.5]), "dense")
        with pytest.raises(InputError, match="open loop 'tie'"):
            dynamics.inverse_dynamics(q, still, np.array([1.0, 1.0]))
