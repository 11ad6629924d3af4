"""The standard systems against hand values, and the texts that name them."""

import re

import numpy as np
import pytest

from mpimbs.base.errors import InputError
from mpimbs.model import GENERATORS, system_from
from mpimbs.model.order.order import Order
from mpimbs.model.summary import validate
from oracles.dense import kinematics


@pytest.mark.parametrize("spec", ["chain16", "chain:16"])
def test_the_chain_of_the_paper(spec):
    system = system_from(spec)
    table = system.contents.columns()
    assert system.gravity == (0, -9.81, 0)
    assert system.contents.is_chain
    assert set(table.joint_type) == {1}
    np.testing.assert_array_equal(table.mass, np.ones(16))
    np.testing.assert_array_equal(table.center_of_mass, np.tile([0, -1, 0], (16, 1)))
    np.testing.assert_array_equal(table.inertia, np.tile([1, 1, 1, 0, 0, 0], (16, 1)))
    np.testing.assert_array_equal(table.position, [[0, 0, 0]] + [[0, -2, 0]] * 15)
    np.testing.assert_array_equal(table.axis, np.tile([0, 0, 1], (16, 1)))
    np.testing.assert_array_equal(table.q, [0.1745] * 12 + [-0.1745] * 4)
    np.testing.assert_array_equal(table.u, np.zeros(16))


@pytest.mark.parametrize(("spec", "freedoms", "bodies"), [("figure34", 34, 13), ("figure48", 48, 19)])
def test_the_figures_of_measured_bodies(spec, freedoms, bodies):
    """Degrees of freedom of the paper; mass and height of the table; the same on both sides."""
    system = system_from(spec)
    assert (system.nu, system.n_bodies) == (freedoms, bodies)
    np.testing.assert_allclose(system.summary().total_mass, 73.0, rtol=1e-12)
    assert Order.of(system.contents).is_identity
    m = kinematics(system, system.contents.columns().q, np.zeros(system.nu))
    names = [system.contents.name_of(k) for k in range(bodies)]
    for k, name in enumerate(names):
        if name.startswith("left"):
            other = names.index(name.replace("left", "right"))
            np.testing.assert_allclose(m.com[k] * (1, 1, -1), m.com[other], atol=1e-15)
    top = m.origin[names.index("neck" if "neck" in names else "head"), 1] + 0.2429
    sole = m.origin[names.index("left_foot"), 1] - 0.08
    assert abs(top - sole - 1.741) < 0.05  # m; the segments of the table are measured between joints


@pytest.mark.parametrize("name", GENERATORS)
def test_every_generator_gives_a_valid_system(name):
    system = system_from(":".join([name, *"3" * len(GENERATORS[name].arguments)]))
    validate(system.contents)
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
