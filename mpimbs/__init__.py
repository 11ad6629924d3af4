"""Dynamics of articulated rigid-body systems on distributed memory.

Examples
--------
>>> system = System("pendulum")
>>> joint = Joint(type="revolute", axis=(0, 0, 1), q=0.1)
>>> bob = system.add(name="bob", mass=1, inertia=(1, 1, 1, 0, 0, 0), center_of_mass=(0, -1, 0), joint=joint)
>>> result = simulate(system, t_end=10)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpimbs.base.errors import InputError, InterruptionError, SimulationError
from mpimbs.base.former import answer_to

if TYPE_CHECKING:
    from mpimbs.dynamics import Dynamics
    from mpimbs.files.reading import open_output
    from mpimbs.model import (
        Body,
        BodyMotion,
        Event,
        Gear,
        Joint,
        Loop,
        Rod,
        Shape,
        Spring,
        System,
        Tendon,
        Wrench,
        read,
        read_robot,
        read_system,
        system_from,
        write_system,
    )
    from mpimbs.parts.kinematics import kinematics
    from mpimbs.run.ensembles.batch import Batch
    from mpimbs.run.questions import accelerations, assemble, inertia_matrix, inverse_dynamics, modes, settle
    from mpimbs.run.restart import restart
    from mpimbs.run.result import EnsembleResult, Result, load
    from mpimbs.run.run import simulate
    from mpimbs.run.simulation import Simulation
    from mpimbs.stepping.settings import Checkpoints, SimulationSettings

    __version__: str

__all__ = [
    "Batch",
    "Body",
    "BodyMotion",
    "Checkpoints",
    "Dynamics",
    "EnsembleResult",
    "Event",
    "Gear",
    "InputError",
    "InterruptionError",
    "Joint",
    "Loop",
    "Result",
    "Rod",
    "Shape",
    "Simulation",
    "SimulationError",
    "SimulationSettings",
    "Spring",
    "System",
    "Tendon",
    "Wrench",
    "accelerations",
    "assemble",
    "inertia_matrix",
    "inverse_dynamics",
    "kinematics",
    "load",
    "modes",
    "open_output",
    "read",
    "read_robot",
    "read_system",
    "restart",
    "settle",
    "simulate",
    "system_from",
    "write_system",
]

_ELSEWHERE = {  # than in `mpimbs.model`
    "Batch": "run.ensembles.batch",
    "Checkpoints": "stepping.settings",
    "Dynamics": "dynamics",
    "EnsembleResult": "run.result",
    "Result": "run.result",
    "Simulation": "run.simulation",
    "SimulationSettings": "stepping.settings",
    **dict.fromkeys(
        ("accelerations", "assemble", "inertia_matrix", "inverse_dynamics", "modes", "settle"), "run.questions"
    ),
    "kinematics": "parts.kinematics",
    "load": "run.result",
    "open_output": "files.reading",
    "restart": "run.restart",
    "simulate": "run.run",
}
# What the documentation told users to import by names that are no more: they answer for one version.
_FORMER = {
    "mpimbs.batch": "mpimbs.run.ensembles.batch",
    "mpimbs.equilibrium": "mpimbs.dynamics.statics.equilibrium",
    "mpimbs.errors": "mpimbs.base.errors",
    "mpimbs.factor": "mpimbs.dynamics.operators.factor",
    "mpimbs.settings": "mpimbs.base.settings",
    "mpimbs.study": "mpimbs.bench",
    "mpimbs.study.pictures": "mpimbs.plots.pictures",
    "mpimbs.study.predict": "mpimbs.bench.predict.predict",
    "mpimbs.view.exports": "mpimbs.export.exports",
}
answer_to(_FORMER)
_ROOMS = ("base", "coupling", "dynamics", "forces", "model", "partition", "run")  # as `mpimbs.model`


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is: some of it needs MPI, PETSc or HDF5, and takes a second."""
    if name == "__version__":
        from importlib import metadata

        return metadata.version("mpimbs")
    if name in _ROOMS:
        return import_module(f"mpimbs.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'mpimbs' has no attribute '{name}'")
    globals()[name] = found = getattr(import_module(f"mpimbs.{_ELSEWHERE.get(name, 'model')}"), name)
    return found


def __dir__() -> list[str]:
    """Show what is imported only when it is asked for too."""
    return sorted({*globals(), *__all__, "__version__"})
