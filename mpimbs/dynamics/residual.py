"""Residuals: the equations of motion by the other way round, of accelerations that were found.

Inverse dynamics gives what accelerations need, body by body, with the loads that loops carry; what acts is taken away,
and nothing should be left. Nothing should be left of the rows of loops and gears either, which accelerations have to
satisfy. Each is told relative to the magnitude of its terms (`sweep.magnitudes`): rounding alone leaves some 1e-16 of
that for each operation on the way from one end of a system to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.closure.geometry import FORCE
from mpimbs.coupling import Coupling
from mpimbs.dynamics.between_ranks import BetweenRanks
from mpimbs.dynamics.operators.inverse import wrenched_by_loops
from mpimbs.model.contents import Contents
from mpimbs.parallel.agreement import greatest
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.scales import Scales
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.structure import BOUNDARY, HELD, PLACE, Workspace

SMALL = 1e-3  # of accelerations on the whole
SMALLEST = 1e-100  # of magnitudes: less is nothing
NONE = np.zeros((0, 6))


class Bounds(NamedTuple):
    """Residuals that right accelerations never exceed, in terms of `Residual`.

    Rounding leaves less than 1e-15 of the forces in most systems, and of the loops less than 1e-13 where their
    constraints are independent; among random systems, with masses that differ by 1e10 and constraints that hardly
    differ, at the most 1e-10 and 1e-6 were seen. What is wrong leaves a thousandth or more. Couplings that iterate
    leave what they are allowed to, at the most `lagrangian.ACCEPTED`.
    """

    motion: float
    loops: float
    load: float = 1e8  # a joint that was doubled, and not told as such, once carried 1e17


EXACT, ITERATED = Bounds(1e-8, 1e-5), Bounds(1e-3, 1e-3)
EPSILON = float(np.finfo(float).eps)
ALLOWED = 1e-4  # what masses that differ much may leave at the most
LOST = Bounds(1e-11, 1e-9)  # more is not the rounding of masses that are alike


class Residual(NamedTuple):
    """The residual of the equations of motion; the same on every rank, but for `forces`.

    Attributes
    ----------
    motion : float
        Largest of the joints: generalized force that is left, over the magnitude of those that act there; of couplings
        that iterate, over the largest of all.
    body : str
        The body on whose inboard joint that is.
    loops : float
        Largest of the loops and gears: acceleration that is left along a constraint, over that of their terms.
    loop : str
        Which loop or gear; "" where there is none.
    load : float
        Largest load that a loop carries over what acts on all bodies: weight, inertia, wrenches, each by itself.
    loaded : str
        Which loop or gear carries it.
    dropped : int
        Constraints that the evaluation left out, for others make what they ask already.
    without : str
        A loop or gear of which one is; "" where combinations of several are.
    masses : float
        How often the lightest body's mass goes into the heaviest's: loops between them lose digits with it.
    forces : array [nu]
        What is left on this rank's joints (N m, N).
    """

    motion: float
    body: str
    loops: float
    loop: str
    load: float
    loaded: str
    dropped: int
    without: str
    masses: float
    forces: Floats

    def judged(self, coupling: Coupling | None) -> str:
        """Say what is wrong and what to do, if it is more than rounding or what a coupling may leave; else nothing."""
        bounds = ITERATED if iterates(coupling) else EXACT
        lost = min(ALLOWED, EPSILON * self.masses)
        bounds = Bounds(max(bounds.motion, lost), max(bounds.loops, lost))
        if not np.isfinite(self.motion):
            return (
                f"forces or accelerations at body '{self.body}' are too large to compute with, their squares overflow: "
                "look at what acts there"
            )
        wrong = ""
        if self.motion > bounds.motion:
            wrong = (
                f"the accelerations found leave {self.motion:.1e} of the forces at body '{self.body}' over, where "
                f"rounding leaves less than {bounds.motion:.0e}"
            )
        elif not self.loops <= bounds.loops:
            wrong = (
                f"the accelerations found open loop '{self.loop}', by {self.loops:.1e} of what it takes to keep it "
                f"closed, where {bounds.loops:.0e} would be much"
            )
        elif not self.load <= bounds.load:
            wrong = f"loop '{self.loaded}' is said to carry {self.load:.1e} times all that acts on the bodies"
        return f"{wrong}: this is wrong; please report the model" if wrong else ""

    def told(self) -> str:
        """Say how well the equations hold."""
        text = holds_told(self.motion, self.body, self.loops, self.loop) + dropped_told(self.dropped, self.without)
        return text + lost_told(self.motion, self.loops, self.masses)


class Evaluated(Protocol):
    """The methods of `DividedSystem` that a residual calls."""

    @property
    def comm(self) -> MPI.Comm: ...
    @property
    def system(self) -> Contents: ...
    @property
    def subchain(self) -> Subchain: ...
    @property
    def subchains(self) -> Any: ...
    @property
    def coupling(self) -> Coupling | None: ...
    @property
    def root(self) -> Floats: ...
    @property
    def scales(self) -> Scales: ...
    @property
    def between(self) -> BetweenRanks: ...


class Closed(Protocol):
    """The methods of `ClosedLoops` that a residual calls."""

    def dropped(self) -> tuple[int, str]:
        """See `ClosedLoops.dropped`."""


def iterates(coupling: Coupling | None) -> bool:
    """Whether a coupling finds its loads by iterations."""
    return coupling is not None and (coupling.iterative is not None or bool(coupling.statistics()))


def holds_told(motion: float, body: str, loops: float, loop: str) -> str:
    """The numbers of a `Residual` in words."""
    text = f"equations of motion hold to {motion:.1e}" + (f" ('{body}')" if body else "")
    return text + (f", loops to {loops:.1e} ('{loop}')" if loop else "")


def dropped_told(dropped: int, without: str) -> str:
    """How many constraints were left out, in words that are put behind others."""
    if not dropped:
        return ""
    constraints, of = f"{dropped} constraint{'s' if dropped > 1 else ''}", f" ('{without}')" if without else ""
    return f", {constraints} left to others that make what they ask{of}"


def lost_told(motion: float, loops: float, masses: float) -> str:
    """Say what masses that differ much have cost, in words that are put behind others; "" for nothing."""
    if motion <= LOST.motion and loops <= LOST.loops:
        return ""
    off = EPSILON * masses
    return f"; masses differ by {masses:.0e}: accelerations may be off by {off:.0e}" if off > EXACT.motion else ""


def residual_of(
    dynamics: Evaluated,
    loops: Closed | None,
    q: Floats,
    u: Floats,
    udot: Floats,
    forces: Floats,
    solve: Callable[[Floats, Floats], Floats] | None = None,
) -> Residual:
    """Give what accelerations leave of the equations of motion, after an evaluation in their state; all call.

    What is left of the loops is relative to the accelerations of their ends. Where that seems too much, it is relative
    to those as well, times `SMALL`, that the ends would have if nothing held them: of light parts that are locked
    against strong springs they are large, and what is left of them is rounding.

    Parameters
    ----------
    loops : ClosedLoops or None
        Of the same system.
    q, u, udot : array
        This rank's parts, joints that follow as they do.
    forces : array [nu]
        Generalized forces that acted in the evaluation, on top of the model's; those of joints that follow as
        `GivenMotions.drive` has them.
    solve : callable, optional
        `InertiaMatrix.solve`, of a system with loops.
    """
    comm, subchain, part = dynamics.comm, dynamics.subchain, dynamics.subchains
    held = subchain.columns.prescribed
    wanted, acting = forces[held] / HELD, np.where(held, 0.0, forces)
    work, by_loops, looped = subchain.work, NONE, loops is not None
    if looped:
        assert isinstance(part, Intervals)
        count = len(dynamics.system.loops)
        work, by_loops, acting = wrenched_by_loops(comm, subchain, part, count, acting)
    between = dynamics.between
    boundary = between.see(q, u)
    accelerations = between.prescribed(q, u, udot, dynamics.root, work)

    driving = np.empty(subchain.nu)
    joint_forces(0.0, subchain.structure, subchain.springs, q, u, acting, driving)
    driving = np.abs(acting) + np.abs(driving)
    turning = subchain.motions(q, u, boundary).reshape(-1, BOUNDARY)[:, PLACE : PLACE + 3]
    squares = np.einsum("ij,ij->i", turning, turning)
    lever, total_mass = dynamics.scales
    forces_alone = driving / np.where(subchain.structure.axes < FORCE, lever, 1.0)
    wrenches = np.abs(subchain.wrenches.reshape(-1, 2, 3)).max(axis=2, initial=0.0) / (lever, 1.0)
    by_springs = sum(own.driven_by() for own in part.loops) if looped else 0.0  # and dampers and torques of loops
    pushes = np.concatenate([forces_alone, wrenches.ravel(), [by_springs]])
    least = _least(comm, pushes, squares, lever, total_mass)
    begin = np.array([0.0, np.linalg.norm(dynamics.root) + least])
    reach = _reached(dynamics, udot, begin, work)
    behind = np.zeros((len(subchain.outer), 2))
    if comm.size > 1:
        _, received, _ = subchain.magnitudes_inward(reach, by_loops, behind, lever, work)
        behind = between.magnitudes_behind(received)
    most, _, total = subchain.magnitudes_inward(reach, by_loops, behind, lever, work)
    of_steps = accelerations.copy()  # which are overwritten
    left = between.forces(q, u, udot, acting, accelerations, work)

    most += driving + subchain.columns.armature * np.abs(udot)
    if iterates(dynamics.coupling):  # to a share of the largest of all
        most = np.maximum(most, comm.allreduce(most[~held].max(initial=0.0), MPI.MAX))
    relative = np.abs(left) / np.maximum(most, SMALLEST)
    # Beside the rotor of an axis that follows loads vanish, but are there.
    missed = np.maximum(0.0, np.abs(udot[held] - wanted) - most[held] / HELD)
    relative[held] = missed / np.maximum(np.abs(wanted), SMALLEST)
    left[held] = 0.0
    motion = _largest(comm, relative, lambda k: _body_of(dynamics, k))

    broken = loads = 0.0, ""
    if isinstance(part, Intervals) and looped:
        names = [loop.name for loop in dynamics.system.loops]
        # What velocities ask is summed up in terms of these squares.
        reach = np.stack((reach[:, 0] + reach[:, 1] / lever + squares, reach[:, 1] + lever * squares), axis=1)
        shares, largest = _of_loops(dynamics, of_steps, reach, udot)
        if not shares.max(initial=0.0) <= EXACT.loops and solve is not None:
            held_by = between.forces(q, u, udot, np.where(held, 0.0, forces), of_steps.copy())
            reach += SMALL * _reached(dynamics, solve(q, np.where(held, 0.0, held_by)), np.zeros(2), work)
            shares, largest = _of_loops(dynamics, of_steps, reach, udot)
        acts = comm.allreduce(float(total[0] / lever + total[1] + forces_alone.sum() + by_springs))
        broken = _largest(MPI.COMM_SELF, shares, names.__getitem__)
        loads = _largest(MPI.COMM_SELF, largest / max(acts, SMALLEST), names.__getitem__)
    dropped: tuple[int, str] = (0, "") if loops is None else loops.dropped()
    mass = subchain.columns.mass[subchain.columns.mass > 0.0]
    ends = greatest(comm, np.array([mass.max(initial=0.0), -mass.min(initial=np.inf)]))
    masses = float(ends[0] / -ends[1]) if ends[0] > 0.0 else 1.0
    return Residual(*motion, *broken, *loads, *dropped, masses, left)


def _least(comm: MPI.Comm, driving: Floats, squares: Floats, length: float, mass: float) -> float:
    """An acceleration (m/s^2) that is small: a thousandth of what moves the system on the whole; all call.

    Parts that are locked, and do not move but by rounding, are compared with it.

    Parameters
    ----------
    driving : array
        What acts along joints, of loops too, and on bodies, moments over the length (N).
    squares : array [m]
        Of the angular velocities of the steps (1/s^2).
    length, mass : float
        Of the system (m, kg).
    """
    total = np.array([driving.sum(), squares.sum(), len(squares)])
    comm.Allreduce(MPI.IN_PLACE, total)
    return SMALL * float(total[0] / mass + length * total[1] / max(1.0, total[2]))


def _reached(dynamics: Evaluated, udot: Floats, begin: Floats, work: Workspace) -> Floats:
    """Give magnitudes [m, 2] of the accelerations of this rank's steps, of the root as `begin` has; all call."""
    subchain = dynamics.subchain
    far = subchain.magnitudes_outward(udot, np.zeros((len(subchain.inboard), 2)), work)
    return subchain.magnitudes_outward(udot, dynamics.between.reaches(far, begin), work)


