"""The handle equations: of one piece against the dense oracle, and their product."""

import functools
from itertools import pairwise

import numpy as np
import pytest

from cases import joined, mixed_chain, moving_state, typed_chain
from mpimbs.model import Joint, System, Wrench
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.parts.subchains import Subchains
from mpimbs.sweep.build import build
from mpimbs.sweep.motion import join_turn
from mpimbs.sweep.structure import TURNING
from mpimbs.values.handles import between, matrices
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import ALL
from swept import Swept
from tolerances import assert_close

BLOCKS = ("I", "E", "W", "p", "c")


def blocks_of(system: System, cuts: list[int], q: Array, u: Array, tau: Array, omega: Array) -> list[Array]:
    """Handle equations of the pieces of a chain, whose root turns with the angular velocity omega."""
    q_at, u_at = system.contents.offsets()
    turn, blocks = AT_REST[:TURNING].copy(), []
    turn[9:] = omega
    for first, last in pairwise(cuts):
        piece = Swept(Subchains([Subchain(system.contents, first, last)]))
        mine, ours = slice(q_at[first], q_at[last]), slice(u_at[first], u_at[last])
        relative = piece.start(q[mine], u[ours])
        blocks.append(piece.inward(q[mine], u[ours], tau[ours], turn)[0].copy())
        join_turn(0.0, turn, relative, turn)
    return blocks


def product(*blocks: Array) -> Array:
    """Product of handle equations, from the left."""
    return functools.reduce(lambda left, right: joined(left, right)[0], blocks)


def assert_same(ours: Array, reference: Array, tolerance: str) -> None:
    """The parts I, E, W, p, c of two handle equations agree, each relative to its own size or to one, the larger."""
    for name, found, wanted in zip(BLOCKS, matrices(ours), matrices(reference), strict=True):
        assert_close(name, found, wanted, tolerance, scale=max(np.abs(wanted).max(), 1.0))


# --- one piece against the dense oracle


def dense_handle_equations(
    base: System, piece: System, q: Array, u: Array, tau: Array, omega: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """(I, E, W, p, c) in body frames, from responses of the dense oracle to 13 loads.

    The piece hangs on a free base body at the inertial origin, which turns with omega. A load on the base sets A1,
    one on the last body is f2. The oracle's joint loads give f1, at the first joint, and A2, from the equations of
    Newton and Euler of the last body; both are affine in (A1, f2).
    """
    system = System(gravity=(0, 0, 0))
    system.add(next(base.contents.bodies()))
    for body in piece.contents.bodies():
        system.add(body.model_copy(update={"parent": None}))
    last = system.n_bodies - 1
    q = np.concatenate(([1, 0, 0, 0, 0, 0, 0], q))
    u = np.concatenate((omega, np.zeros(3), u))
    state = dense.Snapshot(system, q, u)
    c, m = system.contents.columns(), state.kinematics
    turn = m.rotation[last].astype(float)
    # spatial inertia and bias force of the last body about its origin, body axes
    xx, yy, zz, xy, xz, yz = c.inertia[last]
    h, w = dense.cross_matrix(c.center_of_mass[last]), turn.T @ m.omega[last].astype(float)
    about = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) - c.mass[last] * h @ h
    spatial = np.block([[about, c.mass[last] * h], [-c.mass[last] * h, c.mass[last] * np.eye(3)]])
    spin = np.cross(w, np.cross(w, c.mass[last] * c.center_of_mass[last]))
    bias = np.concatenate((np.cross(w, about @ w), spin))

    samples, f1, a2 = [], [], []
    for on_base, f2 in [(np.zeros(6), np.zeros(6))] + [(x, 0 * x) for x in np.eye(6)] + [(0 * x, x) for x in np.eye(6)]:
        system.contents.loads.wrenches[last] = [Wrench(moment=tuple(f2[:3]), force=tuple(f2[3:]))]
        forces = np.concatenate((on_base, tau))
        udot = dense.dense_accelerations(system, q, u, forces)
        wrench = dense.joint_wrenches(system, q, u, forces)
        moment, force = wrench[1, :3], wrench[1, 3:]
        samples.append(np.concatenate((udot[:6], f2, [1.0])))  # the base's origin is at rest: A1 is its udot
        f1.append(np.concatenate((moment + np.cross(m.origin[1].astype(float), force), force)))
        carried = (wrench[last].reshape(2, 3) @ turn).ravel() + f2
        a2.append(np.linalg.solve(spatial, carried - bias))
    near, far = (np.linalg.solve(samples, np.array(values)).T for values in (f1, a2))
    return near[:, :6], -near[:, 6:12], far[:, 6:12], near[:, 12], far[:, 12]


