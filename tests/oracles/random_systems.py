"""Random, well-conditioned systems and states, the same on every rank: from Hypothesis, or from a seed.

Both ways share one description of what is drawn; a `Source` supplies the numbers. Inertias are those of six
point masses at +-a, +-b, +-c along rotated axes, so they are positive definite and keep the triangle
inequality. Rotations of springs at rest are small and those of states stay under 165 degrees, so that no
rotational spring is near half a turn, where its torque jumps.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from mpimbs.model import JOINT_TYPES, Body, Joint, System, Wrench
from oracles.dense import Array

State = tuple[Array, Array, Array]  # q, u, tau
T = TypeVar("T")
TYPES = {joint_type.name: joint_type for joint_type in JOINT_TYPES}
ALL = tuple(TYPES)

# Ranks must draw the same: no stored examples, nothing that depends on the time taken, and no shrinking, in
# which a rank that fails alone would enter collectives without the others.
SETTINGS = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=30,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example),
)


class Source(Protocol):
    """Where random numbers come from."""

    def uniform(self, low: float, high: float) -> float: ...

    def index(self, n: int) -> int: ...


class Seeded:
    """Numbers from a seed."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def uniform(self, low: float, high: float) -> float:
        return float(self.generator.uniform(low, high))

    def index(self, n: int) -> int:
        return int(self.generator.integers(n))


class Drawn:
    """Numbers from Hypothesis, on a grid of 1001 values whose simplest is the middle."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2 + (high - low) * self.draw(st.integers(-500, 500)) / 1000

    def index(self, n: int) -> int:
        return self.draw(st.integers(0, n - 1))


def choice(source: Source, options: Sequence[T]) -> T:
    return options[source.index(len(options))]


def vector(source: Source, size: float, n: int = 3) -> list[float]:
    return [source.uniform(-size, size) for _ in range(n)]


def unit(source: Source, n: int) -> Array:
    """A unit vector of n components; the last axis in place of one too short to normalise."""
    v: Array = np.array(vector(source, 1, n))
    length = np.linalg.norm(v)
    return v / length if length > 0.1 else np.eye(n)[-1]


def rotation(source: Source, largest: float) -> Array:
    """A unit quaternion of either sign; its vector's components are at most `largest` times its real part."""
    quaternion = np.array([1.0, *vector(source, largest)])
    return choice(source, (1, -1)) * quaternion / np.linalg.norm(quaternion)


def coordinates(source: Source, type_name: str, largest: float) -> list[float]:
    """Coordinates of one joint in the order of the model; angles and displacements within 3 rad and 3 m."""
    turned = [*rotation(source, largest)] if TYPES[type_name].quaternion else []
    return turned + vector(source, 3, TYPES[type_name].nq - len(turned))


