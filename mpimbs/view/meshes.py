"""Surfaces of simple shapes as triangles, about their centers, what is long along z."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


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
