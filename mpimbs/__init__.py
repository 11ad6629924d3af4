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

if TYPE_CHECKING:
    from mpimbs.dynamics import Dynamics
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
        Wrench,
        read_robot,
        read_system,
        system_from,
        write_system,
    )
    from mpimbs.parts.kinematics import kinematics
    from mpimbs.simulation.ensembles.batch import Batch
    from mpimbs.simulation.reading import open_output
    from mpimbs.simulation.restart import restart
    from mpimbs.simulation.result import EnsembleResult, Result, load
    from mpimbs.simulation.run import simulate
    from mpimbs.simulation.settings import Checkpoints, SimulationSettings
    from mpimbs.simulation.simulation import Simulation

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
    "Wrench",
    "kinematics",
    "load",
    "open_output",
    "read_robot",
    "read_system",
    "restart",
    "simulate",
    "system_from",
    "write_system",
]

_ELSEWHERE = {  # than in `mpimbs.model`
    "Batch": "simulation.ensembles.batch",
    "Checkpoints": "simulation.settings",
    "Dynamics": "dynamics",
    "EnsembleResult": "simulation.result",
    "Result": "simulation.result",
    "Simulation": "simulation.simulation",
    "SimulationSettings": "simulation.settings",
    "kinematics": "parts.kinematics",
    "load": "simulation.result",
    "open_output": "simulation.reading",
    "restart": "simulation.restart",
    "simulate": "simulation.run",
}
_ROOMS = ("base", "coupling", "dynamics", "forces", "model", "partition", "simulation")  # as `mpimbs.model`


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
