"""Operations of the inertia matrix by the paper's forms and by ours, against counts by hand."""

import pytest

from laboratory.inertia_operations import InertiaOperations, inertia_operations


def test_by_hand() -> None:
    """Of two links: one join, two diagonals, one resolved load; doubling knows where the second frame lies, too."""
    found = inertia_operations(2)
    # U c, U E U^T, three multiples of points, 6 + 3 for each m (d . d 1 - d d^T)
    join, diagonal, resolved, further = 9 + 45 + 9 + 18, 8, 2 * 9 + 6, 27 + 9
    assert found.recursive.multiplications == join + 2 * diagonal + resolved
    assert found.doubling.multiplications == found.recursive.multiplications + further
    assert found.recursive.divisions == 1


def less(found: InertiaOperations) -> tuple[float, float]:
    """What is done here, over what the paper's tables do."""
    here = found.here.multiplications + found.here.additions
    forms = (form.multiplications + form.additions for form in (found.recursive, found.doubling))
    first, second = (here / form for form in forms)
    return first, second


@pytest.mark.parametrize(("n", "most"), [(36, 0.75), (128, 0.4), (512, 0.32)])
def test_least_on_one_processor(n: int, most: float) -> None:
    """The paper: more operations with less order; and a form that took fewer would be the best serial one, too."""
    found = inertia_operations(n)
    assert found.recursive.operations < found.doubling.operations
    recursive, doubling = less(found)
    assert doubling < recursive < most
