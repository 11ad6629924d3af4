"""A system again, with other rotors on its joints."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpimbs.model.columns import offsets
from mpimbs.model.system import System


def with_armature(system: System, armature: NDArray[np.float64]) -> System:
    """Return the bodies of a system, without loops or anything that acts, with so much more inertia of rotors [nu] (kg
    m^2, kg) on their joints."""
    bare = System(system.name, (0.0, 0.0, 0.0))
    bodies = list(system.bodies())
    ends = offsets(np.array([body.joint.kind.nu for body in bodies]))
    for k, body in enumerate(bodies):
        own = np.array(body.joint.armature) + armature[ends[k] : ends[k + 1]]
        nothing = (0.0,) * len(own)
        changed = {"armature": tuple(own.tolist()), "stiffness": nothing, "damping": nothing, "torque": nothing}
        bare.add(body.model_copy(update={"wrench": (), "joint": body.joint.model_copy(update=changed)}))
    return bare
