"""What tendons and springs between bodies resist by, along their lengths, in the matrix of implicit steps: compiled.

Lengths change by T u. Beside the rest of the matrix, whose inverse is P, they add T^T C T, C = h D + h^2 K of theirs:
the inverse of both is P - P T^T B (1 + B T P T^T B)^-1 B T P with B^2 = C [Woodbury's formula], which takes a solution
for each. What springs pull across their lengths is left out.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import warn_caller
from mpimbs.dynamics.between_ranks import forces_of_part, prescribe, see_motions, see_others
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.forces.springs import NO_SPRINGS, SpringArrays, pull_by_one, resist_by_springs, see_ends
from mpimbs.forces.tendons import NO_TENDONS, TendonArrays, find_tendons, resist_by_tendons
from mpimbs.kernels.calling import call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, assign, read, schema, span
from mpimbs.parallel.native import Channel, all_largest, all_summed, channel
from mpimbs.sweep.structure import BOUNDARY, Springs, Structure, Workspace

SLIGHT = 0.3  # of the lighter body: springs that add less in a step are as well followed explicitly
MANY, ROOM = 256, 2**24  # springs at the most, each of which takes a solution; and numbers that these have on a rank


class LengthsPlan(NamedTuple):
    """Arguments of what acts along lengths, in compiled code: of a system's t tendons, then of its n springs."""

    channel: Channel
    alone: int
    tendons: TendonArrays
    of_tendons: Integers  # [here]: which of the system's those are
    count_of_tendons: int  # t
    springs: SpringArrays
    of_springs: Integers  # [here]
    follows_law: Integers  # [here]: 1 of those whose tension no function gives, and that this rank counts
    lighter: Floats  # [n]: mass of the lighter body of each (kg)
    most: int  # springs that may count
    many: Integers  # [1], written: how many would have, where these are too many
    structure: Structure
    joints: Springs
    work: Workspace  # with wrenches of its own
    between: Integers
    still: Floats  # [nu]: zeros
    motion: Floats  # [m * BOUNDARY], room, as are the following
    loads: Floats  # [m * 6]
    nothing: Floats
    found: Floats  # of springs
    resisting: Floats  # [2 * here]: of tendons
    told: Floats  # [2 * (t + n)]: stiffness and damping of each
    heard: Floats
    kept: Integers  # [1], written: how many count
    along: Floats  # [most * nu], written: how the lengths that count change by the speeds
    answers: Floats  # [most * nu], written: P T^T
    by_place: Floats  # [most], written: h K of each, B^2 = h (D + h K), and B
    by_rate: Floats
    roots: Floats
    factor: Floats  # [most * most], written: lower triangle of a Cholesky factor of 1 + B T P T^T B
    own: Floats  # [most * most], room
    sums: Floats  # [most], room


LENGTHS = schema(LengthsPlan)


@kernel(inline=True)
def _summed(p, own, sums):
    """Sum numbers of this rank over all."""
    if p.alone != 0:
        assign(sums, own)
    else:
        all_summed(p.channel, own, sums)


@kernel
def _pull(p, spring, q, row):
    """Write the forces on joints [nu] that a pull of 1 N in a spring needs for nothing to move; all ranks call."""
    wrench, none = p.work.wrench, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    for i in range(wrench.size):
        wrench[i] = 0.0
    pull_by_one(p.springs, p.of_springs, spring, p.motion, wrench)
    prescribe(p.structure, p.work, p.between, q, p.still, p.still, none, False, p.loads)
    given = p.still, False, p.loads, p.nothing, row
    forces_of_part(p.structure, p.joints, p.work, p.between, q, p.still, p.still, *given)


