"""Pictures of partitions: every body in its layer and in its rank's colour."""

import numpy as np
import pytest
from hypothesis import given
from matplotlib.collections import LineCollection, PathCollection

from mpimbs.model import system_from
from mpimbs.model.order.order import Order
from mpimbs.model.order.segments import Integers
from mpimbs.partition.shares import shares
from mpimbs.plots import partition_pictures
from mpimbs.plots.partition_pictures import draw_partition, drawn_bodies, layered
from oracles.random_systems import SETTINGS
from oracles.trees import parents


@SETTINGS
@given(parents())
def test_layers_of_a_tree(parent: Integers) -> None:
    """Bodies of a layer are apart, in the order of their parents; above each stands its last child."""
    order = Order(len(parent), parent)
    across, depth = layered(order.parents)
    below = np.flatnonzero(order.parents >= 0)
    assert np.array_equal(depth[below], depth[order.parents[below]] + 1) and not depth[order.parents < 0].any()
    for layer in range(int(depth.max()) + 1):
        assert np.all(np.diff(across[depth == layer]) >= 1.0 - 1e-9)
    carrying = np.flatnonzero(order.last_children >= 0)
    assert np.allclose(across[carrying], across[order.last_children[carrying]])


def test_small_subtrees_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_pictures, "MOST_DRAWN", 40)
    order = Order.of(system_from("tree:6:2").contents)
    drawn, least = drawn_bodies(order.ends - np.arange(order.n))
    assert least == 4 and len(drawn) == 31 and np.isin(order.parents[drawn], [-1, *drawn]).all()
    flat = Order(100, np.full(100, -1))
    assert len(drawn_bodies(flat.ends - np.arange(100))[0]) == 100


@pytest.mark.parametrize(("spec", "ranks"), [("tree:6:2", 3), ("caterpillar:40", 12), ("chain:9", 1), ("crowd:3", 2)])
def test_a_partition_is_drawn(spec: str, ranks: int) -> None:
    """As many dots as bodies, in as many colours as there are ranks; a black line for each cut joint."""
    system = system_from(spec)
    order, owned = shares(system.contents, ranks)
    figure = draw_partition(system.contents, order, owned)
    axes = figure.axes[0]
    (dots,) = [c for c in axes.collections if isinstance(c, PathCollection)]
    assert len(dots.get_offsets()) == system.n_bodies
    assert len(np.unique(dots.get_facecolors(), axis=0)) == ranks
    whole, cut = (len(c.get_segments()) for c in axes.collections if isinstance(c, LineCollection))
    parents = (order or Order.of(system.contents)).parents
    rank = np.searchsorted([share.first for share in owned], np.arange(system.n_bodies), "right")
    below = np.flatnonzero(parents >= 0)
    assert whole + cut == len(below) and cut == np.count_nonzero(rank[below] != rank[parents[below]])
