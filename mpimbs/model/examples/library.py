"""Standard systems, by a short text such as "chain:1024": the examples of the papers and of the studies."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mpimbs.base.arrays import Integers
from mpimbs.base.errors import InputError
from mpimbs.model.body import Body
from mpimbs.model.contents import Contents
from mpimbs.model.examples.human import figure, figure34, figure48
from mpimbs.model.examples.mechanisms import (
    andrews,
    boom,
    coupled_loops,
    five_bar,
    four_bar,
    four_bar_chain,
    parallelogram,
    ring,
    track,
)
from mpimbs.model.joint import Joint
from mpimbs.model.order.order import Order
from mpimbs.model.robots.reading import Free, floats, is_robot, read_robot
from mpimbs.model.system import System, contents_of
from mpimbs.model.text.files import parameters_of, read_system
from mpimbs.model.text.table import suggest

if TYPE_CHECKING:
    from mpimbs.model.robots.robot import Controls

BEND = 0.1745  # rad, initial angle of the joints of a chain (10 degrees)
APART = 1.5  # m, between the figures of a crowd
MOST_TREE_BODIES = 100_000_000  # of which the arrays take 3 GB
MOST_CHILDREN = 1_000_000  # every child of a body is another template, an object of its own


Words = NDArray[np.uint64]


ModelLike = System | Contents | str | Path
"""A system, what one holds, or what names a model."""


@dataclass(frozen=True)
class Generator:
    """A standard system: the function that makes it, what its arguments are called, and those that may be left out."""

    make: Callable[..., System]
    arguments: tuple[str, ...]
    about: str
    optional: tuple[str, ...] = ()

    def usage(self, name: str) -> str:
        """How it is written."""
        return ":".join((name, *self.arguments)) + "".join(f"[:{argument}]" for argument in self.optional)


def _link(name: str, axis: str = "z", first: bool = False, **joint: object) -> Body:
    """Return a link of the chain of 16 bodies [Duan & Anderson, section 5]: 2 m long, along -y."""
    axes = {"x": (1, 0, 0), "z": (0, 0, 1)}
    fields = {"type": "revolute", "axis": axes[axis], "q": BEND, "position": (0, 0 if first else -2, 0)} | joint
    return Body(name=name, mass=1, center_of_mass=(0, -1, 0), inertia=(1, 1, 1, 0, 0, 0), joint=Joint(**fields))


def _repeat(system: System, count: int, *bodies: Body) -> None:
    if count:
        system.repeat(count, *bodies)


def chain(n: int) -> System:
    """Return the chain of equal bodies of Duan & Anderson, section 5, figure 8; there n is 16.

    Mass 1 kg, unit inertia, 2 m from joint to joint, revolute about z; the first three quarters of the joints
    begin at 0.1745 rad and the others at -0.1745 rad, at rest.
    """
    bent = 3 * n // 4
    system = System(f"chain of {n} bodies")
    system.repeat(1, _link("link", first=True, q=BEND if bent else -BEND))
    _repeat(system, bent - 1 if bent else 0, _link("link"))
    _repeat(system, n - max(bent, 1), _link("link", q=-BEND))
    return system


def spatial_chain(n: int) -> System:
    """Return the same links on revolute joints whose axes alternate z, x, so that the motion is in space."""
    system = System(f"spatial chain of {n} bodies")
    system.repeat(1, _link("z_link", first=True))
    _alternate(system, n - 1)
    return system


def free_chain(n: int) -> System:
    """Return a chain that falls free: its first link on a free joint, then axes that alternate x, z."""
    system = System(f"free chain of {n} bodies")
    root = Joint(type="free", u=(0.1, 0.2, 0.3, 0, 0, 0))
    system.add(_link("root").model_copy(update={"joint": root}))
    _alternate(system, n - 1)
    return system


def _alternate(system: System, n: int) -> None:
    """Append n links whose axes alternate x, z."""
    _repeat(system, n // 2, _link("x_link", "x"), _link("z_link", "z"))
    _repeat(system, n % 2, _link("x_link", "x"))


def rope(n: int) -> System:
    """Return a rope of n links of 0.1 m that is held at one end and let go from the horizontal.

    10 mm thick, 65 g/m; spherical joints with bending stiffness and damping, straight at rest. It begins
    along an arc of one radian in the horizontal plane, so that it moves in space.
    """
    length, radius, mass = 0.1, 0.005, 0.0065  # m, m, kg
    along, across = mass * radius**2 / 2, mass * (3 * radius**2 + length**2) / 12  # solid cylinder along x
    bend = 0.5 / n
    system = System(f"rope of {n} links")
    for count, position in ((1, 0.0), (n - 1, length)):
        joint = Joint(
            type="spherical",
            position=(position, 0, 0),
            q=(math.cos(bend), 0, math.sin(bend), 0),
            stiffness=0.01,  # N m/rad
            damping=2e-5,  # N m s/rad
        )
        inertia = (along, across, across, 0, 0, 0)
        link = Body(name="link", mass=mass, center_of_mass=(length / 2, 0, 0), inertia=inertia, joint=joint)
        _repeat(system, count, link)
    return system


def tree(depth: int, branching: int) -> System:
    """Return a tree: `depth` levels below the root, `branching` children for each body, depth first.

    Revolute joints; the axis differs from level to level and from child to child, and the children of a body
    sit on a circle around its lower end.
    """
    n = 1
    for _ in range(depth):
        n = n * branching + 1
        if n > MOST_TREE_BODIES:
            raise InputError(f"model tree:{depth}:{branching} has more than {MOST_TREE_BODIES} bodies; make it smaller")
    if branching > MOST_CHILDREN:
        raise InputError(f"model tree:{depth}:{branching} has more than {MOST_CHILDREN} children each; make it smaller")
    templates = [
        [_tree_body(level, child, branching) for child in range(branching if level else 1)] for level in range(3)
    ]
    system = System(f"tree of depth {depth}, {branching} children each")
    rows, parents = _tree_places(depth, branching, n)
    system.branch([body for level in templates for body in level], rows, parents)
    return system


def _tree_places(depth: int, branching: int, n: int) -> tuple[Integers, Integers]:
    """Return the number of its template in `tree` and the parent of each of the n bodies of a tree, depth first.

    The last branch of each level is written at the end of the arrays, and copied to its siblings before it.
    """
    if branching == 1:
        return np.where(np.arange(n) > 0, 1 + np.arange(n) % 2, 0), np.arange(-1, n - 1)
    rows, parents = np.zeros(n, np.int64), np.full(n, -1)
    last = n - 1  # where the branch begins that is there already
    for level in range(depth, 0, -1):
        size = n - last
        begins = n - size * np.arange(branching, 0, -1)  # of the branch and its siblings
        shift = np.repeat(begins[:-1] - last, size)
        rows[begins[0] : last] = np.tile(rows[last:], branching - 1)
        parents[begins[0] : last] = np.tile(parents[last:], branching - 1) + shift
        rows[begins] = 1 + level % 2 * branching + np.arange(branching)
        last = int(begins[0]) - 1
        parents[begins] = last
    return rows, parents


def random_tree(n: int, seed: int = 1) -> System:
    """Return a random recursive tree: each body hangs on any of those before it, all as likely. See `tree` for bodies.

    Drawn by integers alone, so that a number of bodies and a seed name one tree on every machine.
    """
    if n > MOST_TREE_BODIES:
        raise InputError(f"model random_tree:{n} has more than {MOST_TREE_BODIES} bodies; make it smaller")
    k = np.arange(n, dtype=np.uint64)
    parents = (_drawn(k + np.uint64(seed << 32)) * k >> np.uint64(32)).astype(np.int64)
    parents[0] = -1
    templates = [_tree_body(level, child, 3) for level in range(3) for child in range(3)]
    rows = (_drawn(~k - np.uint64(seed << 32)) * np.uint64(6) >> np.uint64(32)).astype(np.int64) + 3
    rows[0] = 0
    system = System(f"random tree of {n} bodies, seed {seed}")
    system.branch(templates, rows, parents)
    return system


def _drawn(numbers: Words) -> Words:
    """Return a random number below 2^32 for each number: splitmix64 [Steele, Lea & Flood 2014]."""
    x = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)  # modulo 2^64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return (x ^ (x >> np.uint64(31))) >> np.uint64(32)


def _tree_body(level: int, child: int, branching: int) -> Body:
    """Return the template of a body of a tree; the root, level 0, is at the world's origin."""
    angle = 2 * math.pi * child / branching
    joint = Joint(
        type="revolute",
        axis=(math.cos(angle + level), 0.25, math.sin(angle + level)),
        position=(0.3 * math.cos(angle), -1, 0.3 * math.sin(angle)) if level else (0, 0, 0),
        q=0.2 - 0.1 * (child % 3),
    )
    return Body(name="body", mass=1, center_of_mass=(0, -0.5, 0), inertia=(0.1, 0.02, 0.1, 0, 0, 0), joint=joint)


