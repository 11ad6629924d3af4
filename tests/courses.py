"""Random courses of runs, and what shall disturb them, each a function of a seed and of how many ranks there are.

A course is a small structured random system, an integrator, a coupling, samples, checkpoints, events, forces that are
functions, and torques that are set at times; see `sequences`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mpi4py import MPI

from force_functions import compiled_damper, compiled_drag, compiled_drag_of_all, current, motor, muscle, pull
from fuzzing import ROUNDINGS, UNJUDGED, Settings, settings_of
from mpimbs import Checkpoints, Simulation
from mpimbs.model import BodyMotion, System
from mpimbs.run.result import Result
from mpimbs.stepping.schemes import scheme_of
from oracles import dense
from oracles.dense import Array
from oracles.descriptor import Descriptor
from oracles.loops import opened
from oracles.random_systems import choice, unit, vector
from oracles.structured_systems import Case, Weighted, case_of

LEFT_OUT = ("rods", "masses")  # too stiff for short runs
BODIES = 24
MOVES = 2.0  # what a run turns at most (rad), about
CLEAR = 1e-6  # m, of zero at the begin: where a function is zero to rounding its sign is chance
ENDS = ("close", "signal", "kill")
SCHEMES = (
    ("rk4", "petsc:4", "dopri5", "rosenbrock2"),
    ("dopri5", "rosenbrock4", "bs3", "dop853", "rosenbrock"),
)  # with fixed steps, with adaptive ones


@dataclass
class Course:
    """What is simulated, and what disturbs it."""

    case: Case
    settings: Settings
    cadence: Checkpoints
    goals: list[float]  # times (s) that are hit; the last is the end
    drives: dict[int, tuple[str, Array]]  # at which of them, by number, the torque of which joint is set
    commands: dict[int, float]  # and what a function of Python's that acts gives from there on
    command: list[float]  # that it gives now
    # the goals are times of samples, where steps end, too (PETSc's do): single steps are then those of the course
    steps: bool
    acts: list[tuple[str, int, int]]  # what is done, on how many ranks it goes on, from which checkpoint
    ranks: int
    fastest: float  # of speeds and roots of accelerations at the begin (1/s)
    singular: bool  # so is the position at the begin, or rounding alone changes its accelerations

    @property
    def system(self) -> System:
        return self.case.system

    def ahead(self, time: float) -> list[int]:
        """The goals that are not reached yet, by number."""
        return [k for k, goal in enumerate(self.goals) if goal > time * (1 + 1e-12)]

    def reach(self, simulation: Simulation, k: int, stepping: bool = False) -> None:
        """Advance to a goal, or by steps; what is set there is set."""
        while stepping and self.steps and k in self.ahead(simulation.time):
            simulation.step()
        simulation.advance(self.goals[k])
        self.drive(simulation, k)

    def drive(self, simulation: Simulation, k: int) -> None:
        if k in self.drives:
            simulation.set_torque(*self.drives[k])
        self.command[0] = self.commands.get(k, self.command[0])

    def commanded(self, time: float) -> None:
        """Let the function of Python's give what it does at a time (s), before it is told of a goal there."""
        given = [value for k, value in self.commands.items() if self.goals[k] < time * (1 - 1e-12)]
        self.command[0] = given[-1] if given else 0.0

    def undisturbed(self, comm: MPI.Comm, apart: float = 0.0, output: Path | None = None) -> Result:
        """The result of the course; its begin `apart` from what it is, of its size."""
        source, (q, u) = np.random.default_rng(self.case.seed), (self.case.q, self.case.u)
        state = q + apart * source.uniform(-1, 1, len(q)), u + apart * self.fastest * source.uniform(-1, 1, len(u))
        self.commanded(0.0)
        with Simulation(self.system, comm, output=output, state=state, **self.settings) as simulation:
            for k in range(len(self.goals)):
                self.reach(simulation, k)
            return simulation.finish()


