"""Nothing depends on the metre: systems in other units, far from the origin, turned and described otherwise."""

import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy.spatial.transform import Rotation

from mpimbs.base.errors import SimulationError
from mpimbs.closure.assembly import assemble
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.residual import EXACT
from mpimbs.dynamics.statics.equilibrium import settle
from mpimbs.dynamics.statics.modes import modes
from mpimbs.model import Joint, System, system_from, system_from_text
from mpimbs.run.run import simulate
from mpimbs.stepping.projection import closed
from oracles.dense import Array
from oracles.other_units import OtherUnits, described_otherwise, elsewhere, in_another_order, in_units
from oracles.random_loops import random_mechanism
from oracles.structured_systems import case_of
from tolerances import assert_close

SYSTEMS = 30
MILLIMETRES, MICROSECONDS, LARGE = OtherUnits(1e3, 1e-3, 1.0), OtherUnits(1.0, 1e3, 1e6), OtherUnits(1e-6, 1e6, 1e3)


def drawn(seed: int) -> tuple[System, Array, Array, Array]:
    """A system and a state: mechanisms of every type of joint, and what models are made of, motions aside."""
    if seed % 2:
        return random_mechanism(seed, 10, 3)
    case = case_of(seed, most=25)
    while case.system.contents.has_motions:
        case = case_of(seed := seed + SYSTEMS, most=25)
    return case.system, case.q, case.u, case.tau


def answers(system: System, q: Array, u: Array, tau: Array, units: OtherUnits, coupling: str) -> dict[str, Array]:
    """All that a state is asked for, in metres, kilograms and seconds, of a system in some units."""
    made = in_units(system, units)
    of_q, of_u, of_tau = units.q(system), units.u(system), units.tau(system)
    q, u, tau = q * of_q, u * of_u, tau * of_tau
    found: dict[str, Array] = {}
    with closing(Dynamics(made, coupling=coupling)) as dynamics:
        udot = dynamics.accelerations(q, u, tau, warn=False)
        found["accelerations"] = udot / of_u * units.second
        joints, _, loops = dynamics.loads.joints_and_loops(q, u, tau)
        found["loads"] = joints / units.load
        found["energy"] = dynamics.energy_and_momentum(q, u)[:2] / units.energy
        told = dynamics.loads.residual(q, u, tau=tau)
        assert told.motion < EXACT.motion and told.loops < EXACT.loops
        if loops is not None:
            found["loads of loops"] = loops / units.load
            found["closed"] = dynamics.loops.close_places(q) / of_q
            found["allowed"] = dynamics.loops.close_speeds(q, u) / of_u
        else:
            found["inverse"] = dynamics.inverse_dynamics(q, u, udot) / of_tau
            found["M"] = dynamics.inertia_matrix(q) / np.outer(of_tau, units.second / of_u)
    return found


@pytest.mark.cases(6)
@pytest.mark.parametrize("seed", range(SYSTEMS))
def test_a_state_in_other_units(seed: int) -> None:
    """Every quantity is the same, by elimination and by multipliers, in three units that the seed draws."""
    system, q, u, tau = drawn(seed)
    draw = np.random.default_rng(seed)
    coupling = (
        "augmented" if seed % 3 == 1 and not any(hasattr(loop, "ratio") for loop in system.contents.loops) else "dcae"
    )
    plain = answers(system, q, u, tau, OtherUnits(), coupling)
    for exponents in draw.integers(-6, 7, (3, 3)).tolist():
        units = OtherUnits(*(10.0**k for k in exponents))
        other = answers(system, q, u, tau, units, coupling)
        for name, values in plain.items():
            least = 1.0 if name in ("accelerations", "allowed") else 0.0  # of what is locked: beside a fall
            scale = max(float(np.abs(values).max(initial=0.0)), least, 1e-300)
            assert_close(f"{name} in {units}", other[name], values, "units", scale=scale, comm=MPI.COMM_SELF)