def piece_of_chain(types: tuple[str, ...], seed: int) -> tuple[System, System]:
    """A free base body, and a random piece that hangs on it."""
    base = System(gravity=(0, 0, 0))
    base.add(name="base", mass=2, inertia=(1, 1.5, 2, 0.1, 0, 0.2), joint=Joint(type="free"))
    return base, typed_chain(types, seed)


CHAINS = [(name,) for name in ALL] + [(name,) * 3 for name in ALL] + [ALL, ALL[::-1], ("revolute",) * 9]


@pytest.mark.parametrize("types", CHAINS, ids=lambda types: "-".join(types[:2]) + f"-{len(types)}")
def test_piece_against_dense(types: tuple[str, ...]) -> None:
    seed = len(types)
    base, piece = piece_of_chain(types, seed)
    rng = np.random.default_rng(seed)
    q, u, tau = moving_state(piece, seed)
    omega = rng.uniform(-1, 1, 3)
    # In the package the piece has a base before it and a body after it, so that it has two handles.
    system = System(gravity=(0, 0, 0))
    for body in (*base.contents.bodies(), *piece.contents.bodies(), *piece.contents.bodies()):
        system.add(body.model_copy(update={"name": f"b{system.n_bodies}", "parent": None}))
    n = piece.n_bodies
    part = Subchain(system.contents, 1, 1 + n)
    assert not part.tip
    swept = Swept(Subchains([part]))
    swept.start(q, u)
    turn = AT_REST[:TURNING].copy()
    turn[9:] = omega
    found = matrices(swept.inward(q, u, tau, turn)[0])
    frame = build(system.contents.columns(n, n + 1)).body_frame[0]  # handle 2 to body axes
    both = np.kron(np.eye(2), frame)
    inertia, transfer, compliance, force, acceleration = dense_handle_equations(base, piece, q, u, tau, omega)
    reference = (inertia, transfer @ both, both.T @ compliance @ both, force, both.T @ acceleration)
    for name, ours, theirs in zip(BLOCKS, found, reference, strict=True):
        assert_close(name, ours, theirs, "responses", scale=max(1.0, np.abs(theirs).max()))


# --- invariants and the product

N = 10
CUTS = ([0, 3, 6, N], [0, 1, 2, N], [0, 8, 9, N], [0, 2, 7, N])


def pieces(cuts: list[int], seed: int) -> list[Array]:
    """Handle equations of the pieces of a chain of all joint types but free (beyond which E = 0), without its tip."""
    types = [name for name in ALL if name != "free"] + ["revolute"] * 3
    system = typed_chain(tuple(np.random.default_rng(seed).permutation(types)), seed)
    return blocks_of(system, cuts, *moving_state(system, seed), np.array([0.3, -0.5, 0.2]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_join_is_associative_and_gives_the_whole(cuts: list[int], seed: int) -> None:
    a, b, c = pieces(cuts, seed)
    left, right = product(product(a, b), c), product(a, product(b, c))
    assert_same(left, right, "join")
    assert_same(left, pieces([0, N], seed)[0], "join")


@pytest.mark.parametrize("tip", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_between(seed: int, tip: bool) -> None:
    """The shared acceleration and load fulfil the equations of both sides and those of the whole."""
    if tip:
        system, q, u, tau = mixed_chain(24, seed)
        left, right = blocks_of(system, [0, 9, 24], q, u, tau, np.zeros(3))
    else:
        left, right = pieces([0, 4, N], seed)
    rng = np.random.default_rng(seed)
    a1, f2, a, f = rng.normal(size=6), rng.normal(size=6) * (not tip), np.empty(6), np.empty(6)
    whole, response = joined(left, right)
    between(right, response, a1, f2, a, f)
    i_l, e_l, w_l, p_l, c_l = matrices(left)
    i_r, e_r, w_r, p_r, c_r = matrices(right)
    i, e, w, p, c = matrices(whole)
    sizes = [np.abs(term).max() for term in (i_r @ a, e_r @ f2, p_r)]
    assert_close("A2 of the left", e_l.T @ a1 + w_l @ f + c_l, a, "join")
    assert_close("f1 of the right", i_r @ a - e_r @ f2 + p_r, -f, "join", scale=max(sizes))
    f1 = i_l @ a1 - e_l @ f + p_l
    size = max(np.abs(term).max() for term in (i_l @ a1, e_l @ f, p_l))
    assert_close("f1 of the whole", i @ a1 - e @ f2 + p, f1, "join", scale=size)
    a2 = e_r.T @ a + w_r @ f2 + c_r
    assert_close("A2 of the whole", e.T @ a1 + w @ f2 + c, a2, "join", scale=max(np.abs(a2).max(), 1.0))