def caterpillar(n: int) -> System:
    """Return the links of `spatial_chain`, with a side body on each: a foot of 0.2 kg on a hinge, half-way along it.

    Listed depth first: link 1, its foot, link 2, its foot, ... are body1, body2, ...
    """
    hinge = Joint(type="revolute", position=(0.1, -1, 0), q=BEND)
    inertia = (1e-3, 1e-4, 1e-3, 0, 0, 0)
    foot = Body(name="body", mass=0.2, center_of_mass=(0, -0.2, 0), inertia=inertia, joint=hinge)
    links = [_link("body", first=True), _link("body", "x"), _link("body")]
    rows, parents = np.full(2 * n, 3), np.arange(-1, 2 * n - 1)
    rows[::2] = np.arange(n) % 2 + 2 * (np.arange(n) % 2 == 0)
    rows[0] = 0
    parents[2::2] -= 1
    system = System(f"caterpillar of {n} links, each with a foot")
    system.branch([*links, foot], rows, parents)
    return system


def crowd(n: int) -> System:
    """Return n figures, 1.5 m apart in a square, each on a free joint: one system with n roots.

    Listed depth first: pelvis1, the bodies of its legs, chest1, head1, arms, then pelvis2, ...
    """
    system = System(f"crowd of {n} figures")
    columns = math.isqrt(n - 1) + 1
    places = np.zeros((n, 3))
    places[:, 0], places[:, 2] = np.divmod(np.arange(n), columns)
    member = figure().contents
    root, *others = map(member.body, Order.of(member).bodies.tolist())
    system.repeat(n, root.model_copy(update={"parent": None}), *others, parents="world", shifts=APART * places)
    return system