@pytest.mark.parametrize("metre", [1e6, 1e-6])
def test_what_is_refined_in_metres_is_in_any_unit(comm: MPI.Comm, metre: float) -> None:
    """Constraints that hardly differ, by which 1e-6 is lost on 3 ranks without; numbers of slides tell nothing."""
    corpus = Path(__file__).parents[1] / "corpus" / "seed954761672.toml"
    case, found, refined = tomllib.loads(corpus.read_text(encoding="utf-8")), [], []
    system = system_from_text(case["model"], corpus)
    for units in (OtherUnits(), OtherUnits(metre)):
        factors = units.q(system), units.u(system), units.tau(system)
        state = [np.array(case[name]) * factor for name, factor in zip(("q", "u", "tau"), factors, strict=True)]
        with closing(Dynamics(in_units(system, units), comm)) as dynamics:
            own = dynamics.gather_u.part
            udot = dynamics.accelerations(
                state[0][dynamics.gather_q.part], *(part[own] for part in state[1:]), warn=False
            )
            found.append(dynamics.gather_u.everywhere(udot) / factors[1])
            refined.append(dynamics.loops.refining)
    scale = 10 * float(np.abs(found[0]).max())  # a digit more is lost than in others
    assert_close("accelerations", found[1], found[0], "units", scale=scale, comm=comm)
    assert refined[0] == refined[1]


def test_a_ring_that_turns_without_weight_is_not_refined(comm: MPI.Comm) -> None:
    """What accelerates there is rounding, beside that of its bodies: refined, a step takes 50 times as long."""
    with closing(Dynamics(system_from("ring:12"), comm)) as dynamics:
        q, u = dynamics.subchain.q, dynamics.subchain.u
        largest = np.abs(dynamics.gather_u.everywhere(dynamics.accelerations(q, u))).max(initial=0.0)
        assert largest < 1e-9 * dynamics.divided.largest_speed(u) ** 2
        assert dynamics.loops.refining is False


def test_what_is_refined_is_beside_a_flywheel() -> None:
    """A bob of a tonne on a rod of a microgram, closed as a loop, loses 3e-6 without, however fast another turns."""
    system, bodies = System(gravity=(0, -9.81, 0)), ("rod", "bob")
    inertia = (3.3e-10, 1e-13, 3.3e-10, 0, 0, 0)
    system.add(name="rod", mass=1e-9, center_of_mass=(0, -1, 0), inertia=inertia, joint={"type": "revolute"})
    bob = {"type": "free", "q": (1, 0, 0, 0, 0, -2, 0)}
    system.add(name="bob", parent="world", mass=1e3, inertia=(40, 40, 40, 0, 0, 0), joint=bob)
    system.add_wrench("bob", force=(1e3, 0, 0), frame="world")
    system.add_loop(name="weld", type="fixed", bodies=bodies, positions=((0, -2, 0), (0, 0, 0)))
    wheel = {"type": "revolute", "u": (1e5,)}
    system.add(name="flywheel", parent="world", mass=1.0, inertia=(1, 1, 1, 0, 0, 0), joint=wheel)
    with closing(Dynamics(system, MPI.COMM_SELF)) as dynamics:
        udot = dynamics.accelerations(dynamics.subchain.q, dynamics.subchain.u)
        assert dynamics.loops.refining
    assert abs(udot[0] - 2e3 / 4040.0) < 1e-9  # rad/s^2, about the hinge


@pytest.mark.cases(6)
@pytest.mark.parametrize("seed", range(SYSTEMS))
def test_a_state_that_is_described_otherwise(comm: MPI.Comm, seed: int) -> None:
    """In a world that is turned and moved, loops that lead the other way, bodies in two halves: on any ranks."""
    system, q, u, tau = drawn(seed)
    draw = np.random.default_rng(seed)
    turned = Rotation.random(random_state=draw).as_matrix()
    others = {
        "moved": elsewhere(system, turned, draw.uniform(-1e3, 1e3, 3)),
        "swapped": described_otherwise(system, swapped=True, halved=False),
        "halved": described_otherwise(system, swapped=False, halved=True),
    }
    found = {}
    masses = np.array([body.mass for body in system.contents.bodies() if body.mass])
    lanes = {"lanes": 1} if masses.max() > 1e3 * masses.min() else {}  # where cuts between light bodies lose digits
    for name, made in {"plain": system, **others}.items():
        if comm.size > made.n_bodies:
            pytest.skip("more ranks than bodies")
        with closing(Dynamics(made, comm, **lanes)) as dynamics:
            own = dynamics.gather_u.part
            udot = dynamics.accelerations(q[dynamics.gather_q.part], u[own], tau[own], warn=False)
            found[name] = dynamics.gather_u.everywhere(udot)
    right = found.pop("plain")
    for name, values in found.items():
        scale = max(float(np.abs(right).max(initial=0.0)), 1.0)  # of what is locked: beside a fall
        assert_close(f"accelerations when {name}", values, right, "units", scale=scale)