@kernel
def _take_those_that_count(p, q, step):
    """Write how the lengths that count in a step change by the speeds, and what they resist by."""
    t, nu = p.count_of_tendons, p.still.size
    counts = 0
    for k in range(p.lighter.size):
        stiffness, damping = p.heard[2 * (t + k)], p.heard[2 * (t + k) + 1]
        counts += step * (damping + step * stiffness) > SLIGHT * p.lighter[k]
    p.many[0] = counts if counts > p.most else p.many[0]
    held = 0 < counts <= p.most
    if held:
        see_others(p.between, p.structure, p.work, q, p.still)
    count = 0
    for k in range(t + (p.lighter.size if held else 0)):
        stiffness, damping = p.heard[2 * k], p.heard[2 * k + 1]
        by_rate = step * (damping + step * stiffness)
        if k >= t and not by_rate > SLIGHT * p.lighter[k - t]:
            continue
        row = span(p.along, count * nu, nu)
        if k >= t:
            _pull(p, k - t, q, row)
        else:
            for d in range(nu):
                row[d] = 0.0
            for i in range(p.tendons.of.size):
                if p.of_tendons[p.tendons.of[i]] == k:
                    row[p.tendons.speeds[i]] += p.tendons.ratios[i]
        p.by_place[count], p.by_rate[count], p.roots[count] = step * stiffness, by_rate, sqrt(by_rate)
        count += 1
    p.kept[0] = count


@kernel
def _factor(p):
    """Factor 1 + B T P T^T B [Cholesky]."""
    n, nu = p.kept[0], p.still.size
    for i in range(n):
        for j in range(n):
            total = 0.0
            for d in range(nu):
                total += p.along[i * nu + d] * p.answers[j * nu + d]
            p.own[i * n + j] = p.roots[i] * p.roots[j] * total
    _summed(p, span(p.own, 0, n * n), span(p.factor, 0, n * n))
    for j in range(n):
        p.factor[j * n + j] += 1.0
        for k in range(j):
            p.factor[j * n + j] -= p.factor[j * n + k] ** 2
        pivot = sqrt(p.factor[j * n + j])
        p.factor[j * n + j] = pivot
        for i in range(j + 1, n):
            for k in range(j):
                p.factor[i * n + j] -= p.factor[i * n + k] * p.factor[j * n + k]
            p.factor[i * n + j] /= pivot


@kernel
def take_lengths(plan, q, u, step, factors, solve):
    """Take what acts along lengths in a state, for a step h (s), where the rest is factored; all ranks call."""
    p, nu = read(plan, LENGTHS), read(plan, LENGTHS.still).size
    for i in range(p.told.size):
        p.told[i] = 0.0
    if p.count_of_tendons > 0:
        find_tendons(p.tendons, q, u)
        m = p.of_tendons.size
        stiffness, damping = span(p.resisting, 0, m), span(p.resisting, m, m)
        resist_by_tendons(p.tendons, stiffness, damping)
        for k in range(m):
            p.told[2 * p.of_tendons[k]], p.told[2 * p.of_tendons[k] + 1] = stiffness[k], damping[k]
    if p.lighter.size > 0:
        see_motions(p.between, p.structure, p.work, q, u, p.motion)
        see_ends(p.springs, p.motion)
        of_springs = span(p.told, 2 * p.count_of_tendons, 2 * p.lighter.size)
        resist_by_springs(p.springs, p.of_springs, p.follows_law, p.found, of_springs)
    if p.alone != 0:
        assign(p.heard, p.told)
    else:  # each is told of by who has it, the same by all
        all_largest(p.channel, p.told, p.heard)
    _take_those_that_count(p, q, step)
    for k in range(p.kept[0]):
        call_at(solve, (factors, span(p.along, k * nu, nu), span(p.answers, k * nu, nu)))
    if p.kept[0] > 0:
        _factor(p)


@kernel
def push_along(plan, speeds, rates, tau):
    """Take from the forces [nu] of a stage h (D + h K) T r_u + h K T G^+ r_q of lengths, by changes r_u, G^+ r_q."""
    p = read(plan, LENGTHS)
    n, nu = p.kept[0], p.still.size
    for k in range(n):
        total = 0.0
        for d in range(nu):
            total += p.along[k * nu + d] * (p.by_rate[k] * speeds[d] + p.by_place[k] * rates[d])
        p.own[k] = total
    if n > 0:
        _summed(p, span(p.own, 0, n), span(p.sums, 0, n))
    for k in range(n):
        for d in range(nu):
            tau[d] -= p.sums[k] * p.along[k * nu + d]


