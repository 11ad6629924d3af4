"""Systems whose motion the tests of simulations share, and references integrated by scipy over an oracle."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from scipy.integrate import solve_ivp

from mpimbs import Batch
from mpimbs.model import JOINT_TYPES, System, Wrench
from mpimbs.run.run import Result, simulate
from oracles.dense import Array, coordinate_rates, dense_accelerations
from oracles.pinocchio_oracle import PinocchioOracle
from tolerances import assert_close

Accelerations = Callable[[Array, Array, Array | None, float], Array]


class Motion(NamedTuple):
    """Samples of a run, the same on every rank."""

    time: Array  # [samples]
    q: Array  # [samples, nq]
    u: Array  # [samples, nu]
    energy: Array  # [samples, 2]
    violation: Array  # [samples]

    @property
    def state(self) -> Array:
        """q and u at the end."""
        return np.concatenate([self.q[-1], self.u[-1]])


def alike_over_ranks_and_lanes(system: System, comm: MPI.Comm) -> Result:
    """A run of 0.5 s on one rank, as which runs on all ranks, cut or not, and copies side by side have to be."""
    alone = simulate(system, 0.5, rtol=1e-9, comm=MPI.COMM_SELF)
    if comm.size <= system.n_bodies:
        shared = simulate(system, 0.5, rtol=1e-9, comm=comm, cuts=max(4, comm.size))
        if comm.rank == 0:
            assert_close("q", np.asarray(shared["q"]), np.asarray(alone["q"]), "adaptive steps")
    copies = Batch([system] * 8, comm=MPI.COMM_SELF).simulate(0.5, rtol=1e-9)
    assert copies.lanes > 1
    assert_close("copies", np.asarray(copies["q"])[:, 2], np.asarray(alone["q"]), "adaptive steps")
    return alone


def motion(system: System, t_end: float, comm: MPI.Comm, **settings: Any) -> tuple[Motion, Result]:
    """Simulate on all ranks of `comm`, and give all of them the samples."""
    result = simulate(system, t_end, comm, **settings)
    names = ("t", "q", "u", "energy", "constraint_violation")
    found = Motion(*(getattr(result, name) for name in names)) if comm.rank == 0 else None
    return comm.bcast(found), result


def tumbler(driven: bool = True, gravity: tuple[float, ...] = (0.5, -9.81, 0.3), damping: float = 0.05) -> System:
    """Four bodies that spin in space on joints of every kind of coordinate, with springs, and functions of time."""
    system = System("tumbler", gravity)
    joints: tuple[dict[str, Any], ...] = (
        {"type": "free", "q": (0.5, 0.5, -0.5, 0.5, 0.1, 0.2, 0.3), "u": (1.5, -2.0, 1.0, 0.3, 0.2, -0.1)},
        {"type": "spherical", "position": (0.2, -0.5, 0.1), "u": (-1, 2, 0.5), "stiffness": 2.0, "damping": damping},
        {"type": "revolute", "axis": (0, 1, 1), "position": (0, -0.5, 0), "u": 2.0, "damping": damping},
        {"type": "universal", "position": (0.5, 0, 0), "q": (0.3, -0.2), "u": (0.5, 1), "stiffness": 1.0},
    )
    inertia = (0.4, 0.7, 0.5, 0.05, 0.02, -0.03)
    for k, joint in enumerate(joints):
        scale = 1.0 / (1 + k)
        system.add(
            name=f"part{k}",
            mass=1.5 * scale,
            inertia=tuple(scale * i for i in inertia),
            center_of_mass=(0.1, -0.2, 0.05 * k),
            joint=joint,
        )
    if driven:
        system.set_torque("part2", lambda t: 2.0 * np.cos(5.0 * t))
        system.add_wrench("part1", Wrench(force=lambda t: (np.sin(4.0 * t), 2.0, t), point=(0.1, 0, 0.2)))
        system.add_wrench("part3", Wrench(force=lambda t: (0, 5.0 * t, 1), moment=lambda t: (t, 0, 0), frame="world"))
    return system


def reference(
    system: System, times: Array, comm: MPI.Comm, oracle: str = "dense", tolerance: float = 1e-12
) -> tuple[Array, Array]:
    """q [times, nq] and u [times, nu] by DOP853 over an oracle of its own, on all ranks."""
    found = None
    if comm.rank == 0:
        accelerations: Accelerations = (
            PinocchioOracle(system).accelerations
            if oracle == "pinocchio"
            else lambda q, u, tau, t: dense_accelerations(system, q, u, tau, t)
        )

        def rate(t: float, state: Array) -> Array:
            q, u = state[: system.nq], state[system.nq :]
            q = unit(system, q)  # as the coordinates mean it: a scaled quaternion is the same rotation
            return np.concatenate([coordinate_rates(system, q, u), accelerations(q, u, None, t)])

        c = system.contents.columns()
        state = np.concatenate([c.q, c.u])
        found = solve_ivp(rate, (0.0, times[-1]), state, "DOP853", times, rtol=tolerance, atol=tolerance).y.T
    found = comm.bcast(found)
    return np.array([unit(system, q) for q in found[:, : system.nq]]), found[:, system.nq :]


def quaternions_of(system: System) -> list[slice]:
    """Where quaternions stand among the coordinates."""
    c = system.contents.columns()
    return [slice(i, i + 4) for i, kind in zip(c.q_offset, c.joint_type, strict=False) if JOINT_TYPES[kind].quaternion]


def unit(system: System, q: Array) -> Array:
    """The coordinates with quaternions of unit length."""
    q = q.copy()
    for where in quaternions_of(system):
        q[where] /= np.linalg.norm(q[where])
    return q