@pytest.mark.cases(6)
@pytest.mark.parametrize("seed", range(SYSTEMS))
def test_all_that_is_asked_elsewhere_and_in_another_order(seed: int) -> None:
    """Loads, inverse dynamics, M, closed states: in a world that is turned and moved, and with all listed otherwise."""
    system, q, u, tau = drawn(seed)
    draw = np.random.default_rng(seed)
    plain = answers(system, q, u, tau, OtherUnits(), "dcae")
    turned = Rotation.random(random_state=draw).as_matrix()
    moved = answers(elsewhere(system, turned, draw.uniform(-1e2, 1e2, 3)), q, u, tau, OtherUnits(), "dcae")
    for load, loop in zip(moved.get("loads of loops", ()), system.contents.loops, strict=False):
        if loop.bodies[1] == "world":  # on whose axes it is told
            load[:] = np.append(turned.T @ load[:3], turned.T @ load[3:])
    other, of_q, of_u = in_another_order(system, draw)
    listed = answers(other, q[of_q], u[of_u], tau[of_u], OtherUnits(), "dcae")
    bodies = [system.contents.index_of(other.contents.name_of(k)) for k in range(other.n_bodies)]
    loops = [loop.name for loop in system.contents.loops]
    places = {
        "loads": bodies, "loads of loops": [loops.index(loop.name) for loop in other.contents.loops], "closed": of_q,
        "M": np.ix_(of_u, of_u),
    }  # fmt: skip
    for name, values in plain.items():
        if name == "energy":  # of weight, from another height
            moved[name], values = moved[name][:1], values[:1]
            listed[name] = listed[name][:1]
        scale = max(float(np.abs(values).max(initial=0.0)), 1.0)
        there_too = values if name == "energy" else values[places.get(name, of_u)]
        assert_close(f"{name} elsewhere", moved[name], values, "units", scale=scale, comm=MPI.COMM_SELF)
        assert_close(f"{name} in another order", listed[name], there_too, "units", scale=scale, comm=MPI.COMM_SELF)


def four_bar(size: float, far: float, angle: float) -> System:
    """A crank-rocker closed to rounding, links of some sizes (m), so far from the origin (m); the crank turns."""
    a, b, c, d = 0.5 * size, 1.4 * size, size, 1.5 * size
    tip = a * np.array([np.cos(angle), np.sin(angle)])
    across = np.array([d, 0.0]) - tip
    length = np.linalg.norm(across)
    along = (b * b - c * c + length**2) / (2 * length)
    unit = across / length
    pin = tip + along * unit + np.sqrt(b * b - along**2) * np.array([-unit[1], unit[0]])
    coupler, rocker = np.arctan2(*(pin - tip)[::-1]), np.arctan2(*(pin - (d, 0.0))[::-1])
    system = System("four bar")

    def link(name: str, parent: str, place: tuple[float, ...], length: float, q: float, u: float = 0.0) -> None:
        inertia = (length**2 / 100, length**2 / 12, length**2 / 12, 0, 0, 0)
        hinge = Joint(type="revolute", axis=(0, 0, 1), position=place, q=(q,), u=(u,))
        system.add(name=name, parent=parent, mass=1, center_of_mass=(length / 2, 0, 0), inertia=inertia, joint=hinge)

    link("crank", "world", (far, far / 3, 0), a, angle, 2.0)
    link("coupler", "crank", (a, 0, 0), b, coupler - angle)
    link("rocker", "world", (far + d, far / 3, 0), c, rocker)
    system.add_loop(
        name="pin", type="revolute", axis=(0, 0, 1), bodies=("coupler", "rocker"), positions=((b, 0, 0), (c, 0, 0))
    )
    return system


