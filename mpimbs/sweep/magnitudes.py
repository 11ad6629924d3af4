"""Magnitudes: what accelerations and loads would be if no two terms had opposite signs.

Rounding is relative to these [Higham 2002, section 3.1], in long chains much more than to the sums themselves: what is
left of the equations of motion means something beside them alone.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import sqrt
from mpimbs.kernels.tuples import load3, load6, load21, store_numbers
from mpimbs.spatial.vectors import add6, dot3
from mpimbs.sweep.structure import ADDED, BIAS, BODY, FIRST_U, FIXED, LAST_U, PLACE
from mpimbs.sweep.walk import place_boundary, walk_inward, walk_outward


@kernel(inline=True)
def _length(v):
    return sqrt(dot3(v, v))


@kernel(inline=True)
def _all(numbers):
    total = 0.0
    for number in numbers:
        total += abs(number)
    return total


@kernel(inline=True)
def _reached(zero, structure, step, state, given):
    work, udot, found = given
    angular, linear = state
    c = load6(zero, work.bias, step * BIAS)
    linear += _length(load3(zero, work.place, step * PLACE + 9)) * angular + _length(c[3:6])
    angular += _length(c[0:3])
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        more = abs(udot[d])
        if structure.axes[d] < 3:
            angular += more
            linear += abs(structure.pitch[d]) * more
        else:
            linear += more
    store_numbers(zero, found, 2 * step, (angular, linear))
    return angular, linear


@kernel
def reached(structure, work, udot, given, found):
    """Write magnitudes of the angular and linear acceleration of every step [m * 2], after `entries.prescribe`.

    `given` [k * 2] are those of the bodies that the piece hangs on.
    """
    for slot in range(1, given.size // 2):
        place_boundary(0.0, work.junction, slot, (given[2 * slot], given[2 * slot + 1]))
    walk_outward(0.0, structure, work.junction, _reached, (given[0], given[1]), (work, udot, found))


@kernel(inline=True)
def _magnitude_inward(zero, structure, step, state, given):
    work, reach, loops, behind, lever, acting, found = given
    moment, force = state
    body = structure.steps[step, BODY] * FIXED
    inertia, h = _all(load6(zero, structure.fixed, body + 12)), _length(load3(zero, structure.fixed, body + 18))
    linear = reach[2 * step + 1]
    angular = reach[2 * step] + linear / lever
    own_moment, own_force = inertia * angular + h * linear, structure.fixed[body + 21] * linear + h * angular
    if structure.added.size > 0:
        added = _all(load21(zero, structure.added, structure.steps[step, BODY] * ADDED)) * (angular + linear)
        own_moment, own_force = own_moment + added, own_force + added
    bias = load6(zero, work.bias, step * BIAS + 6)
    others = bias if loops.size == 0 else add6(bias, load6(zero, loops, 6 * step))
    acting[0] += own_moment + _length(others[0:3])
    acting[1] += own_force + _length(others[3:6])
    moment += own_moment + _length(bias[0:3]) + behind[2 * step]
    force += own_force + _length(bias[3:6]) + behind[2 * step + 1]
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        if structure.axes[d] < 3:
            found[d] = moment + abs(structure.pitch[d]) * force
        else:
            found[d] = force
    return moment + _length(load3(zero, work.place, step * PLACE + 9)) * force, force


@kernel
def load_magnitudes(structure, work, reach, loops, behind, lever, acting, found):
    """Write magnitudes of the generalized forces of accelerations [nu], after `reached`.

    Parameters
    ----------
    reach : array [m * 2]
        What `reached` wrote.
    loops : array [m * 6], or none
        Of the wrenches of the velocity terms, those of loops.
    behind : array [m * 2]
        Magnitudes of the moments and forces that act from behind on steps.
    lever : float
        A length (m) of bodies: rounding turns them by so much of what it moves them by.
    acting : array [2]
        Added to: those of moments (N m) and forces (N) of all steps, each by itself, without `loops`.
    """
    given = (work, reach, loops, behind, lever, acting, found)
    walk_inward(0.0, structure, work.junction, _magnitude_inward, (0.0, 0.0), given)
