"""What is asked of a state beside accelerations, and how each answer is judged: for `fuzzing`.

An operation is drawn for small systems: which these are, what all ranks ask of a `Dynamics`, and what rank 0 compares,
with dense matrices from velocities of bodies under unit speeds, or with `oracles.descriptor` in the state that was
found. A new one is a function beside the others.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

import commands
from commands import CommandLine, bad_end
from mpimbs.closure.assembly import assemble
from mpimbs.closure.jacobian import displacements
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.statics.equilibrium import settle
from mpimbs.dynamics.statics.modes import modes
from mpimbs.model import Gear
from oracles import dense
from oracles.dense import Array
from oracles.descriptor import ROUNDINGS, Descriptor
from oracles.loops import allowed_speeds, opened, position_violation
from oracles.structured_systems import TIME, Case, Weighted

SPEEDS = 60  # of systems with dense matrices
BODIES = 20  # of those whose equilibria are looked for
WELL = 1e8  # condition of scaled inertia matrices, up to which they are judged
OPENED = 0.01  # rad and m by which closed loops are opened
SURELY_OPEN = 1e-3  # rad and m
NEARER = 1e-6  # of the way to a state where loops are open, from the nearest where they are closed
FAR = 5 * OPENED
STEP = 1e-5  # of a mode's shape, for differences
DEFAULT = {"coupling": "dcae"}
AT_REST = 1e-6  # of the accelerations that weight and springs give where nothing balances them

Found = dict[str, Any]
Row = tuple[str, Any, Array, Array | float]  # what, ours, what it should be, by how much it may be off


class Dense:
    """A system in a state, by dense matrices."""

    def __init__(self, case: Case, share: float) -> None:
        self.case, self.tree = case, opened(case.system)
        self.inertia = dense.mass_matrix(self.tree, case.q).astype(float)
        self.units = 1.0 / np.sqrt(np.diag(self.inertia))  # of speeds, in which all of them are alike
        self.scaled = self.units[:, None] * self.inertia * self.units
        self.condition = float(np.linalg.cond(self.scaled)) if len(self.units) else 1.0
        self.share = share + 1e-14 * self.condition

    @cached_property
    def inverse(self) -> Array:
        return self.units[:, None] * np.linalg.inv(self.scaled) * self.units

    def at(self, q: Array, speeds: Array) -> dense.Snapshot:
        return dense.Snapshot(self.tree, unit_quaternions(self.case, q), speeds)

    def point(self, q: Array, speeds: Array) -> Array:
        """Angular velocity and velocity [6] of the point that the case draws."""
        name, local = drawn_point(self.case)
        k, m = self.case.system.contents.index_of(name), self.at(q, speeds).kinematics
        arm = m.origin[k] + m.rotation[k] @ local - m.com[k]
        return np.concatenate((m.omega[k], m.com_velocity[k] + np.cross(m.omega[k], arm)))


def drawn_point(case: Case) -> tuple[str, Array]:
    source = Weighted(case.seed + 5 * 10**9)
    name = case.system.contents.name_of(source.index(case.system.n_bodies))
    return name, np.array([source.uniform(-1, 1) for _ in range(3)])


def mine(case: Case, dynamics: Dynamics) -> tuple[Array, Array, Array]:
    """This rank's part of q, u, and of speeds that have nothing to do with the state."""
    part = dynamics.gather_u.part
    return case.q[dynamics.gather_q.part], case.u[part], other_speeds(case)[part]


def other_speeds(case: Case) -> Array:
    return np.random.default_rng(case.seed + 1).uniform(-1, 1, case.system.nu)


# --- operations: what all ranks ask, and what is compared ---


def ask_matrices(case: Case, dynamics: Dynamics) -> Found:
    q, _, v = mine(case, dynamics)
    found = {
        "M": dynamics.inertia.gather_rows(dynamics.inertia_matrix(q)),
        "M v": dynamics.gather_u(dynamics.inertia.multiply(q, v)),
    }
    found["M^-1"] = dynamics.inertia.gather_rows(dynamics.inertia.inverse_matrix(q))
    found["M^-1 v"] = dynamics.gather_u(dynamics.inertia.solve(q, v))
    found["factored"] = dynamics.gather_u(dynamics.inertia.factor(q).solve(v))
    return found


