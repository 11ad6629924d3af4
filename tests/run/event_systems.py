"""Systems with events, and functions that these name by module:function."""

import numpy as np

from mpimbs.model import BodyMotion, Joint, System


def gap(t: float, motion: BodyMotion) -> float:
    """How far the second body is from the first along x, less 0.1 m."""
    return float(motion.position[1, 0] - motion.position[0, 0] - 0.1)


def at_a_third(t: float, motion: BodyMotion) -> float:
    """A time."""
    return t - 1.0 / 3.0


def steep(t: float, motion: BodyMotion) -> float:
    """The same, of a function that jumps."""
    return 1.0 if t > 1.0 / 3.0 else -1.0


def flat(t: float, motion: BodyMotion) -> float:
    """The same, of one that is flat where it passes zero."""
    return (t - 1.0 / 3.0) ** 3


def halting(t: float, motion: BodyMotion) -> float:
    """The same, of one that is next to zero for a while before it jumps."""
    return -1e-16 if -1e-6 < t - 1.0 / 3.0 < 0.0 else t - 1.0 / 3.0 + 5e-7


def floating(n: int, damping: float = 0.0) -> System:
    """A chain that tumbles freely."""
    system = System("chain", gravity=(0, -9.81, 0))
    source = np.random.default_rng(3)
    for k in range(n):
        kind = "free" if k == 0 else ("spherical", "universal", "revolute")[k % 3]
        place = {} if k == 0 else {"position": (0.2, 0, 0), "damping": damping}
        joint = Joint(type=kind, u=source.uniform(-1, 1, 6 if k == 0 else Joint(type=kind).kind.nu).tolist(), **place)
        system.add(name=f"b{k}", mass=1 + k, center_of_mass=(0.1, 0.02, 0), inertia=(2, 3, 4, 0, 0, 0), joint=joint)
    return system


def sticking(kind: str = "fixed") -> System:
    """Two free bodies that meet at 0.3 s, and stick."""
    system = System("two", gravity=(0, 0, 0))
    for name, m, x, v in (("a", 1.0, 0.0, 2.0), ("b", 3.0, 1.0, -1.0)):
        joint = Joint(type="free", q=(1, 0, 0, 0, x, 0, 0), u=(0, 0, 0, v, 0, 0))
        system.add(name=name, parent="world", mass=m, inertia=(m, m, m, 0, 0, 0), joint=joint)
    for k in range(2):  # so that there are bodies for all ranks
        far = Joint(type="free", q=(1, 0, 0, 0, 0, 9, k))
        system.add(name=f"far{k}", parent="world", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=far)
    places = ((0.05, 0, 0), (-0.05, 0, 0))
    system.add_loop(name="stick", type=kind, bodies=("a", "b"), positions=places, active=False)
    return system


def varied() -> System:
    """A chain that is cut at a time, then caught by a function, and let go again."""
    system = floating(6, damping=0.5)
    where = {"positions": ((0.2, 0, 0), (0, 0, 0)), "active": False}
    system.add_loop(name="again", type="spherical", bodies=("b2", "b3"), **where)
    system.add_event(time=0.1, cut="b3")
    system.add_event(when="run.event_systems:at_a_third", bodies=("b0", "b3"), connect="again", gap="close")
    system.add_event(time=0.45, cut="again")
    return system
