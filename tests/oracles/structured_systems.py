"""Structured random systems, from a seed: drawn from what models are made of, each a function of one integer.

A system is a sequence of parts, each on the world or on a body that is there: stretches whose joints repeat with some
period, subtrees that are alike, rows of mechanisms, random trees, rods. Then comes what connects them: loops inside a
unit, to the next, to the parent, to the world, to anywhere, joints that are doubled, loops that coincide, gears,
springs; what acts: armature, dampers, torques, wrenches, added mass; motions that joints follow; and a state of any
speed that all of these allow. Bodies stand in the order in which they were made or in any other.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpimbs.base.errors import InputError
from mpimbs.model import Body, Gear, Joint, Loop, Rod, Spring, System
from mpimbs.model.gear import refuse_contradictions
from oracles.dense import REAL, Array, Snapshot, rotation_of
from oracles.descriptor import Descriptor
from oracles.loops import Carrier, carriers, opened
from oracles.random_loops import LOOP_TYPES, closing_loop
from oracles.random_systems import ALL, TYPES, Seeded, choice, coordinates, inertia, joint, vector

TIME = 0.3  # s, at which all is asked for
CONSISTENT = 1e-9  # of constraints, relative to their terms
TURNING = ("revolute", "helical")
SLIDING = ("prismatic",)
FEATURES = (
    "order", "armature", "springs", "gears", "loops", "doubled", "coincident", "motions", "added mass", "wrenches",
    "idle loops", "driven loops", "planar", "rods", "masses", "deep world loops",
)  # fmt: skip


@dataclass
class Case:
    """A system in a state, and what it was drawn with."""

    seed: int
    system: System
    q: Array
    u: Array
    tau: Array
    features: tuple[str, ...]
    parts: list[str] = field(default_factory=list)


class Weighted(Seeded):
    """Numbers from a seed, and decisions."""

    def chance(self, probability: float) -> bool:
        return self.uniform(0, 1) < probability

    def decades(self, low: float, high: float) -> float:
        return float(10 ** self.uniform(low, high))

    def count(self, low: int, high: int) -> int:
        """A whole number between two, small ones rather."""
        return min(high, int(low * (high / low) ** self.uniform(0, 1) + self.uniform(0, 1)))


def size_of(source: Weighted, most: int) -> int:
    """How many bodies."""
    which = source.uniform(0, 1)
    low, high = (2, 12) if which < 0.5 else (8, 60) if which < 0.85 else (50, 300) if which < 0.98 else (300, 3000)
    return max(2, min(most, source.count(low, high)))


class Builder:
    """A system as it grows: bodies by number, each after its parent."""

    def __init__(self, source: Weighted, features: Sequence[str], servos: Weighted) -> None:
        self.source, self.features = source, set(features)
        self.servos = servos if servos.chance(1 / 6) else None
        self.bodies: list[dict[str, Any]] = []
        self.parents: list[int] = []
        self.units: list[list[list[int]]] = []  # of each part with copies, the bodies of every copy
        self.parts: list[str] = []
        self.flat = "planar" in self.features
        self.types = self._types()

    def _types(self) -> tuple[str, ...]:
        source = self.source
        if self.flat:
            return ("revolute",) if source.chance(0.7) else ("revolute", "prismatic")
        if source.chance(0.4):
            return ALL
        drawn = {choice(source, ALL) for _ in range(1 + source.index(3))}
        return tuple(sorted(drawn | {choice(source, ("revolute", "spherical"))}))  # the same in every process

    def body(self, kind: str) -> dict[str, Any]:
        """The fields of a body with a joint of that type."""
        source = self.source
        mass = source.decades(-1, 1)
        if "masses" in self.features:
            mass *= source.decades(-5.5, 5.5) if source.chance(0.3) else 1.0
        springs = "springs" in self.features and source.chance(0.5)
        drawn = joint(source, kind, springs)
        given = drawn.given
        if self.flat:
            given |= {"position": (*given["position"][:2], 0.1 * given["position"][2]), "rotation": (1, 0, 0, 0)}
            if kind in ("revolute",):
                given |= {"axis": (0, 0, 1)}
            if kind == "prismatic":
                angle = source.uniform(-3, 3)
                given |= {"axis": (np.cos(angle), np.sin(angle), 0.0)}
        if "armature" in self.features and TYPES[kind].nu and source.chance(0.5):
            given["armature"] = [mass * source.decades(-2, 1) for _ in range(TYPES[kind].nu)]
        if self.servos is not None and self.servos.chance(0.4):
            given |= servo_of(self.servos, TYPES[kind].nu * (not TYPES[kind].quaternion))
        fields: dict[str, Any] = {
            "mass": mass,
            "center_of_mass": vector(source, 1),
            "inertia": [mass * value for value in inertia(source)],
            "joint": given,
        }
        if "added mass" in self.features and source.chance(0.4):
            root = np.array([vector(source, np.sqrt(mass / 6), 6) for _ in range(6)])
            fields["added_mass"] = (root @ root.T).tolist() if source.chance(0.5) else np.diag(root @ root.T).tolist()
        if "wrenches" in self.features and source.chance(0.4):
            fields["wrench"] = [
                {
                    "moment": vector(source, 5),
                    "force": vector(source, 5),
                    "point": vector(source, 1),
                    "frame": choice(source, ("body", "world")),
                }
            ]
        return fields

    def kind(self, mover: bool = False) -> str:
        kinds = [name for name in self.types if TYPES[name].nu] or ["revolute"]
        return choice(self.source, kinds) if mover or self.source.chance(0.9) else choice(self.source, self.types)

    def again(self, fields: dict[str, Any], alike: bool) -> dict[str, Any]:
        """The same body once more, or one of the same shape with other numbers."""
        return fields if alike else self.body(fields["joint"]["type"])

    def put(self, fields: dict[str, Any], parent: int) -> int:
        self.bodies.append(fields)
        self.parents.append(parent)
        return len(self.bodies) - 1

    def anywhere(self) -> int:
        """A body, rather one of the last; or the world."""
        n, source = len(self.bodies), self.source
        if not n or source.chance(0.15):
            return -1
        return n - 1 if source.chance(0.4) else source.index(n)

    # --- parts: each takes a parent and a number of bodies at the most ---

    def stretch(self, parent: int, most: int) -> None:
        """A chain whose joints repeat with some period."""
        source = self.source
        period, alike = 1 + source.index(min(6, most)), source.chance(0.5)
        templates = [self.body(self.kind(True)) for _ in range(period)]
        for k in range(most):
            parent = self.put(self.again(templates[k % period], alike), parent)

    def comb(self, parent: int, most: int) -> None:
        """A stretch with side bodies."""
        source = self.source
        spine, side = self.body(self.kind(True)), self.body(self.kind())
        alike, every = source.chance(0.5), 1 + source.index(3)
        for k in range(max(1, most * every // (every + 1))):
            parent = self.put(self.again(spine, alike), parent)
            if k % every == 0:
                self.put(self.again(side, alike), parent)

    def copies(self, parent: int, most: int) -> None:
        """LaneSubtrees that are alike: on one body, on the world, on bodies in sequence, or each on the one before."""
        source = self.source
        size = 1 + source.index(min(8, max(1, most // 2)))
        chain = source.chance(0.5)
        unit_of = [(self.body(self.kind()), k - 1 if chain else source.index(k + 1) - 1) for k in range(size)]
        how, alike = choice(source, ("one", "world", "bodies", "before")), source.chance(0.5)
        first, found = len(self.bodies), list[list[int]]()
        for copy in range(max(1, most // size)):
            root = {"one": parent, "world": -1, "bodies": min(copy, first - 1)}.get(how, parent)
            if how == "before" and found:
                root = found[-1][-1]
            own: list[int] = []
            for fields, above in unit_of:
                own.append(self.put(self.again(fields, alike), own[above] if above >= 0 else root))
            found.append(own)
        self.units.append(found)

    def tree(self, parent: int, most: int) -> None:
        """Each body on a random one of the part."""
        first, source = len(self.bodies), self.source
        reach = choice(source, (2, 5, 1000))
        for k in range(most):
            on = parent if not k else first + max(0, k - reach) + source.index(min(k, reach))
            self.put(self.body(self.kind()), on)

    def free_roots(self, parent: int, most: int) -> None:
        """Single bodies that nothing holds but loops, or one that others lie on."""
        fields, alike = self.body("free"), self.source.chance(0.5)
        for _ in range(min(most, 1 + self.source.index(4))):
            self.put(self.again(fields, alike), -1)

    def grow(self, n: int) -> None:
        """Parts until there are n bodies."""
        source = self.source
        while len(self.bodies) < n:
            left = n - len(self.bodies)
            most = left if source.chance(0.4) else 1 + source.index(left)
            makers: list[Callable[[int, int], None]] = [self.stretch, self.comb, self.copies, self.copies, self.tree]
            if not self.flat:
                makers.append(self.free_roots)
            part = choice(source, makers)
            part(self.anywhere(), most)
            self.parts.append(f"{part.__name__}:{most}")

    def order(self) -> list[int]:
        """Numbers in the order of the model: each after its parent, otherwise as made, or any."""
        n = len(self.bodies)
        if "order" not in self.features:
            return list(range(n))
        rank = np.array([self.source.uniform(0, 1) for _ in range(n)])
        children: list[list[int]] = [[] for _ in range(n)]
        ready = []
        for k, parent in enumerate(self.parents):
            (children[parent] if parent >= 0 else ready).append(k)
        found = []
        while ready:
            ready.sort(key=lambda k: rank[k])
            k = ready.pop(0)
            found.append(k)
            ready += children[k]
        return found


def case_of(seed: int, without: Sequence[str] = (), most: int = 3000, time: float = TIME) -> Case:
    """The case of a seed at a time (s); `without` some features, and of so many bodies at the most."""
    source = Weighted(seed)
    features = drawn_features(source)
    features = tuple(name for name in features if name not in without)
    n = size_of(source, most)
    builder = Builder(source, features, Weighted(seed + 9 * 10**9))
    features = features if builder.servos is None else (*features, "servos")
    builder.grow(n)
    order = builder.order()
    place = {k: number for number, k in enumerate(order)}
    system = System(f"seed {seed}", vector(source, 10))
    if source.chance(0.1):
        system.gravity = (0.0, 0.0, 0.0)
    for k in order:
        parent = builder.parents[k]
        fields = builder.bodies[k] | {"name": f"b{place[k]}", "parent": f"b{place[parent]}" if parent >= 0 else "world"}
        system.add(Body(**fields))
    if "rods" in features:
        add_rods(source, system)
    units = [[[place[k] for k in own] for own in found] for found in builder.units]
    q, u = system.contents.initial_state(0, system.n_bodies)
    if source.chance(0.8):  # else all of a shape are where the first is
        q = state_of(source, system, near=source.chance(0.3))
    if "motions" in features:
        system, q = with_motions(source, system, q, choice(source, (0.1, 0.5)), time)
    speed = 0.0 if source.chance(0.1) else source.decades(-2, 2) if source.chance(0.5) else 2.0
    u = np.array(vector(source, speed, system.nu))
    tau = np.array(vector(source, 0.0 if source.chance(0.1) else 10, system.nu))
    connect(source, system, q, features, units, builder.flat)
    if over_time(Weighted(seed + 8 * 10**9), system):
        features = (*features, "over time")
    if add_tendons(Weighted(seed + 10 * 10**9), Weighted(seed + 11 * 10**9), system):
        features = (*features, "tendons")
    found = Descriptor(system, q, u, time)
    found.q = found.q.astype(float).astype(REAL)
    if system.contents.loops and found.allow() > CONSISTENT:
        if "motions" in features:
            return case_of(seed, (*without, "motions"), most, time)  # loops that contradict what joints follow
        found.u = np.zeros_like(found.u)  # the oracle has no digits to say which speeds are allowed: none is
        found.place()
    q, u = (values.astype(float) for values in (found.q, found.u))
    return Case(seed, system, q, u, np.where(found.held, 0.0, tau), features, builder.parts)


def drawn_features(source: Weighted) -> tuple[str, ...]:
    """What a system has: some have most, some little."""
    chances = {"order": 0.3, "loops": 0.55, "masses": 0.1, "planar": 0.15, "rods": 0.1, "motions": 0.15, "gears": 0.2}
    chances |= {"idle loops": 0.05, "added mass": 0.15, "doubled": 0.2, "coincident": 0.2, "deep world loops": 0.15}
    drawn = {name: source.uniform(0, 1) < chances.get(name, 0.3) for name in FEATURES}
    if not drawn["loops"] and source.chance(0.7):
        drawn |= {"doubled": False, "coincident": False, "deep world loops": False}
    return tuple(name for name in FEATURES if drawn[name])


def rows_of(source: Weighted, width: int) -> Any:
    """Rows of a time and so many numbers, a third of them followed with a lag."""
    times = np.cumsum([source.uniform(-1, 1), *(source.decades(-2, 0) for _ in range(source.index(5)))])
    rows = [[t, *vector(source, 5, width)] for t in times.tolist()]
    lags = Weighted(int(1e9 * abs(rows[0][1])))  # what is drawn behind does not depend on these
    if not lags.chance(1 / 3):
        return rows
    return {"rows": rows, "lag": lags.decades(-2, 0), "begin": vector(lags, 5, width)}


def servo_of(source: Weighted, count: int) -> dict[str, Any]:
    """A servo along each of so many coordinates, perhaps over time, most of them with a range; some with friction."""
    if not count:
        return {}
    given = {"servo_torque": rows_of(source, count) if source.chance(0.3) else vector(source, 5, count)}
    given["servo_stiffness"] = [source.uniform(0, 10) for _ in range(count)]
    given["servo_damping"] = [source.uniform(0, 2) for _ in range(count)]
    given["servo_least"] = [source.uniform(-8, 0) if source.chance(0.8) else -np.inf for _ in range(count)]
    given["servo_most"] = [source.uniform(0, 8) if source.chance(0.8) else np.inf for _ in range(count)]
    if source.chance(0.4):
        given |= {name: [source.decades(-2, 1) for _ in range(count)] for name in ("friction", "friction_speed")}
    return given


def stops_of_tendon(source: Weighted) -> dict[str, float]:
    """Where its way ends, on one side or both, and the stops there."""
    lower, upper = source.uniform(-1, 0), source.uniform(0, 1)
    ends = choice(source, ({"lower": lower}, {"upper": upper}, {"lower": lower, "upper": upper}))
    return ends | {"stop_stiffness": source.uniform(1, 40), "stop_damping": source.uniform(0, 4)}


def add_tendons(source: Weighted, ways: Weighted, system: System) -> bool:
    """Tendons over joints of one kind of every sixth system, `ways` where these end; whether there are any."""
    if not source.chance(1 / 6):
        return False
    for number in range(source.count(1, 3)):
        unit, names = choice(source, ("rad", "m")), []
        for k in {source.index(system.n_bodies) for _ in range(source.count(1, 12))}:
            joint = system.contents.segments.template(k).joint
            if joint.kind.nu == 1 and joint.kind.q_units == (unit,) and joint.motion is None:
                names.append(system.contents.name_of(k))
        if names:
            given = {name: source.uniform(0, most) for name, most in (("stiffness", 10), ("damping", 2), ("rest", 1))}
            given["force"] = rows_of(source, 1) if source.chance(0.3) else vector(source, 5, 1)[0]
            given |= {"least": source.uniform(-8, 0), "most": source.uniform(0, 8)} if source.chance(0.5) else {}
            given |= stops_of_tendon(ways) if ways.chance(0.4) else {}
            system.add_tendon(name=f"t{number}", joints=names, ratios=vector(source, 2, len(names)), **given)
    return bool(system.contents.loads.tendons)


def over_time(source: Weighted, system: System) -> bool:
    """Torques and wrenches by rows over time, on some bodies of every sixth system; whether there are any."""
    if not source.chance(1 / 6):
        return False
    for k in {source.index(system.n_bodies) for _ in range(source.count(1, 4))}:
        name, joint = system.contents.name_of(k), system.contents.segments.template(k).joint
        if joint.kind.nu and joint.motion is None and source.chance(0.5):
            system.set_torque(name, rows_of(source, joint.kind.nu))
        else:
            frame = choice(source, ("body", "world"))
            system.add_wrench(
                name, moment=rows_of(source, 3), force=rows_of(source, 3), point=vector(source, 1), frame=frame
            )
    return True


def state_of(source: Weighted, system: System, near: bool) -> Array:
    """Coordinates of all joints: any, or near those of the model."""
    types = [body.joint.type for body in system.contents.bodies()]
    if near:
        q, _ = system.contents.initial_state(0, system.n_bodies)
        q = q + np.array(vector(source, 0.1, len(q)))
    else:
        q = np.array([value for name in types for value in coordinates(source, name, 4)])
    at = system.contents.offsets()[0]
    for k, name in enumerate(types):
        if TYPES[name].quaternion:
            own = slice(at[k], at[k] + 4)
            q[own] /= np.linalg.norm(q[own])
    return q


def with_motions(source: Weighted, system: System, q: Array, share: float, time: float) -> tuple[System, Array]:
    """The same with motions of some joints, which are at `q` at a time (s)."""
    made = System(system.name, system.gravity)
    at = system.contents.offsets()[0]
    for k, body in enumerate(system.contents.bodies()):
        given = body.joint
        if given.kind.nu and not given.kind.quaternion and source.chance(share):
            times = np.linspace(0, 3, 4 + source.index(4))
            now = q[at[k] : at[k + 1]]
            rates = np.array(vector(source, 1, len(now)))
            rows = [[t, *(now + rates * np.sin(2 * (t - time)))] for t in times.tolist()]
            given = Joint(
                **{k: v for k, v in given.given.items() if not k.startswith(("servo", "friction"))} | {"motion": rows}
            )
        made.add(body.model_copy(update={"joint": given}))
    found = Descriptor(made, q, np.zeros(made.nu), time)
    return made, found.q.astype(float)


def add_rods(source: Weighted, system: System) -> None:
    """One flexible line or two."""
    for k in range(1 + source.index(2)):
        joint_type = choice(source, ("universal", "spherical", "revolute"))
        how = source.index(3)
        system.add_rod(
            Rod(
                name=f"rod{'ab'[k]}",
                parent=choice(source, ("world", system.contents.name_of(source.index(system.n_bodies))))
                if how < 2
                else "world",
                count=source.count(1, 40),
                length=source.decades(-1, 1),
                diameter=source.decades(-2.5, -1),
                density=source.decades(2, 4),
                youngs_modulus=source.decades(6, 11),
                joint=joint_type,
                clamped=how == 1,
                floating=how == 2,
                position=tuple(vector(source, 1)),
                **({"shear_modulus": source.decades(6, 11)} if joint_type == "spherical" else {}),
            )
        )


def connect(
    source: Weighted, system: System, q: Array, features: Sequence[str], units: list[list[list[int]]], flat: bool
) -> None:
    """Add loops, gears and springs where the bodies are."""
    state = Snapshot(opened(system), q, np.zeros(system.nu))
    poses, n = carriers(state, np.zeros((system.nu, 1), REAL)), system.n_bodies
    kinds = ("revolute",) if flat else LOOP_TYPES
    if source.chance(0.5):
        kinds = (choice(source, kinds),)

    def close(first: int, second: int) -> None:
        if first != second:
            name = f"loop{len(system.contents.loops.names)}"
            make = flat_loop if flat else closing_loop
            loop = make(system, (first, second), poses, choice(source, kinds), source, name)
            system.add_loop(driven(source, loop) if "driven loops" in features and source.chance(0.5) else loop)

    if "loops" in features:
        for copies in units:
            if source.chance(0.7):
                of_units(source, copies, system.contents.parents(), close)
        for _ in range(source.count(1, 4 + n // 8) if source.chance(0.6) else 0):
            first, second = source.index(n + 1) - 1, source.index(n)
            if source.chance(0.4):
                first = max(-1, second - 1 - source.index(6))
            close(*((first, second) if source.chance(0.5) else (second, first)))
    if "deep world loops" in features:
        path = [source.index(n)]
        while (above := int(system.contents.parents()[path[-1]])) >= 0:
            path.append(above)
        for k in range(0, len(path), 1 + source.index(4)):
            close(-1, path[k])
            if len(system.contents.loops) > 40:
                break
        if len(path) > 1:
            close(path[0], path[1 + source.index(len(path) - 1)])
    if "doubled" in features:
        for _ in range(source.count(1, 1 + n // 4)):
            double(source, system, source.index(n), state)
    if "coincident" in features and system.contents.loops.joints:
        joints = [loop for _, loop in system.contents.loops.joints]
        for loop in (choice(source, joints) for _ in range(source.count(1, 4))):
            for _ in range(source.count(1, 8)):
                system.add_loop(loop.model_copy(update={"name": f"again{len(system.contents.loops.names)}"}))
    if "idle loops" in features and n > 1:
        loop = closing_loop(system, (-1, source.index(n)), poses, choice(source, kinds), source, "idle")
        system.add_loop(loop.model_copy(update={"active": False}))
    if "gears" in features:
        add_gears(source, system, q)
    if "springs" in features and n > 1:
        add_springs(source, system)


def of_units(source: Weighted, copies: list[list[int]], parents: Array, close: Callable[[int, int], None]) -> None:
    """Loops of the same kind on every copy: inside, to the next, to the parent, to the world; kept to 60 copies."""
    size, how = len(copies[0]), choice(source, ("inside", "next", "parent", "world", "inside next"))
    first, second = source.index(size), source.index(size)
    for own, other in zip(copies[:60], [*copies[1:], []][:60], strict=True):
        if "inside" in how and first != second:
            close(own[first], own[second])
        if "next" in how and other:
            close(own[first], other[second])
        if how == "parent":
            close(int(parents[own[0]]), own[second])
        if how == "world":
            close(-1, own[second])


def flat_loop(
    system: System, bodies: tuple[int, int], poses: list[Carrier], kind: str, source: Weighted, name: str
) -> Loop:
    """A hinge about z between bodies that move in a plane."""
    here, there = (poses[k] for k in bodies)
    point = np.array(vector(source, 1), REAL)
    place = there.rotation.T @ (here.origin + here.rotation @ point - there.origin)
    return Loop(
        name=name,
        type="revolute",
        bodies=[system.contents.name_of(k) if k >= 0 else "world" for k in bodies],
        positions=(point.astype(float).tolist(), place.astype(float).tolist()),
    )


def driven(source: Weighted, loop: Loop) -> Loop:
    """The same with springs, dampers and torques."""
    acting = joint(source, loop.type, True)
    keys = ("stiffness", "cross_stiffness", "damping", "rest", "torque")
    return loop.model_copy(update={key: getattr(acting, key) for key in keys})


def double(source: Weighted, system: System, k: int, state: Snapshot) -> None:
    """A second joint beside that of body k, which lets it move the same: a door's other hinge."""
    given = system.contents.body(k).joint
    if given.type in ("free", "universal"):
        return
    along = {"revolute": 1, "helical": 1, "cylindrical": 1, "spherical": 0}.get(given.type)
    axis = np.array(given.axis, REAL) * source.uniform(-1, 1)
    shift = np.array(vector(source, 1), REAL) if along is None else axis * along
    frame = rotation_of(np.array(given.rotation, REAL))
    turned = state.joints[k].rotation
    loop = Loop(
        name=f"double{len(system.contents.loops.names)}",
        type=given.type,
        bodies=(system.contents.body(k).parent, system.contents.name_of(k)),
        positions=(
            (np.array(given.position, REAL) + frame @ shift).astype(float).tolist(),
            (turned.T @ shift if along is None and given.type == "planar" else shift).astype(float).tolist(),
        ),
        rotations=(given.rotation, (1, 0, 0, 0)),
        **({"axis": given.axis} if given.kind.takes_axis else {}),
        **({"pitch": given.pitch} if given.kind.takes_pitch else {}),
    )
    system.add_loop(loop)