def _of_loops(dynamics: Evaluated, of_steps: Floats, reach: Floats, udot: Floats) -> tuple[Floats, Floats]:
    """Give what is left of each loop over its terms, and the largest number of what it carries; all call."""
    part, subchain, comm = dynamics.subchains, dynamics.subchain, dynamics.comm
    assert isinstance(part, Intervals)
    steps = subchain.made.body_step
    found = part.loop_rows(subchain.of_bodies(of_steps), reach[steps], udot, len(dynamics.system.loops))
    for array, operation in zip(found, (MPI.SUM, MPI.SUM, MPI.MAX), strict=True):
        comm.Allreduce(MPI.IN_PLACE, array, operation)
    rows, sizes, largest = found
    return (np.abs(rows) / np.maximum(sizes, SMALLEST)).max(axis=1, initial=0.0), largest


def _body_of(dynamics: Evaluated, speed: int) -> str:
    offsets = dynamics.subchain.columns.u_offset
    return dynamics.subchain.name_of(int(np.searchsorted(offsets, speed, side="right")) - 1)


def _largest(comm: MPI.Comm, values: Floats, name_of: Callable[[int], str]) -> tuple[float, str]:
    """Give the largest of all ranks' values and its name, NaN before all others; of none 0."""
    own = (0.0, "")
    if len(values):
        worst = int(np.argmax(np.where(np.isnan(values), np.inf, values)))
        own = float(values[worst]), name_of(worst)
    found = comm.allgather(own) if comm.size > 1 else [own]
    return max(found, key=lambda pair: np.inf if np.isnan(pair[0]) else pair[0])
