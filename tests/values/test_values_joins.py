"""Joins of two values against dense equations of all their unknowns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mpimbs.kernels.memory import aligned_zeros
from mpimbs.spatial.rows import ROW
from mpimbs.values.joining import joined
from mpimbs.values.joins import join, spread
from mpimbs.values.value import (
    LOOP,
    OPEN_BODY,
    SIX,
    TO_WORLD,
    Description,
    LoadGroup,
    Room,
    block_at,
    compliance_at,
    noise_at,
    transfer_at,
    without_loops,
)
from tolerances import assert_close

CASES = {
    "a chain": (without_loops(4, [-1], [(3, 9)]), without_loops(9, [3], [(8, 12)])),
    "two bodies of a path, one of which stays open": (
        without_loops(4, [-1, 2], [(2, 12), (3, 9)]),
        without_loops(9, [3, 2, -1], [(8, 12)]),
    ),
    "on bodies further outside": (without_loops(6, [4], []), without_loops(9, [2, 4], [(8, 12), (7, 12)], 1)),
    "nothing in common": (without_loops(6, [4], []), without_loops(9, [2], [(8, 12)])),
    "a loop between two components, closed where they meet": (
        Description(4, [-1], [LoadGroup(3, 9, (0,), OPEN_BODY), LoadGroup(100, 1, (0,), LOOP)], True),
        Description(9, [3], [LoadGroup(8, 12, (0,), OPEN_BODY), LoadGroup(100, 1, (0,), LOOP)], True),
    ),
    "loops over two slots, to the world, and of two components of the right one": (
        Description(
            6,
            [-1, 1],
            [LoadGroup(4, 9, (1,), OPEN_BODY), LoadGroup(100, 1, (0, 1), LOOP), LoadGroup(102, 0, (1,), TO_WORLD)],
            True,
        ),
        Description(
            9,
            [4, 1, -1],
            [
                LoadGroup(8, 12, (0,), OPEN_BODY),
                LoadGroup(100, 1, (1,), LOOP),
                LoadGroup(101, 0, (0, 1), LOOP),
                LoadGroup(103, 0, (2,), TO_WORLD),
            ],
            True,
        ),
    ),
    "two components on one path, with loops between them and to others": (
        Description(
            14,
            [0, 9],
            [LoadGroup(41, 1, (1,), LOOP), LoadGroup(12, 21, (0,), OPEN_BODY), LoadGroup(13, 50, (0,), OPEN_BODY)],
            True,
        ),
        Description(
            40,
            [12, 13, -1],
            [
                LoadGroup(49, 0, (1, 2), LOOP),
                LoadGroup(43, 0, (1,), TO_WORLD),
                LoadGroup(44, 0, (0, 1), LOOP),
                LoadGroup(45, 0, (1, 2), LOOP),
                LoadGroup(42, 0, (0, 2), LOOP),
            ],
            True,
        ),
    ),
}


def value_of(description: Description, room: Room, rng: np.random.Generator) -> np.ndarray:
    """Make up a value: compliances of groups that share a slot, all parts of one that is positive definite."""
    value = aligned_zeros(room.size())

    def write(at: int, matrix: np.ndarray, beside: np.ndarray | float = 0.0) -> None:
        block = value[at : at + SIX].reshape(6, ROW)
        block[:, :6] += matrix
        block[:, 6] += beside

    for slot in range(len(description.slots)):
        a = rng.normal(size=(6, 6))
        write(block_at.py_func(room, slot), np.eye(6) + a @ a.T, rng.normal(size=6))
        groups = [k for k, group in enumerate(description.groups) if slot in group.slots]
        s = rng.normal(size=(len(groups), 6, 8))
        for (k, of_k), (m, of_m) in itertools.product(zip(groups, s, strict=True), repeat=2):
            write(
                compliance_at.py_func(room, k, m), of_k @ of_m.T + (k == m) * np.eye(6), (k == m) * rng.normal(size=6)
            )
    for number, _ in enumerate(description.transfers):
        write(transfer_at.py_func(room, number), rng.normal(size=(6, 6)))
    return value


def matrices(value: Description, room: Room, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the equations of an array as one matrix, f and y of A and x: -E beside I; their constants.

    Six rows and columns for each slot, then for each group.
    """
    slots, groups = len(value.slots), len(value.groups)
    matrix, constants = np.zeros((slots + groups, 6, slots + groups, 6)), np.zeros((slots + groups, 6))

    def block(at: int) -> np.ndarray:
        return numbers[at : at + SIX].reshape(6, ROW)

    for slot in range(slots):
        own = block(block_at.py_func(room, slot))
        matrix[slot, :, slot], constants[slot] = own[:, :6], own[:, 6]
    for number, (slot, group) in enumerate(value.transfers):
        e = block(transfer_at.py_func(room, number))[:, :6]
        matrix[slot, :, slots + group], matrix[slots + group, :, slot] = -e, e.T
    for group in range(groups):
        for other in range(groups):
            matrix[slots + group, :, slots + other] = block(compliance_at.py_func(room, group, other))[:, :6]
        constants[slots + group] = block(compliance_at.py_func(room, group, group))[:, 6]
    size = 6 * (slots + groups)
    return matrix.reshape(size, size), constants.ravel()