def judge_matrices(case: Case, found: Found, right: Dense) -> Iterator[Row]:
    v, s = other_speeds(case), right.units
    yield "inertia matrix", s[:, None] * found["M"] * s, right.scaled, right.share
    inverse = right.inverse / s / s[:, None]
    yield "its inverse", found["M^-1"] / s / s[:, None], inverse, right.share * abs(inverse).max(initial=0.0)
    if "M v" not in found:  # a command gives matrices
        return
    product = s * (right.inertia @ v)
    yield "product with it", s * found["M v"], product, right.share * (abs(right.scaled) @ abs(v / s)).max(initial=0.0)
    for what in ("M^-1 v", "factored"):
        solved = inverse @ (s * v)
        yield what, found[what] / s, solved, right.share * (abs(inverse) @ abs(s * v)).max(initial=0.0)


def ask_jacobians(case: Case, dynamics: Dynamics) -> Found:
    q, u, _ = mine(case, dynamics)
    name, local = drawn_point(case)
    wrench = np.arange(1.0, 7.0)
    transposed = dynamics.gather_u(dynamics.jacobians.transpose(q, wrench, name, local))
    center, lines = dynamics.jacobians.center_of_mass(q)
    return {
        "J u": dynamics.jacobians.product(q, u, name, local),
        "J": dynamics.divided.comm.gather(dynamics.jacobian(q, name, local)),
        "order": dynamics.divided.comm.gather(dynamics.gather_u.part),
        "J^T w": transposed,
        "dJ/dt u": dynamics.jacobians.bias(q, u, name, local),
        "J M^-1 J^T": dynamics.jacobians.operational_inertia(q, [(name, local)]),
        "centre": center,
        "its Jacobian": dynamics.divided.comm.gather(lines @ u),
    }


def judge_jacobians(case: Case, found: Found, right: Dense) -> Iterator[Row]:
    u = case.u
    columns = np.array([right.point(case.q, unit) for unit in np.eye(len(u))]).T.astype(float)
    size = right.share * max(abs(columns).max(initial=0.0), 1e-300)
    yield "J", placed(found["J"], found["order"]), columns, size
    yield "J u", found["J u"], columns @ u, size * abs(u).sum()
    yield "J^T w", found["J^T w"], columns.T @ np.arange(1.0, 7.0), size * 21
    h = 1e-6 / max(abs(u).max(initial=0.0), 1.0)
    rates = dense.coordinate_rates(right.tree, case.q, u)
    ahead, behind = (right.point(case.q + sign * h * rates, u) for sign in (1.0, -1.0))
    bias, fast = ((ahead - behind) / (2 * h)).astype(float), abs(u).max(initial=0.0)
    yield "dJ/dt u", found["dJ/dt u"], bias, 1e-6 * (abs(columns).max(initial=0.0) + 1.0) * fast**2 * len(u) ** 2
    answer = columns @ right.inverse @ columns.T
    yield "J M^-1 J^T", found["J M^-1 J^T"], answer, right.share * max(np.trace(answer), 1e-300) * 10
    state = right.at(case.q, u)
    mass, m = state.columns.mass, state.kinematics
    center, moving = (mass @ m.com) / mass.sum(), (mass @ m.com_velocity) / mass.sum()
    yield "centre of mass", found["centre"], center, right.share * (abs(m.com).max() + 1.0)
    speed = abs(m.com_velocity).max() + abs(m.omega).max() * abs(m.com).max()
    yield "its velocity", np.sum(found["its Jacobian"], axis=0), moving, 10 * right.share * (speed + 1e-300)


def placed(parts: list[Array], order: list[Any]) -> Array:
    """Columns of all ranks, where they belong."""
    whole = np.empty((6, sum(part.shape[1] for part in parts)))
    for part, where in zip(parts, order, strict=True):
        whole[:, where] = part
    return whole


def unit_quaternions(case: Case, q: Array) -> Array:
    q, at = np.array(q), case.system.contents.offsets()[0]
    for k, body in enumerate(case.system.contents.bodies()):
        if body.joint.kind.quaternion:
            q[at[k] : at[k] + 4] /= np.linalg.norm(q[at[k] : at[k] + 4].astype(float))
    return q


def ask_actuation(case: Case, dynamics: Dynamics) -> Found:
    q, u, _ = mine(case, dynamics)
    udot = dynamics.accelerations(q, u, case.tau[dynamics.gather_u.part], TIME, warn=False)
    return {"udot": dynamics.gather_u(udot), "tau": dynamics.gather_u(dynamics.loads.actuation(q, u, udot, TIME).tau)}