@kernel
def correct_along(plan, z):
    """Make of what the rest of the matrix gives [nu] what the whole of it does; all ranks call."""
    p = read(plan, LENGTHS)
    n, nu = p.kept[0], p.still.size
    if n == 0:
        return
    for k in range(n):
        total = 0.0
        for d in range(nu):
            total += p.along[k * nu + d] * z[d]
        p.own[k] = p.roots[k] * total
    _summed(p, span(p.own, 0, n), span(p.sums, 0, n))
    for i in range(n):
        for k in range(i):
            p.sums[i] -= p.factor[i * n + k] * p.sums[k]
        p.sums[i] /= p.factor[i * n + i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            p.sums[i] -= p.factor[k * n + i] * p.sums[k]
        p.sums[i] /= p.factor[i * n + i]
    for k in range(n):
        for d in range(nu):
            z[d] -= p.roots[k] * p.sums[k] * p.answers[k * nu + d]


class Lengths:
    """What acts along lengths, of tendons and of springs between bodies, beside the rest of the matrix.

    All ranks make it together.

    Attributes
    ----------
    plan : int64 array
        What the kernels of this module are given.
    """

    def __init__(self, divided: DividedSystem) -> None:
        system, subchain, external = divided.system, divided.subchain, divided.external
        tendons, springs, nu, m = external.tendons, external.springs, subchain.nu, len(subchain.structure.steps)
        ends = system.springs.ends  # the world is as heavy as nothing else
        masses = {k: system.segments.template(k).mass for k in np.unique(ends[ends >= 0]).tolist()} | {-1: np.inf}
        lighter = np.array([min(masses[a], masses[b]) for a, b in ends.tolist()], np.float64)
        of_tendons, of_springs, nothing = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        self._rank, self._told, t = divided.comm.rank, False, len(system.loads.tendons)
        self._most = min(MANY, ROOM * divided.comm.size // max(system.nu, 1))
        if tendons is not None:
            of_tendons = tendons.numbers
        law = of_springs
        if springs is not None:
            of_springs, law = springs.numbers, springs.arrays.counted.copy()
            for _, which in springs.given:
                law[which] = 0
        most = t + min(len(lighter), self._most)
        self._many = np.zeros(1, np.int64)
        self._table = Table(
            LengthsPlan(
                channel=channel(divided.comm),
                alone=int(divided.comm.size == 1),
                tendons=NO_TENDONS if tendons is None else tendons.arrays,
                of_tendons=of_tendons,
                count_of_tendons=t,
                springs=NO_SPRINGS if springs is None else springs.arrays,
                of_springs=of_springs,
                follows_law=law,
                lighter=lighter,
                most=self._most,
                many=self._many,
                structure=subchain.structure._replace(armature=nothing),
                joints=subchain.springs,
                work=subchain.wrenched(),
                between=divided.between.plan,
                still=divided.still,
                motion=np.empty(m * BOUNDARY),
                loads=np.empty(m * 6),
                nothing=nothing,
                found=np.empty(0 if springs is None else springs.arrays.found.size),
                resisting=np.empty(2 * len(of_tendons)),
                told=np.zeros(2 * (t + len(lighter))),
                heard=np.zeros(2 * (t + len(lighter))),
                kept=np.zeros(1, np.int64),
                along=np.zeros(most * nu),
                answers=np.zeros(most * nu),
                by_place=np.zeros(most),
                by_rate=np.zeros(most),
                roots=np.zeros(most),
                factor=np.zeros(most * most),
                own=np.zeros(max(1, most) ** 2),
                sums=np.zeros(most),
            )
        )
        self.plan = self._table.data

    def tell(self) -> None:
        """Warn once, on rank 0, of springs that were too many."""
        if self._many[0] and not self._told:
            self._told = True
            if self._rank == 0:
                warn_caller(
                    f"{self._many[0]} springs between bodies are stiff for these steps, and implicit ones know "
                    f"{self._most} at the most: they are followed explicitly, and limit adaptive steps; fixed ones may "
                    "go wrong"
                )
