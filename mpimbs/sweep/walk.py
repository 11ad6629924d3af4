"""The two walks over the steps of a subchain or tree, outward and inward: the only place that knows how one is walked.

A walk carries a state, a tuple of numbers, from step to step, and keeps it in the slots of junctions where steps have
several children. The first slots are the boundary's: of the bodies outside that steps hang on, one in a chain. What
outward walks find there, but for the first, stands there before (`place_boundary`). What happens at a step is a
function that it is given:

    visit(zero, structure, step, state, given) -> state

Outward the state is what a step hands on to its children, inward what it hands on to its parent, where that of several
children is added up. `given` is a tuple of whatever else the visits read and write. Compiled, a walk costs what the
loop written out would.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import width
from mpimbs.kernels.tuples import add_numbers, load_like, store_numbers, zeros_like
from mpimbs.sweep.structure import JUNCTION, SINK, SOURCE

HANDED_ON = 27  # where the state of outward walks begins in a junction's numbers; that of inward walks begins at 0


@kernel(inline=True)
def walk_outward(zero, structure, junction, visit, state, given):
    """Walk outward, every step after its parent; returns the state of the last step.

    Parameters
    ----------
    junction : array [junctions * JUNCTION]
        Slots.
    visit : kernel
        Gives the state of a step from that of its parent.
    state : tuple of numbers
        That of handle 1.
    given : tuple
        For `visit`.
    """
    store_numbers(zero, junction, HANDED_ON, state)
    for step in range(structure.steps.shape[0]):
        source = structure.steps[step, SOURCE]
        if source >= 0:
            state = load_like(zero, junction, source * JUNCTION + HANDED_ON, state)
        state = visit(zero, structure, step, state, given)
        sink = structure.steps[step, SINK]
        if sink >= 0:
            store_numbers(zero, junction, sink * JUNCTION + HANDED_ON, state)
    return state


@kernel(inline=True)
def walk_inward(zero, structure, junction, visit, state, given):
    """Walk inward, every step before its parent; returns the sum of what handle 1 is handed.

    Parameters
    ----------
    junction : array [junctions * JUNCTION]
        Slots.
    visit : kernel
        Gives what a step hands on to its parent, from the sum of what its children have handed on to it.
    state : tuple of numbers
        What the last step is handed from beyond handle 2.
    given : tuple
        For `visit`.
    """
    clear_gathered(zero, junction, state)
    return walk_inward_onto(zero, structure, junction, visit, state, given)


@kernel(inline=True)
def clear_gathered(zero, junction, like):
    """Clear what inward walks hand to all slots: as many numbers as `like` has."""
    none = zeros_like(zero, like)
    for slot in range(junction.size // (JUNCTION * width(zero))):
        store_numbers(zero, junction, slot * JUNCTION, none)


@kernel(inline=True)
def walk_inward_onto(zero, structure, junction, visit, state, given):
    """Walk inward as `walk_inward`, but onto what the slots have been handed already."""
    none = zeros_like(zero, state)
    for step in range(structure.steps.shape[0] - 1, -1, -1):
        sink = structure.steps[step, SINK]
        if sink >= 0:
            state = add_numbers(state, load_like(zero, junction, sink * JUNCTION, state))
        state = visit(zero, structure, step, state, given)
        source = structure.steps[step, SOURCE]
        if source >= 0:
            total = add_numbers(state, load_like(zero, junction, source * JUNCTION, state))
            store_numbers(zero, junction, source * JUNCTION, total)
            state = none
    return load_like(zero, junction, 0, state)


@kernel(inline=True)
def walk_path_inward(zero, structure, path, visit, state, given):
    """Walk inward along a path, whatever else hangs on it: as `walk_inward`, without slots.

    The state may be any tuple. `path` holds the steps from handle 1 outward.
    """
    for number in range(path.size - 1, -1, -1):
        state = visit(zero, structure, path[number], state, given)
    return state


@kernel(inline=True)
def walk_path_outward(zero, structure, path, visit, state, given):
    """Walk outward along a path of steps, each after its parent: as `walk_outward`, without slots."""
    for number in range(path.size):
        state = visit(zero, structure, path[number], state, given)
    return state


@kernel(inline=True)
def place_boundary(zero, junction, slot, state):
    """Put the state of a body outside, on which steps hang, where an outward walk finds it."""
    store_numbers(zero, junction, slot * JUNCTION + HANDED_ON, state)


@kernel(inline=True)
def gathered(zero, junction, slot, like):
    """What an inward walk has handed to a body outside: as many numbers as `like` has."""
    return load_like(zero, junction, slot * JUNCTION, like)


@kernel(inline=True)
def keep(zero, room, step, values):
    """Keep what a step has to be asked for later in `room` [m * numbers]: for visits that are given it."""
    store_numbers(zero, room, step * len(values), values)


@kernel(inline=True)
def keep_nothing(zero, room, step, values):
    """What visits are given in place of `keep` where nobody asks."""