@pytest.mark.cases(2)
@pytest.mark.parametrize(("size", "far"), [(1.0, 0.0), (1.0, 1e5), (1.0, 1e6), (1e-3, 1e3), (1e3, 1e7)])
def test_a_linkage_that_is_closed_stays_where_it_is(comm: MPI.Comm, size: float, far: float) -> None:
    """Wherever it stands; one that is open is closed by the smallest motion."""
    for angle in np.linspace(0.2, 6.0, 12):
        system = four_bar(size, far, float(angle))
        q, u = system.contents.initial_state(0, 3)
        moved = q + (1e-3, -2e-3, 3e-3)
        with closing(Dynamics(system, comm)) as dynamics:
            part = dynamics.gather_q.part
            here, _ = closed(dynamics, q[part], u[part])
            again, _ = closed(dynamics, moved[part], u[part])
            assert np.array_equal(here, q[part])
            bound = 6e-3 + 1e-8 * far / size
            assert np.abs(again - moved[part]).max(initial=0.0) < bound
        assert np.array_equal(assemble(system.contents, q, u).q, q)
        assert np.abs(assemble(system.contents, moved, u).q - moved).max() < bound


def test_runs_of_a_linkage_far_from_the_origin() -> None:
    """They begin where they are said to, and go as at the origin."""
    near = simulate(four_bar(1.0, 0.0, 1.0), 0.5, every=0.1, rtol=1e-9, atol=1e-9)
    for far in (1e5, 1e6):
        found = simulate(four_bar(1.0, far, 1.0), 0.5, every=0.1, rtol=1e-9, atol=1e-9)
        assert all(what != "coordinate" for what, _, _ in found.loops["moved"]) and np.array_equal(
            found.q[0], near.q[0]
        )
        assert np.abs(found.q - near.q).max() < 1e-13 * far


@pytest.mark.parametrize(("size", "far"), [(1.0, 0.0), (1.0, 1.3e5), (1.0, 1e7), (7e-6, 0.0), (1e5, 0.0)])
def test_a_gap_is_one_in_any_size(comm: MPI.Comm, size: float, far: float) -> None:
    """Ends that are an eighth of an arm apart are not connected."""
    system = System("arm")
    joint = Joint(type="revolute", axis=(0, 0, 1), position=(far, 0, 0), q=(0.3,))
    inertia = (0.1 * size**2,) * 3 + (0,) * 3
    system.add(name="arm", mass=1, center_of_mass=(size, 0, 0), inertia=inertia, joint=joint)
    for k in range(comm.size - 1):
        system.add(name=f"other {k}", parent="world", mass=1, inertia=inertia, joint=Joint(type="revolute"))
    tip = (far + size * np.cos(0.3) + 0.128 * size, size * np.sin(0.3), 0)
    positions = ((size, 0, 0), tip)
    system.add_loop(name="grip", type="spherical", bodies=("arm", "world"), positions=positions, active=False)
    system.add_event(time=1e-9, connect="grip", gap="refuse")
    with pytest.raises(SimulationError, match=r"connects loop 'grip', whose ends are [0-9.e+-]+ m apart"):
        simulate(system, 1e-8, comm, every=1e-8)


def test_gears_of_large_angles_and_small_slides() -> None:
    """A state that is closed to rounding is accepted, of a million turns with an offset and of micrometres."""
    for kind, place, offset in (("revolute", 1.2e6, 0.3), ("prismatic", 3e-6, 1e-6), ("prismatic", 2e-6, 0.0)):
        system = System("geared")
        joints = [Joint(type=kind, axis=(0, 0, 1), q=(q,)) for q in (place, -0.7 * place + offset)]
        for name, joint in zip("ab", joints, strict=True):
            system.add(name=name, parent="world", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=joint)
        system.add_gear(name="g", joint="b", of="a", ratio=-0.7, offset=offset)
        q, u = system.contents.initial_state(0, 2)
        with closing(Dynamics(system)) as dynamics:
            assert np.array_equal(closed(dynamics, q, u)[0], q)
        assert np.array_equal(assemble(system.contents, q, u).q, q)


