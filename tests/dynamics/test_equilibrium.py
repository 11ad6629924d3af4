"""Static equilibria: against exact ones of chains and rods, on all ranks, and where there are none."""

from contextlib import closing

import numpy as np
import pytest
import scipy.optimize
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.statics.equilibrium import growth, settle
from mpimbs.model import Joint, Loop, System, system_from
from mpimbs.run.run import simulate
from oracles.dense import Array
from oracles.structured_systems import case_of
from tolerances import assert_close

TIP = {  # length 1 m, EI 1 N m^2, clamped, weight 5 N/m: tip x, y downward, its angle; for so many links
    4: (0.83599663, 0.52130324, 0.71088440),
    64: (0.84661794, 0.49600530, 0.69705898),
}


def links(n: int, weight: float, bending: float = 0.0) -> System:
    """A horizontal chain of 1 m with a weight (N/m), of rigid links, or of the bending stiffness of a rod (N m^2)."""
    system, length = System("chain", gravity=(0, -10, 0)), 1.0 / n
    mass = weight * length / 10
    for k in range(n):
        spring = bending / length * (1 if k else 2)
        place = (length if k else 0, 0, 0)
        joint = Joint(type="revolute", axis=(0, 0, 1), position=place, stiffness=spring)
        turn = mass * length**2 / 12
        center = (length / 2, 0, 0)
        system.add(name=f"link{k}", mass=mass, center_of_mass=center, inertia=(turn,) * 3 + (0,) * 3, joint=joint)
    return system


def settled(comm: MPI.Comm, system: System, **settings: object) -> tuple[Array, Array]:
    """Coordinates and joint loads of the whole, in the model's order, on all ranks."""
    with closing(Dynamics(system, comm, **settings)) as dynamics:
        found = settle(dynamics, dynamics.subchain.q)
        loads = np.zeros((system.n_bodies, 6))
        loads[dynamics.bodies] = dynamics.joint_loads(found.q, np.zeros(dynamics.subchain.nu))
        q = comm.bcast(dynamics.gather_q(found.q))
    comm.Allreduce(MPI.IN_PLACE, loads)
    return q, loads


@pytest.mark.parametrize("n", [10, 40])
@pytest.mark.parametrize("coupling", ["dcae", "pcg"])
def test_a_chain_pulled_at_its_tip(comm: MPI.Comm, n: int, coupling: str) -> None:
    """tan of a link's angle is the force that passes its middle, upward over along: exact for any number of links."""
    along, upward, weight = 0.7, 0.3, 2.0
    system = links(n, weight)
    system.add_wrench(f"link{n - 1}", force=(along, upward, 0), point=(1 / n, 0, 0), frame="world")
    q, loads = settled(comm, system, coupling=coupling)
    angles = np.arctan2(upward - weight / n * (n - np.arange(n) - 0.5), along)
    assert_close("angles", np.cumsum(q), angles, "settled", comm=comm)
    lift = weight / n * (n - np.arange(n)) - upward
    turned = np.array([[np.cos(angles), np.sin(angles)], [-np.sin(angles), np.cos(angles)]])
    forces = np.einsum("ijn,jn->ni", turned, np.array([np.full(n, -along), lift]))
    assert_close("forces", loads[:, 3:5], forces, "settled", comm=comm)


@pytest.mark.parametrize("n", [10, 50])
def test_a_chain_held_at_both_ends(comm: MPI.Comm, n: int) -> None:
    """From an arc: tan of the links' angles grows by the weight of a link over the horizontal force, all along."""
    system, span, half = links(n, 2.0), 0.6, 1.66136  # m, and rad of an arc of 1 m with that chord
    system.add_loop(
        Loop(name="end", bodies=[f"link{n - 1}", "world"], type="revolute", positions=[(1 / n, 0, 0), (span, 0, 0)])
    )
    start = np.full(n, 2 * half / n)
    start[0] = half / n - half
    with closing(Dynamics(system, comm)) as dynamics:
        found = settle(dynamics, start[dynamics.gather_q.part]).q
        angles = np.cumsum(comm.bcast(dynamics.gather_q(found)))
    assert_close("span", np.cos(angles).mean(), span, "settled", comm=comm)
    slopes = np.diff(np.tan(angles))
    assert_close("slopes", slopes, np.full(n - 1, slopes.mean()), "settled", comm=comm)


@pytest.mark.parametrize("n", TIP)
def test_a_rod_under_its_weight(comm: MPI.Comm, n: int) -> None:
    angles = np.cumsum(settled(comm, links(n, 5.0, 1.0))[0])
    tip = np.cos(angles).mean(), -np.sin(angles).mean(), -angles[-1]
    assert_close("tip", tip, TIP[n], "published", comm=comm)


