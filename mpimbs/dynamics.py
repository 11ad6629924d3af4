"""Forward dynamics of a system over the ranks of a communicator: the one pipeline of all couplings."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling import coupling_named
from mpimbs.errors import InputError, SimulationError
from mpimbs.model import System, system_from
from mpimbs.parallel.agreement import together
from mpimbs.parallel.gather import Gather
from mpimbs.parallel.turn_scan import TurnScan
from mpimbs.partition.chain import TIP_RATIO, body_costs, split_chain
from mpimbs.sweep.external import ExternalLoads
from mpimbs.sweep.motion import join_motion
from mpimbs.sweep.quaternions import make_quaternions_unit
from mpimbs.sweep.structure import TURNING
from mpimbs.sweep.subchain import AT_REST, Subchain

Floats = npt.NDArray[np.float64]


class Dynamics:
    """Forward dynamics of a system, distributed over the ranks of a communicator.

    Each rank owns a subchain: consecutive bodies of the chain. Vectors given and returned are the rank's own part, in
    the model's order, unless said otherwise. All ranks make it together and call its methods together.

    Parameters
    ----------
    system : System
        The same on every rank.
    comm : MPI.Comm, optional
        Duplicated once; this process alone by default.
    coupling : str
        How the subchains are joined: a name in `mpimbs.coupling.COUPLINGS`.
    tip_ratio : float, optional
        How many times more bodies the last rank gets, whose sweep is cheaper; a measured ratio by default.

    Attributes
    ----------
    subchain : Subchain
        What this rank owns.
    cuts : array [P + 1]
        Rank r owns bodies cuts[r] to cuts[r + 1] - 1.
    evaluations : int
        Evaluations so far.

    Raises
    ------
    InputError
        On all ranks: a system that this version does not solve, more ranks than bodies, an unknown coupling.
    """

    def __init__(
        self,
        system: System,
        comm: MPI.Comm | None = None,
        coupling: str = "dcae",
        tip_ratio: float | None = None,
    ) -> None:
        given = MPI.COMM_SELF if comm is None else comm
        make_coupling, self.cuts = together(
            given, lambda: (coupling_named(coupling), _cut(system, given.size, tip_ratio))
        )
        self.system = system
        self.comm = given.Dup()
        first, last = self.cuts[self.comm.rank : self.comm.rank + 2]
        self.subchain = Subchain(system, int(first), int(last))
        self._scan = TurnScan(self.comm)
        self._coupling = make_coupling(self.comm)
        self._external = ExternalLoads(self.subchain, system.name_of)
        self._root = np.array([0.0, 0.0, 0.0, *(-g for g in system.gravity)])
        self._tau = np.zeros(self.subchain.nu)
        q_offset, u_offset = system.offsets()
        self.gather_q = Gather(self.comm, np.diff(q_offset[self.cuts]))
        self.gather_u = Gather(self.comm, np.diff(u_offset[self.cuts]))
        self.evaluations = 0
        self._laps = np.zeros(4)  # s: motion, inward, coupling, outward

    def derivative(
        self, t: float, q: Floats, u: Floats, udot: Floats, rates: Floats, tau: Floats | None = None
    ) -> None:
        """Evaluate the state derivative [design, section 2].

        Parameters
        ----------
        t : float
            Time (s), for the model's functions of time.
        q, u : array [nq], [nu]
            Coordinates (rad, m, quaternions) and generalized speeds (rad/s, m/s).
        udot, rates : array [nu], [nq]
            Written: generalized accelerations and rates of the coordinates.
        tau : array [nu], optional
            Generalized forces (N m, N) on top of the model's.

        Raises
        ------
        SimulationError
            On the rank whose user function failed.
        """
        clock = time.perf_counter
        t0 = clock()
        turn = self._scan(self.subchain.start(q, u))
        forces, failure = self._forces(t, q, turn, tau)
        t1 = clock()
        equations = self.subchain.inward(q, u, forces, turn)
        t2 = clock()
        loads = self._coupling.solve(equations, self._root)
        t3 = clock()
        self.subchain.outward(q, u, loads, udot, rates)
        self._laps += (t1 - t0, t2 - t1, t3 - t2, clock() - t3)
        self.evaluations += 1
        if failure is not None:
            raise failure

    def accelerations(self, q: Floats, u: Floats, tau: Floats | None = None, t: float = 0.0) -> Floats:
        """Give the generalized accelerations [nu]; arguments as in `derivative`."""
        udot, rates = np.empty(self.subchain.nu), np.empty(self.subchain.nq)
        self.derivative(t, q, u, udot, rates, tau)
        return udot

    def _forces(self, t: float, q: Floats, turn: Floats, tau: Floats | None) -> tuple[Floats, SimulationError | None]:
        """Generalized forces beside springs and dampers; where a function fails, NaN and the error.

        The error must wait: the other ranks are on their way to the coupling, and this one has to be there.
        """
        if tau is None and not self._external.any:
            return self._tau, None  # zeros, never written
        forces = np.zeros(self.subchain.nu) if tau is None else tau.copy()
        try:
            self._external.apply(t, q, turn, forces)
        except SimulationError as error:
            return np.full(self.subchain.nu, np.nan), error
        return forces, None

    def energy_and_momentum(self, q: Floats, u: Floats) -> Floats:
        """Give kinetic and potential energy (J), linear (N s) and angular (N m s) momentum of the whole system [8].

        The same on every rank; see `Subchain.energy_and_momentum`.
        """
        boundary = self._boundary_motion(q, u)
        mine = self.subchain.energy_and_momentum(q, u, np.asarray(self.system.gravity), boundary)
        self.comm.Allreduce(MPI.IN_PLACE, mine)
        return mine

    def poses(self, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """Give the poses of this rank's bodies: rotations [n, 3, 3], positions [n, 3] (m); see `body_poses`."""
        return self.subchain.body_poses(q, self._boundary_motion(q, u))

    def _boundary_motion(self, q: Floats, u: Floats) -> Floats:
        """Motion of this rank's handle 1 [BOUNDARY], for output."""
        motion = AT_REST.copy()
        for inboard in self.comm.allgather(self.subchain.boundary_motion(q, u))[: self.comm.rank]:
            join_motion(0.0, motion, inboard, motion)
        return motion

    def seconds(self) -> dict[str, float]:
        """Wall time spent so far, by phase (s): sweep, coupling, communication (messages of both)."""
        motion, inward, coupling, outward = (float(lap) for lap in self._laps)
        scan = self._scan.seconds
        messages = scan + self._coupling.seconds
        return {
            "sweep": motion - scan + inward + outward,
            "coupling": coupling - self._coupling.seconds,
            "communication": messages,
        }

    def close(self) -> None:
        """Free the communicator; all ranks call."""
        self.comm.Free()


