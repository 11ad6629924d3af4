"""Links without inertia that move: their share of the next one's, such that nothing moves otherwise than before.

Where several joints of a link make up no single type, links without mass lie between them, and a `System` has no such
bodies. But what lies on the axis of a hinge moves the same whether it belongs to the link before the hinge or to that
behind it: so the link before is given a part of it, which the one behind loses. A rigid body's mass, center of mass and
inertia are its pseudo-inertia, the integral of x x^T over its mass for x = (point, 1) [Wensing, Kim & Slotine 2018,
section III]; what can be shared is that in the span of all x that the joint leaves where they are.
"""

from __future__ import annotations

import numpy as np

from mpimbs.model.robots.robot import Floats, Pose, RobotLink

_SHARE = 0.5  # of what can be shared
_RANK = 1e-9  # singular values below this are zero
_THICKNESS = 1e-13  # inertia that makes a thin share a body, of the link's largest: what is not exact here


def pseudo_inertia(link: RobotLink) -> Floats:
    """The pseudo-inertia [4, 4] of a link in its frame."""
    second = 0.5 * np.trace(link.inertia) * np.eye(3) - link.inertia + link.mass * np.outer(link.center, link.center)
    first = link.mass * link.center
    return np.block([[second, first[:, None]], [first, link.mass]])


def set_pseudo_inertia(link: RobotLink, pseudo: Floats) -> None:
    """Give a link the mass, center of mass and inertia of a pseudo-inertia [4, 4] in its frame."""
    link.mass = float(pseudo[3, 3])
    link.center = pseudo[:3, 3] / link.mass if link.mass else np.zeros(3)
    second = pseudo[:3, :3] - link.mass * np.outer(link.center, link.center)
    link.inertia = np.trace(second) * np.eye(3) - second


def share(before: RobotLink, link: RobotLink, unmoved: Floats) -> bool:
    """Give a link without inertia a share of that of the one behind it; False if nothing can be shared.

    Parameters
    ----------
    before, link : RobotLink
        The second lies on the first.
    unmoved : array [4, k]
        What the joint between them leaves where it is, in the frame of `link`.
    """
    pseudo = pseudo_inertia(link)
    common = _within(unmoved, pseudo)
    if not common.shape[1]:
        return False
    # The largest matrix of that span that pseudo exceeds: V (V^T pseudo^-1 V)^-1 V^T.
    inverse = np.linalg.pinv(pseudo, rcond=1e-14, hermitian=True)
    shared = _SHARE * common @ np.linalg.inv(common.T @ inverse @ common) @ common.T
    thin = RobotLink("", 0)
    thicken(thin, link, _THICKNESS)
    set_pseudo_inertia(link, pseudo - shared)
    set_pseudo_inertia(before, pseudo_inertia(before) + pseudo_inertia(thin) + _moved(shared, link.pose))
    return True


def merge(before: RobotLink, link: RobotLink) -> None:
    """Add a link's mass and inertia to those of the one that it is fixed to."""
    set_pseudo_inertia(before, pseudo_inertia(before) + _moved(pseudo_inertia(link), link.pose))


def thicken(before: RobotLink, link: RobotLink, part: float) -> None:
    """Add a part of what a link on it has to a link without inertia, as a ball about its center of mass."""
    size = np.linalg.eigvalsh(link.inertia)[-1] + link.mass * link.center @ link.center
    before.mass += 0.0 if before.mass else part * link.mass
    before.inertia = before.inertia + part * size * np.eye(3)


def is_thin(link: RobotLink) -> bool:
    """Whether a link has no inertia about some axis."""
    low, _, high = np.linalg.eigvalsh(link.inertia)
    return bool(low <= 0.5 * _THICKNESS * high)


def _within(unmoved: Floats, pseudo: Floats) -> Floats:
    """A basis of what is in the span of `unmoved` [4, k] and in that of a pseudo-inertia, whose rank may be less."""
    values, vectors = np.linalg.eigh(pseudo)
    inside = vectors[:, values > 1e-11 * values[-1]]
    left, cosines, _ = np.linalg.svd(np.linalg.qr(unmoved)[0].T @ inside)
    return np.asarray(np.linalg.qr(unmoved)[0] @ left[:, : np.count_nonzero(cosines > 1 - _RANK)])


def _moved(pseudo: Floats, pose: Pose) -> Floats:
    """A pseudo-inertia in the frame that a pose is told in."""
    motion = np.block([[pose.rotation, pose.position[:, None]], [np.zeros(3), 1.0]])
    return np.asarray(motion @ pseudo @ motion.T)
