"""The time of traces by SimGrid's SMPI: time-independent traces, replayed on a described platform.

SimGrid is a program of its own, looked for when it is asked for. Ports between nodes are shared by the messages that
pass at the same time, as its flow model has it; computing and the overheads of messages are flops of a core. SimGrid
tells the time to six decimals: its second is a microsecond here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mpimbs.errors import InputError, SimulationError
from mpimbs.study.cluster import Cluster
from mpimbs.study.trace import BUSY, COMPUTE, SEND, Trace

_UNIT = 1e-6  # s, of the simulation's times
_FLOPS = 1e9  # of a core, per unit of time
_BYTE = 6  # SMPI's number of the datatype
# No corrections of the network model, which are those of TCP on a cluster of 2009; messages leave when they are sent,
# whether or not they are waited for yet.
_SETTINGS = {
    "smpi/lat-factor": "0:1",
    "smpi/bw-factor": "0:1",
    "smpi/async-small-thresh": "1073741824",
    "smpi/send-is-detached-thresh": "1073741824",
    "network/crosstraffic": "no",
    "network/weight-S": "0",
    "network/TCP-gamma": "1e30",
    "surf/precision": "1e-12",
}


def smpirun_installed() -> str | None:
    """The path of `smpirun`, if there is one."""
    return shutil.which("smpirun")


def smpirun() -> str:
    """Give the path of `smpirun`.

    Raises
    ------
    InputError
        It is not installed.
    """
    found = smpirun_installed()
    if found is None:
        raise InputError(
            "method 'simgrid' needs SimGrid's smpirun: apt-get install libsimgrid-dev on Debian and Ubuntu; "
            "or choose `method='loggp'`, which needs nothing"
        )
    return found


def version() -> str:
    """Version of SimGrid."""
    found = subprocess.run([smpirun(), "-version"], capture_output=True, text=True, check=False)
    match = re.search(r"[0-9]+\.[0-9.]+", found.stdout)
    return match.group() if match else "unknown"


def evaluate(traces: Sequence[Trace], cluster: Cluster) -> float:
    """Give the time at which the last rank is done (s).

    Parameters
    ----------
    traces : sequence of Trace
        One of each rank, by rank.
    cluster : Cluster

    Raises
    ------
    InputError
        SimGrid is not installed.
    SimulationError
        The replay ends with an error.
    """
    program = smpirun()
    with tempfile.TemporaryDirectory(prefix="mpimbs-simgrid-") as name:
        folder = Path(name)
        files = [_write(trace, cluster, folder) for trace in traces]
        (folder / "traces").write_text("".join(f"{file}\n" for file in files), encoding="ascii")
        hosts = "".join(f"node-{cluster.node(trace.rank)}\n" for trace in traces)
        (folder / "hosts").write_text(hosts, encoding="ascii")
        nodes = cluster.node(len(traces) - 1) + 1
        (folder / "platform.xml").write_text(platform(cluster, nodes, len(traces)), encoding="ascii")
        command = [program, "-no-privatize", "-np", str(len(traces)), "-platform", str(folder / "platform.xml")]
        command += ["-hostfile", str(folder / "hosts"), "-replay", str(folder / "traces")]
        command += ["--log=root.thresh:critical", "--log=smpi_replay.thresh:info"]
        command += [f"--cfg={key}:{value}" for key, value in _SETTINGS.items()]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    match = re.search(r"Simulation time ([0-9.e+-]+)", done.stdout + done.stderr)
    if done.returncode or match is None:
        said = (done.stderr or done.stdout).strip().splitlines()[:2]
        raise SimulationError(f"SimGrid's replay of {len(traces)} ranks failed: {' / '.join(said)}")
    return _UNIT * float(match.group(1))


def platform(cluster: Cluster, nodes: int, ranks: int) -> str:
    """Give the description of a cluster as SimGrid reads it.

    A message between nodes passes the ports of both, each half of the latency.
    """
    between, within = cluster.between_nodes, cluster.within_node
    cores = min(ranks, cluster.ranks_per_node)
    return f"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
 <zone id="all" routing="Full">
  <cluster id="cluster" prefix="node-" radical="0-{max(nodes, 2) - 1}" suffix="" core="{cores}"
           speed="{_FLOPS:.9g}f" bw="{_UNIT * between.bandwidth:.12g}Bps" lat="{between.latency / 2 / _UNIT:.12g}s"
           loopback_bw="{_UNIT * within.bandwidth:.12g}Bps" loopback_lat="{within.latency / _UNIT:.12g}s"/>
 </zone>
</platform>
"""


def _write(trace: Trace, cluster: Cluster, folder: Path) -> Path:
    """Write the trace of a rank as SMPI reads it."""
    rank, busy = trace.rank, cluster.busy(trace.rank, trace.size)
    lines = [f"{rank} init"]
    due = 0.0  # s of the core since the last message

    def work() -> None:
        nonlocal due
        if due > 0.0:
            lines.append(f"{rank} compute {due / _UNIT * _FLOPS:.15g}")
        due = 0.0

    for kind, amount, other, tag in trace.events:
        if kind == COMPUTE:
            due += amount / cluster.core_speed
        elif kind == BUSY:
            due += amount * busy
        elif kind == SEND:
            due += cluster.link(rank, other).send_overhead
            work()
            lines.append(f"{rank} send {other} {tag} {amount:.0f} {_BYTE}")
        else:
            work()
            lines.append(f"{rank} recv {other} {tag} {amount:.0f} {_BYTE}")
            due += cluster.link(rank, other).receive_overhead
    work()
    lines.append(f"{rank} finalize")
    path = folder / f"rank.{rank}"
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return path
