"""Random mechanisms: trees with loops that are closed in a state whose speeds they allow, from a seed."""

from collections.abc import Sequence

import numpy as np

from mpimbs.model import Joint, Loop, System
from oracles.dense import FORMULAS, REAL, Array, Snapshot, rotation_of
from oracles.loops import Carrier, allowed_speeds, carriers, quaternion_of
from oracles.random_systems import ALL, TYPES, Seeded, Source, choice, coordinates, joint, random_system, unit, vector

LOOP_TYPES = tuple(name for name in ALL if name != "free")


def closing_loop(
    system: System, bodies: tuple[int, int], poses: list[Carrier], kind: str, source: Source, name: str
) -> Loop:
    """A loop joint between two bodies (-1 the world) that is closed where they are, in a random place of its own."""
    fields: dict[str, object] = {}
    if TYPES[kind].takes_axis:
        fields["axis"] = unit(source, 3).tolist()
    if TYPES[kind].takes_pitch:
        fields["pitch"] = source.uniform(-0.5, 0.5)
    draft = Loop(
        name=name,
        type=kind,
        bodies=[system.contents.name_of(k) if k >= 0 else "world" for k in bodies],
        positions=(vector(source, 1), (0, 0, 0)),
        rotations=(unit(source, 4).tolist(), (1, 0, 0, 0)),
        **fields,
    )
    at = np.array(coordinates(source, kind, 4), REAL)
    motion = FORMULAS[kind](at, np.zeros(TYPES[kind].nu), np.array(draft.axis, REAL), REAL(draft.pitch))
    first, second = (poses[k] for k in bodies)
    frame = first.rotation @ rotation_of(np.array(draft.rotations[0], REAL))
    there = first.origin + first.rotation @ np.array(draft.positions[0], REAL) + frame @ motion.displacement
    turned = second.rotation.T @ frame @ motion.rotation
    place = second.rotation.T @ (there - second.origin)
    return draft.model_copy(
        update={
            "positions": (draft.positions[0], tuple(place.astype(float).tolist())),
            "rotations": (draft.rotations[0], tuple(quaternion_of(turned).astype(float).tolist())),
        }
    )


def random_mechanism(
    seed: int,
    n: int,
    loops: int,
    types: Sequence[str] | None = None,
    loop_types: Sequence[str] = LOOP_TYPES,
    doubled: int = 0,
    chain: bool = False,
    to_world: float = 0.2,
    reach: int | None = None,
    driven: bool = False,
    wrenches: bool = True,
) -> tuple[System, Array, Array, Array]:
    """A system of n bodies with loops, and a state (q, u, tau) that they allow.

    Parameters
    ----------
    types, loop_types : sequence of str, optional
        Of the joints of the tree, and of the loops.
    doubled : int
        So many further loops repeat others, with all their constraints.
    to_world : float
        Chance that an end of a loop is the world.
    reach : int, optional
        How many places, in the order of the bodies, the ends of a loop lie apart at the most.
    driven : bool
        Springs, dampers and torques act on the loops, too.
    wrenches : bool
        Wrenches act on bodies.
    """
    system, q, u, tau = random_system(seed, n, chain, types, wrenches=wrenches)
    source = Seeded(seed + 10**6)
    poses = carriers(Snapshot(system, q, u))
    for k in range(loops):
        second = source.index(n)
        least = max(0, second - (reach or n))
        first = -1 if source.uniform(0, 1) < to_world or second == least else least + source.index(second - least)
        pair = (second, first) if source.index(2) else (first, second)
        loop = closing_loop(system, pair, poses, choice(source, loop_types), source, f"loop{k}")
        if driven:
            acting = joint(source, loop.type, True)
            given = {
                name: getattr(acting, name) for name in ("stiffness", "cross_stiffness", "damping", "rest", "torque")
            }
            loop = loop.model_copy(update=given)
        system.add_loop(loop)
    for k in range(doubled):
        system.add_loop(system.contents.loops[source.index(loops)].model_copy(update={"name": f"again{k}"}))
    return system, q, allowed_speeds(system, q, u), tau


def doubled_joints(seed: int, n: int, types: Sequence[str] | None, chain: bool) -> tuple[System, Array, Array, Array]:
    """A tree each of whose joints is there twice, the second coaxial and as far along as it may be: a door's hinges."""
    system, q, u, tau = random_system(seed, n, chain, types)
    source = Seeded(seed + 3 * 10**6)
    for body in list(system.contents.bodies()):
        joint = body.joint
        along = source.uniform(-1, 1) if joint.type in ("revolute", "prismatic", "helical", "cylindrical") else 0.0
        fields = {
            name: getattr(joint, name) for name in ("axis", "pitch") if getattr(TYPES[joint.type], f"takes_{name}")
        }
        axis = np.array(joint.axis, REAL)
        place = np.array(joint.position, REAL) + along * rotation_of(np.array(joint.rotation, REAL)) @ axis
        system.add_loop(
            name=f"{body.name} again",
            type=joint.type,
            bodies=[body.parent, body.name],
            positions=(place.astype(float).tolist(), (along * axis).astype(float).tolist()),
            rotations=(joint.rotation, (1, 0, 0, 0)),
            **fields,
        )
    return system, q, u, tau


