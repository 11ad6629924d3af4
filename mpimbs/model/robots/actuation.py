"""What moves a robot: actuators and fixed tendons, as springs, dampers and torques of joints and sums of coordinates.

Lengths of tendons are those of MuJoCo: of the coordinates as they are in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.model.over_time import (
    Lagged,
    OverTime,
    are_rows,
    checked_rows,
    common_lag,
    stacked,
    together_lagged,
    weighed,
)
from mpimbs.model.robots.robot import UNBOUNDED, Controls, Robot, RobotActuator, RobotJoint, RobotTendon, Servo, within
from mpimbs.model.text import table
from mpimbs.model.text.parameter_table import read_table
from mpimbs.model.text.table import TimeFunction, suggest

TIME = "time"  # the column of a table of controls


class ControlledTorque:
    """The torque of a joint, a function of the time (s): a constant, and what actuators make of their controls.

    Parameters
    ----------
    constant : float
        N m or N.
    parts : sequence of (float, function, (float, float))
        Of each actuator, by what its control is taken, the control, and its range.
    """

    def __init__(self, constant: float, parts: tuple[tuple[float, TimeFunction, tuple[float, float]], ...]) -> None:
        self._constant, self._parts = constant, parts

    def __call__(self, t: float) -> float:
        """Give the torque at a time (s)."""
        return self._constant + sum(factor * within(control(t), ends) for factor, control, ends in self._parts)


class TorqueOfSeveral:
    """The torque of a joint of several coordinates, a function of the time (s), of those along each."""

    def __init__(self, torques: Sequence[float | TimeFunction]) -> None:
        self._torques = torques

    def __call__(self, t: float) -> tuple[float, ...]:
        """Give the torques at a time (s)."""
        return tuple(torque(t) if callable(torque) else torque for torque in self._torques)


def of_several(torques: list[Any]) -> list[float] | TimeFunction:
    """Give the torques of a joint's coordinates as one: numbers, over time where all that is not is, or a function."""
    functions = [torque for torque in torques if callable(torque)]
    if not functions:
        return torques
    if len(torques) == 1:
        return functions[0]
    if all(isinstance(torque, OverTime) for torque in functions):
        return stacked(torques)
    return together_lagged(torques) or TorqueOfSeveral(torques)


def controls_in(path: str | PathLike[str]) -> dict[str, OverTime]:
    """Read controls over time from a table: a column `time` (s), ascending, and one for each of some actuators.

    Raises
    ------
    InputError
        The file can't be read, has no such column, or times that don't ascend.
    """
    found = read_table(Path(path))
    if TIME not in found.columns:
        raise InputError(f"{path}: there is no column '{TIME}': give the times (s) of the controls")
    values = found.values
    times = values[:, found.columns.index(TIME)]
    if len(late := np.flatnonzero(np.diff(times) <= 0.0)):
        row = int(late[0]) + 1
        raise InputError(f"{found.place(row)}: the time {times[row]:g} s is not after that before; give them in order")
    others = [k for k, name in enumerate(found.columns) if name != TIME]
    return {found.columns[k]: OverTime(zip(times.tolist(), values[:, k].tolist(), strict=True)) for k in others}


