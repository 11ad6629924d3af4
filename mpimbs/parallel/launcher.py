"""What started this process: finds the tasks of one job that MPI holds for jobs of one rank each.

A launcher that does not belong to the MPI library starts so many processes that know nothing of each other, each with
a COMM_WORLD of one rank; every one of them would do the whole work, and write the same file.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from mpimbs.base.errors import InputError

if TYPE_CHECKING:
    from mpi4py import MPI

# Number of tasks and this one's, as an mpiexec names them to each: Open MPI; MPICH, Intel MPI (srun --mpi=pmi2 too);
# MVAPICH.
_MPIEXEC = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
)
# Of a step of srun. SLURM_NTASKS is that of the allocation too, where a batch script may well run one process.
_SRUN = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
_ON_PURPOSE = "MPIMBS_SINGLETONS"
_PATIENCE = 2.0  # s


class Launch(NamedTuple):
    """The variables by which a launcher tells a process of its job."""

    variable: str  # of the environment, where it stands
    tasks: int
    task: int  # this one, from 0


def launch_of(environment: Mapping[str, str]) -> Launch | None:
    """Find the innermost launcher, or None if the process was started by no launcher that says so.

    An mpiexec inside an allocation starts its daemons by srun, one a node, so that its ranks are in a step of other
    tasks than theirs: the mpiexec counts. Where several have left their variables, that with the fewest tasks counts.

    Parameters
    ----------
    environment : mapping
        The variables of the process.
    """
    found = [_read(environment, *names) for names in _MPIEXEC]
    launches = [launch for launch in found if launch is not None]
    if launches:
        return min(launches, key=lambda launch: launch.tasks)
    return _read(environment, *_SRUN) if "SLURM_STEP_ID" in environment else None


def refuse_singletons(
    world: MPI.Comm, environment: Mapping[str, str] | None = None, interactive: bool | None = None
) -> None:
    """Refuse to work as one of several tasks that MPI does not know to be one job.

    No communicator joins them: the first raises, the others leave with exit code 2 and without a word.

    Legal are any number of ranks under mpiexec, whatever the allocation; one process in a batch script; the shell of
    `srun --pty`, which is the first of the step's tasks; and tasks on purpose, each with a job of its own, for which
    the user sets MPIMBS_SINGLETONS=1.

    Parameters
    ----------
    world : MPI.Comm
        COMM_WORLD.
    environment : mapping, optional
        That of the process, by default.
    interactive : bool, optional
        Whether the process has a terminal; found out by default.

    Raises
    ------
    InputError
        In the first task: says how many tasks and ranks there are, and the remedy.
    SystemExit
        With code 2 in the others, after a while: some launchers end all at the first exit code, and the first task
        must have spoken by then.
    """
    environment = os.environ if environment is None else environment
    if world.size > 1 or environment.get(_ON_PURPOSE) == "1":
        return
    launch = launch_of(environment)
    if launch is None or launch.tasks == 1:
        return
    # Tasks of srun have no terminal, but those of --pty.
    if launch.variable == _SRUN[0] and (_has_terminal() if interactive is None else interactive):
        return
    if launch.task > 0:
        time.sleep(_PATIENCE)
        raise SystemExit(2)
    raise InputError(
        f"the launcher started {launch.tasks} tasks ({launch.variable}), but each has a communicator of {world.size} "
        "rank, and would do the whole work: the launcher does not belong to the MPI library. Use its own mpiexec, or "
        "srun with the --mpi that it was built for (as srun --mpi=pmix; srun --mpi=list shows all); "
        "python -c 'from mpi4py import MPI; print(MPI.Get_library_version())' says which library it is. "
        f"{_ON_PURPOSE}=1 lets tasks run that are meant to be jobs of their own"
    )


_LEFT_BEHIND = ("OMPI_MCA_ess", "OMPI_MCA_pmix")
# What any launcher, mpiexec or batch system's, leaves in the environment of the processes that it starts.
_LAUNCHED = re.compile(r"PMI|PRTE|_RANK|SLURM_STEP|OMPI_MCA_ess$|OMPI_MCA_orte|^(FLUX|PALS|ALPS)_")
# Open MPI's parameters for a process that stays by itself: no daemon is started beside it, and none but the transport
# to itself is tried. Other libraries don't read them.
_BY_ITSELF = {"OMPI_MCA_ess_singleton_isolated": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self"}


@contextmanager
def soon_begun(environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Have MPI begin in a tenth of the time, where it does so within and nothing has started this process as a rank.

    Such a process can start no ranks of its own (`MPI_Comm_spawn`), which commands never do; an mpiexec it can.

    Parameters
    ----------
    environment : mapping, optional
        That of the process, by default.
    """
    given = os.environ if environment is None else environment
    if "mpi4py.MPI" in sys.modules or any(map(_LAUNCHED.search, given)):
        yield
        return
    told = {name: value for name, value in _BY_ITSELF.items() if name not in os.environ}
    os.environ.update(told)
    try:
        yield
    finally:
        for name in told:
            del os.environ[name]
        let_jobs_start()


def let_jobs_start() -> None:
    """Take out of the environment what Open MPI has put there when MPI began in a process that no mpiexec started.

    An mpiexec that this process starts, as from a notebook, would end without a word: it takes itself for this process.
    What the user has set, which `os.environ` knows, stays.
    """
    for name in _LEFT_BEHIND:
        if name not in os.environ:
            os.unsetenv(name)


def _read(environment: Mapping[str, str], tasks: str, task: str) -> Launch | None:
    if not environment.get(tasks, "").isdecimal():
        return None
    mine = environment.get(task, "")
    return Launch(tasks, int(environment[tasks]), int(mine) if mine.isdecimal() else 0)


def _has_terminal() -> bool:
    """Whether the process can be controlled from a terminal."""
    try:
        os.close(os.open(os.ctermid(), os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
