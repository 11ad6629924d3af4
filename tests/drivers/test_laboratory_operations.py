"""Operations of bodies and joins, and of whole evaluations, against counts and formulas by hand."""

import pytest

from laboratory.counting import Counts
from laboratory.operations import PAPER, OperationCounts, arithmetic, models, operations_of
from mpimbs.model import system_from


def of_kind(kind: str) -> OperationCounts:
    return operations_of(system_from(f"{kind}:4").contents, system_from(f"{kind}:6").contents)


def both(counts: Counts) -> tuple[float, float]:
    return counts.multiplications, counts.additions


SYMMETRIC = 6 * 7 // 2  # means of a matrix and its transpose


@pytest.mark.parametrize(("kind", "axes"), [("spatial_chain", 1), ("rope", 3)])
def test_joins_by_hand(kind: str, axes: int) -> None:
    c = of_kind(kind)
    product, with_vector = 6 * 6 * 6, 6 * 6 * 7
    # W_L [I_R | p_R], W_L E_R; thirteen columns beside those of the matrix are eliminated; and the check of the factors
    eliminated = sum(6 * (5 - i + 13) for i in range(6))
    assert c.respond.multiplications == with_vector + product + eliminated + 5 and c.respond.divisions == 6
    # I_R [X | r], E_L times that, X^T E_R, E_R^T [Y | r]; means of I and W
    assert c.combine.multiplications == 3 * with_vector + product + 2 * (SYMMETRIC + 6)
    assert c.combine_tip.multiplications == 2 * with_vector + SYMMETRIC + 6
    assert both(c.between) == (4 * 36, 4 * 36) and both(c.between_tip) == (2 * 36, 2 * 36)
    assert both(c.turn) == (27 + 9, 18 + 9)
    # the inverse and its mean; for each axis y, m, y / m, W + y y^T / m with h, and s^T h but for the first
    first = 36 + 6 + 7 + 42
    assert c.release.multiplications == 210 + SYMMETRIC + axes * first + (axes - 1) * 6
    assert c.release.divisions == 6 + axes
    # W P21, W P12, P12 W P12; P12 (W P21 - d), P21 (W P12 + d); d; means of P11 and P22
    assert c.assemble.multiplications == 3 * product + 2 * with_vector + 36 + 2 * (SYMMETRIC + 6)
    assert both(c.spread) == (3 * 36 + axes * 13, 3 * 36 + axes * 12)
    assert both(c.far) == (72, 72)


def test_published_counts() -> None:
    """Ours of a body are near the paper's; our joins, of dense matrices, take up to 2.5 times the paper's."""
    c = of_kind("spatial_chain")
    for ours, paper, least, most in (
        (c.tip, PAPER["aba"].alone, 1.0, 1.2),
        (c.piece, PAPER["dcae"].body, 0.9, 1.0),
        (c.leaf + c.assembly, PAPER["dca"].body, 1.8, 2.1),
        (models(c)["dcae"].level, PAPER["dcae"].level, 2.0, 2.5),
        (models(c)["dca"].level, PAPER["dca"].level, 1.8, 2.1),
    ):
        assert paper is not None and least < arithmetic(ours) / arithmetic(paper) < most
    assert c.leaf.sine_cosines == c.tip.sine_cosines == 1 and c.leaf.divisions == 0


@pytest.mark.parametrize(
    ("name", "n", "p", "multiplications", "additions"),
    [
        ("aba", 10, 7, 3000, 2790),
        ("dca", 1024, 1, 1150 * 1024, 937 * 1024),
        ("dca", 1024, 8, 928 * 2 + 1150 * 128 - 1041, 812 * 2 + 937 * 128 - 845),
        ("dca-terminal", 1024, 1, 300 * 1024, 279 * 1024),
        ("dca-terminal", 579 * 3 + 2087, 4, 928 + 1150 * 579 - 1041, 812 + 937 * 579 - 845),
        ("dcae-even", 1024, 4, 928 + 637 * 256 - 495, 812 + 548 * 256 - 446),
        ("dcae", 1000, 1, 300 * 1000, 279 * 1000),
        ("dcae", 1000, 4, 928 + 637 * 200 - 495, 812 + 548 * 200 - 446),
    ],
)
def test_models_of_the_paper(name: str, n: int, p: int, multiplications: float, additions: float) -> None:
    assert both(PAPER[name](n, p)) == pytest.approx((multiplications, additions), rel=1e-13)


def test_models_of_ours() -> None:
    """By hand, with a count for each part that shows in the sum."""
    c = OperationCounts(*(Counts(multiplications=10.0**k) for k in range(14)))
    fields = {name: 10**k for k, name in enumerate(c._fields)}
    made = models(c)
    join = fields["respond"] + fields["combine"] + fields["between"]
    leaf = fields["leaf"] + fields["release"] + fields["assemble"] + fields["spread"]
    on_five = {"dcae-even": 20, "dca": 20}  # bodies of 100
    ratios = {"dcae": 10.0, "dca-terminal": float(leaf)}
    on_five |= {name: 100 / (4 + ratio) for name, ratio in ratios.items()}
    joint = fields["release"] + fields["spread"] + fields["far"]
    for name, m in on_five.items():
        if name.startswith("dcae"):  # three levels, of the last only the response
            wanted = fields["piece"] * m + 2 * join + 5 * fields["turn"] + fields["respond"] + fields["between_tip"]
        else:  # m - 1 joins and three levels; the first body's joint and the world's
            level = leaf - fields["leaf"] + fields["far"]
            wanted = leaf * m - (leaf - fields["leaf"]) + 3 * level + 5 * fields["turn"] + 2 * joint - fields["far"]
        assert made[name](100, 5).multiplications == pytest.approx(wanted, rel=1e-13), name
        assert made[name].tip_ratio == pytest.approx(ratios.get(name, 1.0))
        alone = leaf if name == "dca" else fields["tip"]
        assert made[name](100).multiplications == 100 * alone
    assert made["aba"](100, 5).multiplications == 100 * fields["tip"]