GENERATORS: dict[str, Generator] = {
    "chain": Generator(chain, ("N",), "N equal bodies on parallel axes, the chain of Duan & Anderson"),
    "chain16": Generator(lambda: chain(16), (), "that chain with the paper's 16 bodies"),
    "spatial_chain": Generator(spatial_chain, ("N",), "N equal bodies, axes alternating"),
    "free_chain": Generator(free_chain, ("N",), "N equal bodies, the first of them free"),
    "rope": Generator(rope, ("N",), "N links on spherical joints, held at one end"),
    "caterpillar": Generator(caterpillar, ("N",), "N links, axes alternating, with a side body on each"),
    "figure": Generator(figure, (), "a human figure of 36 degrees of freedom"),
    "figure34": Generator(figure34, (), "the human figure of Yamane & Nakamura of 34 degrees of freedom"),
    "figure48": Generator(figure48, (), "that of 48 degrees of freedom"),
    "crowd": Generator(crowd, ("N",), "N figures side by side, each on a free joint"),
    "tree": Generator(tree, ("DEPTH", "BRANCHING"), "DEPTH levels, every body with BRANCHING children"),
    "random_tree": Generator(random_tree, ("N",), "N bodies, each on a random one before it", ("SEED",)),
    "four_bar": Generator(four_bar, ("N",), "N four-bar linkages in a row, a branch for each crank"),
    "four_bar_chain": Generator(four_bar_chain, ("N",), "the same linkages, a chain of all bodies"),
    "five_bar": Generator(five_bar, (), "the five-bar linkage of Malczyk & Fraczek"),
    "coupled_loops": Generator(coupled_loops, (), "two five-bar loops that share a body, of the same authors"),
    "parallelogram": Generator(parallelogram, (), "a parallelogram of three cranks, redundant in its plane"),
    "andrews": Generator(andrews, (), "Andrews' squeezing mechanism: seven bodies, three loops, driven"),
    "boom": Generator(boom, ("N",), "a truss boom of N bays with springy diagonals"),
    "ring": Generator(ring, ("N",), "N rods on ball joints, closed to a spinning ring"),
    "track": Generator(track, ("N",), "N shoes on hinges, closed to a belt"),
}