def course_of(seed: int, ranks: int, plain: bool = False) -> Course:
    """The course of a seed; `plain`: by the default coupling."""
    case, source = case_of(seed, LEFT_OUT, BODIES, 0.0), Weighted(seed + 3 * 10**9)
    system = case.system
    solution = Descriptor(system, case.q, case.u).solution(case.tau)
    largest = max(abs(solution.bodies).max(), abs(solution.udot).max(initial=0.0))
    singular = solution.apart > 1.0 or ROUNDINGS * solution.margin.max(initial=0.0) > UNJUDGED * largest
    fastest = float(max(1.0, abs(case.u).max(initial=0.0), np.sqrt(largest)))
    t_end, fixed = MOVES / fastest * source.decades(-1, 0), source.chance(0.4)
    every, integrator = t_end / source.count(2, 12), choice(source, SCHEMES[not fixed])
    coupling = choice(source, list(settings_of(case, ranks)))
    settings: Settings = {"coupling": "dcae"} if plain else coupling
    settings |= {"integrator": integrator, "t_end": t_end, "every": every}
    if fixed:
        settings["dt"] = every / (1 + source.index(6))
    else:
        loosely = {"bs3": 1e2, "rosenbrock4": 1e2, "rosenbrock": 1e3}.get(integrator, 1.0)
        settings["rtol"] = settings["atol"] = source.decades(-9, -5) * loosely
    settings |= {name: True for name in ("poses", "loads", "extremes") if source.chance(0.25)}
    if source.chance(0.4):
        add_functions(source, system)
    if (compiled := Weighted(seed + 12 * 10**9)).chance(0.3):
        add_compiled(compiled, system)
    command, at_times = [0.0], Weighted(seed + 13 * 10**9)
    if commanded := at_times.chance(0.25):
        add_command(at_times, system, command)
    changed = add_events(source, case, t_end) if source.chance(0.6) else set[str]()
    steps = source.chance(0.5)
    times = [every * k for k in range(1, round(t_end / every))]
    if not steps:
        times = [t_end * source.uniform(0, 1) for _ in range(source.count(1, 8))]
    goals = [*sorted(time for time in times if source.chance(0.7)), t_end]
    driven = [k for k, body in enumerate(system.contents.bodies()) if body.joint.kind.nu and body.name not in changed]
    at, drives = system.contents.offsets()[1], dict[int, tuple[str, Array]]()
    for goal in range(len(goals) - 1):
        if driven and source.chance(0.2):
            k = choice(source, driven)
            drives[goal] = system.contents.name_of(k), case.tau[at[k] : at[k + 1]] * source.uniform(-1, 1)
    commands = {k: at_times.uniform(-10, 10) for k in range(len(goals) - 1) if commanded and at_times.chance(0.6)}
    most = min(ranks, system.n_bodies, 1 + (settings.get("cuts") or ranks - 1))
    first, same = 1 + source.index(most), source.chance(0.4)
    acts = [
        (
            choice(source, ("advance", "advance", "look", "save", *ENDS)),
            first if same else 1 + source.index(most),
            source.index(3),
        )
        for _ in range(source.count(3, 12))
    ]
    cadence = Checkpoints(steps=source.count(1, 12) if source.chance(0.8) else None, keep=1 + source.index(3))
    steps = steps and not scheme_of(integrator).own  # which pass samples, and are shortened at goals alone
    return Course(case, settings, cadence, goals, drives, commands, command, steps, acts, first, fastest, singular)


def gust(t: float) -> tuple[float, float, float]:
    """A force (N)."""
    return 3.0 * np.sin(5 * t), 2.0 - t, 4.0 * t


def beat(t: float) -> float:
    """A torque (N m), or force (N)."""
    return 2.0 * np.cos(7 * t)


def add_functions(source: Weighted, system: System) -> None:
    """Forces that are functions of time, of time and state."""
    names = [system.contents.name_of(k) for k in range(system.n_bodies)]
    movable = [name for name, body in zip(names, system.contents.bodies(), strict=True) if body.joint.kind.nu]
    ways: list[Callable[[], object]] = [
        lambda: system.add_wrench(choice(source, names), force=gust, frame=choice(source, ("body", "world"))),
        lambda: system.add_body_force(None, current, point="center_of_mass", vectorized=True),
        lambda: system.add_body_force(choice(source, names), pull),
    ]
    if movable:
        ways.append(lambda: system.add_joint_force(choice(source, movable), motor))
        ways.append(lambda: system.set_torque(choice(source, movable), beat))
    for _ in range(source.count(1, 3)):
        choice(source, ways)()


