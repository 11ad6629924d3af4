"""Checks of structured random systems against oracles, for the driver `fuzz.py` and for the corpus of what it found.

A system is judged by its accelerations, the violations of its loops, the loads of its joints and loops, inverse
dynamics, the product with the inertia matrix, energies and momenta. Accelerations may be off by some thousand times
what rounding every term of the equations of motion once does (`Descriptor.solution`), or by a share of the largest.
"""

import functools
import json
import re
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from mpi4py import MPI
from scipy.spatial.transform import Rotation

from mpimbs.base.errors import InputError, SimulationError
from mpimbs.base.sizes import Sizes, using
from mpimbs.dynamics import Dynamics
from mpimbs.model import Gear, Joint, Loop, System, system_from_text, system_text
from operations import OPERATIONS, compared, drawn
from oracles import dense
from oracles.dense import Array
from oracles.descriptor import ROUNDINGS, Descriptor, followed
from oracles.loops import opened
from oracles.other_units import OtherUnits, described_otherwise, elsewhere, in_another_order, in_units
from oracles.structured_systems import TIME, Case, Weighted
from tolerances import TOLERANCE

OPEN = 1e-6  # m and rad
UNJUDGED = 1e-3  # of the largest acceleration: where rounding alone does so much nothing can be told
HUGE = 1e8  # loads, of those that are needed
INVARIANT = 3  # which seeds are described otherwise, too
REDUCING = 30.0  # s to make a case smaller

# Little is kept from one sweep to the next, lanes are short and many, each rank writes what it has itself.
OF_LARGE = Sizes(
    all_bytes=1, pivot_bytes=1, slice_numbers=7, sample_bytes=1, checkpoint_bytes=1, least_lane=2, most_lane=4,
    row_of_2=0.1, row_of_4=0.1, row_of_8=0.1, tile_start=0.1, subtrees_start=0.1, join_cost=0.1, joins_in_bodies=0.1,
    swept_in_lanes=20.0,
)  # fmt: skip

Settings = dict[str, Any]
T = TypeVar("T")


@dataclass
class Verdict:
    """What came of a case; of each coupling with its settings, what was wrong in silence, what the witness of a run
    says to be wrong, what was refused or could not be judged."""

    wrong: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    judged: int = 0


