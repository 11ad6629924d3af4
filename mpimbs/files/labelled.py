"""The motion of a run as an `xarray.Dataset`: names of bodies, units. The package xarray is optional."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpimbs.base.errors import InputError
from mpimbs.dynamics.selection import OF_JOINTS, SAMPLED_QUANTITIES
from mpimbs.files.motion import Motion
from mpimbs.files.output_layout import SELECTED

_POSE = ("x", "y", "z", "qw", "qx", "qy", "qz")
_LOAD = ("mx", "my", "mz", "fx", "fy", "fz")
_DIMENSIONS = {"q": "coordinate", "u": "speed", "poses": "body", "loads": "body"}


def dataset(motion: Motion, attributes: dict[str, Any]) -> Any:
    """Give the samples as an `xarray.Dataset`.

    Raises
    ------
    InputError
        xarray is not installed.
    """
    try:
        import xarray
    except ImportError:
        raise InputError("xarray is not installed: pip install mpimbs[xarray]") from None
    found = xarray.Dataset(attrs={"name": motion.system.name, **attributes})
    found["time"] = ("time", motion.t, {"units": "s"})
    found["energy"] = (("time", "form"), motion.energy, {"units": "J"})
    found["form"] = ["kinetic", "potential"]
    for name in SAMPLED_QUANTITIES:
        values = getattr(motion, name)
        if values is None or isinstance(values, tuple):
            continue
        units, meaning = SELECTED[name]
        own, parts = _DIMENSIONS[name], {"poses": ("pose", _POSE), "loads": ("component", _LOAD)}.get(name)
        # Of two quantities of bodies one may be kept of fewer: what was not kept is not a number.
        labels = {own: _labels(motion, name)} | ({} if parts is None else {parts[0]: list(parts[1])})
        array = xarray.DataArray(values, {"time": motion.t, **labels}, ["time", *labels])
        found = found.merge({name: array.assign_attrs(units=units, description=meaning)}, join="outer")
    return found


def _labels(motion: Motion, name: str) -> list[str]:
    """What the columns of a quantity are called."""
    system, bodies = motion.system, motion.kept(name)
    if name not in OF_JOINTS:
        return [system.name_of(k) for k in bodies.tolist()]
    counts = np.diff(system.offsets()[OF_JOINTS.index(name)])[bodies]
    return [
        system.name_of(k) if count == 1 else f"{system.name_of(k)}[{number}]"
        for k, count in zip(bodies.tolist(), counts.tolist(), strict=True)
        for number in range(count)
    ]
