"""The drivers as modules, for tests."""

import importlib.util
from types import ModuleType

from mpi_helpers import ROOT


def driver(name: str) -> ModuleType:
    """Load a driver by its name."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "drivers" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
