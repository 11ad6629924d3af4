"""Loads from outside that change with time or pose: prescribed joint torques and wrenches on bodies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mpimbs.errors import SimulationError
from mpimbs.model import Wrench
from mpimbs.sweep.subchain import AT_REST, Subchain

Floats = npt.NDArray[np.float64]


class ExternalLoads:
    """Evaluates the model's functions of time and its wrenches for the bodies of a subchain.

    Parameters
    ----------
    subchain : Subchain
    name_of : callable
        Name of a body by its number in the system, for messages.

    Attributes
    ----------
    any, wrenches : bool
        Whether there is anything to do at all, and whether wrenches act.
    """

    def __init__(self, subchain: Subchain, name_of: Callable[[int], str]) -> None:
        self._subchain = subchain
        self._name_of = name_of
        self._torques = subchain.columns.torque_functions
        self._wrenches: dict[int, list[Wrench]] = {}
        for body, wrench in subchain.columns.wrenches:
            self._wrenches.setdefault(body, []).append(wrench)
        self._in_world = any(w.frame == "world" for group in self._wrenches.values() for w in group)
        self.wrenches = bool(self._wrenches)
        self.any = bool(self._torques) or self.wrenches

    def apply(self, t: float, q: Floats, turn: Floats, tau: Floats) -> None:
        """Add the prescribed torques to `tau` [nu] and set the wrenches, at time `t` (s).

        `turn` [TURNING] is the boundary turn of handle 1.

        Raises
        ------
        SimulationError
            A function of the model failed or gave no finite numbers; names body and time.
        """
        offset = self._subchain.columns.u_offset
        for body, function in self._torques:
            count = int(offset[body + 1] - offset[body])
            tau[offset[body] : offset[body + 1]] += self._value(function, t, body, "torque", count)
        rotations = self._rotations(q, turn) if self._in_world else None
        for body, group in self._wrenches.items():
            total = np.zeros(6)
            for wrench in group:
                moment = self._value(wrench.moment, t, body, "wrench", 3)
                force = self._value(wrench.force, t, body, "wrench", 3)
                if wrench.frame == "world" and rotations is not None:
                    moment, force = moment @ rotations[body], force @ rotations[body]
                total[:3] += moment + np.cross(wrench.point, force)
                total[3:] += force
            self._subchain.set_wrench(body, total)

    def _rotations(self, q: Floats, turn: Floats) -> Floats:
        boundary = AT_REST.copy()
        boundary[:9] = turn[:9]
        return self._subchain.body_poses(q, boundary)[0]

    def _value(self, given: object, t: float, body: int, what: str, count: int) -> Floats:
        name = self._name_of(self._subchain.first + body)
        try:
            value = np.asarray(given(t) if callable(given) else given, dtype=float)
        except Exception as error:
            raise SimulationError(f"the {what} function of body '{name}' failed at t = {t:g} s: {error!r}") from error
        single = value.ndim == 0 and (what == "torque" or count == 1)  # one number serves every axis of a joint
        if value.shape != (count,) and not single:
            raise SimulationError(
                f"the {what} function of body '{name}' gave {value.size} numbers at t = {t:g} s, needs {count}"
            )
        value = np.broadcast_to(value, (count,))
        if not np.all(np.isfinite(value)):
            raise SimulationError(f"the {what} of body '{name}' is not finite at t = {t:g} s: {value}")
        return value
