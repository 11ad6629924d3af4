"""What meets the faults of `fault_injection.py`: a system for each topology, and how many of a fault each gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from fault_injection import Fault

FAULTS_OF_A_CHAIN = 5  # at the most
CHECKPOINTS = ("--checkpoint-steps", "10")
ADAPTIVE = ("--every", "0.01", "--rtol", "1e-11", "--atol", "1e-11", *CHECKPOINTS)
FIXED = ("--every", "0.001", "--dt", "0.001", *CHECKPOINTS, "--poses")
FOURTH = (*FIXED, "--integrator", "rk4")

# Links of which the fifth parts from the fourth, is caught again where it is too far away, parts at the next beat, ...
LINK = """
[[repeat.body]]
name = "link"
mass = 1
center_of_mass = [0, -0.1, 0]
inertia = [4e-3, 1e-4, 4e-3, 0, 0, 0]
"""
PARTING = f"""
name = "rope that parts"
[[repeat]]
count = 1
{LINK}
joint = {{ type = "revolute", axis = [0, 0, 1], q = 1.0 }}
[[repeat]]
count = 7
{LINK}
joint = {{ type = "revolute", axis = [0, 0, 1], position = [0, -0.2, 0] }}
[[loop]]
name = "splice"
type = "revolute"
axis = [0, 0, 1]
bodies = ["link4", "link5"]
positions = [[0, -0.2, 0], [0, 0, 0]]
active = false
[[event]]
time = 0.02
cut = ["link5"]
[[event]]
when = "fault_injection:apart"
bodies = ["link4", "link5"]
connect = ["splice"]
gap = "close"
[[event]]
when = "fault_injection:beat"
cut = ["splice"]
"""
COPIES = "{}\n" + "".join(f"{1 + k / 10}, {0.1 * k}\n" for k in range(6))


class Subject(NamedTuple):
    """A simulation that meets faults."""

    name: str
    bodies: int
    t_end: float  # s
    arguments: tuple[str, ...]  # the command of mpimbs, and what it simulates
    adaptive: tuple[str, ...] = ADAPTIVE  # settings; of those faults that ask for steps of this kind
    fixed: tuple[str, ...] = FOURTH
    files: Mapping[str, str] = MappingProxyType({})  # files that the arguments name, and their text
    pcg: bool = False  # every fifth chain with adaptive steps is evaluated by pcg
    without: tuple[str, ...] = ()  # faults that it can't have


# A copy whose function fails is left behind with NaN, and no job ends.
OF_FORCES = ("exception in a force", "NaN in a force, fixed step", "NaN in a force, adaptive step",
             "state beyond all numbers")  # fmt: skip
# The steps after it are others, and an output that is equal to the tolerance alone would tell little.
OTHER_STEPS = ("NaN in a force, adaptive step",)
# `petsc:bdf` is not among them: it forgets its steps at restarts, as documented.
SUBJECTS = (
    Subject("chain", 8, 0.4, ("run", "chain:8"), pcg=True),
    Subject("tree", 12, 0.4, ("run", "random_tree:12:3"), pcg=True),
    Subject("loops", 11, 0.1, ("run", "boom:2"), pcg=True),
    Subject("events", 8, 0.25, ("run", "parting.toml"), files={"parting.toml": PARTING}),
    Subject("implicit", 8, 0.15, ("run", "rope:8"),
            ("--every", "0.01", "--integrator", "rosenbrock", "--rtol", "1e-5", "--atol", "1e-5", *CHECKPOINTS),
            (*FIXED, "--integrator", "rosenbrock"), without=OTHER_STEPS),
    Subject("ensemble", 8, 0.4, ("run", "chain:8", "--parameters", "copies.csv"), without=OF_FORCES,
            files={"copies.csv": COPIES.format("link1.mass, q:link1")}),
    Subject("ensemble in turn", 11, 0.1, ("run", "boom:2", "--parameters", "copies.csv"), without=OF_FORCES,
            files={"copies.csv": COPIES.format("batten_1.mass, gravity[1]")}),
)  # fmt: skip


class Task(NamedTuple):
    """Chains of one fault and subject: which of them, how many faults, and the part of all of this fault before it."""

    fault: Fault
    subject: Subject
    index: int
    faults: int
    before: float


def tasks_of(fault: Fault, first: int, total: int, subjects: Sequence[Subject]) -> list[Task]:
    """Spread so many faults over the subjects, by turns."""
    able = [subject for subject in subjects if fault.name not in subject.without]
    each = min(FAULTS_OF_A_CHAIN, -(-total // max(len(able), 1)))
    found = []
    for k, done in enumerate(
        range(0, total, each) if able and total else ()
    ):  # few of each are on different numbers of ranks too
        turn, place = divmod(k + first, len(able))
        found.append(Task(fault, able[place], turn + place + first, min(each, total - done), done / total))
    return found