def inertia(source: Source) -> list[float]:
    """Inertia per unit mass (xx yy zz xy xz yz) of point masses at +-a, +-b, +-c along rotated axes."""
    w, x, y, z = unit(source, 4)
    axes = np.array(
        [
            [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
        ]
    )
    points = axes * [source.uniform(0.2, 1) for _ in range(3)]
    spread = points @ points.T / 3
    m = np.trace(spread) * np.eye(3) - spread
    return [m[0, 0], m[1, 1], m[2, 2], m[0, 1], m[0, 2], m[1, 2]]


def joint(source: Source, type_name: str, springs: bool) -> Joint:
    kind = TYPES[type_name]
    fields: dict[str, Any] = {
        "type": type_name,
        "position": vector(source, 1),
        "rotation": unit(source, 4).tolist(),
        "q": coordinates(source, type_name, 4),
        "u": vector(source, 2, kind.nu),
    }
    if kind.takes_axis:
        fields["axis"] = unit(source, 3).tolist()
    if kind.takes_pitch:
        fields["pitch"] = source.uniform(-0.5, 0.5)
    if springs:
        stiffness = [source.uniform(0, 10) for _ in range(kind.nu)]
        fields["stiffness"] = stiffness
        if kind.quaternion:
            fields["cross_stiffness"] = [0.4 * min(stiffness[:3]) * share for share in (1, -1, 0.5)]
        fields["damping"] = [source.uniform(0, 2) for _ in range(kind.nu)]
        fields["rest"] = coordinates(source, type_name, 0.05)
        fields["torque"] = vector(source, 5, kind.nu)
        if not kind.quaternion and kind.nu:
            fields |= stops(stiffness, fields)
    return Joint(**fields)


def stops(stiffness: Sequence[float], fields: dict[str, Any]) -> dict[str, object]:
    """Ends of ways of coordinates, by their springs: none, one that is pressed, or two far off; nothing is drawn."""
    ends = []
    for k, x in zip(stiffness, fields["q"], strict=True):
        upper = {3: x - 0.05, 4: x - 0.2, 5: x + 1.0, 8: x + 0.5, 9: x + 0.6}.get(int(k), np.inf)
        lower = {6: x + 0.05, 7: x + 0.1, 8: x - 0.4, 9: x - 0.7}.get(int(k), -np.inf)
        ends.append((lower, upper))
    ended = [bool(np.isfinite(pair).any()) for pair in ends]
    given = {"lower": [lower for lower, _ in ends], "upper": [upper for _, upper in ends]}
    given["stop_stiffness"] = [4 * k * there for k, there in zip(stiffness, ended, strict=True)]
    given["stop_damping"] = [0.5 * k * there for k, there in zip(fields["damping"], ended, strict=True)]
    return given if any(ended) else {}


def build_system(source: Source, n: int, chain: bool, types: Sequence[str], springs: bool, wrenches: bool) -> System:
    """n bodies, at least one movable if `types` allow; those of a tree hang on any body or on the world."""
    system = System(name="random", gravity=tuple(vector(source, 10)))
    movable = [name for name in types if TYPES[name].nu] or types
    mover = source.index(n)
    for k in range(n):
        parent = k - 1 if chain else source.index(k + 1) - 1
        loads = source.index(3) if wrenches else 0
        mass = 10 ** source.uniform(-1, 1)
        body = Body(
            name=f"b{k}",
            parent=f"b{parent}" if parent >= 0 else "world",
            mass=mass,
            center_of_mass=vector(source, 1),
            inertia=[mass * value for value in inertia(source)],
            joint=joint(source, choice(source, movable if k == mover else types), springs),
            wrench=tuple(
                Wrench(
                    moment=vector(source, 5),
                    force=vector(source, 5),
                    point=vector(source, 1),
                    frame=choice(source, ("body", "world")),
                )
                for _ in range(loads)
            ),
        )
        system.add(body)
    return system


def build_state(source: Source, system: System) -> State:
    columns = system.contents.columns()
    names = [JOINT_TYPES[k].name for k in columns.joint_type]
    q = np.array([value for name in names for value in coordinates(source, name, 4)])
    u = np.array(vector(source, 2, system.nu))
    tau = np.array(vector(source, 10, system.nu))
    return q, u, tau


def random_system(
    seed: int, n: int, chain: bool, types: Sequence[str] | None = None, springs: bool = True, wrenches: bool = False
) -> tuple[System, Array, Array, Array]:
    """A system of n bodies with joints of the `types` and a state (q, u, tau) of it, from a seed.

    `springs` gives every joint a stiffness, damping, rest position and constant torque; `wrenches` gives
    every body none to two wrenches.
    """
    source = Seeded(seed)
    system = build_system(source, n, chain, types or ALL, springs, wrenches)
    return system, *build_state(source, system)


@st.composite
def systems(
    draw: st.DrawFn,
    max_bodies: int = 8,
    chain: bool | None = None,
    types: Sequence[str] | None = None,
    springs: bool = True,
    wrenches: bool = False,
) -> System:
    """Systems of 1 to max_bodies bodies; `chain` None draws chains and trees. See `random_system`.

    Hypothesis drops examples of more than about 16 bodies as too large: take `random_system` for those.
    """
    source = Drawn(draw)
    n = 1 + source.index(max_bodies)
    as_chain = bool(source.index(2)) if chain is None else chain
    return build_system(source, n, as_chain, types or ALL, springs, wrenches)


@st.composite
def states(draw: st.DrawFn, system: System) -> State:
    """States (q, u, tau) of a system."""
    return build_state(Drawn(draw), system)
