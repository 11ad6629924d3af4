"""The command line as the fuzzer asks it: each command once, files that are damaged, options that are wrong."""

from dataclasses import replace

import numpy as np
import pytest
from mpi4py import MPI

import commands
import mpimbs.cli
from commands import WORDS, CommandLine, bad_end, damaged
from fuzzing import Oracle, Verdict, followed, operate
from mpi_helpers import parallel_assert
from operations import OPERATIONS, compared
from oracles.structured_systems import TIME, Case, Weighted, case_of

# Seeds to begin at: of systems that move, have an equilibrium, or quaternions that are not quite of unit length.
SEEDS = {"run": 41, "settle": 6}
MOVING = 8
COPIES = 9  # of what is drawn for a run
EVERY = 2503  # bytes of a file, of which so many are damaged together


def case_for(name: str) -> Case:
    """The first system that the operation fits, from a seed on."""
    seed = SEEDS.get(name, MOVING)
    case = next(case for k in range(seed, seed + 100) if OPERATIONS[name].fits(case := case_of(k, most=12)))
    q, u, *_ = followed(case.system, case.q, case.u, TIME)
    return replace(case, q=q, u=u)


@pytest.mark.ranks(2)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize(
    "name", ["acceleration", "inertia", "inverse", "settle", "assemble", "run", "robot", "convert"]
)
def test_a_command_answers_as_it_should(comm: MPI.Comm, name: str) -> None:
    case, verdict = case_for(name), Verdict()
    operate(case, comm, Oracle(case, comm.size) if comm.rank == 0 else None, verdict, name)
    parallel_assert(not verdict.wrong + verdict.refused, "\n".join(verdict.wrong + verdict.refused), comm)


def test_wrong_answers_are_seen() -> None:
    """Of accelerations, of a run that differs in a bit, of a command that ends badly."""
    case = case_for("acceleration")
    oracle = Oracle(case)
    off = 1e-3 * oracle.allowed(0.0)[1]
    found = {"udot": oracle.solution.udot + off, "settings": {"coupling": "dcae"}}
    ((_, ours, right, allowed),) = compared("acceleration", case, found, oracle)
    assert (abs(ours - right) > allowed).any()
    bits = np.zeros(3), np.full(3, 5e-324), np.zeros(3)
    rows = list(compared("run", case, {"q": bits}, oracle))
    assert [abs(ours - right).max() > allowed for _, ours, right, allowed in rows] == [False, True]
    ((told, *_),) = compared("damage", case, {"wrong": "a traceback"}, oracle)
    assert told == "a traceback"


@pytest.mark.ranks(2)
@pytest.mark.time_limit(300)
def test_an_ensemble_by_command(comm: MPI.Comm) -> None:
    """A run of copies: the seed draws one."""
    case = replace(case_for("run"), seed=COPIES)
    with CommandLine(case, comm) as line:
        rows = list(OPERATIONS["run"].judge(case, commands.answer_motion(case, line), None))
    parallel_assert(comm.rank or rows[2][1].ndim == 3, "no copies are drawn", comm)
    parallel_assert(all(np.array_equal(ours, right) for _, ours, right, _ in rows), "copies differ from Python's", comm)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", ["mistake", "options"])
def test_refusals_are_told(comm: MPI.Comm, name: str, seed: int) -> None:
    case, verdict = replace(case_for(name), seed=seed), Verdict()
    operate(case, comm, Oracle(case, comm.size) if comm.rank == 0 else None, verdict, name)
    parallel_assert(not verdict.wrong, "\n".join(verdict.wrong), comm)


@pytest.mark.ranks(2)
@pytest.mark.time_limit(300)
def test_damaged_outputs_are_told(comm: MPI.Comm) -> None:
    """Wherever the damage is: tracebacks of h5py came of one byte in a hundred, of files and of checkpoints."""
    with CommandLine(case_for("damage"), comm) as line:
        line("run chain:3 --t-end 0.1 --every 0.02 --checkpoint-steps 2 -o @/out.h5")
        told = 0
        for name, words in (
            ("out.h5", "export @/out.h5 -o @/x.npz --force"),
            ("out.checkpoint.h5", "restart @/out.h5"),
        ):
            whole = comm.bcast((line.folder / name).read_bytes() if comm.rank == 0 else None)
            for at in range(0, len(whole), EVERY):
                line.put(name, whole[:at] + b"\xff" * 8 + whole[at + 8 :])
                ended = line.ended(words)
                wrong = bad_end(ended)
                parallel_assert(not wrong and ended.code in (0, 2), f"{name} at {at}: {wrong}", comm)
                told += ended.code
            line.put(name, whole)
        assert told


def test_bad_ends_are_seen(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        print("Traceback (most recent call last):\nKeyError: 'q'")
        raise SystemExit(1)

    with CommandLine(case_for("mistake"), comm) as line:
        assert not bad_end(line.ended("check @/model.toml")) and not bad_end(line.ended("check @/absent.toml"))
        monkeypatch.setattr(mpimbs.cli, "main", fails)
        with pytest.raises(RuntimeError, match="a traceback"):
            line("check @/model.toml")


def test_damage_changes_what_it_should() -> None:
    text = b'a = 1.5\nb = "x"\nc = [2, 3]\n'
    made = {damaged(Weighted(seed), text, "\n") for seed in range(200)}
    assert len(made) > 60 and any(part in found for found in made for part in (word.encode() for word in WORDS[:4]))
