"""The standard systems against hand values, and the texts that name them."""

import re

import numpy as np
import pytest

from mpimbs.base.errors import InputError
from mpimbs.model import GENERATORS, system_from
from mpimbs.model.order.order import Order
from oracles.dense import kinematics


@pytest.mark.parametrize("spec", ["chain16", "chain:16"])
def test_the_chain_of_the_paper(spec):
    system = system_from(spec)
    table = system.columns()
    assert system.gravity == (0, -9.81, 0)
    assert system.is_chain
    assert set(table.joint_type) == {1}
    np.testing.assert_array_equal(table.mass, np.ones(16))
    np.testing.assert_array_equal(table.center_of_mass, np.tile([0, -1, 0], (16, 1)))
    np.testing.assert_array_equal(table.inertia, np.tile([1, 1, 1, 0, 0, 0], (16, 1)))
    np.testing.assert_array_equal(table.position, [[0, 0, 0]] + [[0, -2, 0]] * 15)
    np.testing.assert_array_equal(table.axis, np.tile([0, 0, 1], (16, 1)))
    np.testing.assert_array_equal(table.q, [0.1745] * 12 + [-0.1745] * 4)
    np.testing.assert_array_equal(table.u, np.zeros(16))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 1000])
def test_three_quarters_of_a_chain_bend_one_way(n):
    q = system_from(f"chain:{n}").columns().q
    assert len(q) == n
    assert np.count_nonzero(q > 0) == 3 * n // 4
    assert np.all(np.diff(np.sign(q)) <= 0)


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_the_axes_of_a_spatial_chain_alternate(n):
    table = system_from(f"spatial_chain:{n}").columns()
    np.testing.assert_array_equal(table.axis, [[0, 0, 1], [1, 0, 0]] * (n // 2) + [[0, 0, 1]] * (n % 2))
    np.testing.assert_array_equal(table.position[:, 1], [0] + [-2] * (n - 1))


@pytest.mark.parametrize("n", [1, 4])
def test_a_free_chain_is_free_at_its_root(n):
    system = system_from(f"free_chain:{n}")
    assert system.is_chain
    assert system.joint_types().tolist() == [8] + [1] * (n - 1)
    assert (system.nq, system.nu) == (6 + n, 5 + n)
    assert system.columns().axis[1:].tolist() == ([[1, 0, 0], [0, 0, 1]] * n)[: n - 1]


@pytest.mark.parametrize("n", [1, 50])
def test_a_rope_lies_on_an_arc_of_one_radian(n):
    system = system_from(f"rope:{n}")
    table = system.columns()
    assert set(table.joint_type) == {6}
    half_angles = np.arccos(table.q.reshape(n, 4)[:, 0])
    np.testing.assert_allclose(2 * half_angles.sum(), 1, rtol=1e-10)
    np.testing.assert_array_equal(table.position[:, 0], [0] + [0.1] * (n - 1))
    assert table.stiffness.min() > 0
    assert table.damping.min() > 0


@pytest.mark.parametrize(("depth", "branching", "n"), [(1, 1, 2), (3, 2, 15), (2, 3, 13), (40, 1, 41)])
def test_a_tree_has_its_levels_and_branches(depth, branching, n):
    system = system_from(f"tree:{depth}:{branching}")
    assert system.n_bodies == n
    assert system.summary().depth == depth + 1
    parents = system.parents()
    assert np.all(parents < np.arange(n))
    children = np.bincount(parents[1:], minlength=n)
    assert set(children) == {0, branching}
    assert len({tuple(row) for row in system.columns().axis.round(6)}) >= 2


def test_a_random_tree_is_the_same_everywhere():
    """Parents of the first ones by hand; nearly even over those before; another seed draws another one."""
    system = system_from("random_tree:20000")
    parents, n = system.parents(), 20000
    assert parents[:8].tolist() == [-1, 0, 1, 0, 2, 2, 0, 2] and np.all(parents[1:] < np.arange(1, n))
    place = parents[1000:] / np.arange(1000, n)
    assert np.abs(np.histogram(place, 10, (0, 1))[0] / len(place) - 0.1).max() < 0.01
    assert 5 * np.log(n) > system.summary().depth > np.log(n)
    assert np.array_equal(parents, system_from("random_tree:20000:1").parents())
    assert not np.array_equal(parents, system_from("random_tree:20000:2").parents())
    assert len(np.unique(system.columns().axis, axis=0)) >= 6


def test_the_figure_is_symmetric():
    system = system_from("figure")
    assert (system.n_bodies, system.nu, system.nq) == (15, 36, 36 + 7)
    assert 70 <= system.summary().total_mass <= 80
    table, parents = system.columns(), system.parents()
    names = [system.name_of(k) for k in range(15)]
    swap = {"left": "right", "right": "left"}
    mirrored = ["_".join([swap.get(side, side), *rest]) for side, *rest in (name.split("_") for name in names)]
    other = np.array([names.index(name) for name in mirrored])
    assert np.count_nonzero(other != np.arange(15)) == 12
    for k, parent in enumerate(parents[1:], 1):
        assert parents[other[k]] == other[parent]
    np.testing.assert_array_equal(table.joint_type[other], table.joint_type)
    np.testing.assert_array_equal(table.mass[other], table.mass)
    np.testing.assert_array_equal(table.inertia[other], table.inertia * [1, 1, 1, 1, -1, -1])
    for vectors in (table.position, table.center_of_mass):
        np.testing.assert_array_equal(vectors[other], vectors * [1, 1, -1])


@pytest.mark.parametrize(("spec", "freedoms", "bodies"), [("figure34", 34, 13), ("figure48", 48, 19)])
def test_the_figures_of_measured_bodies(spec, freedoms, bodies):
    """Degrees of freedom of the paper; mass and height of the table; the same on both sides."""
    system = system_from(spec)
    assert (system.nu, system.n_bodies) == (freedoms, bodies)
    np.testing.assert_allclose(system.summary().total_mass, 73.0, rtol=1e-12)
    assert Order.of(system).is_identity
    m = kinematics(system, system.columns().q, np.zeros(system.nu))
    names = [system.name_of(k) for k in range(bodies)]
    for k, name in enumerate(names):
        if name.startswith("left"):
            other = names.index(name.replace("left", "right"))
            np.testing.assert_allclose(m.com[k] * (1, 1, -1), m.com[other], atol=1e-15)
    top = m.origin[names.index("neck" if "neck" in names else "head"), 1] + 0.2429
    sole = m.origin[names.index("left_foot"), 1] - 0.08
    assert abs(top - sole - 1.741) < 0.05  # m; the segments of the table are measured between joints


def test_both_figures_are_one_body():
    """They are divided in other ways, and have the same mass, center and inertia as a whole."""
    wholes = []
    for spec in ("figure34", "figure48"):
        system = system_from(spec)
        c, com = system.columns(), kinematics(system, system.columns().q, np.zeros(system.nu)).com
        second = np.einsum("n,ni,nj->ij", c.mass, com, com)
        inertia = np.diag(c.inertia[:, :3].sum(axis=0)) + np.trace(second) * np.eye(3) - second
        wholes.append((c.mass @ com, inertia))
    for here, there in zip(*wholes, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_caterpillar_has_a_foot_on_every_link(n):
    system = system_from(f"caterpillar:{n}")
    assert (system.n_bodies, system.nu) == (2 * n, 2 * n)
    links = system_from(f"spatial_chain:{n}").columns()
    assert system.parents()[2::2].tolist() == list(range(0, 2 * n - 2, 2))
    assert system.parents()[1::2].tolist() == list(range(0, 2 * n, 2))
    table = system.columns()
    for name in ("axis", "position", "mass", "center_of_mass"):
        np.testing.assert_array_equal(getattr(table, name)[::2], getattr(links, name))
    np.testing.assert_array_equal(table.mass[1::2], np.full(n, 0.2))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_crowd_is_figures_side_by_side(n):
    system, figure = system_from(f"crowd:{n}"), system_from("figure")
    assert (system.n_bodies, system.nu) == (15 * n, 36 * n)
    np.testing.assert_allclose(system.summary().total_mass, n * figure.summary().total_mass)
    assert Order.of(system).as_listed() is not None
    roots = np.flatnonzero(system.parents() < 0)
    assert roots.tolist() == list(range(0, 15 * n, 15))
    places = system.columns().position[roots]
    apart = np.linalg.norm(places[:, None] - places, axis=2) + 9 * np.eye(n)
    assert apart.min() >= 1.5
    for k in range(15):
        one, like = system.body(k), figure.body(figure.index_of(system.name_of(k)[:-1]))
        assert (one.mass, one.inertia, one.joint) == (like.mass, like.inertia, like.joint)
        assert one.parent.rstrip("1") == like.parent


@pytest.mark.parametrize("name", GENERATORS)
def test_every_generator_gives_a_valid_system(name):
    system = system_from(":".join([name, *"3" * len(GENERATORS[name].arguments)]))
    system.validate()
    assert system.summary().warnings == () or name == "crowd"  # which is separate systems, and meant to be


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("chain", "model 'chain': bad arguments; write chain:N, with whole numbers from 1 on"),
        ("chain:0", "write chain:N"),
        ("chain:-4", "write chain:N"),
        ("chain:1e3", "write chain:N"),
        ("chain:1:2", "write chain:N"),
        ("chain16:4", "write chain16"),
        ("tree:3", "write tree:DEPTH:BRANCHING"),
        ("tree:30:3", "model tree:30:3 has more than 100000000 bodies; make it smaller"),
        ("tree:1:2000000", "model tree:1:2000000 has more than 1000000 children each; make it smaller"),
        ("tree:999999999999999:999999999999999", "has more than 100000000 bodies"),
        ("chian:16", "model 'chian:16': is neither a file nor a generator; did you mean 'chain'"),
        ("chian.toml", "chian.toml: there is no such file"),
    ],
)
def test_a_bad_text_is_refused_with_the_usage(spec, message):
    with pytest.raises(InputError, match=re.escape(message)):
        system_from(spec)


def plain_tree(depth: int, branching: int) -> list[tuple[int, int, int]]:
    """Parent, level and number of the child of each body of a tree, depth first: by recursion."""
    found: list[tuple[int, int, int]] = []

    def add(parent: int, level: int, child: int) -> None:
        found.append((parent, level, child))
        here = len(found) - 1
        for number in range(branching if level < depth else 0):
            add(here, level + 1, number)

    add(-1, 0, 0)
    return found


@pytest.mark.parametrize(("depth", "branching"), [(1, 1), (7, 1), (1, 4), (2, 2), (5, 2), (4, 3), (2, 6)])
def test_the_bodies_of_a_tree_come_depth_first(depth: int, branching: int) -> None:
    system = system_from(f"tree:{depth}:{branching}")
    plain = plain_tree(depth, branching)
    assert [body.parent for body in system.bodies()] == [f"body{up + 1}" if up >= 0 else "world" for up, *_ in plain]
    assert [system.segments.depth(k) for k in range(system.n_bodies)] == [1 + level for _, level, _ in plain]
    axes = {(level, child): system.body(k).joint.axis for k, (_, level, child) in enumerate(plain)}
    assert all(axis == axes[1 + (level + 1) % 2, child] for (level, child), axis in axes.items() if level > 2)
    assert len({axes[key] for key in axes if 0 < key[0] < 3}) == branching * min(depth, 2)
