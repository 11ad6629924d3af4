"""The inertia matrix factored, over ranks and in lanes: against the dense oracle, and heavier joints."""

import weakref
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from mpi4py import MPI

from cases import moving_state, parts, with_rotors
from laboratory.extended import ExtendedSweeps, extended
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.base.sizes import PACKAGE, using
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.dynamics.operators.factor import LoadSweeps
from mpimbs.model import System, system_from
from mpimbs.model.contents import Contents
from mpimbs.model.system import contents_of
from mpimbs.parallel.native import free_tags, own_tags
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import random_system
from tolerances import assert_close

HELD = 3  # the body whose joint follows a motion


def expected(system: Contents, q: Array, f: Array, heavier: Array | None) -> Array:
    """Accelerations of the spanning tree at rest by forces alone, of joints that are heavier by so much."""
    tree, ends = System(gravity=(0.0, 0.0, 0.0)), system.offsets()[1]
    for k, body in enumerate(system.bodies()):
        armature = np.array(body.joint.armature)
        if heavier is not None:
            armature = armature + heavier[ends[k] : ends[k + 1]]
        acting = ("stiffness", "damping", "torque", "stop_stiffness", "stop_damping")
        free = {name: (0.0,) * len(armature) for name in acting} | {"cross_stiffness": ()}
        joint = body.joint.model_copy(update=free | {"armature": tuple(armature)})
        tree.add(body.model_copy(update={"joint": joint}))
    return dense.dense_accelerations(tree, q, np.zeros(system.nu), f)


def check(dynamics: Dynamics, seed: int = 1) -> None:
    """Compare answers with the dense oracle, in several states, of the model's joints and of heavier ones."""
    system, comm = dynamics.system, dynamics.comm
    random = np.random.default_rng(seed)
    first, _, f = moving_state(system, seed)
    mine, own = parts(dynamics, first, f)
    factor, kept = dynamics.inertia.factor(mine), dynamics.inertia.factor(mine)
    for number, heavier in enumerate((None, random.uniform(0.0, 3.0, system.nu), None)):
        q = moving_state(system, seed + number)[0]
        factor.at(parts(dynamics, q, f)[0], None if heavier is None else parts(dynamics, q, heavier)[1])
        reference = expected(contents_of(system), q, f, heavier)
        out = own.copy()
        parallel_assert(factor.solve(out, out) is out, "another array", comm)
        answer = factor.solve(-2.0 * own) / -2.0
        for found in (out, answer):
            assert_close("answer", found, parts(dynamics, q, reference)[1], "dense", np.abs(reference).max(), comm)
    reference = expected(contents_of(system), first, f, None)
    assert_close("kept", kept.solve(own), parts(dynamics, q, reference)[1], "dense", np.abs(reference).max(), comm)


@pytest.mark.cases(4)
@pytest.mark.parametrize("kind", ["chain:9", "spatial_chain:70", "free_chain:6", "rope:40"])
@pytest.mark.parametrize("coupling", ["dcae", "dca"])
def test_chains(comm: MPI.Comm, kind: str, coupling: str) -> None:
    with closing(Dynamics(system_from(kind), comm, coupling)) as dynamics:
        check(dynamics)
        parallel_assert(isinstance(dynamics.inertia.factor(dynamics.subchain.q), LoadSweeps), "no load sweeps", comm)


def test_places_made_again(comm: MPI.Comm) -> None:
    """Of subchains that no cache holds."""
    with using(replace(PACKAGE, all_bytes=1)), closing(Dynamics(system_from("spatial_chain:110"), comm)) as dynamics:
        check(dynamics)


@pytest.mark.parametrize("seed", range(3))
def test_any_joints(comm: MPI.Comm, seed: int) -> None:
    """Chains of all joint types, with rotors; with cuts of the ranks' own."""
    system = with_rotors(random_system(seed, 30, chain=True, springs=False)[0])
    with closing(Dynamics(system, comm, cuts=comm.size)) as dynamics:
        check(dynamics, seed)


@pytest.mark.parametrize("kind", ["chain:7", "tree:2:3"])
def test_joints_that_follow_motions_do_not_move(comm: MPI.Comm, kind: str) -> None:
    """Whatever is asked of them and of the others, also where joints are heavier than they are."""
    system = System()
    for k, body in enumerate(system_from(kind).contents.bodies()):
        motion = {"motion": lambda t: (0.2, 0.0, 0.0)} if k == HELD else {}
        system.add(body.model_copy(update={"joint": body.joint.model_copy(update=motion)}))
    q, _, f = moving_state(system, 2)
    heavier = np.linspace(0.1, 1.0, system.nu)
    with closing(Dynamics(system, comm)) as dynamics:
        mine, own, added = parts(dynamics, q, f)[0], *(parts(dynamics, q, v)[1] for v in (f, heavier))
        factor = dynamics.inertia.factor(mine)
        for more in (None, added, None):
            factor.at(mine, more)
            answer = abs(factor.solve(own))
            still = np.arange(system.nu)[dynamics.gather_u.part] == HELD
            parallel_assert((answer[still] < 1e-25).all() and (answer[~still] > 1e-9).all(), f"{answer}", comm)


