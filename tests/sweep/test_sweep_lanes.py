"""The sweeps in lanes: W different chains of the same joint types at once, each as the scalar sweeps do it."""

from typing import Any

import numpy as np
import pytest

from cases import moving_state, typed_chain
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import native_width, store, width, zero_lanes
from mpimbs.kernels.tuples import load3, load6
from mpimbs.spatial.vectors import scale6
from mpimbs.sweep.build import build
from mpimbs.sweep.inverse import inverse_dynamics
from mpimbs.sweep.inward import inward
from mpimbs.sweep.joint_forces import joint_forces, spring_energy
from mpimbs.sweep.motion import coordinate_rates, joint_places, motions, velocity_terms
from mpimbs.sweep.outward import outward
from mpimbs.sweep.quaternions import make_quaternions_unit
from mpimbs.sweep.structure import BOUNDARY, Springs, Structure, Workspace, workspace
from mpimbs.values.handles import SIZE
from oracles.dense import Array
from oracles.random_systems import ALL
from tolerances import assert_close


@kernel
def _start(zero, structure, work, q, u, given, motion):
    joint_places(zero, structure, q, work.place)
    velocity_terms(zero, structure, work, u, load3(zero, given, 0))
    motions(zero, structure, work, u, given[15 * width(zero) :], motion)


@kernel
def _rest(zero, structure, work, q, u, given, motion, udot, rates, loads, tau):
    coordinate_rates(zero, structure, q, u, rates)
    inverse_dynamics(zero, structure, work, udot, load6(zero, given, 3), loads, tau)


@kernel
def _all(zero, structure, work, q, u, tau, given, motion, block, udot, rates, loads, forces, two):
    _start(zero, structure, work, q, u, given, motion)
    inward(zero, structure, work, tau, scale6(0.0, load6(zero, given, 0)), block, two)
    outward(zero, structure, work, load6(zero, given, 3), load6(zero, given, 9), two, udot)
    _rest(zero, structure, work, q, u, given, motion, udot, rates, loads, forces)


@kernel
def _all1(structure, work, q, u, tau, given, motion, block, udot, rates, loads, forces, two):
    _all(0.0, structure, work, q, u, tau, given, motion, block, udot, rates, loads, forces, two)


@kernel
def _all2(structure, work, q, u, tau, given, motion, block, udot, rates, loads, forces, two):
    _all(zero_lanes(2), structure, work, q, u, tau, given, motion, block, udot, rates, loads, forces, two)


@kernel
def _all4(structure, work, q, u, tau, given, motion, block, udot, rates, loads, forces, two):
    _all(zero_lanes(4), structure, work, q, u, tau, given, motion, block, udot, rates, loads, forces, two)


@kernel
def _all8(structure, work, q, u, tau, given, motion, block, udot, rates, loads, forces, two):
    _all(zero_lanes(8), structure, work, q, u, tau, given, motion, block, udot, rates, loads, forces, two)


IN_LANES = {1: _all1, 2: _all2, 4: _all4, 8: _all8}


def interleaved(arrays: list[Array]) -> Array:
    """One flat array [item, lane] of those of the lanes."""
    return np.ascontiguousarray(np.stack(arrays, axis=1)).ravel()


