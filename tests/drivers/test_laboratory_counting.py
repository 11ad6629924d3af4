"""Operations and memory accesses, counted, against counts by hand and published ones."""

import re
from collections import Counter
from dataclasses import astuple

import numba
import numpy as np
import pytest

from cases import GENERATORS
from laboratory.counting import ARC_TANGENT, NEAR, SINE_COSINE, Counted, CountedArray, Counts, counting
from laboratory.phase_costs import count, count_joins, count_phases, counts_of_tile, counts_per_body
from laboratory.phases import (
    KERNELS,
    PIECE,
    RUN,
    TILE_PHASES,
    TIP,
    arguments,
    pieces,
    run_joins,
    swept,
)
from mpimbs.kernels.compiler import FASTMATH, interpreted, kernel
from mpimbs.kernels.lanes import load, native_width, sqrt, store, zero_lanes
from mpimbs.kernels.memory import Table
from mpimbs.kernels.trigonometry import atan2, sincos
from mpimbs.kernels.tuples import load3, load9, load21
from mpimbs.model import System, system_from
from mpimbs.spatial.inertia import inertia_inward, inertia_inward_from_hinge
from mpimbs.spatial.rows import ROW, store_symmetric
from mpimbs.spatial.six import products, six_rows, write_six
from mpimbs.spatial.vectors import cross, dot3, dot6, multiply, normalised, rotate
from mpimbs.values.assembly import RECORD, assemble, inverse_six
from mpimbs.values.handles import SIZE
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


def test_other_operations() -> None:
    counts = Counts()
    counting(normalised)(numbers(counts, 4))
    assert counts == Counts(multiplications=8, additions=3, divisions=1, square_roots=1)
    assert counts.operations == 13 and counts.instructions == 8 + 2
    counts = Counts()
    x, y = numbers(counts, 2)
    sine, cosine = sincos(x)
    assert counts == Counts(), "nothing is of use yet"
    assert (sine.use(), cosine.use()) == (np.sin(1.0), np.cos(1.0))
    assert atan2(y, x).use() == np.arctan2(2.0, 1.0) and sqrt(y).use() == np.sqrt(2.0)
    assert x < y and not x >= y and x == 1.0 and x != y and x <= 1.0 < y  # six and a chain of two
    assert counts == Counts(sine_cosines=1, arc_tangents=1, square_roots=1, comparisons=6)
    assert counts.operations == SINE_COSINE + ARC_TANGENT + 1
    with np.errstate(all="raise"):
        assert (x / Counted(0.0, counts)).use() == np.inf


def test_what_the_compiler_knows_is_free() -> None:
    counts = Counts()
    (x,) = numbers(counts, 1)
    zero = Counted(0.0, counts, constant=True)
    free = (x + 0.0, 0.0 + x, x - zero, 1.0 * x, x * -1.0, -x, abs(x), zero + 1.0, zero * 3.0 - 1.0, x / 1.0, zero + x)
    assert [number.use() for number in free] == [1, 1, 1, 1, -1, -1, 1, 1, -1, 1, 1]
    assert counts == Counts()
    executed = (x * 0.0, x + 2.0, 0.5 * x, 3.0 - x, x + Counted(0.0, counts))
    assert [number.use() for number in executed] == [0, 3, 0.5, 2, 1]
    assert counts == Counts(multiplications=2, additions=3)
    with pytest.raises(TypeError, match="would not be counted"):
        np.zeros(2)[0] = x


def test_what_the_compiler_drops_is_not_counted() -> None:
    """Operations done before, and those whose results nobody uses."""
    counts = Counts()
    x, y, z = numbers(counts, 3)
    again = (x * y, y * x, x - z, x + -z, x / y, x / y, 2.0 * z, z * 2.0, x.__neg__().__neg__() * y)
    assert [number.use() for number in again] == [2, 2, -2, -2, 0.5, 0.5, 6, 6, 2]
    assert counts == Counts(multiplications=2, additions=1, divisions=1)
    counts = Counts()
    product = interpreted(cross)(*(numbers(counts, 3) for _ in range(2)))
    assert counts == Counts()
    product[0].use()
    product[0].use()
    assert counts == Counts(multiplications=2, additions=1)


def operations_in(compiled, lanes: str = "") -> Counter[str]:
    """Floating-point operations in optimised code, all or those on a type of vectors."""
    (code,) = compiled.inspect_llvm().values()
    flags = r"(?:(?:contract|nsz|arcp) )*"
    return Counter(re.findall(rf"= (fmul|fadd|fsub|fdiv) {flags}{re.escape(lanes)}", code))


