"""Standard systems with closed loops: linkages of hinges in a plane, a truss boom, a belt, a ring.

All are closed where they begin, in positions and in speeds, but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.model.body import Body, Loop
from mpimbs.model.joint import Joint
from mpimbs.model.joints import joint_type
from mpimbs.model.system import System

Place = tuple[float, float, float]
End = tuple[str, tuple[str, str], tuple[Place, Place]]
"""Of a loop joint the name, the two bodies, and where it lies on each (m)."""

RADIUS = 0.01  # m, of rods
RIGHT = 0.5 * math.pi
ALONG_Z = (0.0, 0.0, 1.0)
MOST_LOOPS = 1_000_000  # each is an object of its own
MOST_LINKS = 100_000_000  # of a ring: the arrays of its shape take 5 GB
BAYS_SPEED = 0.5  # m/s, of the tip of a boom
SHOE = (0.15, 0.03, 0.4)  # m, of a track: along it, thickness, width
ROUND = 8  # joints that bend at each end of a track


def _rod(name: str, length: float, joint: Joint, parent: str | None = None) -> Body:
    """Return a rod of 1 kg/m from the origin of its frame along x; its moments across are those of a thin one."""
    along, across = length * RADIUS**2 / 2, length**3 / 12
    inertia = (along, across, across, 0, 0, 0)
    return Body(name=name, parent=parent, mass=length, center_of_mass=(length / 2, 0, 0), inertia=inertia, joint=joint)


def _hinge(x: float = 0.0, q: float = 0.0, u: float = 0.0, y: float = 0.0, damping: float = 0.0) -> Joint:
    """Return a hinge about z at a place on the parent (m), with its angle (rad), speed (rad/s), damper (N m s/rad)."""
    return Joint(type="revolute", axis=ALONG_Z, position=(x, y, 0), q=q, u=u, damping=damping)


def _end(x: float, y: float = 0.0) -> Place:
    """Return a place in the plane, m."""
    return float(x), float(y), 0.0


TIPS = (_end(1), _end(1))  # of two rods of 1 m


def _close(system: System, ends: Iterable[End], kind: str = "revolute", damping: float = 0.0) -> None:
    """Close loops by joints of one kind, hinges about z: each has a name, two bodies, and its place on either."""
    axis = ALONG_Z if joint_type(kind).takes_axis else None
    like = Loop(name="like", type=kind, axis=axis, bodies=("a", "b"), positions=TIPS, damping=damping)
    for name, bodies, positions in ends:
        system.add_loop(like.model_copy(update={"name": name, "bodies": bodies, "positions": positions}))


def _check_size(name: str, n: int, most: int, least: int = 1) -> None:
    """Refuse a generator's number that closes no loop, or would take too much memory."""
    if not least <= n <= most:
        raise InputError(f"model {name}:{n} has a wrong size; write {name}:N with N from {least} to {most}")


def four_bar(n: int) -> System:
    """Return N four-bar linkages in a row, the N-four-bar mechanism of the IFToMM benchmark library (A02).

    Cranks 0 to N turn on the world at (i, 0, 0), coupler i joins the tips of cranks i and i + 1: rods of 1 m and 1 kg,
    all hinges about z. The cranks begin upright, with -1 rad/s, so that the couplers translate. Each crank with the
    coupler on its tip is a branch of the tree; a loop joint hangs the coupler's end on the next crank's tip. One degree
    of freedom, but N + 1 at the moments in which it lies flat.

        I theta'' = -G cos theta,    I = (N + 1) / 3 + N,    G = ((N + 1) / 2 + N) 9.81
    """
    _check_size("four_bar", n, MOST_LOOPS)
    crank, coupler = _rod("crank_", 1, _hinge(q=RIGHT, u=-1)), _rod("coupler_", 1, _hinge(1, -RIGHT, 1))
    system = System(f"row of {n} four-bar linkages")
    system.add(crank, name="crank_0")
    system.add(coupler, name="coupler_0")
    places = np.zeros((n, 3))
    places[:, 0] = np.arange(1, n + 1)
    if n > 1:
        system.repeat(n - 1, crank, coupler, parents="world", shifts=places[:-1])
    system.repeat(1, crank, parents="world", shifts=places[-1:])
    _close(system, ((f"pin_{i}", (f"coupler_{i}", f"crank_{i + 1}"), TIPS) for i in range(n)))
    return system


