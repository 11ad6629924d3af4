"""The table of joint types: counts, units and zero positions against hand values."""

import pytest

from mpimbs.base.errors import InputError
from mpimbs.model import JOINT_TYPES, joint_type
from mpimbs.model.joints import joint_index

BY_HAND = {  # name: nq, nu, takes axis, takes pitch, zero position
    "fixed": (0, 0, False, False, ()),
    "revolute": (1, 1, True, False, (0,)),
    "prismatic": (1, 1, True, False, (0,)),
    "helical": (1, 1, True, True, (0,)),
    "cylindrical": (2, 2, True, False, (0, 0)),
    "universal": (2, 2, False, False, (0, 0)),
    "spherical": (4, 3, False, False, (1, 0, 0, 0)),
    "planar": (3, 3, False, False, (0, 0, 0)),
    "free": (7, 6, False, False, (1, 0, 0, 0, 0, 0, 0)),
}


def test_the_order_is_the_documented_one():
    assert [kind.name for kind in JOINT_TYPES] == list(BY_HAND)
    assert [joint_index(name) for name in BY_HAND] == list(range(len(BY_HAND)))


@pytest.mark.parametrize("name", BY_HAND)
def test_counts_and_zero_position(name):
    kind = joint_type(name)
    assert (kind.nq, kind.nu, kind.takes_axis, kind.takes_pitch, kind.zero) == BY_HAND[name]
    assert kind.quaternion == (name in ("spherical", "free"))


def test_units():
    assert joint_type("cylindrical").q_units == ("rad", "m")
    assert joint_type("planar").u_units == ("m/s", "m/s", "rad/s")
    assert joint_type("free").q_units == ("1",) * 4 + ("m",) * 3


@pytest.mark.parametrize("kind", JOINT_TYPES, ids=lambda kind: kind.name)
def test_every_axis_of_a_step_is_a_unit_axis_and_is_freed_once(kind):
    for step in kind.steps:
        assert len(set(step.axes)) == len(step.axes)
        assert all(0 <= axis < 6 for axis in step.axes)
        rotations = sum(axis < 3 for axis in step.axes)
        assert rotations == {0: 0, 1: 1, 4: 3}[step.turn]


def test_an_unknown_type_lists_what_is_known():
    with pytest.raises(InputError, match=r"unknown joint type 'revolut'; did you mean 'revolute'\?"):
        joint_type("revolut")
    with pytest.raises(InputError, match=r"choose one of fixed, revolute, .*, free"):
        joint_type("xyz")
