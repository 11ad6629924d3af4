"""Dynamics of articulated rigid-body systems on distributed memory.

Examples
--------
>>> system = System("pendulum")
>>> joint = Joint(type="revolute", axis=(0, 0, 1), q=0.1)
>>> bob = system.add(name="bob", mass=1, inertia=(1, 1, 1, 0, 0, 0), center_of_mass=(0, -1, 0), joint=joint)
>>> result = simulate(system, t_end=10)
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from mpimbs.batch import Batch
from mpimbs.dynamics import Dynamics
from mpimbs.errors import InputError, InterruptionError, SimulationError
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

if TYPE_CHECKING:
    from mpimbs.simulation.ensembles.result import EnsembleResult
    from mpimbs.simulation.reading import open_output
    from mpimbs.simulation.restart import restart
    from mpimbs.simulation.result import Result, load
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
    "load",
    "open_output",
    "read_robot",
    "read_system",
    "restart",
    "simulate",
    "system_from",
    "write_system",
]


_INTEGRATING = {
    "Checkpoints": "settings",
    "EnsembleResult": "ensembles.result",
    "Result": "result",
    "Simulation": "simulation",
    "SimulationSettings": "settings",
    "load": "result",
    "open_output": "reading",
    "restart": "restart",
    "simulate": "run",
}


def __getattr__(name: str) -> Any:
    """Import what integrates when it is asked for: only that needs PETSc and HDF5."""
    if name == "__version__":
        return metadata.version("mpimbs")
    if name in _INTEGRATING:
        return getattr(import_module(f"mpimbs.simulation.{_INTEGRATING[name]}"), name)
    raise AttributeError(f"module 'mpimbs' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Show what is imported only when it is asked for too."""
    return sorted({*globals(), *__all__, "__version__"})
