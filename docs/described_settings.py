"""For mkdocstrings: classes of settings get their docstrings when they are imported, from what they declare."""

from importlib import import_module
from inspect import getdoc
from typing import Any

import griffe

from mpimbs.base.settings import Settings


class DescribedSettings(griffe.Extension):
    """Replaces what stands in the source by what `help` shows."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """See a class after it was read."""
        if cls.docstring is None or "described" not in {d.callable_path.rpartition(".")[2] for d in cls.decorators}:
            return
        found = getattr(import_module(cls.module.path), cls.name)
        assert issubclass(found, Settings)
        cls.docstring.value = getdoc(found) or ""
