"""What had another name: it answers to that for one version, and says what it is called now."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from operator import attrgetter
from types import ModuleType
from typing import Any


def warn_of_former(name: str, now: str, stacklevel: int = 3) -> None:
    """Say what something of a former name is called now, where the name stands."""
    warnings.warn(f"{name} is {now} now; the old name answers for one version", FutureWarning, stacklevel=stacklevel)


def former_attribute(owner: object, called: str, moved: Mapping[str, str], name: str) -> Any:
    """Give what an attribute of a former name is now, for `__getattr__` of its owner; `moved` says where it is."""
    if name not in moved:
        raise AttributeError(f"'{type(owner).__name__}' has no attribute '{name}'", name=name, obj=owner)
    warn_of_former(f"{called}.{name}", f"{called}.{moved[name]}", stacklevel=4)
    return attrgetter(moved[name])(owner)


def refuse_former(called: str, moved: Mapping[str, str], name: str) -> None:
    """Refuse to set an attribute of a former name, under which nobody would look at it; for `__setattr__`."""
    if name in moved:
        raise AttributeError(f"{called}.{name} is {called}.{moved[name]} now: set that")


class FormerNames(MetaPathFinder, Loader):
    """A finder that Python asks for modules, before it looks for files."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Whether a name is a former one, or of a module in a folder that had one."""
        return ModuleSpec(fullname, self) if self._now(fullname) else None

    def _now(self, name: str) -> str:
        if name in self._names:
            return self._names[name]
        folder, _, rest = name.rpartition(".")
        return f"{self._names[folder]}.{rest}" if folder in self._names else ""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of today in the place."""
        name = module.__name__
        now = self._now(name)
        warn_of_former(name, now)
        sys.modules[name] = import_module(now)


def answer_to(names: Mapping[str, str]) -> None:
    """Have modules answer to former names: those to what they are called now."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerNames(names))
