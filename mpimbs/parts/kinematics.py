"""Where the bodies of a whole system are in a state, and how they move, found by one process."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.base.arguments import array_of
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.model import BodyMotion, ModelLike, contents_from
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.structure import BOUNDARY, PLACE


def kinematics(system: ModelLike | Subchain, q: npt.ArrayLike, u: npt.ArrayLike | None = None) -> BodyMotion:
    """Give the poses and velocities of all bodies of a system, in a state or in several; by one process.

    Parameters
    ----------
    system : System, str, Path or Subchain
        A whole system, or what names it, as for `system_from`; one that a `Subchain` was made of before has less to do.
    q : array [nq] or [states, nq]
        Coordinates in the model's order; rad, m, quaternions w x y z.
    u : array [nu] or [states, nu], optional
        Generalized speeds; rad/s, m/s. At rest by default.

    Returns
    -------
    BodyMotion
        World components: `rotation` [n, 3, 3], which takes body components to them, `position` [n, 3] (m) and
        `velocity` [n, 3] (m/s) of the frames' origins, `angular_velocity` [n, 3] (rad/s). Of several states each with
        an axis more, the first.

    Raises
    ------
    InputError
        Of another size, not finite, or with a quaternion that is zero.
    """
    part = system if isinstance(system, Subchain) else Subchain(contents_from(system))
    states = array_of(q)
    speeds = np.zeros((*states.shape[:-1], part.nu)) if u is None else array_of(u)
    bodies = np.arange(part.n_bodies)
    if states.ndim < 2:
        return BodyMotion(bodies, *moving(part, part.motions(*part.state(states, speeds))))
    if states.shape[:-1] != speeds.shape[:-1]:
        raise InputError(f"q has shape {states.shape}, u {speeds.shape}; give as many states of both")
    n = part.n_bodies
    found = [np.empty((len(states), n, *shape)) for shape in ((3, 3), (3,), (3,), (3,))]
    for k, state in enumerate(zip(states, speeds, strict=True)):
        for values, of_state in zip(found, moving(part, part.motions(*part.state(*state))), strict=True):
            values[k] = of_state
    return BodyMotion(bodies, *found)


def moving(part: Subchain, steps: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Give rotations, positions, angular velocities and velocities of bodies, as `kinematics`, from the motions of
    their steps, as `Subchain.motions` gives them."""
    made = part.made
    rows = steps.reshape(-1, BOUNDARY)[made.body_step]
    to_world = np.swapaxes(rows[:, :9].reshape(-1, 3, 3), 1, 2)
    omega, velocity = (np.einsum("nij,nj->ni", to_world, rows[:, k : k + 3]) for k in (PLACE, PLACE + 3))
    return to_world @ np.swapaxes(made.body_frame, 1, 2), rows[:, 9:PLACE], omega, velocity


def pose_numbers(rotations: Floats, positions: Floats) -> Floats:
    """Give poses of bodies, rotations [..., 3, 3] and positions [..., 3], as samples have them [..., 7]."""
    from scipy.spatial.transform import Rotation  # takes 0.2 s: where it is needed

    turns = Rotation.from_matrix(rotations.reshape(-1, 3, 3)).as_quat(scalar_first=True)
    return np.concatenate([positions, turns.reshape(*positions.shape[:-1], 4)], axis=-1)