def settings_of(case: Case, ranks: int) -> Iterator[Settings]:
    """By which couplings a case is evaluated, and how: the default one, and some other."""
    source = Weighted(case.seed + 10**9)
    lanes = (None, None, 1, 2, 4, 8)[source.index(6)]
    yield {"coupling": "dcae", **({"lanes": lanes} if lanes else {})}
    n, cuts = case.system.n_bodies, 0
    if source.chance(0.3) and n > ranks:
        cuts = min(n - 1, ranks - 1 + source.index(2 + n // 3))
        yield {"coupling": "dcae", "cuts": cuts, "lanes": 1}
    if source.chance(0.4):
        other = ("pcg", "assembly", "augmented", "dca")[source.index(4)]
        if other == "pcg":
            yield {"coupling": "pcg", "cuts": max(ranks - 1, min(n - 1, 1 + source.index(6)))}
        elif other != "dca" or (case.system.contents.is_chain and not case.system.contents.loops):
            yield {"coupling": other}


def as_large(checked: Callable[..., T]) -> Callable[..., T]:
    """Have what checks a `Case`, or a `Course`, do with every other twenty seeds what is done with large systems."""

    @functools.wraps(checked)
    def sized(case: Any, comm: MPI.Comm, *more: Any) -> T:
        with using(OF_LARGE if getattr(case, "case", case).seed // 20 % 2 else None):
            return checked(case, comm, *more)

    return sized


@as_large
def check(case: Case, comm: MPI.Comm, only: Settings | None = None) -> Verdict:
    """Evaluate a case in all ways and compare; rank 0 has the verdict. All ranks call."""
    q, u, *_ = followed(case.system, case.q, case.u, TIME)
    case = replace(case, q=q, u=u)
    oracle = Oracle(case, comm.size) if comm.rank == 0 else None
    verdict = Verdict()
    for settings in settings_of(case, comm.size) if only is None else (only,):
        told = " ".join(f"{key}={value}" for key, value in settings.items())
        try:
            with closing(Dynamics(case.system, comm, **without_operation(settings))) as dynamics:
                found = observed(case, dynamics)
        except (InputError, SimulationError) as error:
            verdict.refused.append(f"{told}: {error}")
            continue
        if oracle is not None:
            oracle.judge(found, settings, told, verdict)
    if only is None or "operation" in only:
        operate(case, comm, oracle, verdict, None if only is None else only["operation"])
    if case.seed % INVARIANT == 0 and not case.system.contents.has_motions:
        invariant(case, comm, oracle, verdict)
    return verdict


class Otherwise(NamedTuple):
    """A case described otherwise: its system and state, what its accelerations are times, where those stood, and when.

    The time is `at`, in its own unit.
    """

    told: str
    system: System
    state: tuple[Array, Array, Array]
    times: Array
    where: Array
    at: float = TIME


def described(case: Case) -> Otherwise:
    """In a way that the seed draws: other units, elsewhere, another order, loops led otherwise, bodies in halves."""
    system, draw, state = case.system, np.random.default_rng(case.seed), (case.q, case.u, case.tau)
    ones, all_of_them, way = np.ones(system.nu), np.arange(system.nu), int(draw.integers(6))
    if way < 2:
        source = Weighted(case.seed + 3 * 10**9)
        units = OtherUnits(*(source.decades(-6, 6) for _ in range(3)))
        state = case.q * units.q(system), case.u * units.u(system), case.tau * units.tau(system)
        told = f"in {tuple(round(unit, 9) for unit in units)}"
        times, at = units.second / units.u(system), TIME * units.second
        return Otherwise(told, in_units(system, units), state, times, all_of_them, at)
    if way == 2:
        moved = elsewhere(system, Rotation.random(random_state=draw).as_matrix(), draw.uniform(-30, 30, 3))
        return Otherwise("elsewhere", moved, state, ones, all_of_them)
    if way == 3:
        other, of_q, of_u = in_another_order(system, draw)
        return Otherwise("in another order", other, (case.q[of_q], case.u[of_u], case.tau[of_u]), ones, of_u)
    told = ("with loops led otherwise", "in halves")[way - 4]
    return Otherwise(told, described_otherwise(system, way == 4, way == 5), state, ones, all_of_them)


def invariant(case: Case, comm: MPI.Comm, oracle: "Oracle | None", verdict: Verdict) -> None:
    """Evaluate a case that is described otherwise; accelerations have to be what they were. All ranks call."""
    other = described(case)
    told = f"coupling=dcae {other.told}"
    try:
        with closing(Dynamics(other.system, comm)) as dynamics:
            own = dynamics.gather_u.part
            q, u, tau = (part[at] for part, at in zip(other.state, (dynamics.gather_q.part, own, own), strict=True))
            whole = kept(dynamics.gather_u(dynamics.accelerations(q, u, tau, other.at, warn=False)))
    except (InputError, SimulationError) as error:
        verdict.refused.append(f"{told}: {error}")
        return
    judged = verdict.judged and not verdict.told and not verdict.unjudged  # as it stands
    if oracle is not None and whole is not None and judged:
        udot = np.empty_like(whole)
        udot[other.where] = whole
        oracle.judge_accelerations(udot * other.times, {"coupling": "dcae"}, told, verdict)


def without_operation(settings: Settings) -> Settings:
    return {key: value for key, value in settings.items() if key != "operation"}


def operate(case: Case, comm: MPI.Comm, oracle: "Oracle | None", verdict: Verdict, only: str | None) -> None:
    """Ask what the seed draws of `operations`, or one of them, beside accelerations. All ranks call."""
    name = comm.bcast(None if oracle is None or verdict.unjudged or verdict.told else only or drawn(case))
    if name is None:
        return
    told = f"coupling=dcae operation={name}"
    try:
        with closing(Dynamics(case.system, comm)) as dynamics:
            found = OPERATIONS[name].ask(case, dynamics)
    except (InputError, SimulationError) as error:
        verdict.refused.append(f"{told}: {error}")
        return
    if oracle is not None:
        for row in compared(name, case, found, oracle):
            if wrong := unequal(*row):
                verdict.wrong.append(f"{told}: {wrong}")


def unequal(what: str, ours: Array | None, right: Array, allowed: Array | float) -> str:
    """Say by how much numbers are off that should be equal; nothing where they are."""
    if ours is None or not np.size(right):
        return ""
    off = abs(np.asarray(ours, float) - np.asarray(right, float))
    with np.errstate(invalid="ignore"):
        bad = ~(off <= allowed)
    if not bad.any():
        return ""
    worst = int(np.argmax(np.where(bad, np.nan_to_num(off / np.maximum(allowed, 1e-300), nan=np.inf), 0)))
    return (
        f"{what}[{worst}] is {np.ravel(ours)[worst]:.6g} and should be {np.ravel(right)[worst]:.6g}"
        f" (off by up to {np.nanmax(off):.2g}, the largest is {abs(right).max():.3g}; {bad.sum()} of all)"
    )


def observed(case: Case, dynamics: Dynamics) -> dict[str, Array | None]:
    """What a `Dynamics` says of a case, put together on rank 0."""
    source = Weighted(case.seed + 2 * 10**9)
    q, u, tau = case.q[dynamics.gather_q.part], case.u[dynamics.gather_u.part], case.tau[dynamics.gather_u.part]
    v = direction(case)[dynamics.gather_u.part]
    if source.chance(0.5):  # what another state leaves behind must not be seen
        dynamics.accelerations(q, v, None, TIME)
    whole, bodies = dynamics.gather_u, dynamics.divided.gather_bodies(6)
    rates = np.empty(len(q))
    udot = np.empty(len(u))
    dynamics.derivative(TIME, q, u, udot, rates, tau)
    found: dict[str, Array | None] = {"udot": kept(whole(udot)), "rates": kept(dynamics.gather_q(rates))}
    found["again"] = kept(whole(dynamics.accelerations(q, u, tau, TIME)))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            joints, _, loops = dynamics.loads.joints_and_loops(q, u, tau, TIME)
        found["loads"], found["loop loads"] = kept(bodies(joints)), np.zeros((0, 6)) if loops is None else loops
        if any("digits alone" in str(warning.message) for warning in caught):  # which says so
            found["loads"] = None
    except InputError as error:
        if "can't be told which loads are unique" not in str(error):
            raise
    if dynamics.loops:
        found["violations"] = dynamics.loops.violations(q, u)
    else:
        found["forces"] = kept(whole(dynamics.inverse_dynamics(q, u, v, TIME)))
        found["M v"] = kept(whole(dynamics.inertia.multiply(q, v)))
    found["energy"] = dynamics.energy_and_momentum(q, u)
    told = dynamics.loads.residual(q, u, udot, tau, TIME)
    found["residual"] = np.array([told.motion, told.loops, told.load])
    found["judged"] = np.array(told.judged(dynamics.divided.coupling))
    return found


def kept(values: Array | None) -> Array | None:
    return None if values is None else np.array(values)


def direction(case: Case) -> Array:
    """Speeds or accelerations that have nothing to do with the state."""
    return np.random.default_rng(case.seed).uniform(-1, 1, case.system.nu)


class Oracle:
    """What should come of a case."""

    def __init__(self, case: Case, ranks: int = 1) -> None:
        self.case, self.ranks = case, ranks
        self.descriptor = Descriptor(case.system, case.q, case.u, TIME)
        self.solution = self.descriptor.solution(case.tau)

    def judge(self, found: dict[str, Array | None], settings: Settings, told: str, verdict: Verdict) -> None:
        """Compare all that was observed."""
        solution, descriptor, system = self.solution, self.descriptor, self.case.system
        share = self.share(settings)

        def compare(what: str, ours: Array | None, right: Array, allowed: Array | float) -> bool:
            if wrong := unequal(what, ours, right, allowed):
                verdict.wrong.append(f"{told}: {wrong}")
            return not wrong

        allowed: Array | float = 0.0
        if len(solution.udot):
            if found.get("violations") is not None and found["violations"][:, 0].max(initial=0.0) > OPEN:
                verdict.unjudged.append(f"{told}: a loop is open in the state that was drawn")
                return
            allowed, largest = self.allowed(share)
            if solution.apart > 1.0:
                verdict.unjudged.append(f"{told}: a singular position, in which constraints contradict one another")
                return
            if ROUNDINGS * solution.margin.max() > UNJUDGED * max(largest, self.free):
                verdict.unjudged.append(f"{told}: rounding alone changes accelerations")
                return
            verdict.judged += 1
        if str(found["judged"]):  # a run would end, and name the loop
            verdict.told.append(f"{told}: equations are left by {', '.join(f'{x:.1e}' for x in found['residual'])}")
            return
        same = compare("acceleration", found["udot"], solution.udot, allowed)
        compare("acceleration again", found["again"], solution.udot, allowed)
        if not same:
            return  # all else follows from it
        speeds = abs(self.case.u).max(initial=0.0)
        rates = dense.coordinate_rates(opened(system), descriptor.q, descriptor.u)
        compare("rate of q", found["rates"], rates, 1e-13 * max(speeds, 1e-300))
        if found.get("violations") is not None:
            self.violations(found["violations"], told, verdict)
        if found.get("loads") is not None:
            self.loads(found["loads"], found["loop loads"], share, told, verdict)
        if found.get("forces") is not None:
            v, free = direction(self.case), ~descriptor.held
            for what, velocities in (("forces", True), ("M v", False)):
                right, margin = descriptor.needed(v, velocities)
                chosen = free if velocities else np.ones_like(free)
                compare(
                    what,
                    found[what][chosen],
                    right[chosen],
                    (ROUNDINGS * margin + share * abs(right).max(initial=0))[chosen],
                )
        tree = opened(system)
        kinetic, potential = dense.energy(tree, descriptor.q, descriptor.u)
        linear, angular = dense.momentum(tree, descriptor.q, descriptor.u)
        ours, size = found["energy"], abs(kinetic) + abs(potential)
        c, m = descriptor.state.columns, descriptor.state.kinematics
        momenta = (
            float(np.abs(c.mass[:, None] * m.com_velocity).sum() + 1e-300) + abs(linear).max() + abs(angular).max()
        )
        far = 1 + float(abs(m.com).max())
        compare("kinetic energy", ours[:1], np.array([kinetic]), 1e-11 * kinetic + 1e-290)
        if not any(loop.acts for _, loop in system.contents.loops.joints):
            size += float((c.mass * (abs(m.com) @ abs(descriptor.state.gravity))).sum())
            compare("potential energy", ours[1:2], np.array([potential]), 1e-11 * size)
        compare("momentum", ours[2:], np.concatenate((linear, angular)), 1e-11 * momenta * far)

    def share(self, settings: Settings) -> float:
        """By which part of the largest accelerations may be off."""
        kind = "fuzz iterated" if settings["coupling"] in ("pcg", "augmented") else "fuzz"
        pieces = max(1 + settings.get("cuts", 0), self.ranks)
        share = TOLERANCE[kind][0] * pieces
        columns = self.descriptor.state.columns
        for sizes in (columns.mass, columns.inertia[:, :3].sum(axis=1)):
            if (heavy := sizes[sizes > 0]).size:  # what is light is added to what is heavy, and taken away again
                share = max(share, TOLERANCE["fuzz masses"][0] * pieces * float(heavy.max() / heavy.min()))
        return share

    def allowed(self, share: float) -> tuple[Array, float]:
        """By how much accelerations may be off [nu], and the largest, beside which they are small."""
        solution, masses = self.solution, self.descriptor.state.columns.mass
        pushed = abs(solution.wrenches).max(initial=0.0) / max(float(masses.sum()), 1e-300)
        # Of what is locked accelerations are a difference of terms as large as those of bodies that nothing holds.
        largest = max(abs(solution.udot).max(initial=0.0), self.free, pushed)
        return ROUNDINGS * solution.margin + share * largest, largest

    def judge_accelerations(self, udot: Array, settings: Settings, told: str, verdict: Verdict) -> None:
        """Compare accelerations alone, of a case that could be judged."""
        allowed, largest = self.allowed(self.share(settings))
        off = abs(udot - self.solution.udot)
        if not (off <= allowed).all():
            worst = int(np.argmax(np.nan_to_num(off / np.maximum(allowed, 1e-300), nan=np.inf)))
            verdict.wrong.append(
                f"{told}: acceleration[{worst}] is {udot[worst]:.6g} and should be {self.solution.udot[worst]:.6g} "
                f"(the largest is {largest:.3g})"
            )

    @property
    def free(self) -> float:
        """The size of accelerations of bodies, where those of joints are all zero."""
        return float(abs(self.solution.bodies).max())

    def violations(self, ours: Array, told: str, verdict: Verdict) -> None:
        """All loops are closed, in places and speeds."""
        m = self.descriptor.state.kinematics
        size = 1 + float(abs(m.origin).max())
        fast = float(abs(m.com_velocity).max() + size * abs(m.omega).max())
        for what, found, allowed in (
            ("places", ours[:, 0], 1e-11 * size),
            ("speeds", ours[:, 1], 1e-10 * (fast + 1e-6)),
        ):
            if not (found <= allowed).all():
                worst = int(np.argmax(np.nan_to_num(found, nan=np.inf)))
                name = self.case.system.contents.loops[worst].name
                verdict.wrong.append(f"{told}: {what} of closed loop {name} are said to be apart by {found[worst]:.3g}")

    def loads(self, joints: Array, loops: Array, share: float, told: str, verdict: Verdict) -> None:
        """Loads of joints and loops give bodies the accelerations they have, and along joints they are what acts."""
        d, solution, n = self.descriptor, self.solution, self.case.system.n_bodies
        state, first = d.state, 12 * self.case.system.n_bodies
        turned = state.kinematics.rotation[:, None].astype(float)  # [n, 1, 3, 3]
        wrenches = np.einsum("nxij,naj->nai", turned, np.reshape(joints, (n, 2, 3))).reshape(n, 6)
        if abs(wrenches).max() > HUGE * (abs(solution.wrenches).max() + abs(loops).max(initial=0) * 1e-8 + 1e-6):
            verdict.wrong.append(
                f"{told}: loads of joints up to {abs(wrenches).max():.2g}, for {abs(solution.wrenches).max():.2g}"
            )
            return
        x = np.zeros(d.size)
        x[: 6 * n], x[6 * n : first] = solution.bodies.astype(float).ravel(), wrenches.ravel()
        x[first : first + len(solution.udot)] = solution.udot
        acting = d.right_side(self.case.tau, along_loops=False)
        left = (acting - d.matrix.times(x))[: first + len(d.u)].astype(float)
        terms = (d.matrix.times(x, absolute=True) + abs(acting))[: first + len(d.u)].astype(float)
        at_u = self.case.system.contents.offsets()[1]
        joints_of_loops = iter(zip(d.loops, d.constraints(), strict=True))

        def act(ends: tuple[int, int], place: Array, load: Array) -> None:
            for body, sign in zip(ends, (-1.0, 1.0), strict=True):
                if body >= 0:
                    moved = sign * d.carried(body, place).T.astype(float) @ load
                    left[6 * body : 6 * body + 6] += moved
                    terms[6 * body : 6 * body + 6] += abs(moved)

        for number, loop in enumerate(self.case.system.contents.loops):
            if isinstance(loop, Gear):  # a force along both joints, which these pass
                force = self.gear_force(loop, loops[number])
                for name, share_of_it in ((loop.joint, 1.0), (loop.of, -loop.ratio)):
                    left[first + at_u[self.case.system.contents.index_of(name)]] += share_of_it * force
                continue
            _, (_, ends, closure) = next(joints_of_loops)
            frame = closure.bodies[1].rotation.astype(float)
            load = np.concatenate((frame @ loops[number, :3], frame @ loops[number, 3:]))
            act(ends, closure.origin, load)
        bodies, along = slice(0, 6 * n), slice(first, first + len(d.u))
        if not (abs(left[bodies]) <= 100 * share * terms[bodies].max()).all():
            worst = int(np.argmax(np.nan_to_num(abs(left[bodies]), nan=np.inf)))
            verdict.wrong.append(
                f"{told}: loads leave {left[worst]:.3g} of {self.case.system.contents.name_of(worst // 6)}, "
                f"of {terms[worst]:.3g} (all: {terms[bodies].max():.3g})"
            )
        off = np.where(d.held, 0.0, abs(left[along]))
        if len(off) and not (off <= 100 * share * max(terms[along].max(), terms[bodies].max())).all():
            worst = int(np.argmax(np.nan_to_num(off, nan=np.inf)))
            verdict.wrong.append(
                f"{told}: loads along speed {worst} are off by {off[worst]:.3g} of {terms[along][worst]:.3g}"
            )

    def gear_force(self, gear: Gear, load: Array) -> float:
        """The force of a gear on the joint that follows, from its load on the body, in the body's frame."""
        joint = self.case.system.contents.body(self.case.system.contents.index_of(gear.joint)).joint
        part = load[3:] if joint.type == "prismatic" else load[:3]
        turned = self.descriptor.state.joints[self.case.system.contents.index_of(gear.joint)].rotation.astype(float)
        return float(np.array(joint.axis) @ turned @ part)


# --- files of cases ---


def case_text(case: Case, settings: Settings, ranks: int, wrong: str) -> str:
    """A case as a TOML file: the model, its state, and what was wrong with which settings on how many ranks."""
    head = {"seed": case.seed, "wrong": wrong, "ranks": ranks, "q": case.q, "u": case.u, "tau": case.tau}
    lines = [f"{key} = {json.dumps(np.asarray(value).tolist())}" for key, value in head.items()]
    lines += ["model = '''", system_text(case.system).rstrip(), "'''", "", "[settings]"]
    return "\n".join(lines + [f"{key} = {json.dumps(value)}" for key, value in settings.items()]) + "\n"


def read_case(path: Path) -> tuple[Case, Settings]:
    """What `case_text` wrote."""
    with path.open("rb") as file:
        given = tomllib.load(file)
    values = (np.array(given[name], float) for name in ("q", "u", "tau"))
    case = Case(given["seed"], system_from_text(given["model"], path.name), *values, ())
    return case, given["settings"]


def reason(text: str) -> str:
    """A message without the numbers and names that it has."""
    text = re.sub(r"'[^']*'", "'...'", text.partition(": ")[2] or text)
    return re.sub(r"[-+]?\d[\d.e+-]*", "#", text)[:160]


# --- smaller cases ---


def smaller(case: Case, verdict: Verdict, comm: MPI.Comm) -> tuple[Case, Settings, str]:
    """Leave out of a wrong case what can be left out while it stays wrong; with settings and what is wrong."""
    default: Settings = {"coupling": "dcae"}  # by which what is described otherwise is evaluated
    ways = (*settings_of(case, comm.size), *({**default, "operation": name} for name in OPERATIONS), default)
    settings = next((one for one in ways if any(text.startswith(told_as(one)) for text in verdict.wrong)), default)
    wrong = next((text for text in verdict.wrong if text.startswith(told_as(settings))), verdict.wrong[0])

    def still(other: Case) -> str | None:
        try:
            found = comm.bcast(check(other, comm, settings).wrong)
        except (ArithmeticError, ValueError, RuntimeError, np.linalg.LinAlgError):
            return None
        return found[0] if found else None

    end = time.monotonic() + REDUCING
    for _ in range(3):
        before = case
        for other in less(case):
            if comm.bcast(time.monotonic() > end):
                return case, settings, wrong
            made = other(case)
            if made is not None and (found := still(made)) is not None:
                case, wrong = made, found
        if case is before:
            break
    return case, settings, wrong


def told_as(settings: Settings) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items()) + ":"


def less(case: Case) -> Iterator[Any]:
    """Ways to make a case smaller: each takes one and gives another, or None."""
    system = case.system
    half = len(system.contents.loops)
    while half := half // 2:
        for begin in range(0, len(system.contents.loops), half):
            names = {loop.name for loop in system.contents.loops[begin : begin + half]}
            yield lambda case, names=names: rebuilt(case, without=names)
    yield lambda case: rebuilt(case, plain=True)
    yield lambda case: rebuilt(case, without=set(case.system.springs))
    yield lambda case: Case(case.seed, case.system, case.q, 0 * case.u, case.tau, case.features)
    yield lambda case: Case(case.seed, case.system, case.q, case.u, 0 * case.tau, case.features)
    for name in [system.contents.name_of(k) for k in reversed(range(system.n_bodies))]:
        yield lambda case, name=name: rebuilt(case, bodies={name})
    for loop in system.contents.loops:
        yield lambda case, name=loop.name: rebuilt(case, without={name})


def rebuilt(case: Case, bodies: Any = (), without: Any = (), plain: bool = False) -> Case | None:
    """The case without some bodies, none of which carries or holds anything, loops and springs; `plain`: without
    wrenches, added mass, armature, springs and dampers. None if that changes nothing."""
    system = case.system
    names = {system.contents.name_of(k) for k in range(system.n_bodies)}
    gone = set(bodies) & names
    kept_loops = [loop for loop in system.contents.loops if loop.name not in without]
    kept_springs = [spring for name, spring in system.contents.springs.items() if name not in without]
    used = {name for loop in kept_loops for name in loop.bodies} | {n for spring in kept_springs for n in spring.bodies}
    if gone & (used | {body.parent for body in system.contents.bodies()}):
        return None
    made = System(system.name, system.gravity)
    keep_q, keep_u = np.ones(system.nq, bool), np.ones(system.nu, bool)
    at_q, at_u = system.contents.offsets()
    for k, body in enumerate(system.contents.bodies()):
        if body.name in gone:
            keep_q[at_q[k] : at_q[k + 1]], keep_u[at_u[k] : at_u[k + 1]] = False, False
            continue
        if plain:
            keys = ("type", "axis", "pitch", "position", "rotation", "motion")
            given = {key: value for key, value in body.joint.given.items() if key in keys}
            body = body.model_copy(update={"wrench": (), "added_mass": (), "joint": Joint(**given)})
        made.add(body)
    if not made.n_bodies:
        return None
    for loop in kept_loops:
        if plain and isinstance(loop, Loop):
            keys = ("name", "type", "axis", "pitch", "bodies", "positions", "rotations")
            loop = Loop(**{key: value for key, value in loop.given.items() if key in keys})
        made.add_gear(loop) if isinstance(loop, Gear) else made.add_loop(loop)
    for spring in kept_springs:
        made.add_spring(spring)
    if (
        not plain
        and not gone
        and len(made.contents.loops) == len(system.contents.loops)
        and len(made.contents.springs) == len(system.contents.springs)
    ):
        return None
    return Case(case.seed, made, case.q[keep_q], case.u[keep_u], case.tau[keep_u], case.features)