def evaluate(
    structures: list[Structure], junctions: int, states: list[list[Array]], wrenches: list[Array], two: bool
) -> list[dict[str, Array]]:
    """Run the sweeps with one lane for each of the structures; all results of each lane."""
    w = len(structures)
    first = structures[0]
    lanes = {
        name: interleaved([getattr(s, name) for s in structures]) for name in ("fixed", "pitch", "armature", "added")
    }
    structure = first._replace(**lanes)
    q, u, tau, given = (interleaved(list(column)) for column in zip(*states, strict=True))
    m, nu = len(first.steps), len(first.axes)
    work = workspace(m, nu, junctions, w)
    work.wrench[:] = interleaved(wrenches)
    sizes = {"motions": m * BOUNDARY, "handle equations": SIZE, "accelerations": nu, "rates": len(q) // w}
    sizes |= {"joint loads": m * 6, "joint forces": nu}
    out = {name: np.zeros(size * w) for name, size in sizes.items()}
    IN_LANES[w](structure, work, q, u, tau, given, *out.values(), two)
    found: dict[str, Any] = out | {name: getattr(work, name) for name in Workspace._fields}
    return [{name: array.reshape(-1, w)[:, lane] for name, array in found.items()} for lane in range(w)]


@pytest.mark.time_limit(400)  # compiles
@pytest.mark.parametrize("two", [False, True], ids=["tip", "two-handles"])
@pytest.mark.parametrize("types", [ALL, ("revolute",) * 12, ("spherical", "free", "universal", "helical") * 3])
def test_lanes_are_scalar_sweeps(types: tuple[str, ...], two: bool) -> None:
    w = native_width()  # pipelines of other widths: test_sweep_tiles
    systems = [typed_chain(types, seed, springs=False) for seed in range(w)]
    built = [build(system.columns()) for system in systems]
    structures = [b.structure for b in built]
    assert all(np.array_equal(s.steps, structures[0].steps) for s in structures)
    rng = np.random.default_rng(w)
    states = [[*moving_state(system, seed), rng.normal(size=15 + BOUNDARY)] for seed, system in enumerate(systems)]
    wrenches = [rng.normal(size=6 * len(structures[0].steps)) for _ in systems]
    lanes = evaluate(structures, built[0].junctions, states, wrenches, two)
    assert not np.any(lanes[0]["accelerations"] == lanes[1]["accelerations"]), "the lanes hold the same chain"
    for lane, (structure, state, wrench) in enumerate(zip(structures, states, wrenches, strict=True)):
        scalar = evaluate([structure], built[0].junctions, [state], [wrench], two)[0]
        # Of the forces along the axes, the loads of the joints cancel all but a small part.
        scale = {"joint forces": float(np.max(np.abs(scalar["joint loads"])))}
        for name, reference in scalar.items():
            assert_close(f"{name} of lane {lane}", lanes[lane][name], reference, "lanes", scale.get(name))


@kernel
def _springs(zero, structure, springs, q, u, tau, total, energy):
    joint_forces(zero, structure, springs, q, u, tau, total)
    store(energy, 0, spring_energy(zero, structure, springs, q))


@kernel
def _springs1(structure, springs, q, u, tau, total, energy):
    _springs(0.0, structure, springs, q, u, tau, total, energy)


@kernel
def _springs4(structure, springs, q, u, tau, total, energy):
    _springs(zero_lanes(4), structure, springs, q, u, tau, total, energy)


def test_springs_in_lanes() -> None:
    """Springs and dampers of every joint type, four chains side by side."""
    systems = [typed_chain(ALL, seed) for seed in range(4)]
    built = [build(system.columns()) for system in systems]
    states = [moving_state(system, seed) for seed, system in enumerate(systems)]
    first = built[0].structure

    def run(chosen: list[int]) -> tuple[Array, Array]:
        structure = first._replace(pitch=interleaved([built[k].structure.pitch for k in chosen]))
        springs = Springs(*(interleaved(list(a)) for a in zip(*(built[k].springs for k in chosen), strict=True)))
        q, u, tau = (interleaved(list(column)) for column in zip(*(states[k] for k in chosen), strict=True))
        total, energy = np.zeros(len(tau)), np.zeros(len(chosen))
        (_springs4 if len(chosen) == 4 else _springs1)(structure, springs, q, u, tau, total, energy)
        return total.reshape(-1, len(chosen)), energy

    total, energy = run([0, 1, 2, 3])
    assert len(np.unique(energy)) == 4, "the lanes hold the same chain"
    for lane in range(4):
        scalar, held = run([lane])
        assert_close(f"generalized forces of lane {lane}", total[:, lane], scalar[:, 0], "lanes")
        assert_close(f"energy of lane {lane}", energy[lane : lane + 1], held, "lanes")


@kernel
def _unit(zero, structure, q, deviation):
    store(deviation, 0, make_quaternions_unit(zero, structure, q))


@kernel
def _unit1(structure, q, deviation):
    _unit(0.0, structure, q, deviation)


@kernel
def _unit4(structure, q, deviation):
    _unit(zero_lanes(4), structure, q, deviation)


def test_unit_quaternions_in_lanes() -> None:
    """Every lane's quaternions get unit length, and every lane tells its own largest deviation."""
    systems = [typed_chain(ALL, seed) for seed in range(4)]
    structure = build(systems[0].columns()).structure
    rng = np.random.default_rng(0)
    states = [moving_state(system, seed)[0] * rng.uniform(0.9, 1.1) for seed, system in enumerate(systems)]
    q, deviation = interleaved(states), np.zeros(4)
    _unit4(structure, q, deviation)
    assert len(np.unique(deviation)) == 4, "the lanes hold the same quaternions"
    for lane, state in enumerate(states):
        alone, single = state.copy(), np.zeros(1)
        _unit1(structure, alone, single)
        assert single[0] > 0.0
        assert_close(f"quaternions of lane {lane}", q.reshape(-1, 4)[:, lane], alone, "lanes")
        assert_close(f"deviation of lane {lane}", deviation[lane : lane + 1], single, "lanes")
