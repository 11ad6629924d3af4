"""Accelerations of imported robots against those of MuJoCo and Pinocchio, which read the same files by themselves.

    python drivers/imported_robots.py FOLDER_OR_FILE ... --folder results

MJCF is compared with MuJoCo (its contacts, limits, actuators, tendons, friction, fluid and equality constraints turned
off, as they are left out), URDF with Pinocchio, fixed to the world and floating. Robots to try: the packages gymnasium
(`envs/mujoco/assets`), dm_control (`suite`) and example-robot-data ship some.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.model import System, is_robot
from mpimbs.model.robots.assembling import assembled
from mpimbs.model.robots.reading import robot_in
from mpimbs.model.robots.robot import Robot, matrix_of

Floats = npt.NDArray[np.float64]


def mujoco_difference(path: Path, seed: int = 1) -> float:
    """Largest difference of accelerations under random forces, over the largest: of an MJCF file, from MuJoCo's."""
    import mujoco

    robot, model = robot_in(path), mujoco.MjModel.from_xml_path(str(path))
    system = _without_loops(assembled(robot))
    data, off = mujoco.MjData(model), mujoco.mjtDisableBit
    model.opt.disableflags |= off.mjDSBL_CONSTRAINT | off.mjDSBL_ACTUATION
    model.opt.density = model.opt.viscosity = 0.0
    for name in ("tendon_stiffness", "tendon_damping", "tendon_armature", "body_gravcomp"):
        getattr(model, name)[:] = 0.0
    rng = np.random.default_rng(seed)
    data.qpos[:], data.qvel[:] = model.qpos0, rng.normal(size=model.nv)
    mujoco.mj_integratePos(model, data.qpos, 0.7 * rng.normal(size=model.nv), 1.0)
    free = [model.jnt_dofadr[k] + i for k in np.flatnonzero(model.jnt_type == 0) for i in range(6)]
    data.qfrc_applied[:] = rng.normal(size=model.nv)
    data.qfrc_applied[free] = 0.0
    mujoco.mj_forward(model, data)
    q, u, udot, tau = [], [], [], []
    for joint in robot.order:
        number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, joint.name)
        number = int(joint.name.removeprefix("joint").rstrip("_")) if number < 0 else number  # the reader has named it
        at, on = model.jnt_qposadr[number], model.jnt_dofadr[number]
        x, v, a = data.qpos[at:], data.qvel[on:], data.qacc[on:]
        if joint.kind == "free":  # theirs: position first, velocity in the world's frame
            to_body = matrix_of(x[3:7]).T
            velocity = to_body @ v[:3]
            q += [*x[3:7], *x[:3]]
            u += [*v[3:6], *velocity]
            udot += [*a[3:6], *(to_body @ a[:3] - np.cross(v[3:6], velocity))]
            tau += [0.0] * 6
        else:
            nq, nu = (4, 3) if joint.kind == "ball" else (1, 1)
            q, u, udot = [*q, *x[:nq]], [*u, *v[:nu]], [*udot, *a[:nu]]
            tau += [*data.qfrc_applied[on : on + nu]]
    return _difference(system, q, u, tau, udot)


def pinocchio_difference(path: Path, free: bool = False, seed: int = 1) -> float:
    """Largest difference of accelerations under random forces, over the largest: of a URDF file, from Pinocchio's."""
    import pinocchio as pin

    robot = robot_in(path, free)
    system = _without_loops(assembled(robot))
    model = pin.buildModelFromUrdf(str(path), *([pin.JointModelFreeFlyer()] if free else []))
    rng = np.random.default_rng(seed)
    q0, v = pin.integrate(model, pin.neutral(model), 0.7 * rng.normal(size=model.nv)), rng.normal(size=model.nv)
    tau, push, q, places = np.zeros(model.nv), np.zeros(model.nv), [], []
    for joint in robot.order:
        found = model.joints[model.getJointId("root_joint" if joint.kind == "free" else joint.name)]
        x, first = q0[found.idx_q : found.idx_q + found.nq], found.idx_v
        if joint.kind == "free":
            q += [*x[[6, 3, 4, 5]], *x[:3]]
            places += [first + k for k in (3, 4, 5, 0, 1, 2)]
        else:  # a continuous joint's coordinates are a cosine and a sine
            q += [np.arctan2(x[1], x[0]) if found.nq == 2 else x[0]]
            places.append(first)
            push[first] = rng.normal()
            tau[first] = push[first] - joint.damping[0] * v[first]
    if len(places) < model.nv:
        raise InputError("joints that carry no mass, which Pinocchio can't accelerate")
    return _difference(system, q, v[places], push[places], pin.aba(model, model.createData(), q0, v, tau)[places])


def _without_loops(system: System) -> System:
    """The bodies of a system alone."""
    bodies = System(system.name, system.gravity)
    for body in system.bodies():
        bodies.add(body)
    return bodies


def _difference(
    system: System, q: Sequence[float], u: Sequence[float] | Floats, tau: Sequence[float] | Floats, theirs: Floats
) -> float:
    dynamics = Dynamics(system, comm=MPI.COMM_SELF)
    ours = dynamics.accelerations(np.array(q), np.array(u), np.array(tau))
    dynamics.close()
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-300))


def _compared(path: Path) -> list[dict[str, Any]]:
    """What is found of one file: a row for each way to hold it."""
    rows = []
    for free in (False, True) if path.suffix == ".urdf" else (False,):
        row: dict[str, Any] = {"robot": f"{path.parent.name}/{path.name}", "free": free}
        try:
            robot: Robot = robot_in(path, free)
            system = assembled(robot)
            row |= {"bodies": system.n_bodies, "freedoms": system.nu, "left_out": robot.left_out}
            urdf = path.suffix == ".urdf"
            row["difference"] = pinocchio_difference(path, free) if urdf else mujoco_difference(path)
        except (InputError, ValueError) as error:
            row["refused"] = str(error)
        rows.append(row)
    return rows


def main(places: Sequence[Path], folder: Path | None = None) -> list[dict[str, Any]]:
    """Compare all robots in files and folders; one process.

    Parameters
    ----------
    places : sequence of Path
    folder : Path, optional
        Where imported_robots.json goes.

    Returns
    -------
    list of dict
        robot, free (whether its first link floats), bodies, freedoms, left_out, difference; or why it is refused.
    """
    files = [file for place in places for file in (sorted(place.rglob("*.*")) if place.is_dir() else [place])]
    rows = []
    for file in filter(is_robot, files):
        for row in _compared(file):
            told = f"{row['difference']:.1e}" if "difference" in row else f"refused: {row['refused']}"
            size = f"{row['bodies']:4d} bodies {row['freedoms']:4d} freedoms" if "bodies" in row else ""
            print(f"{row['robot']:50s} {'free ' if row['free'] else 'fixed'} {size}  {told}", flush=True)
            rows.append(row)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "imported_robots.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return rows


@click.command()
@click.argument("places", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--folder", type=Path, help="Where imported_robots.json goes.")
def command(places: tuple[Path, ...], folder: Path | None) -> None:
    """Compare imported robots with MuJoCo and Pinocchio."""
    main(places, folder)


if __name__ == "__main__":
    command()
