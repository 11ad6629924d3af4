"""What acts on a system beside what its bodies say of themselves: by body, and by functions."""

from __future__ import annotations

from dataclasses import dataclass, field

from mpimbs.model.body import Wrench
from mpimbs.model.force_functions import BodyForce, ForceFunction, JointForce
from mpimbs.model.tendon import Tendon
from mpimbs.model.text.table import TimeFunction


@dataclass
class SystemLoads:
    """The loads of a system, by the numbers of its bodies, and functions of time and state.

    Attributes
    ----------
    torques : dict of int to function or tuple of floats
        What drives the joints of single bodies, functions of time or constant, in place of what their templates say.
    wrenches : dict of int to list of Wrench
        What acts on single bodies, in addition to what their templates say.
    joint_forces : list of JointForce
        Functions of time and state that act on joints.
    body_forces : list of BodyForce
        Functions of time, pose and velocities that act on bodies.
    tendons : dict of str to Tendon
        What acts along sums of joints' coordinates, by name.
    modules : list of str
        Which functions of modules have added forces (module:function), so that a checkpoint can name them.
    before_modules : str or None
        The system as a model file, before they did; None if that was none.
    """

    torques: dict[int, TimeFunction | tuple[float, ...]] = field(default_factory=dict)
    wrenches: dict[int, list[Wrench]] = field(default_factory=dict)
    joint_forces: list[JointForce] = field(default_factory=list)
    body_forces: list[BodyForce] = field(default_factory=list)
    tendons: dict[str, Tendon] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    before_modules: str | None = None

    @property
    def functions(self) -> list[ForceFunction]:
        """All functions, in the order in which they act."""
        return [*self.joint_forces, *self.body_forces]
