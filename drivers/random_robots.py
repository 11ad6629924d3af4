"""Robots as odd as those in the wild, drawn at random as MJCF and URDF texts, against MuJoCo and Pinocchio.

    python drivers/random_robots.py --count 1000

Several joints of a body, links without mass and point masses, references, armature, dampers, springs, motors and
servos with rotors, ranges and lags, told numbers or rows over time, spherical joints, names that collide, points and
bodies that are held together, joints that follow others. What a peer refuses is counted apart, as is what nothing
resists. A difference counts as wrong where it is more than 1e-10 of the largest acceleration, or than rounding where
joints are nearly one another's.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from imported_robots import mujoco_difference, mujoco_held_difference, pinocchio_difference
from laboratory.command import call
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.model import read_robot


class _Draw:
    """Numbers and texts from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def numbers(self, count: int, size: float = 1.0) -> str:
        return " ".join(f"{x:.6g}" for x in self.rng.uniform(-size, size, count))

    def axis(self) -> str:
        """Of the frame, or any."""
        return ("1 0 0", "0 1 0", "0 0 1", "0 0 -1")[self.rng.integers(4)] if self.chance(0.6) else self.numbers(3)

    def moments(self, mass: float) -> list[float]:
        x, y, z = self.rng.uniform(0.01, 0.2, 3) ** 2 * mass
        return [y + z, x + z, x + y]


def mjcf(seed: int) -> str:
    """An MJCF text."""
    d = _Draw(seed)
    servos, lags = _Draw(seed + 10**9), _Draw(seed + 3 * 10**9)
    total, actuators, single = int(d.rng.integers(2, 9)), list[str](), list[str]()
    count = iter(range(total))

    def joint(number: int) -> str:
        kind = ("hinge", "hinge", "slide")[d.rng.integers(3)]
        given = f'type="{kind}" axis="{d.axis()}"'
        name, named = f"joint{number % 10}{number // 10}" if d.chance(0.3) else f"j{number}", d.chance(0.7)
        given += f' name="{name}"' if named else ""
        for key, share, text in (
            ("pos", 0.5, d.numbers(3, 0.3)), ("ref", 0.3, d.numbers(1)), ("damping", 0.3, "0.3"),
            ("armature", 0.3, "0.02"), ("stiffness", 0.3, "2"), ("springref", 0.2, d.numbers(1)),
        ):  # fmt: skip
            given += f' {key}="{text}"' if d.chance(share) else ""
        single.extend([name] if named else [])
        if named and d.chance(0.2):
            gear = d.numbers(1, 5)
            range_ = ' forcerange="-0.2 0.3" ctrlrange="-2 2"' if len(actuators) % 2 == 0 else ""
            actuators.append(f'<motor joint="{name}" gear="{gear}" armature="0.01" damping="0.02"{range_}/>')
        if named and servos.chance(0.3):
            kind, gains = ("position", 'kp="5" kv="0.7"') if servos.chance(0.7) else ("velocity", 'kv="2"')
            range_ = ' forcerange="-1.5 0.7"' if servos.chance(0.7) else ""
            lag = ' dyntype="filter" dynprm="0.2"' if lags.chance(0.3) else ""
            kind = "general" if lag else kind
            gains = 'gainprm="5" biastype="affine" biasprm="0.1 -5 -0.7"' if lag else gains
            actuators.append(f'<{kind} joint="{name}" gear="{servos.numbers(1, 2)}" {gains}{lag}{range_}/>')
        return f"<joint {given}/>"

    def body(depth: int) -> str:
        number = next(count, None)
        if number is None:
            return ""
        massless = depth < 4 and d.chance(0.25)
        mass = float(d.rng.uniform(0.2, 3))
        x, y, z = d.moments(mass)
        inside = "".join(joint(10 * number + k) for k in range(d.rng.integers(0 if depth else 1, 4)))
        if depth == 0 and d.chance(0.2):
            inside = "<freejoint/>"
        elif d.chance(0.15):
            inside = f'<joint type="ball" pos="{d.numbers(3, 0.2)}" damping="0.1"/>'
        if not massless:
            place = f'pos="{d.numbers(3, 0.3)}" quat="{d.numbers(4)}"'
            inside += f'<inertial {place} mass="{mass}" diaginertia="{x} {y} {z}"/>'
        inside += "".join(body(depth + 1) for _ in range(d.rng.integers(1, 3)))
        return f'<body name="b{number}" pos="{d.numbers(3)}" quat="{d.numbers(4)}">{inside}</body>'

    bodies, held = body(0), ""
    if d.chance(0.4):
        first, second = d.rng.choice(total, 2, replace=False)
        ends = f'body1="b{first}"' + (f' body2="b{second}"' if d.chance(0.7) else "")
        held += f'<connect {ends} anchor="{d.numbers(3)}"/>'
        held += f'<weld {ends} anchor="{d.numbers(3)}" torquescale="{d.rng.integers(2)}"/>' if d.chance(0.3) else ""
    if len(single) > 1 and d.chance(0.3):
        first, second = d.rng.choice(len(single), 2, replace=False)
        held += f'<joint joint1="{single[first]}" joint2="{single[second]}" polycoef="{d.numbers(2)} 0 0 0"/>'
    tendons, over = "", _Draw(seed + 2 * 10**9)
    there = [name for name in single if f'name="{name}"' in bodies]
    for number in range(int(over.rng.integers(3)) if there else 0):
        joints = over.rng.choice(there, int(over.rng.integers(1, min(len(there), 3) + 1)), replace=False)
        parts = "".join(f'<joint joint="{name}" coef="{over.numbers(1, 2)}"/>' for name in joints)
        rest = "-0.3 0.2" if over.chance(0.3) else over.numbers(1)  # with slack, or without
        given = f'stiffness="3" springlength="{rest}"' if over.chance(0.6) else ""
        given += ' damping="0.4"' if over.chance(0.6) else ""
        tendons += f'<fixed name="t{number}" {given}>{parts}</fixed>'
        if over.chance(0.5):
            range_ = ' forcelimited="true" forcerange="-1 1.5"' if over.chance(0.5) else ""
            law = 'gainprm="2" biastype="affine" biasprm="0.2 -4 -0.6"'
            law += ' dyntype="filterexact" dynprm="0.05"' if lags.chance(0.3) else ""
            actuators.append(f'<general tendon="t{number}" gear="{over.numbers(1, 2)}" {law}{range_}/>')
    rest = f"<tendon>{tendons}</tendon><actuator>{''.join(actuators)}</actuator><equality>{held}</equality>"
    return f"<mujoco><worldbody>{bodies}</worldbody>{rest}</mujoco>"


