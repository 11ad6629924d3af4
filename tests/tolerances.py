"""The tolerances of all tests of numbers, each with its reason, and the one way to compare by them.

Errors are the largest difference over the largest magnitude of the reference (or of a given scale).
"""

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike

from mpi_helpers import parallel_assert

TOLERANCE: dict[str, tuple[float, str]] = {
    "exact": (0.0, "the same operations in the same order"),
    "rounding": (1e-14, "a few operations on numbers of order one"),
    "dense": (1e-12, "the oracle is right to the last digit; the sweeps lose some by the condition of the system"),
    "long": (1e-12, "the sweeps are backward stable: their error does not grow with the length of a chain"),
    "pinocchio": (1e-10, "Pinocchio itself loses up to six digits in chains of a dozen joints of several axes"),
    "round trip": (1e-12, "forward and inverse dynamics share their velocity terms, relative to the largest force"),
    "responses": (1e-11, "a 13x13 solution with responses of the dense oracle, each right to about 1e-15"),
    "join": (1e-12, "6x6 solutions with a matrix whose eigenvalues are at least 1"),
    "ranks": (1e-12, "all numbers of ranks solve the same equations: only roundings differ"),
    "assembled": (1e-11, "inverse inertias in place of inertias: their condition, of slender bodies 1e3, comes on top"),
    "driven": (1e-10, "random chains of which some joints follow, beside stops that push with thousands of N: 1.3e-11"),
    "iterated": (1e-9, "loads solved to 1e-12, times the condition of the sweeps that follow: 1e-10 measured"),
    "tied": (1e-7, "constraint loads solved to 1e-9 or 1e-10, times the condition of their equations"),
    "boundary": (1e-10, "random equations, worse conditioned than those of bodies; both sides by LU"),
    "galilean": (1e-13, "linear velocity enters once, as w x v at the base, and not along the chain"),
    "lanes": (1e-12, "the same operations; sines differ by a rounding of 1e-16, which random systems amplify"),
    "lanes joined": (1e-12, "the same equations in another order: the lanes are swept apart and joined, as ranks are"),
    "residual": (1e-13, "of the sum of all terms' magnitudes, each rounded once or twice; measured below 1e-15"),
    "extended": (1e-13, "the sweeps are backward stable; random systems amplify rounding up to a hundredfold"),
    "loads": (
        2e-11,
        "the sweeps are backward stable, but moments are summed over the bodies beyond: in a rope, whose forces are "
        "right to 1e-13, up to 7e-12 of force times length",
    ),
    "loads of dca": (1e-11, "accelerations, right to some 1e-14, times what resists at a cut, which dca inverts"),
    "multipliers": (5e-9, "the penalty, 1e6, times violations, of which some 1e-15 of the accelerations are rounding"),
    "cut": (1e-12, "steps of order 8 that are so short that only rounding is left; on numbers of order ten"),
    "clocks": (1e-2, "the length of a cycle is measured over 1 ms, three times: to 1e-4 where nothing disturbs it"),
    "carried over": (1e-13, "poses and twists to rounding, through a few joints"),
    "statics": (1e-9, "springs whose moments are n times as large as what they hold: rounding of angles, times n^2"),
    "units": (1e-8, "the same to rounding, of random systems some of which lose seven digits"),
    "stages in units": (1e-7, "of stages solved to 1e-9, of which some hundred follow one another"),
    "runs": (1e-7, "integrated with a tolerance of 1e-9 or 1e-10 in each step"),
    "modes": (
        1e-10,
        "stiffness by differences of order eight, right to 1e-13, times the condition of the lowest modes",
    ),
    "shapes": (1e-7, "shapes are right to the square root of what squares of frequencies are"),
    "table": (2e-8, "eight decimals of the tables"),
    "random events": (1e-10, "the dense oracle and the sweeps, amplified by random loops that hold nearly the same"),
    "settled": (1e-10, "Newton's method to rounding, times the condition of the stiffness"),
    "cubic": (1e-2, "what the third power of displacements of 1e-4 rad adds to the square, and rounding of the sum"),
    "published": (2e-8, "as many digits as the table has"),
    "five decimals": (1e-5, "as many decimals as were published"),
    "difference": (
        1e-7,
        "central differences with a step of 1e-5: 1e-10 of truncation and 1e-11 of rounding, amplified",
    ),
}


def error(ours: ArrayLike, reference: ArrayLike, scale: float | None = None) -> float:
    """Largest difference relative to the largest magnitude of the reference, or to `scale`; NaN counts as infinite."""
    a, b = np.asarray(ours, float), np.asarray(reference, float)
    if a.shape != b.shape:
        return np.inf
    if a.size == 0 or np.array_equal(a, b):
        return 0.0
    size = np.max(np.abs(b)) if scale is None else scale
    value = float(np.max(np.abs(a - b)) / max(size, 1e-300))
    return value if np.isfinite(value) else np.inf


