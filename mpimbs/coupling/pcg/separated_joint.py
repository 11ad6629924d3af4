"""A separated joint: what it constrains, and how it moves; those of a rank."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.parts.part import Ends, SeparablePart
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import Build
from mpimbs.sweep.structure import BODY, FIRST_Q, FIRST_U, FIXED, LAST_U, Structure


def constraint_subspace(joint: Build) -> Floats:
    """Orthonormal basis of the loads that a joint transmits and that are not given [6, 6 minus its degrees of freedom].

    In the frame of the joint's first step, where it is constant whatever the joint's coordinates: moments, then forces.
    An axis with a rotor is none of these degrees of freedom: what passes it is the given force less what the rotor
    takes, an unknown as the loads are that do no work; the rotor's inertia is in the piece's I, so that B L B^T has
    it in its range.

    Parameters
    ----------
    joint : Build
        A body alone with its inboard joint.
    """
    from scipy.linalg import qr  # takes 0.1 s: where it is needed

    s = joint.structure
    turn = np.eye(3)  # components in the first step's frame to those in the step's
    motion = np.zeros((6, len(s.axes)))
    free = s.armature == 0 if s.armature.size else np.ones(len(s.axes), bool)
    for number, step in enumerate(s.steps):
        if number > 0:
            turn = s.fixed.reshape(-1, FIXED)[step[BODY], :9].reshape(3, 3) @ turn
        for d in range(step[FIRST_U], step[LAST_U]):
            unit = np.eye(6)[s.axes[d]]
            if s.axes[d] < 3:
                unit = unit + s.pitch[d] * np.eye(6)[s.axes[d] + 3]
            motion[:, d] = np.concatenate([unit[:3] @ turn, unit[3:] @ turn])
    motion = motion[:, free]
    across = np.eye(6) - motion @ np.linalg.pinv(motion)
    basis, _, _ = qr(across, pivoting=True)  # of unit axes where the joint's own are
    return np.asarray(basis[:, : 6 - motion.shape[1]], np.float64)


class SeparatedJoint(NamedTuple):
    """A separated joint with which a piece begins."""

    piece: int  # number of the piece on its rank
    root: int  # which of its ends it is
    body: int
    made: Build  # of the body alone with this joint
    first_q: int  # of the rank's coordinates
    first_u: int  # of the speeds of the rank's separated joints
    subspace: Floats  # [6, size]: see `constraint_subspace`

    @property
    def size(self) -> int:
        """Number of its constraint loads."""
        return int(self.subspace.shape[1])

    def padded_subspace(self) -> Floats:
        """Its subspace as rows of 8 [6, 8], of which `size` are in use."""
        padded = np.zeros((6, ROW))
        padded[: self.size, :6] = self.subspace.T
        return padded

    def of_the_body(self) -> Floats:
        """Its subspace in body frame components [size, 6]; of a joint of several steps, of a frame between them."""
        turn = self.made.body_frame[0] if len(self.made.structure.steps) == 1 else np.eye(3)
        turned: Floats = (self.subspace.T.reshape(-1, 2, 3) @ turn.T).reshape(-1, 6)
        return turned


def joints_of(part: SeparablePart, ends: list[Ends]) -> list[SeparatedJoint]:
    """The separated joints of a rank's part, in its order."""
    joints = []
    at_q = at_u = 0
    for number, (piece, end) in enumerate(zip(part, ends, strict=True)):
        for root in np.flatnonzero(end.outside_bodies >= 0).tolist():
            body = int(end.roots[root])
            made = piece.joint(body)
            place = at_q + piece.coordinates_before(body), at_u
            joints.append(SeparatedJoint(number, root, body, made, *place, constraint_subspace(made)))
            at_u += len(made.structure.axes)
        at_q += piece.nq
    return joints


def first_steps(joints: list[SeparatedJoint]) -> Structure:
    """The first step of each joint, in whose frame its constraint subspace stays, as the steps of one structure."""
    made = [joint.made.structure for joint in joints]
    steps = np.zeros((len(joints), 8), np.int64)
    fixed = np.zeros((len(joints), FIXED))
    for number, (joint, structure) in enumerate(zip(joints, made, strict=True)):
        steps[number] = structure.steps[0]
        fixed[number] = structure.fixed.reshape(-1, FIXED)[structure.steps[0, BODY]]
        steps[number, [FIRST_Q, FIRST_U, LAST_U]] += (joint.first_q, joint.first_u, joint.first_u)
        steps[number, BODY] = number
    axes = np.concatenate([np.zeros(0, np.int64), *(structure.axes for structure in made)])
    pitch = np.concatenate([np.zeros(0), *(structure.pitch for structure in made)])
    return Structure(steps, axes, fixed.ravel(), pitch, np.zeros(0), np.arange(len(steps)), np.zeros(0))