def four_bar_chain(n: int) -> System:
    """Return the mechanism of `four_bar` on another spanning tree: a chain of all its bodies.

    Crank 0, coupler 0, crank 1 down from the end of that, coupler 1 from the same point, ...; loop joints hang the
    lower ends of cranks 1 to N on the world.
    """
    _check_size("four_bar_chain", n, MOST_LOOPS)
    down, coupler = _rod("crank_", 1, _hinge(1, -RIGHT, -1)), _rod("coupler_", 1, _hinge(0, RIGHT, 1))
    system = System(f"row of {n} four-bar linkages, as a chain")
    system.add(_rod("crank_0", 1, _hinge(q=RIGHT, u=-1)))
    system.add(_rod("coupler_0", 1, _hinge(1, -RIGHT, 1)))
    if n > 1:
        system.repeat(n - 1, down, coupler)
    system.repeat(1, down)
    _close(system, ((f"pin_{i}", (f"crank_{i}", "world"), (_end(1), _end(i))) for i in range(1, n + 1)))
    return system


def _five_bars(system: System, first: int, parent: str, side: float, closing: str) -> None:
    """Add four bars that close a loop with their parent, the fifth: its base of 2 m lies along x, from its origin.

    Bars of 1, 2, 2 and 1 m, symmetric about the middle of the base, on its positive side (1) or the other (-1); the
    first leans outwards, 135 degrees from the base.
    """
    lean = 3 * math.pi / 4
    rise = math.acos((1 - math.cos(lean)) / 2)  # of the second: its end is above the middle of the base
    on, at = parent, 0.0
    turns, lengths = (lean, rise - lean, -2 * rise, rise - lean), (1.0, 2.0, 2.0, 1.0)
    for number, (turn, length) in enumerate(zip(turns, lengths, strict=True), first):
        system.add(_rod(f"bar{number}", length, _hinge(at, side * turn), on))
        on, at = f"bar{number}", length
    _close(system, [(closing, (on, parent), (_end(at), _end(2)))])


def five_bar() -> System:
    """Return the five-bar linkage of Malczyk & Fraczek, section 4.2: two degrees of freedom in one loop.

    Four bars and the ground, five hinges of parallel axes, three constraints redundant; bars 1 to 4 are a chain, joint5
    closes it. The text at hand has no numbers. Assumed are rods of 1 kg/m of 1, 2, 2 and 1 m on pivots 2 m apart, that
    begin symmetric and at rest, the first bar at 135 degrees: they fall, stay symmetric, and pass again and again
    through the position in which all lie in one line, where the constraints lose one more rank.
    """
    system = System("five-bar linkage")
    _five_bars(system, 1, "world", 1.0, "joint5")
    return system


def coupled_loops() -> System:
    """Return the coupled loops of Malczyk & Fraczek, section 4.3: four degrees of freedom in two loops.

    Eight bodies on ten hinges of parallel axes, six constraints redundant: the upper loop of bars 1 to 4 and the
    ground is that of `five_bar`, the lower one of bars 5 to 8 has bar 3 as its base. Joints 5 and 10 close them. The
    text at hand has no numbers: assumed are those of `five_bar` for both, the lower loop below bar 3.
    """
    system = System("coupled loops")
    _five_bars(system, 1, "world", 1.0, "joint5")
    _five_bars(system, 5, "bar3", -1.0, "joint10")
    return system


def parallelogram() -> System:
    """Return a parallelogram linkage of three cranks: redundant in its plane too, so that loads are not unique.

    Cranks of 1 m and m = 1 kg on pivots 1 m apart carry one rod of 2 m and M = 2 kg. They begin at 1 rad from the
    horizontal with -1 rad/s. One degree of freedom:

        (m + M) theta'' = -(3 m / 2 + M) 9.81 cos theta
    """
    system = System("parallelogram of three cranks")
    for i in range(3):
        system.add(_rod(f"crank_{i}", 1, _hinge(i, 1, -1), "world"))
    system.add(_rod("coupler", 2, _hinge(1, -1, 1), "crank_0"))
    _close(system, ((f"pin_{i}", ("coupler", f"crank_{i}"), (_end(i), _end(1))) for i in (1, 2)))
    return system


class _Plate(NamedTuple):
    """A body of Andrews' mechanism in the plane, on a hinge."""

    name: str
    parent: str
    position: tuple[float, float]  # m, in the parent
    center: tuple[float, float]  # m
    mass: float  # kg
    moment: float  # kg m^2, about the center of mass
    angle: float  # rad


