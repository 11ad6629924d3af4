"""Systems that were wrong once, as the driver `fuzz.py` found them and made them smaller: files in `corpus`."""

from pathlib import Path

import pytest
from mpi4py import MPI

from fuzzing import check, read_case
from mpi_helpers import parallel_assert

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.toml"))


@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_was_wrong_is_right(comm: MPI.Comm, path: Path) -> None:
    """On any number of ranks, with the settings that it was found with and with the default ones."""
    case, settings = read_case(path)
    if comm.size > case.system.n_bodies:
        pytest.skip("more ranks than bodies")
    for given in (settings, {"coupling": "dcae"}):
        verdict = check(case, comm, given)
        bad = verdict.wrong + verdict.told + verdict.refused
        parallel_assert(not bad, "\n".join(bad), comm)
        parallel_assert(comm.rank or verdict.judged, "it could not be judged", comm)