def judge_actuation(case: Case, found: Found, oracle: Any) -> Iterator[Row]:
    answer = Descriptor(case.system, case.q, case.u, TIME).solution(found["tau"])
    if answer.apart <= 1.0:
        allowed, _ = oracle.allowed(oracle.share(DEFAULT))
        yield "forces of inverse dynamics", found["udot"], answer.udot, 10 * (allowed + ROUNDINGS * answer.margin)


def ask_equilibrium(case: Case, dynamics: Dynamics) -> Found:
    q = mine(case, dynamics)[0]
    found = settle(dynamics, q)
    lowest = modes(dynamics, found.q, 3) if case.system.nu else None
    return {"q": dynamics.gather_q(found.q), "left": found.acceleration, "modes": lowest}


def judge_equilibrium(case: Case, found: Found, _: Any) -> Iterator[Row]:
    system, q, still = case.system, found["q"], np.zeros(case.system.nu)
    at_rest = Descriptor(system, q, still).solution()
    pushed = max(float(abs(Descriptor(system, case.q, still).solution().udot).max(initial=0.0)), 1.0)
    yield (
        "accelerations at rest",
        at_rest.udot,
        still,
        ROUNDINGS * at_rest.margin + AT_REST * pushed + 10 * found["left"],
    )
    if system.contents.loops or any(spring.tension_only for spring in system.contents.springs.values()):
        return  # bends at once
    for square, shape, off in zip(*found["modes"][:3], strict=True):
        if not off < 1e-4:
            continue
        rates = dense.coordinate_rates(opened(system), q, shape)
        h = STEP / max(abs(rates).max(), 1e-300)
        ends = [unit_quaternions(case, q + sign * h * rates) for sign in (1.0, -1.0)]
        ahead, behind = (Descriptor(system, end, still).solution(draws=1) for end in ends)
        change = (ahead.udot - behind.udot) / (2 * h)
        rounded = ROUNDINGS * (ahead.margin + behind.margin) / (2 * h)
        yield (
            "a mode",
            -square * shape,
            change,
            rounded + (1e-3 + off) * max(abs(change).max(), abs(square * shape).max()),
        )


def ask_assembly(case: Case, dynamics: Dynamics) -> Found:
    return {"q": assemble(case.system.contents, opened_state(case), case.u).q}


def opened_state(case: Case) -> Array:
    """Coordinates near those of the case, in which loops are open."""
    rates = dense.coordinate_rates(opened(case.system), case.q, OPENED * other_speeds(case))
    return unit_quaternions(case, case.q + rates)


def judge_assembly(case: Case, found: Found, _: Any) -> Iterator[Row]:
    violation = position_violation(case.system, found["q"])
    size = 1.0 + float(abs(Descriptor(case.system, found["q"], 0 * case.u).state.kinematics.origin).max())
    yield "assembled loops", violation, np.zeros_like(violation), 1e-9 * size


def by_command(answer: Callable[[Case, CommandLine], Found]) -> Callable[[Case, Dynamics], Found]:
    """The command line is asked instead, in a folder of its own; that it ends badly is wrong."""

    def ask(case: Case, dynamics: Dynamics) -> Found:
        with CommandLine(case, dynamics.comm) as line:
            try:
                return answer(case, line)
            except RuntimeError as ended:
                return {"wrong": str(ended)}

    return ask


def judge_accelerations(case: Case, found: Found, oracle: Any) -> Iterator[Row]:
    yield "accelerations", found["udot"], oracle.solution.udot, oracle.allowed(oracle.share(found["settings"]))[0]


def answer_assembly(case: Case, line: CommandLine) -> Found:
    """Loops are closed; while they are open there are no accelerations."""
    near = opened_state(case)
    line.state("near.npz", q=near, u=case.u)
    ended = line.ended("acceleration @/model.toml --state @/near.npz -o @/open.npz")
    apart = float(position_violation(case.system, near).max())
    if bad_end(ended) or (ended.code == 0 and apart > SURELY_OPEN):
        return {"wrong": bad_end(ended) or f"accelerations of loops that are open by {apart:.2g}"}
    line("assemble @/model.toml --state @/near.npz -o @/closed.npz")
    return line.arrays("closed.npz", "q") | {"near": near}