def _cut(system: System, size: int, tip_ratio: float | None) -> npt.NDArray[np.int64]:
    """Check that this version solves the system on so many ranks, and cut it."""
    system.validate()
    if system.loops:
        raise InputError(
            f"system '{system.name}' closes a loop ('{system.loops[0].name}'): the couplings of this version solve "
            "chains and trees; remove the [[loop]] tables"
        )
    if size > 1 and not system.is_chain:
        raise InputError(
            f"system '{system.name}' is a tree: this version solves a tree on one rank and a chain on any number; "
            f"start 1 rank instead of {size}"
        )
    return split_chain(body_costs(system.joint_types()), size, TIP_RATIO if tip_ratio is None else tip_ratio)


def compile_kernels() -> None:
    """Compile, or load from the cache, every kernel that a run calls; no communication."""
    system = system_from("rope:2")
    alone = Dynamics(system)
    q, u = alone.subchain.q, alone.subchain.u
    alone.accelerations(q, u)
    alone.energy_and_momentum(q, u)
    make_quaternions_unit(0.0, alone.subchain.structure, q)
    inboard = Subchain(system, 0, 1)
    q, u = inboard.q, inboard.u
    inboard.start(q, u)
    inboard.inward(q, u, u, AT_REST[:TURNING])
    inboard.outward(q, u, np.zeros(12), u.copy(), q.copy())
    motion = inboard.boundary_motion(q, u)
    join_motion(0.0, motion, motion, motion)
    alone.close()