@pytest.mark.parametrize("scale", [1e-9, 3e-6, 1.0, 1e3])
def test_motions_of_any_pace(scale: float) -> None:
    """Derivatives are derivatives, however fast a motion is; what is none is refused."""

    def system(factor: float) -> System:
        def motion(t: float) -> tuple[float, float, float]:
            x = t / scale
            return np.sin(x), factor * np.cos(x) / scale, -factor * np.sin(x) / scale**2

        made = System("driven")
        joint = Joint(type="revolute", motion=motion)
        made.add(name="wheel", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=joint)
        return made

    assert simulate(system(1.0), 2.0 * scale, every=scale).status == "complete"
    for wrong in (2.0, 1.01):
        with pytest.raises(SimulationError, match="is not the derivative of its value"):
            simulate(system(wrong), 2.0 * scale, every=scale)


@pytest.mark.parametrize("units", [MILLIMETRES, MICROSECONDS, LARGE], ids=str)
@pytest.mark.parametrize("integrator", ["dopri5", "rk4", "rosenbrock", "petsc:bdf"])
def test_runs_in_other_units(integrator: str, units: OtherUnits) -> None:
    """Loops stay closed and motions are the same, in fixed steps."""
    for spec in ("four_bar:2", "spatial_chain:4"):
        plain = system_from(spec)
        runs = {}
        for there in (OtherUnits(), units):
            step = 0.01 * there.second
            settings: dict[str, Any] = {"integrator": integrator, "dt": step, "every": 10 * step}
            result = simulate(in_units(plain, there), 30 * step, **settings)
            runs[there] = result.q / there.q(plain)
            if result.loops:
                assert result.loops["sampled"]["positions"][0] < 1e-12 * there.metre
        assert_close(spec, runs[units], runs[OtherUnits()], "stages in units", comm=MPI.COMM_SELF)


@pytest.mark.parametrize("units", [MILLIMETRES, MICROSECONDS, LARGE], ids=str)
def test_equilibria_and_modes_in_other_units(units: OtherUnits) -> None:
    """Of a hanging chain and of a linkage that a spring holds."""
    hanging, held = system_from("rope:5"), four_bar(1.0, 0.0, 1.0)
    held.add_spring(name="spring", bodies=("world", "rocker"), positions=((2, 2, 0), (1, 0, 0)), stiffness=60, rest=0.5)
    for plain in (hanging, held):
        found = []
        for there in (OtherUnits(), units):
            made = in_units(plain, there)
            with closing(Dynamics(made)) as dynamics:
                q = dynamics.subchain.q if dynamics.loops else settle(dynamics, dynamics.subchain.q).q
                if dynamics.loops is None:
                    found.append((q, modes(dynamics, q, 3).frequencies * there.second))
                else:
                    found.append((q, dynamics.inertia.loop_jacobian(q).toarray() / there.factor("m")))
        for ours, right in zip(found[1], found[0], strict=True):
            assert_close(f"{plain.name} in {units}", ours, right, "units", comm=MPI.COMM_SELF)


@pytest.mark.parametrize("units", [OtherUnits(), MILLIMETRES, MICROSECONDS, LARGE], ids=str)
def test_what_is_wrong_is_seen_in_any_units(units: OtherUnits) -> None:
    """A share of an acceleration that is wrong leaves the same share of the equations of motion and of the loops."""
    system, q, u, tau = random_mechanism(5, 10, 3)
    q, u, tau = q * units.q(system), u * units.u(system), tau * units.tau(system)
    with closing(Dynamics(in_units(system, units))) as dynamics:
        udot = dynamics.accelerations(q, u, tau)
        found = [dynamics.loads.residual(q, u, udot * share, tau) for share in (1.0, 1.001)]
    assert found[0].motion < 1e-12 and found[0].loops < 1e-11
    seen = np.array([found[1].motion, found[1].loops])
    right = SEEN.setdefault("share", seen)
    assert np.abs(seen - right).max() < 1e-3 * right.max() and seen.min() > 1e-6


SEEN: dict[str, Array] = {}
