"""The arrays that the sweeps run over: frames, order, junctions."""

import numpy as np
import pytest

from mpimbs.model import System, system_from
from mpimbs.sweep.build import _weights, build, different_rows, turned_to
from mpimbs.sweep.structure import BODY, CARRIED, FIXED, SINK, SOURCE
from oracles.random_systems import random_system
from tolerances import assert_close


def test_different_rows() -> None:
    """Numbered as they first come, told apart by their bits, and also where their weighted sums are one."""
    rows = np.random.default_rng(3).normal(size=(50, 4))[np.random.default_rng(4).integers(0, 50, 300)]
    rows[7] = 0.0
    rows[8] = -rows[7]
    a, b, *_ = _weights(4)
    rows[20].view(np.uint64)[:2] = rows[5].view(np.uint64)[:2] + np.array([b, ~a + np.uint64(1)])
    rows[20, 2:] = rows[5, 2:]
    assert rows[20].tobytes() != rows[5].tobytes()
    for table in (rows, np.delete(rows, 20, axis=0)):
        different, which = different_rows(table)
        assert different[which].tobytes() == table.tobytes()
        first = [which.tolist().index(k) for k in range(len(different))]
        assert first == sorted(first)
        assert len({row.tobytes() for row in table}) == len(different)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("axis", range(3))
def test_frames_of_coordinate_axes_are_permutations(axis: int, sign: float) -> None:
    frame = turned_to(sign * np.eye(3)[axis][None])[0]
    assert set(np.abs(frame).ravel()) == {0.0, 1.0}
    assert np.array_equal(frame[:, 2], sign * np.eye(3)[axis])
    assert np.linalg.det(frame) == 1.0


def test_frames_of_any_axis() -> None:
    axes = np.random.default_rng(0).normal(size=(50, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    frames = turned_to(axes)
    assert_close("z columns", frames[:, :, 2], axes, "rounding")
    assert_close("F^T F", np.swapaxes(frames, 1, 2) @ frames, np.broadcast_to(np.eye(3), frames.shape), "rounding")
    assert_close("determinants", np.linalg.det(frames), np.ones(50), "rounding")


def test_a_chain_has_no_junction_but_the_boundary() -> None:
    built = build(system_from("spatial_chain:6").columns())
    assert built.junctions == 1
    assert built.structure.steps[:, SOURCE].tolist() == [0] + [CARRIED] * 5
    assert built.structure.steps[:, SINK].tolist() == [-1] * 6


@pytest.mark.parametrize("seed", range(5))
def test_junctions_of_a_tree(seed: int) -> None:
    """A step takes its motion from the step before it or from a junction that its parent has filled before."""
    system = random_system(seed, 20, False)[0]
    built = build(system.columns())
    steps, parent = built.structure.steps, system.columns().parent
    carrier = {int(step): body for body, step in enumerate(built.body_step)}
    filled = {0: -1}
    first = 0
    for body in np.argsort(built.body_step):
        source = steps[first, SOURCE]
        got = carrier[first - 1] if source == CARRIED else filled[source]
        assert got == parent[body], f"body {body} hangs on {got} in place of {parent[body]}"
        last = int(built.body_step[body])
        if steps[last, SINK] >= 0:
            filled[int(steps[last, SINK])] = int(body)
        first = last + 1
    assert len(filled) == built.junctions


@pytest.mark.parametrize("spec", ["crowd:3", "tree:4:3", "caterpillar:5"])
def test_bodies_that_are_alike_are_made_as_each_alone(spec: str) -> None:
    """The same numbers as of a system in which every body is a template of its own."""
    system = system_from(spec)
    alone = System(gravity=system.gravity)
    for body in system.bodies():
        alone.add(body)
    ours, reference = (build(s.columns()) for s in (system, alone))
    for name in ("body_step", "body_frame"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(reference, name), name)
    a, b = ours.structure, reference.structure
    rows = [s.fixed.reshape(-1, FIXED)[s.steps[:, BODY]] for s in (a, b)]
    np.testing.assert_array_equal(*rows)
    for name in ("axes", "pitch"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), name)