def add_gears(source: Weighted, system: System, q: Array) -> None:
    """Gears between some of the joints that have one coordinate, each at its place; no joint follows two."""
    at, single = system.contents.offsets()[0], list[int]()
    for k, body in enumerate(system.contents.bodies()):
        if body.joint.kind.nu == 1 and body.joint.motion is None:
            single.append(k)
    if len(single) < 2:
        return
    local = source.chance(0.6)
    for count in range(source.count(1, 1 + len(single) // 4)):
        i = source.index(len(single) - 1)
        j = i + 1 if local else i + 1 + source.index(len(single) - i - 1)
        of, follower = single[i], single[j]
        ratio = choice(source, (-1.0, 1.0, source.uniform(-5, 5), 0.1))
        offset = q[at[follower]] - ratio * q[at[of]]
        names = {"joint": system.contents.name_of(follower), "of": system.contents.name_of(of)}
        gears = [loop for loop in system.contents.loops if isinstance(loop, Gear)]
        if any({gear.joint, gear.of} == set(names.values()) for gear in gears):
            continue
        gear = Gear(name=f"gear{count}", ratio=ratio, offset=float(offset), **names)
        with contextlib.suppress(InputError):  # of one that contradicts those that there are
            refuse_contradictions([*gears, gear])
            system.add_gear(gear)


def add_springs(source: Weighted, system: System) -> None:
    """Springs and ropes between points of any two bodies, or of a body and the world."""
    n = system.n_bodies
    for k in range(source.count(1, 2 + n // 10)):
        first, second = source.index(n + 1) - 1, source.index(n)
        if first == second:
            continue
        system.add_spring(
            Spring(
                name=f"spring{k}",
                bodies=[system.contents.name_of(b) if b >= 0 else "world" for b in (first, second)],
                positions=(vector(source, 1), vector(source, 1)),
                stiffness=source.decades(-1, 3),
                damping=source.uniform(0, 3),
                rest=source.uniform(0, 3),
                tension_only=source.chance(0.3),
            )
        )
