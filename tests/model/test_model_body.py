"""The tables of a body: what they accept, what they refuse and what the refusal says."""

import math
import re

import pytest

from mpimbs.base.errors import InputError
from mpimbs.model import Body, Joint, Loop

SOLID = {"name": "link", "mass": 2.0, "inertia": [1, 1, 1, 0, 0, 0], "joint": {"type": "revolute"}}
LOOP = {"name": "l", "type": "revolute", "bodies": ["a", "b"], "positions": [[0, 0, 0], [1, 0, 0]]}


def joint(kind, **fields):
    return Joint(type=kind, **fields)


def test_quaternions_are_normalised_when_close():
    q = (1 + 5e-7, 0, 0, 0)
    assert joint("revolute", rotation=q).rotation == (1, 0, 0, 0)
    assert joint("spherical", q=q).q == (1, 0, 0, 0)
    assert joint("free", rest=[*q, 1, 2, 3]).rest == (1, 0, 0, 0, 1, 2, 3)


REFUSED_JOINTS = [
    ({"type": "revolut"}, "type: unknown joint type 'revolut'; did you mean 'revolute'"),
    ({"type": 3}, "type should be a valid string, got 3"),
    ({}, "type is missing; give the type of joint"),
    ({"type": "revolute", "axis": [0, 0, 0]}, "axis must not be zero.*give a direction such as"),
    ({"type": "revolute", "axis": [0, 1]}, "axis needs 3 numbers (x y z), got 2"),
    ({"type": "spherical", "axis": [0, 0, 1]}, "axis has no meaning for a spherical joint; leave it out"),
    ({"type": "revolute", "pitch": 1}, "pitch has no meaning for a revolute joint; leave it out"),
    ({"type": "helical"}, "pitch is missing; give the pitch of the helical joint in m/rad"),
    ({"type": "revolute", "q": math.nan}, "q must be a finite number, got nan"),
    ({"type": "revolute", "u": math.inf}, "u must be a finite number, got inf"),
    ({"type": "revolute", "u": -math.inf}, "u must be a finite number, got -inf"),
    ({"type": "revolute", "u": 10**400}, "u must be a finite number"),
    ({"type": "revolute", "u": True}, "u must be a finite number, got True"),
    ({"type": "revolute", "q": "0.1"}, "q must be a finite number, got '0.1'"),
    ({"type": "revolute", "position": [0, math.nan, 0]}, "position must be a finite number, got nan"),
    ({"type": "revolute", "position": "origin"}, "position needs a list of 3 numbers (x y z), got 'origin'"),
    ({"type": "spherical", "q": 0.1}, "q needs a list of 4 numbers (spherical joint: quaternion w x y z first"),
    ({"type": "universal", "q": 0.1}, "q needs a list of 2 numbers (universal joint: coordinates in rad rad), got 0.1"),
    ({"type": "cylindrical", "u": 1}, "u needs a list of 2 numbers (cylindrical joint: speeds in rad/s m/s), got 1"),
    ({"type": "planar", "torque": 1}, "torque needs a list of 3 numbers (planar joint: speeds in m/s m/s rad/s)"),
    ({"type": "free", "damping": 1}, "damping needs a list of 6 numbers (free joint"),
    ({"type": "fixed", "u": 1}, "u needs a list of 0 numbers (a fixed joint has no coordinates)"),
    ({"type": "revolute", "u": [1, 2]}, "u needs 1 numbers (revolute joint: speeds in rad/s), got 2: [1, 2]"),
    ({"type": "revolute", "stiffness": -1}, "stiffness must not be negative, got [-1.0]; give 0 for none"),
    ({"type": "revolute", "damping": -1}, "damping must not be negative"),
    ({"type": "revolute", "cross_stiffness": [0, 0, 0]}, "cross_stiffness has no meaning for a revolute joint"),
    (
        {"type": "spherical", "stiffness": [1, 2, 3], "cross_stiffness": [2, 0, 0]},
        "cross_stiffness makes the stiffness indefinite, with a principal value of -0.561553; give smaller ones",
    ),
    ({"type": "revolute", "rotation": [1, 1, 0, 0]}, "norm 1.414214; write [0.707106781, 0.707106781, 0.0, 0.0]"),
    ({"type": "spherical", "q": [2, 0, 0, 0]}, "q must be a unit quaternion.* of norm 2; write [1.0, 0.0, 0.0, 0.0]"),
    ({"type": "free", "rest": [0] * 7}, "rest must be a unit quaternion.* of norm 0; write [1.0, 0.0, 0.0, 0.0]"),
    ({"type": "revolute", "stifness": 1}, "unknown key 'stifness'; did you mean 'stiffness'"),
    ({"type": "revolute", "armature": -0.1}, "armature must not be negative, got [-0.1]; give 0 for none"),
    ({"type": "revolute", "armature": "0.1"}, "armature must be a finite number, got '0.1'"),
    ({"type": "fixed", "armature": 0.1}, "armature has no axis to turn about in a fixed joint; leave it out"),
    ({"type": "free", "armature": 0.1}, "armature needs a list of 6 numbers (free joint"),
    ({"type": "fixed", "torque": math.sin}, "torque has nothing to act on in a fixed joint"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED_JOINTS, ids=lambda x: str(x)[:50])
def test_a_joint_refuses(fields, message):
    pattern = re.escape(message).replace(re.escape(".*"), ".*")
    with pytest.raises(InputError, match=pattern):
        Joint(**fields)
    with pytest.raises(InputError, match=f"^body 'link': joint: .*{pattern}") as error:
        Body(**(SOLID | {"joint": fields}))
    assert "\n" not in str(error.value)


REFUSED_BODIES = [
    ({"mass": -1}, "mass must be positive, got -1; give the mass in kg"),
    ({"mass": 0}, "mass must be positive, got 0; give the mass in kg"),
    ({"mass": math.nan}, "mass must be a finite number, got nan"),
    ({"mass": "1"}, "mass must be a finite number, got '1'"),
    ({"inertia": [1, 1, 1]}, "inertia needs 6 numbers (xx yy zz xy xz yz), got 3"),
    ({"inertia": [1, 1, 1, 2, 0, 0]}, "inertia must be positive semidefinite.* principal moments -1, 1, 3 kg m^2"),
    ({"inertia": [1, 1, 2.1, 0, 0, 0]}, "the largest exceeds the sum of the others; check the order"),
    ({"inertia": [1, 1, math.inf, 0, 0, 0]}, "inertia must be a finite number, got inf"),
    ({"center_of_mass": [0, 0]}, "center_of_mass needs 3 numbers"),
    ({"name": "world"}, "name 'world' is reserved for the inertial frame; give another name"),
    ({"name": ""}, "name must be a printable, non-empty text, got ''"),
    ({"name": "a\nb"}, "name must be a printable, non-empty text"),
    ({"parent": 3}, "parent should be a valid string, got 3"),
    ({"joint": "revolute"}, "joint should be a valid dictionary or instance of Joint, got 'revolute'"),
    ({"mas": 1}, "unknown key 'mas'; did you mean 'mass'"),
    ({"wrench": {"force": [1, 2]}}, "wrench 1: force needs 3 numbers (x y z), got 2"),
    ({"wrench": [{}, {"frame": "earth"}]}, "wrench 2: frame should be 'body' or 'world', got 'earth'"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED_BODIES, ids=lambda x: str(x)[:50])
def test_a_body_refuses(fields, message):
    with pytest.raises(InputError, match=re.escape(message).replace(re.escape(".*"), ".*")) as error:
        Body(**(SOLID | fields))
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"body {(SOLID | fields)['name']!r}: ")


def test_limits_of_the_inertia_that_are_allowed():
    Body(**(SOLID | {"inertia": [1, 1, 2, 0, 0, 0]}))  # a flat disc
    Body(**(SOLID | {"inertia": [1e-9, 1, 1, 0, 0, 0]}))  # a thin rod
    assert Body(**(SOLID | {"mass": 0, "inertia": [0] * 6})).thin


def test_tables_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Body(**SOLID).mass = 3


REFUSED_LOOPS = [
    ({"type": "free"}, "loop 'l': type free closes no loop; leave the loop out"),
    ({"bodies": ["a", "a"]}, "bodies must be two different ones, got 'a' twice"),
    ({"bodies": ["a"]}, "bodies needs a list of two values, one for each body, got ['a']"),
    ({"bodies": "ab"}, "bodies needs a list of two values, one for each body, got 'ab'"),
    ({"bodies": ["a", 3]}, "bodies must be a printable, non-empty text, got 3"),
    ({"positions": [[0, 0, 0]]}, "positions needs a list of two values, one for each body"),
    ({"rotations": [[1, 0, 0, 0], [2, 0, 0, 0]]}, "rotations must be a unit quaternion"),
    ({"axis": [0, 0, 0]}, "axis must not be zero"),
    ({"pitch": 1}, "pitch has no meaning for a revolute joint"),
    ({"q": 1}, "unknown key 'q'"),
    ({"armature": 1}, "unknown key 'armature'"),
    ({"stiffness": -1}, "loop 'l': stiffness must not be negative, got [-1.0]"),
    ({"damping": [1, 2]}, "damping needs 1 numbers (revolute joint: speeds in rad/s), got 2"),
    ({"rest": "now"}, "rest must be a finite number, got 'now'"),
    ({"type": "cylindrical", "torque": 1}, "torque needs a list of 2 numbers (cylindrical joint: speeds in rad/s m/s)"),
    ({"type": "spherical", "cross_stiffness": [1, 0, 0]}, "cross_stiffness makes the stiffness indefinite"),
    ({"type": "fixed", "torque": abs}, "torque has nothing to act on in a fixed joint"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED_LOOPS)
def test_a_loop_refuses(fields, message):
    with pytest.raises(InputError, match=re.escape(message)):
        Loop(**(LOOP | fields))