def actuate(robot: Robot, controls: Controls | None = None) -> None:
    """Let the actuators of a robot act on its joints, or note that they are left out.

    The terms of length and speed become springs and dampers, which implicit steps take; the others torques.

    Raises
    ------
    InputError
        A control is of no actuator, or neither a number nor rows nor a function; see `controls_in`.
    """
    given = controls_in(controls) if isinstance(controls, str | PathLike) else dict(controls or {})
    names = [actuator.name for actuator in robot.actuators]
    for name, control in given.items():
        if name not in names:
            raise InputError(f"controls: there is no actuator {name!r}{suggest(name, names)}")
        try:
            if are_rows(control):
                given[name] = OverTime(checked_rows(control, 1, "the control"))
            elif not callable(control):
                table.number(control)
        except ValueError as error:
            raise InputError(f"controls: {name!r} {error}; give it, rows, or a function of time") from None
    joints = {joint.name: joint for link in robot.links for joint in link.joints}
    driven: dict[str, list[RobotActuator]] = {}
    for actuator in robot.actuators:
        if robot.actuation == "off":
            robot.leave_out("actuator", actuator.name)
        elif actuator.grows:
            robot.leave_out("actuator whose force grows with what it moves", actuator.name)
        else:
            actuator = actuator._replace(control=given.get(actuator.name, actuator.control))
            if actuator.lag:
                if callable(actuator.control) and not isinstance(actuator.control, OverTime):
                    robot.leave_out("actuator with a state of its own, whose control is a function", actuator.name)
                    continue
                actuator = actuator.lagging()
            if actuator.over is None:
                driven.setdefault(actuator.joint, []).append(actuator)
                continue
            stiffness, damping, force, *ends = _servo(actuator)
            robot.tendons.append(RobotTendon(actuator.name, actuator.over, stiffness, damping, 0.0, force, *ends))
    for name, actuators in driven.items():
        for actuator in _drive(joints[name], actuators):
            robot.leave_out("range of the force of actuator, beside another of its joint", actuator.name)


def _drive(joint: RobotJoint, actuators: list[RobotActuator]) -> list[RobotActuator]:
    """Have a joint driven; gives those whose strength has a range that is not kept to: one alone becomes a servo."""
    ranged = [actuator for actuator in actuators if actuator.strength != UNBOUNDED and actuator.gear]
    servo = ranged[0] if ranged else None
    if servo is not None:
        joint.servo = _servo(servo)
    rest = joint.rest[0] if joint.rest else 0.0  # where its own spring is at ease, and that of actuators then, too
    others = [actuator for actuator in actuators if actuator is not servo]
    stiffness, damping, joint.torque = _asked(others, rest)
    joint.stiffness, joint.damping = (joint.stiffness[0] + stiffness,), (joint.damping[0] + damping,)
    return ranged[1:]


def _servo(actuator: RobotActuator) -> Servo:
    """What an actuator by itself does to what it acts on."""
    ends = sorted(actuator.gear * end for end in actuator.strength) if actuator.gear else UNBOUNDED
    return Servo(*_asked([actuator]), *ends)


def _asked(actuators: list[RobotActuator], rest: float = 0.0) -> tuple[float, float, float | TimeFunction]:
    """Stiffness, damping and torque of a joint by some actuators, from where springs are at ease."""
    stiffness = damping = constant = 0.0
    parts: list[tuple[float, Any, tuple[float, float]]] = []  # with their controls, functions of time
    for actuator in actuators:
        square, factor = actuator.gear**2, actuator.gear * actuator.gain
        stiffness -= square * actuator.bias[1]
        damping -= square * actuator.bias[2]
        constant += actuator.gear * actuator.bias[0] + square * actuator.bias[1] * rest
        if callable(actuator.control):
            parts.append((factor, actuator.control, actuator.range))
        else:
            constant += factor * within(table.number(actuator.control), actuator.range)
    if not parts:
        return stiffness, damping, constant
    if all(isinstance(control, OverTime) for _, control, _ in parts):
        return stiffness, damping, weighed(constant, [(factor, c.within(ends)) for factor, c, ends in parts])
    if lag := common_lag(control for _, control, _ in parts):
        rows = weighed(constant, [(factor, control.rows) for factor, control, _ in parts])
        begin = constant + sum(factor * control.begin[0] for factor, control, _ in parts)
        return stiffness, damping, Lagged((rows, lag, (begin,)))
    return stiffness, damping, ControlledTorque(constant, tuple(parts))


_FIXED = 1  # of mjtWrap, what a fixed one consists of
_ON_TENDON = 3  # of mjtTrn, an actuator's


class FixedTendons:
    """The fixed tendons of a compiled model.

    Parameters
    ----------
    name : callable
        Gives the name of something of a kind by its number.
    """

    def __init__(self, model: Any, name: Callable[[str, int], str]) -> None:
        self._model, self._name = model, name
        # by the number of a tendon the ratio of each of its joints, by their names
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