def judge_nearest(case: Case, found: Found, _: Any) -> Iterator[Row]:
    """No way that loops allow leads nearer to where they were open.

    But in singular positions, and far away, where bodies of hardly any mass move first.
    """
    system, q = case.system, found["q"]
    yield from judge_assembly(case, found, None)
    back = displacements(system.contents.columns(), q, found["near"])
    light = {"masses", "rods"} & set(case.features)
    if not light and abs(back).max() < FAR and Descriptor(system, q, 0 * case.u).solution(case.tau).apart <= 1.0:
        yield "ways nearer", allowed_speeds(system, q, back), np.zeros(system.nu), NEARER * OPENED


def judge_same(_: Case, found: Found, __: Any) -> Iterator[Row]:
    """What several ways give has to be the same to the last bit."""
    for name, (*others, right) in found.items():
        for number, other in enumerate(others, 1):
            yield f"{name}, way {number}", other, right, 0.0


# --- which ---


class Operation(NamedTuple):
    """One that can be asked of a case."""

    fits: Callable[[Case], bool]
    ask: Callable[[Case, Dynamics], Found]
    judge: Callable[[Case, Found, Any], Iterator[Row]]
    by_matrices: bool = False


def small(case: Case) -> bool:
    return 0 < case.system.nu <= SPEEDS and not case.system.contents.has_motions


def of_a_tree(case: Case) -> bool:
    return small(case) and not case.system.contents.loops


def at_rest(case: Case) -> bool:
    return case.system.n_bodies <= BODIES and small(case) and "masses" not in case.features


def few(case: Case) -> bool:
    return case.system.n_bodies <= 3 * BODIES


def without_gears(case: Case) -> bool:
    return few(case) and small(case) and not any(isinstance(loop, Gear) for loop in case.system.contents.loops)


def with_loops(case: Case) -> bool:
    return without_gears(case) and bool(case.system.contents.loops)


def nothing_more(_: Case, __: Found, ___: Any) -> Iterator[Row]:
    """How it ended is judged."""
    yield from ()


OPERATIONS = {
    "matrices": Operation(of_a_tree, ask_matrices, judge_matrices, True),
    "jacobians": Operation(of_a_tree, ask_jacobians, judge_jacobians, True),
    "actuation": Operation(with_loops, ask_actuation, judge_actuation),
    "equilibrium": Operation(at_rest, ask_equilibrium, judge_equilibrium),
    "assembly": Operation(with_loops, ask_assembly, judge_assembly),
    "acceleration": Operation(small, by_command(commands.answer_accelerations), judge_accelerations),
    "inertia": Operation(of_a_tree, by_command(commands.answer_matrices), judge_matrices, True),
    "inverse": Operation(without_gears, by_command(commands.answer_actuation), judge_actuation),
    "settle": Operation(at_rest, by_command(commands.answer_equilibrium), judge_equilibrium),
    "assemble": Operation(with_loops, by_command(answer_assembly), judge_nearest),
    "run": Operation(at_rest, by_command(commands.answer_motion), judge_same),
    "robot": Operation(few, by_command(commands.answer_robot), judge_same),
    "convert": Operation(few, by_command(commands.answer_copy), nothing_more),
    "damage": Operation(few, by_command(commands.answer_damage), nothing_more),
    "options": Operation(few, by_command(commands.answer_options), nothing_more),
    "mistake": Operation(few, by_command(commands.answer_mistake), nothing_more),
}


def drawn(case: Case) -> str | None:
    """The operation that is asked of a case, if any fits."""
    fitting = [name for name, operation in OPERATIONS.items() if operation.fits(case)]
    return fitting[Weighted(case.seed + 6 * 10**9).index(len(fitting))] if fitting else None


def compared(name: str, case: Case, found: Found, oracle: Any) -> Iterator[Row]:
    """What is compared of it, on rank 0, which has an `Oracle` of the case."""
    operation = OPERATIONS[name]
    if wrong := found.get("wrong"):
        yield str(wrong), np.ones(1), np.zeros(1), 0.0
    if "wrong" in found:
        return
    given: Any = Dense(case, oracle.share(DEFAULT)) if operation.by_matrices else oracle
    if not operation.by_matrices or given.condition < WELL:
        yield from operation.judge(case, found, given)