def add_command(source: Weighted, system: System, command: list[float]) -> None:
    """What a controller does: a torque, the tension of a spring, or a force, by a function that gives a command."""
    names = [system.contents.name_of(k) for k in range(system.n_bodies)]
    movable = [name for name, body in zip(names, system.contents.bodies(), strict=True) if body.joint.kind.nu]
    ways: list[Callable[[], object]] = [
        lambda: system.add_wrench(choice(source, names), force=lambda t: (command[0], 0.0, 0.0)),
        lambda: system.add_spring(
            name="winch", bodies=("world", choice(source, names)), positions=(vector(source, 1), vector(source, 1)),
            force=lambda length, rate: command[0],
        ),
    ]  # fmt: skip
    if movable:
        ways.append(lambda: system.add_joint_force(choice(source, movable), lambda t, q, u: command[0] - 0.1 * u))
    choice(source, ways)()


def add_compiled(source: Weighted, system: System) -> None:
    """Forces by functions that numba has compiled, so that steps are compiled with them."""
    names = [system.contents.name_of(k) for k in range(system.n_bodies)]
    movable = [name for name, body in zip(names, system.contents.bodies(), strict=True) if body.joint.kind.nu]

    def tie() -> None:
        ends = [choice(source, ("world", *names)), choice(source, names)]
        if ends[0] != ends[1]:
            system.add_spring(
                name="muscle", bodies=ends, positions=(vector(source, 1), vector(source, 1)), force=muscle
            )

    ways: list[Callable[[], object]] = [
        lambda: system.add_body_force(None, compiled_drag_of_all, point=vector(source, 1), vectorized=True),
        lambda: system.add_body_force(choice(source, names), compiled_drag, point=vector(source, 1)),
        tie,
    ]
    if movable:
        ways.append(lambda: system.add_joint_force(choice(source, movable), compiled_damper))
    for way in range(len(ways)):
        if source.chance(0.5):
            ways[way]()


def add_events(source: Weighted, case: Case, t_end: float) -> set[str]:
    """Joints, loops and gears that are cut, loops and gears that are connected; gives which names change."""
    system, changed = case.system, set[str]()
    tied = {name for tendon in system.contents.loads.tendons.values() for name in tendon.joints}  # which can't be cut
    hung = [
        b.name
        for b in system.contents.bodies()
        if (b.parent != "world" or b.joint.type != "free") and b.name not in tied
    ]
    held, idle = [loop.name for loop in system.contents.loops], [loop.name for loop in system.contents.loops.idle]
    for _ in range(source.count(1, 3)):
        name = choice(source, choice(source, [names for names in (hung, held, held, idle) if names] or [[""]]))
        if not name or name in changed:
            continue
        changed.add(name)
        time = t_end * source.uniform(0.05, 0.9)
        what: Settings = {"connect": name, "gap": "close"} if name in idle else {"cut": name}
        if source.chance(0.35):
            k = source.index(system.n_bodies)
            system.add_event(when=passing(source, case, k, time), bodies=system.contents.name_of(k), **what)
            continue
        system.add_event(time=time, **what)
        if name in held and source.chance(0.6):
            system.add_event(time=time + (t_end - time) * source.uniform(0.1, 1.1), connect=name, gap="close")
    return changed


def passing(source: Weighted, case: Case, k: int, time: float) -> Callable[[float, BodyMotion], float]:
    """A function that passes zero at a time (s), or where body k would be then with the speed it begins with."""
    motion, along = dense.kinematics(opened(case.system), case.q, case.u), unit(source, 3)
    velocity = motion.com_velocity[k] + np.cross(motion.omega[k], motion.origin[k] - motion.com[k])
    way = time * along @ velocity
    level, timed = float(along @ motion.origin[k] + way), source.chance(0.4) or abs(way) < CLEAR

    def passes(t: float, motion: BodyMotion) -> float:
        return t - time if timed else float(along @ motion.position[0] - level)

    return passes