@pytest.mark.parametrize("kind", ["chain:9", "tree:2:3"])
def test_wrong_arrays(comm: MPI.Comm, kind: str) -> None:
    with closing(Dynamics(system_from(kind), comm)) as dynamics:
        q, nu = dynamics.subchain.q, dynamics.subchain.nu
        factor = dynamics.inertia.factor(q)
        with pytest.raises(InputError, match="armature"):
            factor.at(q, np.zeros(nu + (comm.rank == 0)))
        if comm.rank == 0:
            with pytest.raises(InputError, match="f must be"):
                factor.solve(np.zeros(nu + 1))
        else:
            factor.solve(np.zeros(nu))
        parallel_assert(not factor.solve(np.zeros(nu)).any(), "answers to nothing", comm)


def test_long_chain_in_many_digits(comm: MPI.Comm) -> None:
    """Products with M and its inverse lose no digits by the length of a chain."""
    system = system_from("spatial_chain:300")
    system.gravity = (0.0, 0.0, 0.0)
    q, u, f = moving_state(system, 3)
    sweeps = ExtendedSweeps(system.contents, q, np.zeros(system.nu), 30)
    answer, product = sweeps.accelerations(f), sweeps.inverse_dynamics(extended(u))
    for lanes in (1, 8):
        with closing(Dynamics(system, comm, lanes=lanes)) as dynamics:
            mine, v, force = parts(dynamics, q, u, f)
            part = dynamics.gather_u.part
            assert_close(
                "M^-1 f", dynamics.inertia.solve(mine, force), answer[part], "long", float(max(abs(answer))), comm
            )
            assert_close(
                "M v", dynamics.inertia.multiply(mine, v), product[part], "long", float(max(abs(product))), comm
            )


@pytest.mark.parametrize("kind", ["chain:9", "tree:2:3"])
def test_factors_that_nobody_keeps_are_freed(comm: MPI.Comm, kind: str) -> None:
    """At other times on each rank: those that are kept go on giving what they gave, and no message tags are taken."""
    with closing(Dynamics(system_from(kind), comm)) as dynamics:
        q, f = dynamics.subchain.q, np.ones(dynamics.subchain.nu)
        kept, heavier = dynamics.inertia.factor(q), dynamics.inertia.factor(q, 0.1 + f)
        right = kept.solve(f), heavier.solve(f)
        tag = own_tags(dynamics.comm, 1)
        gone = []
        odd = []  # one rank keeps what the others don't
        for k in range(20):
            factor = dynamics.inertia.factor(q + 0.01 * k)
            factor.solve(f)
            if comm.rank == 0 and k % 2:
                odd.append(factor)
            gone.append(weakref.ref(factor))
            del factor
        operator = dynamics.inertia.operator(q, inverse=True)
        answer = operator @ f
        left = sum(reference() is not None for reference in gone)
        found = kept.solve(f), heavier.solve(f)
        free_tags(dynamics.comm, tag)
        again = own_tags(dynamics.comm, 1)
        free_tags(dynamics.comm, again)
    parallel_assert(left == len(odd), f"{left} factors left", comm)
    parallel_assert(again == tag, f"tag {again}, {tag} before", comm)
    for name, ours, theirs in zip(("kept", "heavier", "operator"), (*found, answer), (*right, right[0]), strict=True):
        assert_close(name, ours, theirs, "exact", comm=comm)


def test_heavier_joints_of_trees_stay_on_their_ranks(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another armature makes no system anew: that would take as long as all the evaluations of a step."""
    system = with_rotors(random_system(4, 20, chain=False)[0])
    q, _, f = moving_state(system, 1)
    with closing(Dynamics(system, comm)) as dynamics:
        mine, own = parts(dynamics, q, f)
        factor = dynamics.inertia.factor(mine, 1.0 + 0.0 * own)
        factor.solve(own)
        monkeypatch.setattr(DividedSystem, "alike", lambda *_: pytest.fail("made again"))
        for k in range(3):
            heavier = np.linspace(0.1, 1.0 + k, system.nu)
            factor.at(mine, parts(dynamics, q, heavier)[1])
            reference = expected(contents_of(system), q, f, heavier)
            found, scale = factor.solve(own), np.abs(reference).max()
            assert_close("answer", found, parts(dynamics, q, reference)[1], "dense", scale, comm)
