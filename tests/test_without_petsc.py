"""Without petsc4py: all works but integrators of PETSc's and the coupling `pcg`, which say how to get it."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mpi_helpers import ROOT, plain_environment, starts_mpiexec
from mpimbs.run.run import simulate

pytestmark = starts_mpiexec

GET = "need petsc4py (import of petsc4py halted; None in sys.modules): PETSC_DIR=... pip install"
COMMANDS = {  # exit code, what is said
    "check chain:4": (0, "chain of 4 bodies"),
    "check chain:4 --accuracy": (0, "pcg           left out: integrators of PETSc's and coupling 'pcg' need petsc4py"),
    "acceleration chain:4 -o a.npz": (0, "wrote a.npz"),
    "acceleration chain:4 --coupling auto -o auto.npz": (0, "wrote auto.npz"),
    "acceleration chain:4 --coupling pcg -o pcg.npz": (2, GET),
    "inverse chain:4 --state s.npz -o t.npz": (0, "wrote t.npz"),
    "bench chain:4 --seconds 0.01": (0, "us"),
    "bench chain:4 --seconds 0.01 --coupling dca": (0, "1 lanes, dca: median"),
    "bench chain:4 --seconds 0.01 --coupling dca-terminal": (0, "1 lanes, dca-terminal: median"),
    "bench chain:4 --seconds 0.01 --coupling pcg": (2, GET),
    "study chain:4 --couplings dcae,pcg --studies strong --seconds 0.01 -o study": (
        0,
        "left out: pcg: integrators of PETSc's and coupling 'pcg'",
    ),
    "study chain:4 --couplings pcg --studies strong --seconds 0.01 -o none": (2, GET),
    "predict chain:4 --ranks 1,2 --seconds 0.01": (0, "dcae"),
    "run chain:4 --t-end 0.1 -o run.h5 --checkpoint-steps 1": (0, "complete"),
    "run chain:4 --t-end 0.1 -o stiff.h5 --integrator petsc:bdf": (2, GET),
    "run chain:4 --t-end 0.1 -o linear.h5 --integrator rosenbrock": (0, "complete"),
    "run chain:4 --parameters t.csv --t-end 0.1 -o many.h5": (0, "complete"),
    "restart run.checkpoint.h5": (0, "complete"),
}
NEEDING = [  # modules
    "mpimbs.coupling.pcg.coupling",
    "mpimbs.coupling.pcg.petsc_matrix",
    "mpimbs.dynamics.statics.equilibrium",
    "mpimbs.parallel.petsc",
    "mpimbs.stepping.newton",
    "mpimbs.stepping.petsc_integrator",
    "mpimbs.stepping.petsc_schemes",
]
SCRIPT = """
import importlib
import pkgutil
import sys
sys.modules["petsc4py"] = None
import mpimbs
from mpimbs.cli import main
assert mpimbs.load("motion.h5").time == 1e-3
for module in pkgutil.walk_packages(mpimbs.__path__, "mpimbs."):
    if module.name == "mpimbs.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except mpimbs.InputError:
        print("needs", module.name, flush=True)
for command in sys.argv[1:]:
    print("begin", command, flush=True)
    try:
        main(command.split())
    except SystemExit as end:
        print("exit", end.code, flush=True)
"""


@pytest.mark.time_limit(300)  # should nothing be compiled yet
def test_commands(tmp_path: Path) -> None:
    """Every command in one process that can't import petsc4py."""
    simulate("chain:4", 1e-3, output=tmp_path / "motion.h5")
    (tmp_path / "t.csv").write_text("name,link1.mass\na,1\nb,2\n", encoding="utf-8")
    np.savez(tmp_path / "s.npz", q=np.zeros(4), u=np.zeros(4), udot=np.ones(4))
    job = subprocess.run(
        [sys.executable, "-c", SCRIPT, *COMMANDS],
        cwd=tmp_path,
        env=plain_environment() | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    assert job.returncode == 0, job.stdout
    begin = job.stdout.split("begin ")[0]
    assert sorted(re.findall("needs (.*)", begin)) == NEEDING, "types and tables belong to modules that need no PETSc"
    said = {text.split("\n")[0]: text for text in job.stdout.split("begin ")[1:]}
    assert said.keys() == COMMANDS.keys()
    for command, (code, text) in COMMANDS.items():
        assert said[command].endswith(f"exit {code}\n") and text in said[command], said[command]
        assert "Traceback" not in said[command]
        if code == 2:
            assert said[command].count("\n") == 3, f"one line: {said[command]}"