@pytest.mark.parametrize(("sine", "operations"), [(True, SINE_COSINE), (False, ARC_TANGENT)])
def test_operations_of_sines_and_arc_tangents_in_lanes(sine: bool, operations: int) -> None:
    def both(a, b):
        s, c = sincos(load(zero_lanes(2), a, 0))
        store(b, 0, s)
        store(b, 2, c)

    def angle(a, b):
        store(b, 0, atan2(load(zero_lanes(2), a, 0), load(zero_lanes(2), a, 2)))

    compiled = numba.njit(fastmath=FASTMATH, error_model="numpy")(both if sine else angle)
    given, found = np.array([0.3, -4.0, 2.0, 0.1]), np.zeros(4)
    compiled(given, found)
    wanted = [*np.sin(given[:2]), *np.cos(given[:2])] if sine else [*np.arctan2(given[:2], given[2:]), 0, 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
    assert sum(operations_in(compiled, "<2 x double>").values()) == operations


@kernel
def _from_hinge(zero, a, b):
    moved = inertia_inward_from_hinge(load9(zero, a, 0), load3(zero, a, 9), load21(zero, a, 12))
    store_symmetric(zero, b, 0, moved)


@kernel
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


@kernel
def _product(a, b, c):
    write_six(c, 0, products(a, 0, six_rows(b, 0)))


@kernel
def _inverse(a, b):
    write_six(b, 0, inverse_six(six_rows(a, 0)))


def six(spare: tuple[int, ...] = (), seed: int = 0) -> np.ndarray:
    """Six rows of a positive definite matrix and zeros, with spare columns masked."""
    rows = np.zeros((6, ROW))
    rows[:, :6] = np.eye(6) + 0.1 * np.random.default_rng(seed).normal(size=(6, 6))
    rows = np.ma.array(rows)
    rows[:, list(spare)] = np.ma.masked
    return rows.ravel() if spare else np.ma.getdata(rows).ravel()


def test_spare_columns_are_no_use() -> None:
    """By hand: seven columns of a product are useful; of an inverse, what is neither zero nor one."""
    results = []
    for spare, how in (((), {}), ((), {"whole": True}), ((7,), {"useful": True})):
        a, b, c = six(), six(spare, 1), six(spare)
        counts = count(_product, a, b, c, **how)
        columns = 7 if spare else 8
        assert counts == counts.__class__(
            multiplications=36 * columns, additions=30 * columns, loads=counts.loads, stores=6 * columns,
            fetched=counts.fetched, written=6 * columns, touched=counts.touched,
        )  # fmt: skip
        results.append(np.ma.getdata(c))
    whole = count(_inverse, six(), wide := six(), whole=True)
    useful = count(_inverse, six((6, 7)), slim := six((6, 7)), useful=True)
    # a step clears 48 numbers of the matrix, but for the last, and as many of the inverse
    assert (whole.multiplications, whole.additions, whole.divisions) == ((5 + 6) * 48, (5 + 6) * 40, 6)
    # step i: the 5 - i columns right of it; the i columns of the inverse that are begun, and one that begins
    assert useful.multiplications == sum(6 * (5 - i) + i + 5 * (i + 1) for i in range(6)) == 210
    assert useful.additions == sum(5 * (5 - i) + 5 * i for i in range(6)) == 150 and useful.divisions == 6
    for result, a, b in ((results[1], results[0], results[2]), (wide, np.ma.getdata(slim), wide)):
        np.testing.assert_array_equal(a, result)
        np.testing.assert_array_equal(b, result)
    inverse = np.linalg.inv(six().reshape(6, ROW)[:, :6])
    np.testing.assert_allclose(wide.reshape(6, ROW)[:, :6], inverse, rtol=1e-13, atol=1e-14)


def test_whole_registers_are_those_of_the_compiled_code() -> None:
    """The optimised code has as many operations on registers, and on doubles, as were counted.

    But for what the compiler finds to be common, which depends on what else the process has compiled: 6 % at the most.
    """
    random = np.random.default_rng(0)
    for compiled, sizes in ((_product, (6, 6, 6)), (_inverse, (6, 6)), (assemble, (18, 18, RECORD // ROW, 18))):
        given = [random.normal(size=size * ROW) for size in sizes]
        same = [part.copy() for part in given]
        counts = count(compiled, *given, whole=True)
        again = numba.njit(fastmath=FASTMATH, error_model="numpy")(compiled.py_func)
        again(*same)
        rows, doubles = (operations_in(again, kind) for kind in (f"<{ROW} x double>", "double"))
        times, plus, minus, over = (ROW * rows[name] + doubles[name] for name in ("fmul", "fadd", "fsub", "fdiv"))
        assert 0.9 * counts.multiplications < times <= counts.multiplications
        assert 0.9 * counts.additions < plus + minus <= counts.additions
        assert over == counts.divisions
        assert counts.multiplications > 200
        np.testing.assert_allclose(given[-1], same[-1], rtol=1e-10, atol=1e-10)


@kernel
def _passes(zero, times, a, b):
    for _ in range(times):
        for i in range(a.shape[0]):
            store(b, i, 2.0 * load(zero, a, i))


@pytest.mark.parametrize("n", [8, NEAR])
def test_bytes_of_a_copy_loop(n: int) -> None:
    """One pass moves every number once; a second moves them again unless they are all near."""
    for times in (1, 3):
        counts = Counts()
        a, b = CountedArray(np.arange(n) + 1.0, counts), CountedArray(np.zeros(n), counts)
        counting(_passes)(Counted(0.0, counts, True), times, a, b)
        moved = n if n < NEAR / 2 else n * times
        done = n * times
        same = {"multiplications": done, "loads": done, "stores": done, "fetched": moved, "written": moved}
        assert counts == Counts(**same, touched=2 * n)
        assert counts.bytes_moved() == 16 * moved
        np.testing.assert_array_equal(b.values, 2 * a.values)


def test_arrays_are_viewed_as_compiled_code_views_them() -> None:
    counts = Counts()
    a = CountedArray(np.zeros((3, 4)), counts)
    row = a[1]
    row[1:3] = (Counted(5.0, counts), 6.0)
    a[2, :] = row
    assert len(row) == 4 and a.shape == (3, 4) and counts.stores == 6
    np.testing.assert_array_equal(a.values[1:], [[0, 5, 6, 0]] * 2)
    assert row[1].value == 5.0 and a[1, 2].value == 6.0
    assert counts.loads == 6 and counts.fetched == 2, "what was just stored is near"
    whole = CountedArray(np.arange(3), counts)
    assert whole[2] == 2 and isinstance(whole[2], int) and counts.integers == 1
    assert Counts(fetched=2, written=1, integers=4).bytes_moved(8) == 8 * 3.5


def test_rows_are_loaded_and_stored_whole() -> None:
    counts = Counts()
    a = CountedArray(np.arange(16.0), counts)
    row = a[8:16].copy()
    assert row.dtype == object and [x.value for x in row] == list(range(8, 16)) and counts.loads == 8
    a[0:8] = row
    assert counts == Counts(loads=8, stores=8, fetched=8, written=8, touched=16)
    np.testing.assert_array_equal(a.values, [*range(8, 16)] * 2)
    assert a.size == 16


@pytest.mark.time_limit(400)  # compiles
@pytest.mark.parametrize("spec", [f"{name}:5" for name in GENERATORS])
def test_counted_sweeps_compute_what_compiled_ones_do(spec: str) -> None:
    counted, compiled = arguments(system_from(spec)), swept(system_from(spec))
    count_phases(counted)
    for name in ("block", "udot"):
        assert_close(name, getattr(counted, name), getattr(compiled, name), "lanes")
        assert np.abs(getattr(counted, name)).max() > 0


@pytest.mark.parametrize("name", ["spatial_chain", "rope"])
def test_lanes_are_pieces_of_a_chain(name: str) -> None:
    """What each lane of a tile finds is what doubles find for its piece; the layout brings it to and fro."""
    w = native_width()
    system = system_from(f"{name}:{4 * w}")
    a, again = swept(system, w), arguments(system, w)
    for part in (again.q, again.u, again.loads):
        part[:] = np.nan
    table = Table(again)
    for phase in (*range(len(KERNELS)), 0):
        RUN[w](1, phase, table.data)
    for field in ("q", "u", "loads", "block", "udot"):
        np.testing.assert_array_equal(getattr(again, field), getattr(a, field))
    np.testing.assert_array_equal(again.sequence.blocks.reshape(w, SIZE), a.block.reshape(SIZE, w).T)
    first = swept(system_from(f"{name}:4"))
    if name == "spatial_chain":  # the arc of a rope depends on its length
        assert_close("handle equations", a.block.reshape(SIZE, w)[:, 0], first.block, "lanes")
        np.testing.assert_array_equal(again.sequence.rates, again.sequence.u)
    else:
        assert_close("rates", again.sequence.rates, swept(system).rates, "lanes")


def test_counts_are_the_same_every_time() -> None:
    assert count_phases(arguments(system_from("rope:4"))) == count_phases(arguments(system_from("rope:4")))


@pytest.mark.parametrize("name", GENERATORS)
def test_counts_per_body_do_not_depend_on_the_length(name: str) -> None:
    chains = [system_from(f"{name}:{n}") for n in (68, 72, 80)]
    first, second = (counts_per_body(*pair) for pair in ((chains[0], chains[1]), (chains[1], chains[2])))
    assert set(first) == {*TILE_PHASES[:-1], *TIP}
    for phase, counts in first.items():
        assert 0 < counts.touched <= counts.fetched + counts.written
        np.testing.assert_allclose(astuple(counts), astuple(second[phase]), rtol=1e-12, err_msg=phase)


def test_counts_of_a_tile() -> None:
    """A chain as long as a counted one has its counts; one much longer those per body."""
    short, long = (system_from(f"spatial_chain:{n}") for n in (68, 72))
    per_body, whole = counts_per_body(short, long), count_phases(arguments(long))
    same, longer = (counts_of_tile(short, long, bodies, 8) for bodies in (72, 10**9))
    assert tuple(same) == TILE_PHASES
    for phase in TILE_PHASES[:-1]:
        np.testing.assert_allclose(astuple(same[phase]), astuple(whole[phase] / 72), rtol=1e-12)
        np.testing.assert_allclose(astuple(longer[phase]), astuple(per_body[phase]), rtol=1e-6, atol=1e-6)
    assert same["joins"].multiplications * 72 * 8 == pytest.approx(7 * JOIN_MULTIPLICATIONS, rel=FEW)


@pytest.mark.parametrize(("name", "coordinates", "speeds", "times"), [("spatial_chain", 1, 1, 2), ("rope", 4, 3, 3)])
def test_bytes_of_the_layout(name: str, coordinates: int, speeds: int, times: int) -> None:
    """State to lanes by every pass that needs it; accelerations, and rates that are not the speeds, back."""
    layout = counts_per_body(*(system_from(f"{name}:{n}") for n in (68, 72)))["layout"]
    back = speeds + (coordinates if times == 3 else 0)
    assert layout.operations == 0
    assert layout.bytes_moved() == 16 * (times * (coordinates + speeds) + back)


def test_counts_of_the_far_handle_of_hinges() -> None:
    """By hand, for each of six columns: z 1, c 6 and 6, E 5 and 5, then 21 and 15 to the parent; and W + s s^T / D."""
    far = counts_per_body(system_from("spatial_chain:32"), system_from("spatial_chain:36"))["far handle"]
    assert far.multiplications == 6 * (1 + 6 + 5 + 21) + 27 and far.additions == 6 * (6 + 5 + 15) + 21
    # three times two columns: the frames, the bias but for one turn, U with 1 / D and u; then s and 1 / D
    assert far.loads == 3 * (12 + 6 + 8) + 7 and far.stores == 6


def test_published_counts_of_revolute_chains() -> None:
    """One handle: 300 multiplications and 279 additions per body; both: 637 and 548 [Critchley 2007, eq. 43, 72].

    Those are of frames by Denavit and Hartenberg, whose rotations have a zero; ours are of any frames: 356 and 290 when
    this was written. With both handles ours were 623 and 498, of which the boundary turn takes 36 and 25: fewer, as E
    skips the row that a hinge leaves without force, and c needs no product of its own.
    """
    counts = counts_per_body(system_from("spatial_chain:32"), system_from("spatial_chain:36"))
    tip, piece = (sum((counts[phase] for phase in phases), Counts()) for phases in (TIP, PIECE))
    assert 300 <= tip.multiplications < 1.25 * 300 and 279 <= tip.additions < 1.15 * 279
    assert piece.multiplications == pytest.approx(637, rel=0.1) and piece.additions == pytest.approx(548, rel=0.1)
    assert tip.sine_cosines == piece.sine_cosines == 1 and tip.divisions == piece.divisions == 1


# W_L I_R, I_R X and E_L Y by rows of 8; an elimination with as many right-hand sides; A and f at the point; and a few
# for means and for the check of the elimination's factors
JOIN_MULTIPLICATIONS = 3 * 6 * 6 * 8 + 6 * 6 * 2 * 8 + 2 * 6 * 6
FEW = 0.02


def test_counts_of_joins() -> None:
    """Nothing gets lost in rows and views."""
    blocks = np.tile(swept(system_from("spatial_chain:4")).block, (3, 1))
    counted, compiled = pieces(blocks), pieces(blocks)
    counts = count_joins(counted)
    table = Table(compiled)
    run_joins(1, table.data)
    for name in ("joined", "responses", "loads"):
        assert_close(name, getattr(counted, name), getattr(compiled, name), "join")
    assert counts.multiplications == pytest.approx(2 * JOIN_MULTIPLICATIONS, rel=FEW) and counts.divisions == 2 * 6
    assert 0.8 * counts.multiplications < counts.additions < counts.multiplications


def test_trees_are_refused() -> None:
    tree: System = system_from("tree:2:2")
    with pytest.raises(ValueError, match="not a chain"):
        arguments(tree)


def test_lanes_that_differ_are_refused() -> None:
    for spec, lanes in (("free_chain:8", 2), ("chain:9", 2)):
        with pytest.raises(ValueError, match=f"no {lanes} pieces"):
            arguments(system_from(spec), lanes)
