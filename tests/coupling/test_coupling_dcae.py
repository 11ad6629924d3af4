"""DCAe: boundary values of each rank's subchain against the same equations solved one after the other."""

import pytest

from cases import accelerations, in_pieces, moving_state
from mpimbs.model import system_from
from mpimbs.partition.chain import body_costs, split_chain
from oracles import dense
from oracles.random_systems import random_system
from tolerances import assert_close


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 16, 33])
@pytest.mark.parametrize("kind", ["rope", "free_chain", "mixed"])
def test_any_number_of_pieces(kind: str, ranks: int) -> None:
    """The pieces that so many ranks would own, joined in one process, give the accelerations of the whole."""
    system = random_system(ranks, 40, True)[0] if kind == "mixed" else system_from(f"{kind}:40")
    q, u, tau = moving_state(system, ranks)
    cuts = split_chain([body_costs(system.contents.joint_types())], ranks).tolist()
    got = in_pieces(system, cuts, q, u, tau)
    assert_close("accelerations", got, accelerations(system, q, u, tau), "ranks")


def test_every_body_a_piece_against_dense() -> None:
    system = system_from("spatial_chain:30")
    q, u, tau = moving_state(system)
    got = in_pieces(system, list(range(31)), q, u, tau)
    assert_close("accelerations", got, dense.dense_accelerations(system, q, u, tau), "dense")
