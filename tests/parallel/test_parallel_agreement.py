"""How ranks fail together."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert, run_job, starts_mpiexec
from mpimbs import Batch, Dynamics, InputError, System, simulate, system_from
from mpimbs.parallel.agreement import abort_on_error, alike, communicator, on_root, together


@pytest.mark.parametrize("bad", ["first", "last", "all"])
def test_together_raises_everywhere(comm: MPI.Comm, bad: str) -> None:
    """Bad input on one rank is raised on all, with the message of the lowest rank that found some."""
    lowest = comm.size - 1 if bad == "last" else 0
    failing = bad == "all" or comm.rank == lowest

    def action() -> None:
        if failing:
            raise InputError(f"bad input on rank {comm.rank}")

    message = "nothing raised"
    try:
        together(comm, action)
    except InputError as error:
        message = str(error)
    parallel_assert(message == f"bad input on rank {lowest}", message, comm)


several = pytest.mark.skipif(MPI.COMM_WORLD.size == 1, reason="one rank agrees with itself")


def refused(comm: MPI.Comm, action: Callable[[], object]) -> str:
    """The words with which bad input is refused: the same on all ranks."""
    with pytest.raises(InputError) as found:
        action()
    message = str(found.value)
    parallel_assert(comm.allgather(message) == [message] * comm.size, message, comm)
    return message


@several
def test_an_intercommunicator_is_refused(comm: MPI.Comm) -> None:
    half = comm.Split(comm.rank < comm.size // 2)
    between = half.Create_intercomm(0, comm, comm.size // 2 if comm.rank < comm.size // 2 else 0)
    assert "is an intercommunicator, between two groups" in refused(comm, lambda: communicator(between))
    between.Free()
    half.Free()


@several
def test_what_differs_is_named_with_its_ranks(comm: MPI.Comm) -> None:
    """The first that does; a digest is not shown."""
    last, others = comm.size - 1, "rank 0" if comm.size == 2 else f"ranks 0 to {comm.size - 2}"
    here = comm.rank == last
    alike(comm, lambda: {"size": 3, "digest": b"x"})
    for mine, words in (
        ({"size": 3, "rtol": "2" if here else "1"}, f"disagree on rtol: 1 on {others}, 2 on rank {last};"),
        ({"size": 3, "body": bytes([here])}, f"disagree on body: one on {others}, another on rank {last};"),
        ({"size": 3} | ({"force": "f"} if here else {}), f"disagree on force: none on {others}, f on rank {last};"),
    ):
        message = refused(comm, lambda mine=mine: alike(comm, lambda: mine))  # type: ignore[misc]
        parallel_assert(words in message, message, comm)


def pushed(system: System, body: str, vectorized: bool = False) -> System:
    system.add_joint_force(body, lambda t, q, u: -u, vectorized=vectorized)
    return system


def hung(body: str, **fields: Any) -> System:
    system = system_from("chain:6")
    system.add_wrench(body, **fields)
    return system


def torque(value: Any) -> System:
    system = system_from("chain:6")
    system.set_torque("link2", value)
    return system


def falling(g: float) -> System:
    system = system_from("chain:6")
    system.gravity = (0.0, -g, 0.0)
    return system


DISAGREEING: dict[str, tuple[Callable[[bool], object], str]] = {  # the system of one rank, or of the others
    "bodies": (lambda odd: system_from("chain:9" if odd else "chain:8"), "the number of bodies: 8 on "),
    "names": (lambda odd: "chain:9" if odd else "chain:8", "the number of bodies: 8 on "),
    "parameters": (lambda odd: system_from("spatial_chain:6" if odd else "chain:6"), "body 'link1': one on "),
    "gravity": (lambda odd: falling(1.0 + odd), "gravity: (0.0, -1.0, 0.0) on "),
    "bodies of a force": (lambda odd: pushed(system_from("chain:6"), f"link{5 + odd}"), "the joint force '"),
    "a force": (
        lambda odd: pushed(system_from("chain:6"), "link6") if odd else "chain:6",
        "' on body 'link6': none on ",
    ),
    "form of a force": (lambda odd: pushed(system_from("chain:6"), "link6", odd), "' on body 'link6': one on "),
    "wrench": (lambda odd: hung("link6", force=(0, 0, float(odd))), "a wrench on body 'link6': one on "),
    "a second wrench": (lambda odd: hung("link6") if odd else "chain:6", "a wrench on body 'link6': none on "),
    "torque": (lambda odd: torque(1.0 + odd), "the torque of body 'link2': (1.0,) on "),
    "torque function": (lambda odd: torque(max if odd else min), "the torque of body 'link2': builtins:min on "),
}


@several
@pytest.mark.parametrize("case", DISAGREEING)
def test_ranks_with_different_systems_are_refused(comm: MPI.Comm, case: str) -> None:
    """By whatever they work on together, and they say what differs."""
    make, words = DISAGREEING[case]
    system: Any = make(comm.rank == comm.size - 1)
    for work in (lambda: Dynamics(system, comm), lambda: simulate(system, 0.1, comm)):
        message = refused(comm, work)
        parallel_assert(message.startswith("the ranks disagree on ") and words in message, message, comm)


@several
def test_ranks_with_different_settings_are_refused(comm: MPI.Comm) -> None:
    odd = comm.rank == comm.size - 1
    for work, words in (
        (lambda: simulate("chain:6", 1.0 + odd, comm), "t_end: 1.0 on "),
        (lambda: simulate("chain:6", 1.0, comm, output="a.h5" if odd else None), "output: None on "),
        (lambda: simulate("chain:6", 1.0, comm, rtol=1e-4 if odd else 1e-3), "rtol: 0.001 on "),
        (lambda: Dynamics("chain:6", comm, "pcg" if odd else "dcae"), "coupling: dcae on "),
        (lambda: Dynamics("chain:6", comm, lanes="2" if odd else None), "`lanes` must be a whole number"),  # type: ignore[arg-type]
        (lambda: Batch("chain:6", 8 + odd, comm), "copies: 8 on "),
        (lambda: Batch(["chain:6"] * 7 + ["spatial_chain:6" if odd else "chain:6"], None, comm), ""),
        (lambda: Batch(f"chain:{6 + odd}", 8, comm), "the number of bodies: 6 on "),
    ):
        message = refused(comm, work)
        parallel_assert(words in message, message, comm)


def test_on_root(comm: MPI.Comm) -> None:
    """Only rank 0 acts; what it finds is raised everywhere."""
    acted = []
    result = on_root(comm, lambda: acted.append(comm.rank) or "done")  # type: ignore[func-returns-value]
    expected = ([0], "done") if comm.rank == 0 else ([], None)
    parallel_assert((acted, result) == expected, f"acted {acted}, got {result}", comm)

    def bad() -> None:
        raise InputError("no such file")

    raised = False
    try:
        on_root(comm, bad)
    except InputError:
        raised = True
    parallel_assert(raised, "nothing raised", comm)


def test_abort_on_error_passes_results_and_exits_of_one(comm: MPI.Comm) -> None:
    with abort_on_error(comm):
        value = np.ones(1)
    with pytest.raises(SystemExit), abort_on_error(MPI.COMM_SELF):
        sys.exit(3)
    parallel_assert(value[0] == 1.0, "block left early", comm)


ABORTING = """
from mpi4py import MPI
from mpimbs.parallel.agreement import abort_on_error
comm = MPI.COMM_WORLD
with abort_on_error(comm):
    if comm.rank == 1:
        raise RuntimeError("the reason")
    comm.Barrier()
"""


class TestAborts:
    pytestmark = starts_mpiexec

    @pytest.mark.parametrize("error", ["RuntimeError: the reason", "SystemExit: 0", "KeyboardInterrupt"])
    def test_abort_on_error_ends_waiting_ranks(self, error: str) -> None:
        kind, _, value = error.partition(": ")
        script = ABORTING.replace('RuntimeError("the reason")', f"{kind}({value!r})")
        job = run_job(3, [sys.executable, "-c", script])
        assert job.returncode != 0, job.stdout
        assert "[rank 1 of 3]" in job.stdout and error in job.stdout, job.stdout

    def test_abort_on_error_on_one_rank(self) -> None:
        script = ABORTING.replace("comm.rank == 1", "True")
        job = run_job(1, [sys.executable, "-c", script])
        assert job.returncode == 1, job.stdout
        assert "[rank 0 of 1]" in job.stdout and "RuntimeError: the reason" in job.stdout, job.stdout
