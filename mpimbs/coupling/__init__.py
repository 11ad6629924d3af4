"""How subchains are joined: a file or folder for each strategy, one small interface. No joints, no files.

Begin with `base.py`, then `dca.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpimbs.coupling.settings import COUPLINGS, LOOPED, UNCOMPARED, WITH_GEARS, Lagrangian, LoadSolver

if TYPE_CHECKING:
    from mpimbs.coupling.base import Coupling, Iterative
    from mpimbs.coupling.strategies import TREES, Strategy, coupling_for, coupling_named, solver_for, unavailable
    from mpimbs.parts.part import Part

__all__ = [
    "COUPLINGS",
    "LOOPED",
    "TREES",
    "UNCOMPARED",
    "WITH_GEARS",
    "Coupling",
    "Iterative",
    "Lagrangian",
    "LoadSolver",
    "Part",
    "Strategy",
    "coupling_for",
    "coupling_named",
    "solver_for",
    "unavailable",
]


def __getattr__(name: str) -> Any:
    """Import the strategies, with all their kernels, when one is asked for: settings need the names alone."""
    if name in __all__:
        return getattr(import_module("mpimbs.coupling.strategies"), name)
    raise AttributeError(f"module 'mpimbs.coupling' has no attribute '{name}'")