def urdf(seed: int) -> str:
    """A URDF text."""
    d, balls = _Draw(seed), _Draw(seed + 3 * 10**9)
    spherical = balls.chance(0.2)
    parts = list[str]()
    for k in range(int(d.rng.integers(3, 10))):
        mass = float(d.rng.uniform(0.2, 3))
        xx, yy, zz = (0.0, 0.0, 0.0) if d.chance(0.1) else d.moments(mass)
        if d.chance(0.15):  # of no rigid body
            xx, mass = xx * float(d.rng.uniform(1, 4)), 0.0 if d.chance(0.3) else mass
        inertial = (
            f'<inertial><origin xyz="{d.numbers(3, 0.3)}" rpy="{d.numbers(3)}"/><mass value="{mass}"/>'
            f'<inertia ixx="{xx}" iyy="{yy}" izz="{zz}" ixy="0" ixz="0" iyz="0"/></inertial>'
        )
        parts.append(f'<link name="l{k}">{"" if d.chance(0.3) else inertial}</link>')
        if k:
            kind = ("revolute", "continuous", "prismatic", "fixed")[d.rng.integers(4)]
            kind = "spherical" if spherical and balls.chance(0.5) else kind
            limit = '<limit lower="-9" upper="9" effort="9" velocity="9"/>' if kind in ("revolute", "prismatic") else ""
            parent = k - 1 if d.chance(0.6) else int(d.rng.integers(k))
            moves = f'<axis xyz="{d.axis()}"/><origin xyz="{d.numbers(3)}" rpy="{d.numbers(3)}"/>{limit}'
            ends = f'<parent link="l{parent}"/><child link="l{k}"/><dynamics damping="0.2"/>'
            parts.append(f'<joint name="j{k}" type="{kind}">{ends}{moves}</joint>')
    return f'<robot name="r">{"".join(parts)}</robot>'


def compared(kind: str, seed: int, folder: Path) -> tuple[str, str]:
    """What comes of a robot: "right", "wrong", "refused by the peer" or "refused"; and why."""
    path = folder / f"robot.{'xml' if kind == 'mjcf' else 'urdf'}"
    path.write_text(mjcf(seed) if kind == "mjcf" else urdf(seed), encoding="utf-8")
    by_mujoco = kind == "mjcf" or "spherical" in path.read_text(encoding="utf-8")  # which Pinocchio does not read
    free = not by_mujoco and seed % 2 == 1
    try:
        read_robot(path, free)
        found = mujoco_difference(path, seed) if by_mujoco else pinocchio_difference(path, free, seed)
        held = mujoco_held_difference(path, seed) if kind == "mjcf" else None
    except InputError as error:
        by_peer = "refused by MuJoCo" in str(error) or "Pinocchio" in str(error)
        return "refused by the peer" if by_peer else "refused", str(error)
    except (SimulationError, np.linalg.LinAlgError) as error:
        return "not closed", str(error)
    except ValueError as error:
        return "refused by the peer", str(error)
    wrong = [one for one in (found, held) if one is not None and one.wrong]
    return ("wrong" if wrong else "right"), str(wrong)


def main(count: int, kinds: Sequence[str] = ("mjcf", "urdf"), first: int = 0) -> dict[str, Any]:
    """Compare so many of each kind, from a first seed on: how many are what, and those that are wrong."""
    counts, wrong = Counter[tuple[str, str]](), list[str]()
    reasons = Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        for kind in kinds:
            for seed in range(first, first + count):
                found, why = compared(kind, seed, Path(name))
                counts[kind, found] += 1
                if found == "wrong":
                    wrong.append(f"{kind} {seed}: {why}")
                elif found == "refused":
                    reasons[why.split("body '")[0].split("urdf: ")[-1].split("xml: ")[-1]] += 1
    return {"counts": counts, "wrong": wrong, "reasons": reasons}


if __name__ == "__main__":
    found = call(main)
    for (kind, what), number in sorted(found["counts"].items()):
        print(f"{kind} {what}: {number}")
    for reason, number in found["reasons"].most_common():
        print(f"refused, {number}: {reason}")
    print(*found["wrong"], sep="\n")
    sys.exit(bool(found["wrong"]))