def assert_close(
    what: str,
    ours: ArrayLike,
    reference: ArrayLike,
    tolerance: str,
    scale: float | None = None,
    comm: MPI.Comm = MPI.COMM_SELF,
) -> None:
    """Assert that a quantity agrees with its reference on all ranks of `comm`, which all call."""
    __tracebackhide__ = True
    limit, reason = TOLERANCE[tolerance]
    found = error(ours, reference, scale)
    message = f"{what}: relative error {found:.2e} exceeds {limit:.0e} ({tolerance}: {reason})"
    parallel_assert(found <= limit, f"{message}\nours {_short(ours)}\nreference {_short(reference)}", comm)


def _short(values: ArrayLike) -> str:
    return np.array2string(np.asarray(values, float), threshold=20, precision=9)


# Runs, of a second at most.
TOLERANCE |= {
    "unit": (1e-12, "every step ends with quaternions of unit length, and their length carries no meaning"),
    "run": (1e-7, "runs with tolerances of 1e-8, or fixed steps as fine"),
    "adaptive steps": (1e-4, "runs with tolerances of 1e-6 and other steps, on numbers of order one to ten"),
    "conserved": (1e-8, "runs with tolerances of 1e-10"),
    "joint work": (1e-6, "Simpson's rule over steps of 2 ms, or steps with tolerances of 1e-8: some 1e-8"),
    "trapezium": (1e-4, "the trapezium over steps of 0.5 ms of motions of some 10 rad/s: h^2 / 12 times their squares"),
    "begun anew": (
        1e-3,
        "where steps of 0.01 s begin, order 1 over half of one: h^2 / 8 of accelerations of some 10 rad/s^2",
    ),
    "solved on ranks": (1e-9, "constraint loads solved to 1e-12, from other estimates: amplified by the motion"),
    "runs on ranks": (1e-11, "the same steps, but sums in another order: rounding, amplified by the motion"),
}

# Robots and exports.
TOLERANCE |= {
    "imported": (1e-10, "random states, some near positions where joints of links without mass are one another's"),
    "difference of exports": (1e-5, "central differences over 2 ms of motions of some rad/s: their third derivatives"),
    "single": (1e-6, "single precision, 6e-8, of numbers of a few m, turned back by quaternions"),
}

# Closed loops.
TOLERANCE |= {
    "nearest": (1e-8, "steps towards the nearest closed state end below 1e-10 rad"),
    "loops": (
        1e-9,
        "ranks of constraints are told by 1e-12 of what pivots are made of; what is near to redundant is amplified",
    ),
    "many loops": (1e-10, "a thousand linkages, each of which amplifies the roundings of its neighbours a little"),
    "penalised": (1e-11, "dense matrices with a penalty of a thousand times the masses, and so of their condition"),
    "measures": (1e-8, "violations of 1e-3: rotation vectors and sines differ by their cubes"),
    "closed loops": (1e-12, "what Newton's method stops at, in mechanisms of some metres"),
}

# Functions of lanes, errors against many digits.
TOLERANCE |= {
    "sine": (2.0**-53, "half of it the last rounding below 1, less than the other half that of the term before"),
    "two sines": (2.0**-52, "two functions, each right to 2^-53 of its largest value"),
    "last place": (2.0**-52, "one rounding of the result, and a small part of another"),
    "half a place": (0.51, "in units of the last place: one rounding, and a hundredth of others"),
    "reduction": (2.0**-80, "pi/2 to 2^-108, at most 2^26 of it, and roundings of numbers below 2^-27"),
    "angle": (5e-16, "roundings of a sum, a quotient and the result; the quotient's counts twice near pi/8"),
}

# Predictions.
TOLERANCE |= {}

# Closed loops.
TOLERANCE |= {
    "redundant": (1e-9, "loads of all constraints, of which rank decisions at 1e-9 leave the independent ones"),
    "closed": (1e-12, "closed to rounding after every step, of places up to 10 m and speeds up to 100 rad/s"),
    "passed": (1e-5, "angles of 120 rad in 20 s with a tolerance of 1e-9 a step, over 20 singular positions"),
}
TOLERANCE |= {"force at the end": (1e-6, "an angle of 16 rad right to 1e-8, where forces change by 1e2 times as much")}

# Structured random systems. Beside these shares a thousandfold of what rounding each term once does is allowed.
TOLERANCE |= {
    "fuzz": (
        1e-9,
        "of the largest, and for each cut: long chains, loads that are summed over bodies lose 3 digits to 5",
    ),
    "fuzz masses": (
        2e-13,
        "for each time that the heaviest body is as heavy as the lightest, or its moments as large, and each piece: "
        "1e-16 an operation; 4e-14 measured where a light rod of balls carries a heavy one, 1e-13 between pieces",
    ),
    "fuzz iterated": (1e-7, "loads solved to 1e-12, of constraints that are nearly redundant"),
    "sequences": (
        1e-10,
        "of the size of the motion, times what this makes of a difference at the begin: accelerations on other ranks "
        "differ by roundings; measured 4e-15 of nearly all, 3e-12 of loops that are nearly redundant",
    ),
    "iterated sequences": (1e-8, "loads solved to 1e-9 or 1e-10, likewise"),
    "balance of sequences": (100.0, "times the tolerance of each step, of the kinetic energy; measured 0.5"),
}
