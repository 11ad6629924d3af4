"""Wrenches on bodies that the model gives: constant or functions of time, in the frames of bodies or in the world's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.forces.calls import RowsArrays, TimeFunctions
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.parts.subchain import Subchain
from mpimbs.spatial.vectors import add3, add6, cross, rotate
from mpimbs.sweep.structure import BOUNDARY


class WrenchArrays(NamedTuple):
    """Wrenches on bodies, as compiled code reads them."""

    own: Floats  # [m * 6]: those constant in bodies' frames, on the steps, in theirs; empty where no wrench is given
    steps: Integers  # [n]: that carry the bodies of the others
    in_world: Integers  # [n]: whether their components are the world's
    frames: Floats  # [n * 9]: body frame to step frame components
    points: Floats  # [n * 3]: where they act, in the steps' frames (m)
    numbers: Floats  # [n * 6]: moments and forces (N m, N)
    rows: RowsArrays  # those over time, by rows
    over_time: Integers  # which of the numbers are over time


@kernel
def take_functions(w):
    """Take the values of functions of time that were found."""
    for i in range(w.over_time.size):
        w.numbers[w.over_time[i]] = w.rows.values[i]


@kernel
def set_wrenches(w, motion, wrench):
    """Set the wrenches on the steps [m * 6], at their origins, in their frames, given the steps' motions."""
    for i in range(wrench.size):
        wrench[i] = w.own[i] if w.own.size > 0 else 0.0
    for k in range(w.steps.size):
        step = w.steps[k]
        turn = load9(0.0, motion, step * BOUNDARY) if w.in_world[k] else load9(0.0, w.frames, 9 * k)
        f = rotate(turn, load3(0.0, w.numbers, 6 * k + 3))
        n = add3(rotate(turn, load3(0.0, w.numbers, 6 * k)), cross(load3(0.0, w.points, 3 * k), f))
        store_numbers(0.0, wrench, 6 * step, add6(load6(0.0, wrench, 6 * step), n + f))


class ActingWrenches:
    """The wrenches on the bodies of a subchain."""

    def __init__(self, subchain: Subchain) -> None:
        given = subchain.columns.wrenches
        self._count = len(given)
        own = np.zeros((len(subchain.structure.steps) if given else 0, 2, 3))
        others = []
        for body, wrench in given:
            if wrench.frame == "world" or callable(wrench.moment) or callable(wrench.force):
                others.append((body, wrench))
                continue
            (step,), (frame,) = subchain.carriers(np.array([body]))
            force = np.array(wrench.force)
            own[step] += np.stack([wrench.moment + np.cross(wrench.point, force), force]) @ frame
        steps, frames = np.zeros(0, np.int64), np.zeros((0, 3, 3))
        if others:
            steps, frames = subchain.carriers(np.array([body for body, _ in others]))
        points = np.array([wrench.point for _, wrench in others]).reshape(-1, 3)
        numbers, functions, over_time = np.zeros((len(others), 2, 3)), [], [np.zeros(0, np.int64)]
        for k, (body, wrench) in enumerate(others):
            title = f"the wrench function of body '{subchain.name_of(body)}'"
            for i, value in enumerate((wrench.moment, wrench.force)):
                if callable(value):
                    functions.append((title, value, 3))
                    over_time.append(6 * k + 3 * i + np.arange(3))
                else:
                    numbers[k, i] = value
        self.functions = TimeFunctions(functions, one_for_all=False)  # moments and forces over time
        world = np.array([wrench.frame == "world" for _, wrench in others], np.int64)
        self.in_world = bool(world.any())  # whether any has components that are the world's
        turns = np.swapaxes(frames, 1, 2)
        self.arrays = WrenchArrays(
            own.ravel(), steps, world, turns.ravel(), np.einsum("nij,nj->ni", turns, points).ravel(), numbers.ravel(),
            self.functions.rows, np.concatenate(over_time),
        )  # fmt: skip

    def __bool__(self) -> bool:
        return self._count > 0
