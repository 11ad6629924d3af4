"""What a user describes: bodies, joints, loads, loops, the `System` of them, model files, standard systems.

Serial and plain: no MPI and no compiled code here. SI units, right-handed frames, quaternions w x y z.
Begin with `system.py` and `body.py`.
"""

from mpimbs.model.body import Body, Loop, Wrench
from mpimbs.model.columns import Columns
from mpimbs.model.event import Event
from mpimbs.model.examples.library import GENERATORS, ModelLike, contents_from, read, system_from
from mpimbs.model.facts import facts
from mpimbs.model.force_functions import BodyForce, BodyMotion, ForceFunction, JointForce
from mpimbs.model.gear import Gear
from mpimbs.model.geometry import Shape
from mpimbs.model.joint import Joint
from mpimbs.model.joints import JOINT_TYPES, JointStep, JointType, joint_type
from mpimbs.model.robots.reading import is_robot, read_robot
from mpimbs.model.rod import Rod
from mpimbs.model.spring import Spring, Tendon
from mpimbs.model.summary import Summary
from mpimbs.model.system import System
from mpimbs.model.text.files import read_system, system_from_text
from mpimbs.model.text.writing import system_text, write_system

__all__ = [
    "GENERATORS",
    "JOINT_TYPES",
    "Body",
    "BodyForce",
    "BodyMotion",
    "Columns",
    "Event",
    "ForceFunction",
    "Gear",
    "Joint",
    "JointForce",
    "JointStep",
    "JointType",
    "Loop",
    "ModelLike",
    "Rod",
    "Shape",
    "Spring",
    "Summary",
    "System",
    "Tendon",
    "Wrench",
    "contents_from",
    "facts",
    "is_robot",
    "joint_type",
    "read",
    "read_robot",
    "read_system",
    "system_from",
    "system_from_text",
    "system_text",
    "write_system",
]
