"""How tests run on several ranks: which and who prints, how a failure or a hang on one ends the job."""

import faulthandler
import gc
import os
import random
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
TIME_LIMIT = float(os.environ.get("TEST_TIME_LIMIT", "300"))  # s for one test; a marker `time_limit(s)` overrides it
STDERR = pytest.StashKey[int]()
# On which numbers of ranks beside one the tests of a module or folder run, where all are run: what rests on
# accelerations on two, what couples or divides (a rank between two others has more to do) on three, messages on each. A
# marker of a test says otherwise: one of every coupling, restarts. Tests asked for by name run on as many as there are.
_THREE = ("cli", "closure", "coupling", "loops", "model", "partition", "parts")
RANKS = dict.fromkeys((*_THREE, "test_dynamics", "test_overlap", "test_trees"), (3,))
RANKS |= dict.fromkeys(("parallel", "test_fuzz_corpus"), (2, 3, 4))
# What shows other programs, pictures of a paper or speeds: `make long` runs it, and `make nightly`.
LONG = ("drivers", "local_slurm_test")
# At one rank, to have groups that take equally long side by side, those with bounds of fewer tests.
OTHERS = (
    "run",
    "stepping",
    "files",
    "bench",
    "plots",
    "forces",
    "view",
    "export",
    "coupling",
    "model",
    "oracles",
    "partition",
)
_CHECKED = bool(os.environ.get("MPIMBS_CHECKED"))
ASIDE = ("sweep", "closure", "coupling") if _CHECKED else OTHERS


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "time_limit(seconds): ends the job if the test takes longer")
    config.addinivalue_line("markers", "ranks(*numbers): of several ranks it runs on these alone")
    config.addinivalue_line("markers", "cases(n): so many of its cases run where all tests do, the others are long")
    # The true stderr: while a test runs, pytest has another file in its place.
    config.stash[STDERR] = os.dup(2)
    gc.set_threshold(100_000, 50, 50)  # compiling makes millions of objects that live on: 10 % less time


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Only rank 0 shows progress: the reporter of the others writes into nothing."""
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    if WORLD.rank > 0 and reporter is not None:
        reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115 (closed with the process)


# --- which tests run on how many ranks --------------------------------------------------------------------------------


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a test of this group, where all are run: each process would import them for nothing."""
    if config.args_source is pytest.Config.ArgsSource.ARGS or not collection_path.name.startswith("test_"):
        return None
    text, groups = collection_path.read_text(encoding="utf-8"), config.option.markexpr
    if WORLD.size > 1:
        return None if "comm: MPI" in text else True
    if "and subprocess" in groups:
        return None if "mark.subprocess" in text or "starts_mpiexec" in text else True
    if "aside" not in groups or "mark.aside" in text:
        return None
    return True if (collection_path.parent.name in ASIDE) == ("not aside" in groups) else None


@pytest.hookimpl(tryfirst=True)  # before those of other markers are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On several ranks, only tests that are given the ranks (`comm`) have more to find than on one. Some come last."""
    for item in items:
        if item.path.parent.name in LONG:
            item.add_marker("long")
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)
    all_of_them = config.args_source is not pytest.Config.ArgsSource.ARGS
    if all_of_them:
        _leave_cases_to_long(items)
    if WORLD.size > 1:
        elsewhere = {item for item in items if WORLD.size not in _numbers_of_ranks(item, all_of_them)}
        config.hook.pytest_deselected(items=list(elsewhere))
        items[:] = [item for item in items if item not in elsewhere]
    for item in items:
        if item.path.parent.name in ASIDE:
            item.add_marker("aside")


def _leave_cases_to_long(items: list[pytest.Item]) -> None:
    """Of tests with many cases some are drawn, others on each number of ranks; `make long` runs the rest."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("cases"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, group in cases.items():
        marker = group[0].get_closest_marker("cases")
        assert marker is not None
        drawn = random.Random(f"{name} {WORLD.size}").sample(range(len(group)), min(marker.args[0], len(group)))
        for k in set(range(len(group))).difference(drawn):
            group[k].add_marker("long")


def _numbers_of_ranks(item: pytest.Item, all_of_them: bool) -> tuple[int, ...]:
    """Those beside one."""
    if "comm" not in getattr(item, "fixturenames", ()):
        return ()
    marker = item.get_closest_marker("ranks")
    if marker is None and not all_of_them:
        return (WORLD.size,)
    return marker.args if marker else RANKS.get(item.path.stem, RANKS.get(item.path.parent.name, (2,)))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """All tests left to one rank is no failure."""
    if WORLD.size > 1 and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


# --- a failure on one rank ends the job, since the others may wait for it forever


def _end_job(config: pytest.Config, where: str, text: str) -> None:
    if WORLD.size == 1:
        return
    sys.stdout.flush()
    message = f"\n[rank {WORLD.rank} of {WORLD.size}] {where} failed; the job ends here\n{text}\n"
    os.write(config.stash[STDERR], message.encode())
    time.sleep(0.5)  # for mpiexec to forward it
    WORLD.Abort(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        _end_job(item.config, f"{item.nodeid} ({report.when})", report.longreprtext)
    return report


def _too_early(*_: object, **__: object) -> None:
    raise RuntimeError("a system is made while a test module is imported: what fails there ends all tests, not one")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    with pytest.MonkeyPatch.context() as patch:
        if model := sys.modules.get("mpimbs.model"):  # as some module has imported it, if not the first
            patch.setattr(model.System, "__init__", _too_early)
        report = yield
    if report.failed:
        _end_job(collector.config, f"collection of {collector.nodeid}", report.longreprtext)
    return report


def pytest_internalerror(excrepr: object, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    if WORLD.size > 1:
        os.write(2, f"\n[rank {WORLD.rank} of {WORLD.size}] pytest failed\n{excrepr}\n".encode())
        time.sleep(0.5)
        WORLD.Abort(1)


# --- a hang ends the job too, even in C code -------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker("time_limit")
    limit = marker.args[0] if marker else TIME_LIMIT
    faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def comm() -> Iterator[MPI.Comm]:
    """A communicator of the tests' own over all ranks."""
    duplicate = WORLD.Dup()
    yield duplicate
    duplicate.Free()
