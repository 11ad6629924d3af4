"""Operations, counted, against counts by hand and published ones."""

import re
from collections import Counter

import numba
import numpy as np
import pytest

from cases import GENERATORS
from laboratory.counting import Counted, CountedArray, Counts, counting
from laboratory.sweeps import PIECE, SWEEPS, TIP, chain, count_sweeps, counts_per_body
from mpimbs.kernels.compiler import FASTMATH, interpreted, kernel
from mpimbs.kernels.lanes import zero_lanes
from mpimbs.kernels.tuples import load3, load9, load21
from mpimbs.model import system_from
from mpimbs.spatial.inertia import inertia_inward, inertia_inward_from_hinge
from mpimbs.spatial.rows import ROW, store_symmetric
from mpimbs.spatial.vectors import cross, dot3, dot6, multiply, rotate
from tolerances import assert_close


def numbers(counts: Counts, size: int) -> tuple[Counted, ...]:
    return tuple(Counted(1.0 + k % 3, counts) for k in range(size))


@pytest.mark.parametrize(
    ("compiled", "sizes", "multiplications", "additions"),
    [
        (multiply, (9, 9), 27, 18),
        (rotate, (9, 3), 9, 6),
        (cross, (3, 3), 6, 3),
        (dot3, (3, 3), 3, 2),
        (dot6, (6, 6), 6, 5),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_small_products(compiled, sizes: tuple[int, ...], multiplications: int, additions: int) -> None:
    counts = Counts()
    given = [numbers(counts, size) for size in sizes]
    result = counting(compiled)(*given)
    assert counts == Counts(multiplications=multiplications, additions=additions)
    plain = interpreted(compiled)(*(tuple(x.value for x in part) for part in given))
    assert result == plain and isinstance(np.ravel(result)[0], float)


def operations_in(compiled, lanes: str = "") -> Counter[str]:
    """Floating-point operations in optimised code, all or those on a type of vectors."""
    (code,) = compiled.inspect_llvm().values()
    flags = r"(?:(?:contract|nsz|arcp) )*"
    return Counter(re.findall(rf"= (fmul|fadd|fsub|fdiv) {flags}{re.escape(lanes)}", code))


@kernel(inline=True)  # a part of what calls it, in whose code its operations are to be found
def _from_hinge(zero, a, b):
    moved = inertia_inward_from_hinge(load9(zero, a, 0), load3(zero, a, 9), load21(zero, a, 12))
    store_symmetric(zero, b, 0, moved)


@kernel(inline=True)
def _any_inertia(zero, a, b):
    moved = inertia_inward(load9(zero, a, 0), load3(zero, a, 9), load21(zero, a, 12))
    store_symmetric(zero, b, 0, moved)


@pytest.mark.parametrize("moving", [_from_hinge, _any_inertia], ids=lambda moving: moving.py_func.__name__)
@pytest.mark.parametrize("lanes", [False, True], ids=["doubles", "lanes"])
def test_counts_are_those_of_the_compiled_code(moving, lanes: bool) -> None:
    """The optimised code has as many operations as were counted, before they are fused to multiply-adds."""
    numbers = np.random.default_rng(0).normal(size=66)
    counts = Counts()
    counting(moving)(Counted(0.0, counts, True), *(CountedArray(numbers, counts) for _ in range(2)))

    def in_lanes(a, b):
        moving(zero_lanes(2), a, b)

    def in_doubles(a, b):
        moving(0.0, a, b)

    compiled = numba.njit(fastmath=FASTMATH, error_model="numpy")(in_lanes if lanes else in_doubles)
    compiled(numbers, np.zeros(2 * 6 * ROW))
    found = operations_in(compiled)
    assert found["fmul"] == counts.multiplications > 100 and found["fadd"] + found["fsub"] == counts.additions
    assert found["fdiv"] == counts.divisions == 0


@pytest.mark.time_limit(400)  # compiles
@pytest.mark.parametrize("spec", [f"{name}:5" for name in GENERATORS])
def test_counted_sweeps_compute_what_compiled_ones_do(spec: str) -> None:
    counted, compiled = chain(system_from(spec).contents), chain(system_from(spec).contents)
    count_sweeps(counted)
    for call in SWEEPS.values():
        kernel, *given = call(compiled)
        kernel(*given)
    for name in ("block", "udot"):
        assert_close(name, getattr(counted, name), getattr(compiled, name), "lanes")
        assert np.abs(getattr(counted, name)).max() > 0


def test_published_counts_of_revolute_chains() -> None:
    """One handle: 300 multiplications and 279 additions per body; both: 637 and 548 [Critchley 2007, eq. 43, 72].

    Those are of frames by Denavit and Hartenberg, whose rotations have a zero; ours are of any frames: 356 and 290 when
    this was written. With both handles ours were 623 and 498, of which the boundary turn takes 36 and 25: fewer, as E
    skips the row that a hinge leaves without force, and c needs no product of its own.
    """
    counts = counts_per_body(system_from("spatial_chain:32").contents, system_from("spatial_chain:36").contents)
    tip, piece = (sum((counts[name] for name in sweeps), Counts()) for sweeps in (TIP, PIECE))
    assert 300 <= tip.multiplications < 1.25 * 300 and 279 <= tip.additions < 1.15 * 279
    assert piece.multiplications == pytest.approx(637, rel=0.1) and piece.additions == pytest.approx(548, rel=0.1)
    assert tip.sine_cosines == piece.sine_cosines == 1 and tip.divisions == piece.divisions == 1