def test_ropes_and_loops_come_to_rest(comm: MPI.Comm) -> None:
    """What starts there stays there, other couplings too; a mechanism with loops hangs down."""
    for spec, settings in (("rope:9", {}), ("four_bar_chain:3", {}), ("random_tree:20:3", {})):
        system = system_from(spec)
        q, _ = settled(comm, system, **settings)
        if comm.rank == 0:
            run = simulate(system, 0.01, every=0.01, state=(q, np.zeros(system.nu)), comm=MPI.COMM_SELF)
            assert_close(f"{spec}: moved", run.q[-1] - run.q[0], np.zeros(system.nq), "settled", scale=1.0)


def test_what_stands_on_its_head_is_told(comm: MPI.Comm) -> None:
    """A pendulum of length 1 m departs from upright at a rate of sqrt(3 g / 2 L)."""
    for turn, rate in ((0.5 * np.pi, np.sqrt(15.0)), (-0.5 * np.pi, 0.0)):
        if comm.rank == 0:
            system = links(1, 1.0)
            with closing(Dynamics(system, MPI.COMM_SELF)) as dynamics:
                q = settle(dynamics, np.array([turn])).q
                assert_close("rate", growth(dynamics, q), rate, "difference", scale=1.0)


@pytest.mark.parametrize("spec", ["caterpillar:16", "random_tree:40", "rope:16", "coupled_loops"])
def test_the_lowest_place_around(comm: MPI.Comm, spec: str) -> None:
    """Wherever it goes from there, the potential energy rises, as much to one side as to the other."""
    system, rng = system_from(spec), np.random.default_rng(1)
    with closing(Dynamics(system, comm)) as dynamics:
        still, displaced = np.zeros(dynamics.subchain.nu), dynamics.subchain.displaced
        q = settle(dynamics, dynamics.subchain.q).q

        def potential(move: Array) -> float:
            there = displaced(q, move[dynamics.gather_u.part])
            if dynamics.loops is not None:
                there = dynamics.loops.close_places(there)
            return float(dynamics.energy_and_momentum(there, still)[1])

        lowest = potential(np.zeros(system.nu))
        for move in 1e-4 * rng.uniform(-1, 1, (4, system.nu)):
            rises = potential(move) - lowest, potential(-move) - lowest
            assert min(rises) > 0.0, rises
            assert_close(f"{spec}: rise", rises[0], rises[1], "cubic", comm=comm)


def test_free_fall_is_no_equilibrium(comm: MPI.Comm) -> None:
    with closing(Dynamics(system_from("free_chain:4"), comm)) as dynamics:
        with pytest.raises(SimulationError, match=r"falls, .* on and on: the joint of body 'root'") as caught:
            settle(dynamics, dynamics.subchain.q)
        parallel_assert(len(set(comm.allgather(str(caught.value)))) == 1, "other messages", comm)


def test_what_is_pushed_without_weight_is_no_equilibrium() -> None:
    """Where nothing holds, pulls down or is stiff: neither the system nor its motion tells how long a fall takes."""
    system = System("slider", gravity=(0.0, 0.0, 0.0))
    system.add(name="slider", mass=1.0, inertia=(0.1, 0.1, 0.1, 0, 0, 0), joint=Joint(type="prismatic", torque=0.1))
    with closing(Dynamics(system, MPI.COMM_SELF)) as dynamics, pytest.raises(SimulationError, match="on and on"):
        settle(dynamics, np.zeros(1))


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-5])
def test_slides_settle_alike_in_systems_of_any_size(size: float) -> None:
    """A slider that a spring pulls askew, where one equation says that it rests."""
    stiffness, weight = 20.0 / size, 9.81
    system = System("slider", gravity=(-weight, 0, 0))
    joint = Joint(type="prismatic", axis=(1, 0, 0))
    system.add(name="m", mass=1, inertia=(size**2,) * 3 + (0,) * 3, center_of_mass=(size, 0, 0), joint=joint)
    ends = {"bodies": ("world", "m"), "positions": ((0, size, 0), (0, 0, 0))}
    system.add_spring(name="askew", stiffness=stiffness, rest=0.5 * size, **ends)

    def pull(x: float) -> float:
        long = np.hypot(x, 1.0)
        return stiffness * size * (long - 0.5) * x / long + weight

    right = scipy.optimize.brentq(pull, -5.0, 0.0, xtol=1e-15)
    with closing(Dynamics(system, MPI.COMM_SELF)) as dynamics:
        found = settle(dynamics, np.array([0.3 * size]))
    assert_close("place", found.q / size, [right], "settled")


def test_rounding_alone_does_not_push_on() -> None:
    """Along what nothing holds, where constraints hardly differ, the search ends where rounding is left."""
    case = case_of(957057011, most=40)
    with closing(Dynamics(case.system)) as dynamics:
        found = settle(dynamics, case.q)
    assert found.steps < 1000 and found.acceleration < 1e-8
