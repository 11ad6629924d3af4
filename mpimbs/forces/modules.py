"""Forces from a module of the user's, named as module:function."""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

from mpimbs.base.errors import InputError
from mpimbs.base.places import current_folder
from mpimbs.model.contents import Contents
from mpimbs.model.system import system_holding
from mpimbs.model.text.table import suggest
from mpimbs.model.text.writing import system_text


def add_forces(system: Contents, given: str) -> None:
    """Have a function of a module add its forces to a system.

    The module is looked for in the current folder first, as `python -m` does; it is imported, so its code is run.

    Parameters
    ----------
    given : str
        module:function; the function takes the `System` and returns nothing.

    Raises
    ------
    InputError
        There is no such module or function, or it fails.
    """
    where = f"`forces={given!r}`"
    function = function_of(given, where)
    before = _loads(system)
    if not system.loads.modules:
        with contextlib.suppress(InputError):  # there are functions already, which no file holds
            system.loads.before_modules = system_text(system)
    system.loads.modules.append(given)
    try:
        result = function(system_holding(system))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit too: on one rank alone it would leave the others waiting
        raise InputError(f"{where}: failed: {error!r}{_place(error)}; it is called with the System") from error
    if result is not None:
        raise InputError(
            f"{where}: returned {result!r}; give a function that takes the System, adds its forces by "
            "add_body_force and the like, and returns nothing"
        )
    if _loads(system) == before:
        raise InputError(
            f"{where}: has added nothing to the System that it was given; call its add_body_force, add_joint_force, "
            "add_spring, add_event, add_wrench or set_torque, or leave it out"
        )


def _loads(system: Contents) -> tuple[object, ...]:
    """Give facts that tell whether a function has changed a system."""
    wrenches = sum(map(len, system.loads.wrenches.values()))
    forces = len(system.loads.functions), wrenches, dict(system.loads.torques)
    between = len(system.loops.names), len(system.springs), len(system.loads.tendons), len(system.events)
    return (*forces, system.gravity, system.n_bodies, *between)


def function_of(given: str, where: str) -> Callable[..., Any]:
    """Give the function of a module that a text names, module:function; messages begin with `where` it stood.

    Raises
    ------
    InputError
        There is none.
    """
    module_name, _, name = given.partition(":")
    if not module_name or not name:
        raise InputError(f"{where}: give module:function, such as wind:drag for the function drag of wind.py")
    if "" not in sys.path and str(current_folder()) not in sys.path:
        sys.path.insert(0, str(current_folder()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(f"{where}: {error}{_place(error)}; install what it imports") from None
        hint = f"; leave .py out: {module_name[:-3]}:{name}" if module_name.endswith(".py") else ""
        raise InputError(
            f"{where}: there is no module '{module_name}' in {current_folder()} or among those installed"
            f"{hint or '; check its name, or set PYTHONPATH'}"
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit too, as below the end of a script
        raise InputError(f"{where}: the module can't be imported: {error!r}{_place(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        own = [k for k, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        raise InputError(f"{where}: module '{module_name}' has no function '{name}'{suggest(name, own)}")
    return function


def _place(error: BaseException) -> str:
    """File and line where an error was raised in the user's code, after the import machinery."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if "importlib" not in frame.filename]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