def dense(left, right, equations, out: Description, outer):
    """Accelerations and loads of both [n, 6], and f and y of the joined value, of the equations of each."""
    bounds = np.cumsum([0, *(len(part) for value in (left, right) for part in (value.slots, value.groups))])
    a_left, x_left, a_right, x_right = (list(range(*ends)) for ends in itertools.pairwise(bounds.tolist()))
    n = int(bounds[-1])
    size = 6 * n
    whole, constants = np.zeros((size, size)), np.concatenate([found[1] for found in equations])
    cut = 6 * int(bounds[2])
    whole[:cut, :cut], whole[cut:, cut:] = equations[0][0], equations[1][0]
    given, known = np.zeros((size, size)), np.zeros(size)
    result, beside = np.zeros((len(outer) * 6, size)), np.zeros(len(outer) * 6)

    def rows(k):
        return slice(6 * k, 6 * k + 6)

    def is_given(k, place):
        given[rows(k), rows(k)], known[rows(k)] = np.eye(6), outer[place]

    def equal(k, other):
        given[rows(k), rows(k)], given[rows(k), rows(other)] = np.eye(6), -np.eye(6)

    def give(k, place):
        result[rows(place)] += whole[rows(k)]
        beside[rows(place)] += constants[rows(k)]

    slots = {}
    for k, body in zip(a_left, left.slots, strict=True):
        is_given(k, out.slots.index(body))
        give(k, out.slots.index(body))
        slots[body] = k
    places = {group.number: len(out.slots) + k for k, group in enumerate(out.groups)}
    opened = {group.number: k for k, group in zip(x_left, left.groups, strict=True)}
    for group, k in zip(left.groups, x_left, strict=True):
        if group.number in places:
            is_given(k, places[group.number])
            give(k, places[group.number])
        elif group.sort == OPEN_BODY:
            given[rows(k), rows(k)] = np.eye(6)
        else:  # closed: y = 0
            given[rows(k)] += whole[rows(k)]
            known[rows(k)] -= constants[rows(k)]
    for k, body in zip(a_right, right.slots, strict=True):
        if body in opened:  # A = y, and x + f is what acts from outside
            j = opened[body]
            given[rows(k), rows(k)] += np.eye(6)
            given[rows(k)] -= whole[rows(j)]
            known[rows(k)] += constants[rows(j)]
            given[rows(j)] += whole[rows(k)]
            known[rows(j)] -= constants[rows(k)]
        elif body in slots:
            equal(k, slots[body])
            give(k, out.slots.index(body))
        else:
            is_given(k, out.slots.index(body))
            give(k, out.slots.index(body))
    for group, k in zip(right.groups, x_right, strict=True):
        if group.number in opened:
            equal(k, opened[group.number])
            if group.number in places:
                give(k, places[group.number])
            else:
                given[rows(opened[group.number])] += whole[rows(k)]
                known[rows(opened[group.number])] -= constants[rows(k)]
        elif group.number in places:
            is_given(k, places[group.number])
            give(k, places[group.number])
        else:
            given[rows(k)] += whole[rows(k)]
            known[rows(k)] -= constants[rows(k)]
    found = np.linalg.solve(given, known)
    return found.reshape(n, 6), (result @ found + beside).reshape(-1, 6)


def with_room(room: Room) -> Room:
    """More room than is needed, as where values of several intervals are alike."""
    return Room(room.inboard + 1, room.open + 2, room.transfers + 1, room.loops)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("roomy", [False, True])
def test_a_join_is_what_dense_equations_say(name, roomy):
    rng = np.random.default_rng(7)
    left, right = CASES[name]
    rooms = [with_room(value.room) if roomy else value.room for value in (left, right)]
    values = [value_of(value, room, rng) for value, room in zip((left, right), rooms, strict=True)]
    equations = [
        matrices(value, room, numbers) for value, room, numbers in zip((left, right), rooms, values, strict=True)
    ]
    found = joined(left, right, *rooms)
    room = found.value.room
    out, work, kept, scratch = (aligned_zeros(size) for size in (room.size(), found.work, found.kept, found.scratch))
    work[:], kept[:], scratch[:] = np.nan, np.nan, np.nan  # nothing is read that was not written
    rows, lists = found.tables()
    join(rows, 0, len(found.up), lists, *values, work, out, kept, scratch)
    outer = rng.normal(size=(room.inboard + room.open, 6))
    halves = [np.full((room.inboard + room.open, 6), np.nan) for room in rooms]
    given = values[1], kept, outer.ravel(), halves[0].ravel(), halves[1].ravel(), scratch
    spread(rows, len(found.up), len(rows), lists, *given)
    expected, results = dense(left, right, equations, found.value, outer)
    matrix, constants = matrices(found.value, room, out)
    both = [
        numbers[at : at + count]
        for numbers, value, room in zip(halves, (left, right), rooms, strict=True)
        for at, count in ((0, len(value.slots)), (room.inboard, len(value.groups)))
    ]
    assert_close("accelerations and loads", np.concatenate(both), expected, "boundary")
    acting = (matrix @ outer.ravel() + constants).reshape(-1, 6)
    assert_close("loads and accelerations outside", acting, results, "boundary")
    if left.loops:
        assert out[noise_at.py_func(room, room.open)] == 6 * found.closed


def test_what_is_joined():
    found = joined(*CASES["loops over two slots, to the world, and of two components of the right one"])
    assert found.value.slots == [-1, 1]
    numbers = {group.number: (group.slots, group.sort) for group in found.value.groups}
    assert numbers == {8: ((1,), OPEN_BODY), 100: ((0, 1), LOOP), 102: ((1,), TO_WORLD)}
    assert found.closed == 2
