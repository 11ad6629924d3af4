"""What is drawn of a system: surfaces, each of which stands in many places at once, moved by the poses of bodies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from scipy.spatial.transform import Rotation

from mpimbs.base.arrays import Floats, Integers
from mpimbs.model.contents import Contents

FIELD = 0.6  # rad that a picture is high
_ASIDE, _ABOVE = 0.45, 0.3  # of the distance in front


class Camera(NamedTuple):
    """Where it stands, where it looks, and what is up there."""

    position: Floats  # [3]: m
    target: Floats  # [3]: m
    up: Floats  # [3]

    @classmethod
    def facing(cls, low: Floats, high: Floats, gravity: Sequence[float], margin: float) -> Camera:
        """See all between two corners [3] (m) and a margin (m), with gravity downward and the widest side in front."""
        down = np.asarray(gravity, float)
        size = np.linalg.norm(down)
        up = -down / size if size > 0.0 else np.array([0.0, 0.0, 1.0])
        level = [axis - (axis @ up) * up for axis in np.eye(3) if abs(axis @ up) < 0.9]
        front = min(level, key=lambda axis: float(abs(axis) @ (high - low)))
        front /= np.linalg.norm(front)
        side = np.cross(up, front)
        direction = front + _ASIDE * side + _ABOVE * up
        center = 0.5 * (low + high)
        reach = 0.5 * float(np.linalg.norm(high - low)) + margin
        distance = reach / np.tan(0.5 * FIELD)
        return cls(center + distance * direction / np.linalg.norm(direction), center, up)

    def moved(self, by: Floats) -> Camera:
        """Give the same shape elsewhere."""
        return Camera(self.position + by, self.target + by, self.up)

    def axes(self) -> Floats:
        """To the right, up and forward in the picture, as rows [3, 3]."""
        forward = (self.target - self.position) / np.linalg.norm(self.target - self.position)
        right = np.cross(forward, self.up)
        right /= np.linalg.norm(right)
        return np.array([right, np.cross(right, forward), forward])


def tension_colors(tensions: Floats, most: float) -> Floats:
    """Colors [n, 3], 0 to 255, of tensions [n] up to the largest magnitude (N): red is pulled, blue is pushed."""
    share = tensions / most if most > 0.0 else np.zeros(len(tensions))
    return 255.0 * colormaps["coolwarm"](0.5 + 0.5 * np.clip(np.nan_to_num(share), -1.0, 1.0))[:, :3]


class Surface(NamedTuple):
    """Triangles, counter-clockwise seen from outside."""

    vertices: Floats  # [v, 3]: m
    faces: Integers  # [f, 3]: numbers of vertices


def box() -> Surface:
    """Give a cube with edges of 1."""
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    # Each side has corners of its own, so that light breaks at the edges.
    vertices = corners[np.array(quads).ravel()]
    faces = [(4 * k + a, 4 * k + b, 4 * k + c) for k in range(6) for a, b, c in ((0, 1, 2), (0, 2, 3))]
    return Surface(vertices, np.array(faces))


def turned(profile: Floats, sides: int) -> Surface:
    """Give the surface that a profile makes as it turns about z.

    Parameters
    ----------
    profile : array [n, 2]
        Distance from z, and height, upward; the first and the last one on the axis.
    sides : int
        Corners of a circle.
    """
    angle = 2.0 * np.pi * np.arange(sides) / sides
    rings = [np.column_stack([r * np.cos(angle), r * np.sin(angle), np.full(sides, z)]) for r, z in profile[1:-1]]
    ends = [[0.0, 0.0, profile[0, 1]], [0.0, 0.0, profile[-1, 1]]]
    vertices = np.vstack([*rings, ends])
    low, high = len(vertices) - 2, len(vertices) - 1
    k, following = np.arange(sides), (np.arange(sides) + 1) % sides
    faces = [np.column_stack([np.full(sides, low), following, k])]
    for ring in range(len(rings) - 1):
        a, b = ring * sides + k, ring * sides + following
        faces += [np.column_stack([a, b, b + sides]), np.column_stack([a, b + sides, a + sides])]
    top = (len(rings) - 1) * sides
    faces.append(np.column_stack([np.full(sides, high), top + k, top + following]))
    return Surface(vertices, np.vstack(faces))


def capsule(straight: float, sides: int) -> Surface:
    """Give a capsule of radius 1 whose caps have centers so far apart: a sphere for 0."""
    count = max(1, sides // 4)  # rings of a cap
    angle = 0.5 * np.pi * np.arange(count + 1) / count
    lower = np.column_stack([np.sin(angle), -np.cos(angle) - 0.5 * straight])
    upper = np.column_stack([np.cos(angle), np.sin(angle) + 0.5 * straight])
    return turned(np.vstack([lower, upper[1:] if straight == 0.0 else upper]), sides)


def cylinder(sides: int) -> Surface:
    """Give a cylinder of radius 1 and length 1; its ends have corners of their own."""
    return turned(np.array([(0, -0.5), (1, -0.5), (1, -0.5), (1, 0.5), (1, 0.5), (0, 0.5)], float), sides)


THICK, THIN = 0.06, 0.0015  # radius of a link, over the median of their lengths; at the least over all that is seen
PALETTE = np.array([(78, 121, 167), (242, 142, 43), (89, 161, 79), (225, 87, 89), (118, 183, 178), (176, 122, 161)])
TIES = np.array([(60.0, 60.0, 60.0), (200.0, 60.0, 160.0)])  # colors of springs, and of joints that close loops
FINE, COARSE, MANY = 20, 4, 2000  # corners of a circle, of few and of many instances
_STEP = 0.15  # of the logarithm of a capsule's slenderness: all within share a surface, stretched a little


class Instances(NamedTuple):
    """Instances of one surface."""

    surface: Surface
    bodies: Integers  # [n]: on which each stands
    position: Floats  # [n, 3]: m, in the body's frame
    quaternion: Floats  # [n, 4]: w x y z, in the body's frame
    scale: Floats  # [n, 3]
    color: Floats  # [n, 3]: 0 to 255

    def placed(self, poses: Floats) -> tuple[Floats, Floats]:
        """Positions [n, 3] and quaternions [n, 4] in the world, of the poses of all bodies [bodies, 7]."""
        own = poses[self.bodies]
        turn = turns_of(own)
        quaternions = turn * Rotation.from_quat(self.quaternion, scalar_first=True)
        return own[:, :3] + turn.apply(self.position), quaternions.as_quat(scalar_first=True)

    def vertices(self, poses: Floats) -> Floats:
        """Vertices of all instances [n, v, 3] in the world (m), of the poses of all bodies [bodies, 7]."""
        positions, quaternions = self.placed(poses)
        turn = Rotation.from_quat(quaternions, scalar_first=True).as_matrix()
        scaled = self.scale[:, None, :] * self.surface.vertices
        return scaled @ np.swapaxes(turn, 1, 2) + positions[:, None]


class Ties(NamedTuple):
    """Thin lines between points of bodies: springs, and from bodies to the joints that close loops."""

    bodies: Integers  # [n, 2]: of either end; -1 the world
    points: Floats  # [n, 2, 3]: m, in the frame of the body
    color: Floats  # [n, 3]: 0 to 255

    def placed(self, poses: Floats) -> Floats:
        """Give both ends of each [n, 2, 3] in the world (m), for poses of all bodies [bodies, 7]."""
        world = np.array([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])
        own = np.concatenate([poses, world])[self.bodies.ravel()]
        return (own[:, :3] + turns_of(own).apply(self.points.reshape(-1, 3))).reshape(self.points.shape)


class _Piece(NamedTuple):
    key: Any
    body: int
    position: Any
    quaternion: Any
    scale: Any
    color: Any


class Scene:
    """The surfaces and lines that are drawn of a system.

    Parameters
    ----------
    system : Contents
        Bodies with a geometry are drawn as that; others as capsules from their joints to the next ones.
    folder : Path
        Where files of meshes are named from.
    bodies : array [n], optional
        Those that are drawn.
    size : float
        Of all that is seen (m): links are so thick that they are.
    sides : int, optional
        Corners of a circle; fewer for many instances by default.
    """

    def __init__(
        self,
        system: Contents,
        folder: Path = Path(),
        bodies: Integers | None = None,
        size: float = 0.0,
        sides: int | None = None,
    ) -> None:
        self.missing: list[str] = []  # files of meshes that can't be read; capsules stand for these bodies
        self._links = _links(system)
        self.ties = _ties(system, bodies)  # of bodies that are drawn, and of the world
        lengths = [float(np.linalg.norm(end)) for ends in self._links for end in ends]
        typical = float(np.median([length for length in lengths if length > 0.0] or [1.0]))
        self.thickness = max(THICK * typical, THIN * size)  # radius of links (m)
        self._files: dict[str, Surface | None] = {}
        self._folder = folder
        drawn = range(system.n_bodies) if bodies is None else bodies.tolist()
        pieces = [piece for k in drawn for piece in self._pieces(system, k)]
        sides = sides or (FINE if len(pieces) <= MANY else COARSE)
        groups: dict[Any, list[_Piece]] = {}
        for piece in pieces:
            groups.setdefault(piece.key, []).append(piece)
        self.batches = [self._instances(key, group, sides) for key, group in groups.items()]

    @property
    def faces(self) -> Integers:
        """Triangles of all instances [f, 3], by numbers of vertices: batch behind batch, instance behind instance."""
        found, begin = [], 0
        for batch in self.batches:
            count = len(batch.surface.vertices)
            first = begin + count * np.arange(len(batch.bodies))
            found.append((first[:, None, None] + batch.surface.faces).reshape(-1, 3))
            begin += count * len(batch.bodies)
        return np.concatenate(found)

    def _pieces(self, system: Contents, k: int) -> list[_Piece]:
        found = []
        for shape in system.body(k).geometry:
            color = PALETTE[k % len(PALETTE)] if shape.color is None else 255.0 * np.array(shape.color[:3])
            place = k, shape.position, shape.rotation
            size = np.array(shape.size, float)
            if shape.kind == "box":
                found.append(_Piece("box", *place, size, color))
            elif shape.kind == "sphere":
                found.append(_Piece(("capsule", None), *place, np.full(3, size[0]), color))
            elif shape.kind == "cylinder":
                found.append(_Piece("cylinder", *place, size[[0, 0, 1]], color))
            elif shape.kind == "capsule":
                found.append(_capsule(*place, size[0], size[1], color))
            elif self._read(shape.file) is not None:
                found.append(_Piece(("mesh", shape.file), *place, size, color))
        return found or [self._link(k, end) for end in self._links[k]]

    def _link(self, k: int, end: Floats) -> _Piece:
        """A capsule from the origin of a body to a place in its frame."""
        length = float(np.linalg.norm(end))
        x, y, z = end / length if length else (0.0, 0.0, 1.0)
        # Turns z to the direction, about an axis across both.
        quaternion = np.array([1.0 + z, -y, x, 0.0]) if z > -1.0 + 1e-12 else np.array([0.0, 1.0, 0.0, 0.0])
        quaternion = quaternion / np.linalg.norm(quaternion)
        return _capsule(k, 0.5 * end, quaternion, self.thickness, length, PALETTE[k % len(PALETTE)])

    def _read(self, name: str) -> Surface | None:
        """The surface in a file, once."""
        if name not in self._files:
            self._files[name] = _read_mesh(self._folder / name)
            if self._files[name] is None:
                self.missing.append(name)
        return self._files[name]

    def _instances(self, key: Any, pieces: list[_Piece], sides: int) -> Instances:
        _, bodies, position, quaternion, scale, color = zip(*pieces, strict=True)
        surface = self._surface(key, sides)
        numbers = (np.array(values, float) for values in (position, quaternion, scale, color))
        return Instances(surface, np.array(bodies, np.int64), *numbers)

    def _surface(self, key: Any, sides: int) -> Surface:
        if key == "box":
            return box()
        if key == "cylinder":
            return cylinder(sides)
        kind, which = key
        if kind == "mesh":
            found = self._files[which]
            assert found is not None
            return found
        return capsule(0.0 if which is None else float(np.exp(_STEP * which)), sides)


def _ties(system: Contents, drawn: Integers | None) -> Ties:
    """The springs of a system; of the joints that close loops the lines to them from the origins of their bodies."""
    ends = [*system.springs.bodies]
    points = [spring.positions for spring in system.springs.values()]
    for pair, loop in system.loops.joints:
        for body, point in zip(pair, loop.positions, strict=True):
            if body >= 0 and any(point):
                ends.append((body, body))
                points.append(((0.0, 0.0, 0.0), point))
    springs = len(system.springs)
    color = np.repeat(TIES, [springs, len(ends) - springs], axis=0)
    bodies = np.array(ends, np.int64).reshape(-1, 2)
    kept = np.full(len(bodies), True) if drawn is None else np.isin(bodies, [-1, *drawn.tolist()]).all(axis=1)
    return Ties(bodies[kept], np.array(points, np.float64).reshape(-1, 2, 3)[kept], color[kept])


def _capsule(body: int, position: Any, quaternion: Any, radius: float, straight: float, color: Any) -> _Piece:
    """A capsule, by the surface of those nearly as slender, stretched along z."""
    if straight <= 1e-3 * radius:
        return _Piece(("capsule", None), body, position, quaternion, np.full(3, radius), color)
    number = round(float(np.log(straight / radius)) / _STEP)
    stretch = (straight + 2.0 * radius) / (float(np.exp(_STEP * number)) + 2.0)
    return _Piece(("capsule", number), body, position, quaternion, np.array([radius, radius, stretch]), color)


def _links(system: Contents) -> list[list[Floats]]:
    """Give of each body the places in its frame, from its origin to which it is drawn: joints of others, or beyond its
    center of mass as far as before it."""
    columns = system.columns()
    links: list[list[Floats]] = [[] for _ in range(system.n_bodies)]
    for parent, position in zip(columns.parent.tolist(), columns.position, strict=True):
        if parent >= 0 and not any(np.allclose(position, end) for end in links[parent]) and np.any(position):
            links[parent].append(position)
    return [ends or [2.0 * center] for ends, center in zip(links, columns.center_of_mass, strict=True)]


def _read_mesh(path: Path) -> Surface | None:
    try:
        import trimesh

        mesh: Any = trimesh.load(path, force="mesh")
        return Surface(np.asarray(mesh.vertices, np.float64), np.asarray(mesh.faces, np.int64))
    except Exception:  # of a file that is not there, or broken, in any of many formats
        return None


def turns_of(poses: Floats) -> Rotation:
    """How bodies are turned, of their poses [n, 7]; not at all where these are not a number."""
    return Rotation.from_quat(np.where(np.isfinite(poses[:, 3:]), poses[:, 3:], (1, 0, 0, 0)), scalar_first=True)


def bounds(places: Floats) -> tuple[Floats, Floats]:
    """Lowest and highest coordinates [3] of places [..., 3] (m), but of those that are not a number."""
    flat = places.reshape(-1, 3)
    return np.nanmin(flat, axis=0), np.nanmax(flat, axis=0)