_PLATES = (
    _Plate("OF", "world", (0, 0), (0.00092, 0), 0.04325, 2.194e-6, -0.061713890014276450),
    _Plate("FE", "OF", (0.007, 0), (-0.0115, 0), 0.00365, 4.410e-7, 0),
    _Plate("BDE", "world", (-0.03635, 0.03273), (0.01043, -0.01874), 0.02373, 5.255e-6, 0.45527981916307038),
    _Plate("AG", "world", (-0.06934, -0.00227), (0.02308, 0.00916), 0.07050, 1.169e-5, 0.48736497954384255),
    _Plate("GE", "AG", (0.04, 0), (0, -0.00579), 0.00706, 5.667e-7, 0.22266839016588588),
    _Plate("AH", "world", (-0.06934, -0.00227), (-0.00449, -0.01228), 0.05498, 1.912e-5, 1.2305474445498212),
    _Plate("HE", "AH", (0, -0.04), (0.00579, 0), 0.00706, 5.667e-7, -0.22266839016588588),
)  # fmt: skip


def andrews() -> System:
    """Return Andrews' squeezing mechanism: seven bodies, three loops at E, driven by 0.033 N m from rest for 0.03 s.

    Parameters and initial state of the Test Set for IVP Solvers, where the angles of the joints are beta (OF), Theta
    (FE), gamma (BDE), delta (AG), Phi (GE), epsilon (AH) and Omega (HE); bodies bear the names of their points. A
    spring pulls D of BDE to the fixed point C; no gravity; one degree of freedom. The moments that motion in the plane
    leaves open are those of thin plates.
    """
    system = System("Andrews' squeezing mechanism", gravity=(0, 0, 0))
    for plate in _PLATES:
        half = plate.moment / 2
        system.add(
            name=plate.name,
            parent=plate.parent,
            mass=plate.mass,
            center_of_mass=_end(*plate.center),
            inertia=(half, half, plate.moment, 0, 0, 0),
            joint=_hinge(plate.position[0], plate.angle, y=plate.position[1]),
        )
    system.set_torque("OF", 0.033)  # N m
    at_e = {"BDE": _end(0, -0.035), "GE": _end(0, -0.02), "HE": _end(0.02)}
    _close(system, ((f"E_{other}", ("FE", other), (_end(-0.028), end)) for other, end in at_e.items()))
    points = _end(0.02, -0.018), _end(0.014, 0.072)  # D and C
    system.add_spring(name="DC", bodies=("BDE", "world"), positions=points, stiffness=4530, rest=0.07785)
    return system


