"""Division of a system into subchains, and of these among ranks."""

import numpy as np
import pytest

from mpimbs.base.errors import InputError
from mpimbs.model import system_from
from mpimbs.partition.division import divide


def test_one_subchain_a_rank_by_default() -> None:
    division = divide(system_from("chain16").contents, 4)
    assert len(division.bounds) == 5 and np.array_equal(division.cuts, division.bounds)
    assert division.bounds[0] == 0 and division.bounds[-1] == 16


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 16])
def test_subchains_are_shared_among_ranks_to_one(size: int) -> None:
    """Subchains are the same on any number of ranks, and those of a rank are neighbours."""
    division = divide(system_from("chain16").contents, size, cuts=15, lanes=1)
    assert np.array_equal(division.bounds, np.arange(17))
    counts = np.diff(division.owners)
    assert division.owners[0] == 0 and division.owners[-1] == 16 and counts.min() >= 1 and np.ptp(counts) <= 1
    assert np.array_equal(division.cuts, division.owners)


def test_lanes_are_chosen_for_a_subchain_not_for_the_chain() -> None:
    assert divide(system_from("spatial_chain:1024").contents, 1, lanes=None).width >= 2
    assert divide(system_from("spatial_chain:1024").contents, 1, cuts=511).width == 1


@pytest.mark.parametrize(
    ("model", "size", "cuts", "words"),
    [
        ("spatial_chain:3", 4, None, "start at most 3 ranks"),
        ("chain16", 1, 16, "give `cuts` from 0 to 15"),
        ("chain16", 1, -1, "give `cuts` from 0 to 15"),
        ("chain16", 4, 1, "give `cuts=3` or more"),
        ("figure", 1, 1, "divided into intervals"),
        ("figure", 2, None, "divided into intervals"),
    ],
)
def test_errors(model: str, size: int, cuts: int | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        divide(system_from(model).contents, size, cuts)
