"""Closed forms of mechanisms, and what they are made of.

Four-bar: N linkages in a row, all links uniform slender rods of 1 m and 1 kg in the x-y plane, cranks i = 0 to N from
(i, 0, 0), couplers between their tips; the parallelogram branch, where all cranks have one angle theta from +x and
couplers only translate. Its reduced equation is I theta'' = -G cos(theta).
"""

import numpy as np
from scipy.integrate import solve_ivp

from mpimbs.model import Body, Joint, System
from oracles.dense import Array

G = 9.81  # m/s^2, down y


def four_bar_inertia(n: int) -> float:
    """I of n linkages, kg m^2: the cranks about their pivots, the couplers as points."""
    return (n + 1) / 3 + n


def four_bar_acceleration(n: int, theta: float) -> float:
    """Angular acceleration of all cranks, rad/s^2."""
    return -((n + 1) / 2 + n) * G / four_bar_inertia(n) * np.cos(theta)


def four_bar_energy(n: int, theta: float, omega: float) -> float:
    """Kinetic and potential energy, J, zero with the cranks along x."""
    return four_bar_inertia(n) * omega**2 / 2 + ((n + 1) / 2 + n) * G * np.sin(theta)


def four_bar_motion(n: int, times: Array, theta: float = np.pi / 2, omega: float = -1.0) -> Array:
    """Angle and angular velocity of the cranks at ascending times from 0 [len(times), 2], right to about 1e-10."""
    found = solve_ivp(
        lambda t, y: (y[1], four_bar_acceleration(n, y[0])),
        (0.0, float(np.max(times))),
        (theta, omega),
        "DOP853",
        times,
        rtol=1e-13,
        atol=1e-13,
    )
    return found.y.T


def four_bar_forces(n: int, theta: float, omega: float) -> Array:
    """Forces (x, y) of each crank i + 1 on coupler i at the joint between them, N [n, 2]; not for flat positions."""
    c, s, turned = np.cos(theta), np.sin(theta), four_bar_acceleration(n, theta)
    along, up = -turned * s - omega**2 * c, turned * c - omega**2 * s  # acceleration of the couplers
    y = (up + G) / 2

    def need(couplers: int) -> float:
        """Horizontal force of a crank on so many couplers."""
        return (turned / 3 + G / 2 * c + couplers * y * c) / s

    left, forces = need(1), []
    for _ in range(n):
        right = along - left
        forces.append((right, y))
        left = need(2) - right
    return np.array(forces)


def four_bar(n: int, theta: float, omega: float, as_chain: bool = False, kind: str = "revolute") -> System:
    """n linkages in a row as a system, its bodies crank0, coupler0, crank1 and so on.

    As a bush, loops join couplers (first) with the cranks at their outer ends; as a chain, cranks with the world.
    """
    rod = Body(name="rod", mass=1, center_of_mass=(0.5, 0, 0), inertia=(1e-4, 1 / 12, 1 / 12, 0, 0, 0), joint=_hinge())
    back = rod.model_copy(update={"center_of_mass": (-0.5, 0, 0)})  # from its tip
    system = System("four-bar", gravity=(0, -G, 0))
    for k in range(n + 1):
        on_world = k == 0 or not as_chain
        joint = _hinge((k if on_world else 1, 0, 0), theta, omega)
        system.add(
            rod if on_world else back, name=f"crank{k}", joint=joint, parent="world" if on_world else f"coupler{k - 1}"
        )
        if k < n:
            tip = (1 if on_world else 0, 0, 0)
            system.add(rod, name=f"coupler{k}", parent=f"crank{k}", joint=_hinge(tip, -theta, -omega))
    for k in range(1, n + 1):
        bodies = (f"crank{k}", "world") if as_chain else (f"coupler{k - 1}", f"crank{k}")
        positions = ((-1, 0, 0), (k, 0, 0)) if as_chain else ((1, 0, 0), (1, 0, 0))
        system.add_loop(name=f"loop{k}", type=kind, bodies=bodies, positions=positions)
    return system


def parallelogram_acceleration(crank: float, coupler: float, theta: float) -> float:
    """Angular acceleration (rad/s^2) of three cranks of 1 m under one coupler; masses in kg, cranks slender."""
    return -(1.5 * crank + coupler) * G * np.cos(theta) / (crank + coupler)


def parallelogram(crank: float, coupler: float, theta: float, omega: float) -> System:
    """Cranks at 0, 1 and 2 m, a coupler of 2 m that hangs on the first; one hinge of the others is redundant in the
    plane."""
    system = System("parallelogram", gravity=(0, -G, 0))
    inertia = np.array((1e-3, 1 / 12, 1 / 12, 0, 0, 0))
    for k in range(3):
        joint = _hinge((k, 0, 0), theta, omega)
        fields = {"mass": crank, "center_of_mass": (0.5, 0, 0), "inertia": crank * inertia, "joint": joint}
        system.add(Body(name=f"crank{k}", parent="world", **fields))
    system.add(
        Body(
            name="coupler",
            parent="crank0",
            mass=coupler,
            center_of_mass=(1, 0, 0),
            inertia=4 * coupler * inertia,
            joint=_hinge((1, 0, 0), -theta, -omega),
        )
    )
    for k in (1, 2):
        ends = ((1, 0, 0), (k, 0, 0))
        system.add_loop(name=f"pin{k}", type="revolute", bodies=(f"crank{k}", "coupler"), positions=ends)
    return system


def ring_tension(n: int, mass: float, length: float, omega: float) -> float:
    """Force (N) in each joint of a regular n-gon of equal rods that turns about its axis, without gravity."""
    height = length / (2 * np.tan(np.pi / n))  # of the rods' centres from the axis
    return mass * omega**2 * height / (2 * np.sin(np.pi / n))


def ring(n: int, mass: float, length: float, omega: float, kind: str = "spherical") -> System:
    """Such a ring in the x-y plane about the origin: a free rod, a chain on it, one loop from the last to the first."""
    system, turn = System("ring", gravity=(0, 0, 0)), 2 * np.pi / n
    height = length / (2 * np.tan(np.pi / n))
    inertia = mass * length**2 * np.array((1e-3, 1 / 12, 1 / 12, 0, 0, 0))
    bent = (np.cos(turn / 2), 0, 0, np.sin(turn / 2))
    speed = height * omega, -length / 2 * omega, 0  # of the corner where the first begins
    for k in range(n):
        joint = Joint(type=kind, position=(length, 0, 0), rotation=bent)
        if k == 0:
            joint = Joint(type="free", q=(1, 0, 0, 0, -length / 2, -height, 0), u=(0, 0, omega, *speed))
        fields = {"mass": mass, "center_of_mass": (length / 2, 0, 0), "inertia": inertia, "joint": joint}
        system.add(Body(name=f"rod{k}", **fields))
    system.add_loop(
        name="last",
        type=kind,
        bodies=(f"rod{n - 1}", "rod0"),
        positions=((length, 0, 0), (0, 0, 0)),
        rotations=(bent, (1, 0, 0, 0)),
    )
    return system


def _hinge(position: tuple[float, ...] = (0, 0, 0), q: float = 0.0, u: float = 0.0) -> Joint:
    return Joint(type="revolute", position=position, q=q, u=u)