def boom(n: int) -> System:
    """Return a truss boom of N bays of 1 m by 1 m, held at one end: 5 N + 1 bodies, 2 N loops, N degrees of freedom.

    A bay is a batten, an upper and a lower longeron, rods of 1 kg/m, and a diagonal that is a telescope: a tube and a
    rod of 0.8 m, with a spring of 20 kN/m and a damper of 20 N s/m. All hinge about z; ball joints hang the ends of the
    upper longeron and of the diagonal on the tip of the next batten, and so close the two loops of a bay, each with one
    redundant constraint. What the diagonals give is the one freedom of each bay, its shear. No gravity; it begins
    straight, each bay shearing alike, its tip with 0.5 m/s.
    """
    _check_size("boom", n, MOST_LOOPS // 2)
    shear, diagonal, tube = BAYS_SPEED / n, math.sqrt(2), 0.8  # rad/s, m, m
    batten = _rod("batten_", 1, _hinge(1, RIGHT, -shear))
    stretch = shear / diagonal  # m/s
    spring = {"stiffness": 2e4, "damping": 20.0}  # N/m, N s/m
    slide = Joint(type="prismatic", axis=(1, 0, 0), position=_end(diagonal - tube), u=stretch, **spring)
    bay = (
        _rod("upper_", 1, _hinge(1, -RIGHT, shear), "batten_"),
        _rod("tube_", tube, _hinge(0, -RIGHT / 2, shear / 2), "batten_"),
        _rod("rod_", tube, slide, "tube_"),
        _rod("lower_", 1, _hinge(0, -RIGHT, shear), "batten_"),
    )
    system = System(f"boom of {n} bays", gravity=(0, 0, 0))
    turned = (math.cos(RIGHT / 2), 0, 0, math.sin(RIGHT / 2))
    system.add(_rod("batten_0", 1, Joint(type="fixed", rotation=turned), "world"))
    for body in bay:
        system.add(body, name=f"{body.name}0", parent=f"{body.parent}0")
    if n > 1:
        system.repeat(n - 1, batten, *bay)
    system.repeat(1, batten)
    for what, length in (("upper", 1.0), ("rod", tube)):
        ends = ((f"{what}_{i}", (f"{what}_{i}", f"batten_{i + 1}"), (_end(length), _end(1))) for i in range(n))
        _close(system, ends, "spherical")
    return system


def ring(n: int) -> System:
    """Return a ring of N rods of 1 m and 1 kg on ball joints, a regular polygon that spins about its axis with 1 rad/s.

    The first rod is on a free joint, each other on that before; one loop joint closes it. No gravity: it goes on
    turning as one body, and each joint carries m w^2 r / (2 sin(pi / N)) along the tangent, r = 1 / (2 tan(pi / N)).
    """
    _check_size("ring", n, MOST_LINKS, least=3)

    def joint(turn: float) -> Joint:
        return Joint(type="spherical", position=_end(1), q=(math.cos(turn / 2), 0, 0, math.sin(turn / 2)))

    system = System(f"spinning ring of {n} rods", gravity=(0, 0, 0))
    _close_chain(system, np.full(n, 2 * math.pi / n), 1.0, lambda joint: _rod("link", 1, joint), joint)
    return system


def track(n: int) -> System:
    """Return the track of a vehicle, without wheels and ground: one loop of N shoes of 2 kg, 0.15 m from pin to pin.

    The first shoe is on a free joint, each other on that before by a hinge about z, and a loop joint closes the last
    with the first; dampers of 0.05 N m s/rad in all of them. It falls free, two straight runs with eight bent joints at
    each end, a regular polygon where N is odd or up to 16, and turns about its centre with 1 rad/s, so that it opens.
    N + 3 degrees of freedom, three redundant constraints.
    """
    _check_size("track", n, MOST_LINKS, least=3)
    mass, damping = 2.0, 0.05  # kg, N m s/rad
    x, y, z = (mass / 12 * size**2 for size in SHOE)
    inertia = (y + z, x + z, x + y, 0, 0, 0)
    turns = np.full(n, 2 * math.pi / n)
    if n % 2 == 0:
        half, bent = n // 2, min(n // 2, ROUND)
        turns[:] = 0.0
        turns[:bent] = turns[half : half + bent] = math.pi / bent
    system = System(f"track of {n} shoes")
    _close_chain(
        system,
        turns,
        SHOE[0],
        lambda joint: Body(name="shoe", mass=mass, center_of_mass=_end(SHOE[0] / 2), inertia=inertia, joint=joint),
        lambda turn: _hinge(SHOE[0], turn, damping=damping),
    )
    return system


def _close_chain(
    system: System, turns: Floats, length: float, body: Callable[[Joint], Body], joint: Callable[[float], Joint]
) -> None:
    """Add links that make up a closed polygon about the world's origin and turn about z with 1 rad/s, as one body.

    Parameters
    ----------
    turns : float [n]
        From each link's direction to the next one's (rad), that from the last to the first at first.
    length : float
        From one joint to the next, along x (m).
    body : function
        Makes a link on a joint.
    joint : function
        Makes the joint that turns a link by an angle (rad) from that before.
    """
    directions = np.cumsum(turns)
    vertices = length * np.cumsum([np.cos(directions), np.sin(directions)], axis=1)
    x, y = (vertices[:, -1] - vertices.mean(axis=1)).tolist()  # where the first link begins
    angle = float(turns[0])
    cos, sin = math.cos(angle), math.sin(angle)
    q = (math.cos(angle / 2), 0, 0, math.sin(angle / 2), x, y, 0)
    u = (0, 0, 1, sin * x - cos * y, cos * x + sin * y, 0)  # the velocity (-y, x) in the frame of the link
    system.repeat(1, body(Joint(type="free", q=q, u=u)))
    bounds = [0, *(np.flatnonzero(np.diff(turns[1:])) + 1).tolist(), len(turns) - 1]
    for first, last in pairwise(bounds):
        system.repeat(last - first, body(joint(float(turns[1 + first]))))
    like = joint(0.0)
    ends = (system.contents.name_of(len(turns) - 1), system.contents.name_of(0))
    _close(system, [("closure", ends, (_end(length), _end(0)))], like.type, like.damping[0])
