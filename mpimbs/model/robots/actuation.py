"""What moves a robot: its actuators, as springs, dampers and torques of the joints that they act on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mpimbs.base.errors import InputError
from mpimbs.model.robots.robot import Control, Robot, RobotActuator, RobotJoint
from mpimbs.model.text import table
from mpimbs.model.text.table import TimeFunction, suggest


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
        return self._constant + sum(factor * _within(control(t), ends) for factor, control, ends in self._parts)


class TorqueOfSeveral:
    """The torque of a joint of several coordinates, a function of the time (s), of those along each."""

    def __init__(self, torques: list[Control]) -> None:
        self._torques = torques

    def __call__(self, t: float) -> tuple[float, ...]:
        """Give the torques at a time (s)."""
        return tuple(torque(t) if callable(torque) else torque for torque in self._torques)


def actuate(robot: Robot, controls: Mapping[str, Control] | None = None) -> None:
    """Let the actuators of a robot act on its joints, or note that they are left out.

    The terms of length and speed become springs and dampers, which implicit steps take; the others torques.

    Raises
    ------
    InputError
        A control is of no actuator, or neither a number nor a function.
    """
    given = dict(controls or {})
    names = [actuator.name for actuator in robot.actuators]
    for name, control in given.items():
        if name not in names:
            raise InputError(f"controls: there is no actuator {name!r}{suggest(name, names)}")
        if not callable(control):
            try:
                table.number(control)
            except ValueError as error:
                raise InputError(f"controls: {name!r} {error}; give it, or a function of time") from None
    joints = {joint.name: joint for link in robot.links for joint in link.joints}
    driven: dict[str, list[RobotActuator]] = {}
    for actuator in robot.actuators:
        if robot.actuation == "off":
            robot.leave_out("actuator", actuator.name)
        elif actuator.grows:
            robot.leave_out("actuator whose force grows with what it moves", actuator.name)
        else:
            actuator = actuator._replace(control=given.get(actuator.name, actuator.control))
            driven.setdefault(actuator.joint, []).append(actuator)
    for name, actuators in driven.items():
        _drive(joints[name], actuators)


def _drive(joint: RobotJoint, actuators: list[RobotActuator]) -> None:
    """Have a joint driven."""
    constant = 0.0
    parts: list[tuple[float, Callable[[float], float], tuple[float, float]]] = []
    rest = joint.rest[0] if joint.rest else 0.0  # where its own spring is at ease, and that of actuators then, too
    for actuator in actuators:
        square, factor = actuator.gear**2, actuator.gear * actuator.gain
        stiffness = -square * actuator.bias[1]
        joint.stiffness = (joint.stiffness[0] + stiffness,)
        joint.damping = (joint.damping[0] - square * actuator.bias[2],)
        constant += actuator.gear * actuator.bias[0] - stiffness * rest
        if callable(actuator.control):
            parts.append((factor, actuator.control, actuator.range))
        else:
            constant += factor * _within(float(actuator.control), actuator.range)
    joint.torque = ControlledTorque(constant, tuple(parts)) if parts else constant


def _within(value: float, ends: tuple[float, float]) -> float:
    """Give a value, or the end of its range that it is beyond; what is no number as it is."""
    return ends[0] if value < ends[0] else ends[1] if value > ends[1] else value
