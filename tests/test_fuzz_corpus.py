"""Systems that were wrong once, as the driver `fuzz.py` found them and made them smaller: files in `corpus`."""

from pathlib import Path

import pytest
from mpi4py import MPI

from fuzzing import check, read_case
from mpi_helpers import parallel_assert

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.toml"))
REFUSED = sorted((Path(__file__).parent / "corpus" / "refused").glob("*.toml"))


@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_was_wrong_is_right(comm: MPI.Comm, path: Path) -> None:
    """On any ranks, with the settings that it was found with, if these allow it, and with the default ones."""
    case, settings = read_case(path)
    if comm.size > case.system.n_bodies:
        pytest.skip("more ranks than bodies")
    as_found = [] if comm.size > settings.get("cuts", comm.size) + 1 else [settings]
    for given in (*as_found, {"coupling": "dcae"}):
        verdict = check(case, comm, given)
        bad = verdict.wrong + verdict.told + verdict.refused
        parallel_assert(not bad, "\n".join(bad), comm)
        parallel_assert(comm.rank or verdict.judged, "it could not be judged", comm)


@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.stem)
def test_what_a_coupling_can_not_solve_it_refuses(comm: MPI.Comm, path: Path) -> None:
    """With the settings that it was found with it is right, or ends with a message, and is not left to the witness."""
    case, settings = read_case(path)
    if comm.size > settings["cuts"] + 1:
        pytest.skip("more ranks than subchains")
    verdict = check(case, comm, settings)
    said = "do not converge", "no preconditioner mends: choose `coupling='dcae'`"
    bad = verdict.wrong + verdict.told + [text for text in verdict.refused if not all(part in text for part in said)]
    parallel_assert(not bad, "\n".join(bad), comm)
    parallel_assert(comm.rank or verdict.judged + len(verdict.refused) == 1, "it was not looked at", comm)
