"""Fixed tendons of MJCF: sums of coordinates of joints, with springs and dampers; actuators pull, equalities hold them.

Lengths are those of MuJoCo: of the coordinates as they are in the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.model.robots.robot import Robot, RobotTendon

_FIXED = 1  # of mjtWrap, what a fixed one consists of
_ON_TENDON = 3  # of mjtTrn, an actuator's


class FixedTendons:
    """The fixed tendons of a compiled model.

    Parameters
    ----------
    name : callable
        Gives the name of something of a kind by its number.

    Attributes
    ----------
    over : dict of int to dict of str to float
        By the number of a tendon the ratio of each of its joints, by their names.
    """

    def __init__(self, model: Any, name: Callable[[str, int], str]) -> None:
        self._model, self._name = model, name
        self.over: dict[int, dict[str, float]] = {}
        m = model
        for k in range(m.ntendon):
            parts = range(m.tendon_adr[k], m.tendon_adr[k] + m.tendon_num[k])
            if all(m.wrap_type[part] == _FIXED for part in parts):
                self.over[k] = {name("joint", int(m.wrap_objid[part])): float(m.wrap_prm[part]) for part in parts}

    def under(self, actuator: int) -> dict[str, float] | None:
        """Give the ratios of the joints of the tendon that an actuator acts on; None of all others."""
        m = self._model
        return self.over.get(int(m.actuator_trnid[actuator, 0])) if m.actuator_trntype[actuator] == _ON_TENDON else None

    def take(self, robot: Robot, disabled: Callable[[str], bool]) -> None:
        """Take springs and dampers along tendons; note the rest, of what the file has not disabled."""
        m, constraints = self._model, not disabled("CONSTRAINT")
        for k in range(m.ntendon):
            name = self._name("tendon", k)
            if k not in self.over:
                robot.leave_out("tendon through space", name)
                continue
            curved = any(
                np.any(getattr(m, f"tendon_{what}poly", [0.0])[k : k + 1]) for what in ("stiffness", "damping")
            )
            stiffness = float(m.tendon_stiffness[k]) * (not disabled("SPRING"))
            limited = bool(m.tendon_limited[k] and constraints and not disabled("LIMIT"))
            found = {
                "spring or damper of tendon that is not linear": curved,
                "limit of tendon that nothing moves": limited and not m.tendon_invweight0[k] > 0.0,
                "friction of tendon": m.tendon_frictionloss[k] and constraints and not disabled("FRICTIONLOSS"),
                "armature of tendon": getattr(m, "tendon_armature", np.zeros(m.ntendon))[k],
                "plasticity of tendon": getattr(m, "nplastic", 0) and m.tendon_plasticadr[k] >= 0,
                "range of the force of actuators of tendon": getattr(m, "tendon_actfrclimited", [False] * m.ntendon)[k],
            }
            for kind in (kind for kind, there in found.items() if there):
                robot.leave_out(kind, name)
            damping, over = float(m.tendon_damping[k]) * (not disabled("DAMPER")), self.over[k]
            begin, end = m.tendon_lengthspring[k].tolist()
            if begin != end and (stiffness or damping):  # nothing pulls between
                robot.tendons.append(RobotTendon(name, over, 0.0, damping, 0.0, **_stops(begin, end, stiffness, 0.0)))
            elif stiffness or damping:
                robot.tendons.append(RobotTendon(name, over, stiffness, damping, begin))
            if limited and (eases := float(m.tendon_invweight0[k])) > 0.0:
                law = stops_of(m.tendon_solref_lim[k], float(m.tendon_solimp_lim[k, 1]), eases)
                lower, upper = m.tendon_range[k].tolist()
                robot.tendon_limits.append(RobotTendon(name, over, **_stops(lower, upper, *law)))

    def equality(self, number: int, name: str) -> RobotTendon | str:
        """Give what holds a tendon, or two to one another, as softly as MuJoCo does; or why it is left out."""
        m = self._model
        ends = [k for k in (int(m.eq_obj1id[number]), int(m.eq_obj2id[number])) if k >= 0]
        begin, ratio, *curved = m.eq_data[number, :5].tolist()
        if any(k not in self.over for k in ends):
            return "equality of a tendon through space"
        if (len(ends) > 1 and any(curved)) or not m.eq_active0[number]:
            return "equality of tendons that is not linear, or idle"
        over, rest = dict(self.over[ends[0]]), float(m.tendon_length0[ends[0]]) + begin
        eases = float(m.tendon_invweight0[ends[0]])
        for k in ends[1:]:
            rest -= ratio * float(m.tendon_length0[k])
            eases += ratio**2 * float(m.tendon_invweight0[k])
            for joint, other in self.over[k].items():
                over[joint] = over.get(joint, 0.0) - ratio * other
        if not eases > 0.0:
            return "equality of tendons that nothing moves"
        return RobotTendon(name, over, *stops_of(m.eq_solref[number], float(m.eq_solimp[number, 1]), eases), rest)


def _stops(lower: float, upper: float, stiffness: float, damping: float) -> dict[str, float]:
    there = {"lower": lower, "upper": upper, "stop_stiffness": stiffness, "stop_damping": damping}
    return there if stiffness else {}


def stops_of(solref: Floats, most: float, eases: float = 1.0) -> tuple[float, float]:
    """Stiffness and damping of stops of an inverse inertia: `aref` of MuJoCo's soft constraints, from `solref` and the
    largest impedance."""
    if min(solref) <= 0.0:
        return float(-solref[0]) / eases, float(-solref[1]) / eases
    time, ratio = map(float, solref)
    return 1.0 / (most * time * ratio) ** 2 / eases, 2.0 / (most * time) / eases