def grounded_mechanism(
    seed: int, n: int, grounds: Sequence[int], spans: Sequence[tuple[int, int]], chain: bool
) -> tuple[System, Array, Array, Array]:
    """Balls and hinges held to the world at some bodies, with sliders between others: loops to the world at many depths
    of a path, or many at one body, and further ones beside them."""
    system, q, u, tau = random_system(seed, n, chain, ["spherical", "revolute"], wrenches=False)
    source, poses = Seeded(seed + 4 * 10**6), carriers(Snapshot(system, q, u))
    ends = [("spherical", (body, -1)) for body in grounds] + [("prismatic", pair) for pair in spans]
    for k, (kind, pair) in enumerate(ends):
        system.add_loop(closing_loop(system, pair, poses, kind, source, f"loop{k}"))
    return system, q, allowed_speeds(system, q, u), tau


def planar_mechanism(seed: int, n: int, loops: int) -> tuple[System, Array, Array, Array]:
    """The same of hinges that are all parallel: each loop has at least 3 constraints that the tree's hinges fulfil."""
    system, q, u, tau = random_system(seed, n, False, ["revolute"], springs=False)
    source = Seeded(seed + 10**6)
    flat = System(name="planar", gravity=system.gravity)
    for body in system.contents.bodies():
        position = (*body.joint.position[:2], source.uniform(-0.1, 0.1))
        flat.add(body, joint=Joint(type="revolute", position=position))
    poses = carriers(Snapshot(flat, q, u))
    for k in range(loops):
        second = 1 + source.index(n - 1)
        first = source.index(second + 1) - 1
        here, there = (poses[end] for end in (first, second))
        point = vector(source, 1)
        place = there.rotation.T @ (here.origin + here.rotation @ np.array(point, REAL) - there.origin)
        names = [flat.contents.name_of(end) if end >= 0 else "world" for end in (first, second)]
        positions = (point, place.astype(float).tolist())
        flat.add_loop(name=f"hinge{k}", type="revolute", bodies=names, positions=positions)
    return flat, q, allowed_speeds(flat, q, u), tau


def repeated_mechanism(
    seed: int,
    n: int,
    loops: int,
    copies: int,
    linked: int = 0,
    on_a_hub: bool = False,
    to_world: float = 0.0,
    loop_types: Sequence[str] = ("revolute", "spherical", "fixed"),
) -> tuple[System, Array, Array, Array]:
    """Copies of a random mechanism, on the world or on a body that turns; each is linked to the next by some loops."""
    base, at, *_ = random_mechanism(seed, n, loops, loop_types=loop_types, to_world=to_world)
    system, source = System(name="repeated", gravity=base.gravity), Seeded(seed + 2 * 10**6)
    q = np.tile(at, copies)
    if on_a_hub:
        alone, turned, *_ = random_system(seed + 1, 1, True, ["spherical"])
        system.add(next(iter(alone.contents.bodies())), name="hub", parent="world")
        q = np.concatenate((turned, q))
    for copy in range(copies):
        for body in base.contents.bodies():
            above = "hub" if body.parent == "world" and on_a_hub else body.parent
            parent = above if above in ("hub", "world") else f"{above}_{copy}"
            system.add(body, name=f"{body.name}_{copy}", parent=parent)
    u, tau = (np.array([source.uniform(-1, 1) for _ in range(system.nu)]) for _ in range(2))
    poses = carriers(Snapshot(system, q, u))
    for copy in range(copies):
        for loop in base.contents.loops:
            ends = tuple(end if end == "world" else f"{end}_{copy}" for end in loop.bodies)
            system.add_loop(loop.model_copy(update={"name": f"{loop.name}_{copy}", "bodies": ends}))
    for k in range(linked):
        pair = on_a_hub + source.index(n), on_a_hub + n + source.index(n)
        loop = closing_loop(system, pair, poses, choice(source, loop_types), source, f"link{k}")
        ends = [name.rsplit("_", 1)[0] for name in loop.bodies]
        for copy in range(copies - 1):
            bodies = f"{ends[0]}_{copy}", f"{ends[1]}_{copy + 1}"
            system.add_loop(loop.model_copy(update={"name": f"link{k}_{copy}", "bodies": bodies}))
    return system, q, allowed_speeds(system, q, u), tau