def read(
    model: str | os.PathLike[str],
    parameters: Mapping[str, float] | None = None,
    *,
    free: Free = False,
    keyframe: str = "",
    inertia: str = "",
    limits: str = "",
    actuators: str = "",
    controls: Controls | None = None,
    friction: str | float = "",
) -> System:
    """Read a model: a TOML, URDF or MJCF file, or one that a generator makes, such as "chain:1024".

    Parameters
    ----------
    model : str or path
        Of a TOML file perhaps with parameters behind it, in place of its own: "arm.toml:length=2:mass=0.5".
    parameters : dict, optional
        Of a TOML file, in place of these.
    free, keyframe, inertia, limits, actuators, controls, friction
        Of robots; see `read_robot`.

    Raises
    ------
    InputError
        See `system_from` and `read_robot`; or what is for robots is given for another model.
    """
    given = (free, keyframe, inertia, limits, actuators, controls, friction)
    if not (floats(free) or any(given[1:])):
        return system_from(model, parameters)
    if not is_robot(model):
        told = "`free`, `keyframe`, `inertia`, `limits`, `actuators`, `controls`, `friction` are for robots' files"
        raise InputError(f"{told}, and {os.fspath(model)!r} is none: leave it out")
    return read_robot(model, *given)


def contents_from(given: object) -> Contents:
    """Return what a system holds, or that which a text or a path names; see `system_from`.

    Raises
    ------
    InputError
        It is neither, or names none.
    """
    if isinstance(given, System | Contents):
        return contents_of(given)
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"system must be a System or name a model, as 'chain:16' or a TOML file do, got {given!r}")
    return system_from(given).contents


def system_from(spec: str | os.PathLike[str], parameters: Mapping[str, float] | None = None) -> System:
    """Return the system that a text names: a generator such as "chain:1024", or a TOML, URDF or MJCF file.

    A TOML file may have parameters behind it, in place of its own: "arm.toml:length=2:mass=0.5"; and `parameters` in
    place of these.

    Raises
    ------
    InputError
        The arguments of a generator are bad (the message shows its usage), or the file is (see
        `read_system` and `read_robot`).
    """
    if not isinstance(spec, str | os.PathLike):
        raise InputError(f"a model is named by a text or a path, as 'chain:16' or a TOML file are, got {spec!r}")
    spec = os.fspath(spec)
    name, *arguments = spec.split(":")
    if name in GENERATORS:
        generator = GENERATORS[name]
        least, most = len(generator.arguments), len(generator.arguments) + len(generator.optional)
        if not least <= len(arguments) <= most or not all(map(_is_count, arguments)):
            usage = generator.usage(name)
            raise InputError(f"model {spec!r}: bad arguments; write {usage}, with whole numbers from 1 on")
        return generator.make(*map(int, arguments))
    if not spec.strip():
        raise InputError("the model is an empty text; name a file or a generator such as chain:16")
    if is_robot(spec):
        return read_robot(spec)
    file, toml, settings = spec.partition(".toml:")
    if toml:
        return read_system(f"{file}.toml", _parameters(spec, settings) | dict(parameters or {}))
    if not spec.endswith(".toml") and not os.path.exists(spec):
        raise InputError(f"model {spec!r}: is neither a file nor a generator{suggest(name, GENERATORS)}")
    return read_system(spec, parameters)


def parameters_in(spec: object) -> list[str]:
    """Return the names of the parameters of the TOML file that a text or a path names; of others there are none."""
    text = os.fspath(spec) if isinstance(spec, str | os.PathLike) else ""
    file, toml, _ = f"{text}:".partition(".toml:")
    return parameters_of(f"{file}.toml") if toml else []


def _parameters(spec: str, settings: str) -> dict[str, float]:
    """The parameters behind the name of a file."""
    try:
        pairs = (setting.split("=") for setting in settings.split(":"))
        return {name: float(value) for name, value in pairs}
    except ValueError:
        raise InputError(
            f"model {spec!r}: bad parameters; write FILE.toml:NAME=NUMBER, more of them with colons between"
        ) from None


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16 and int(text) > 0
