"""Accelerations of imported robots against those of MuJoCo and Pinocchio, which read the same files by themselves.

    python drivers/imported_robots.py FOLDER_OR_FILE ... --folder results

MJCF is compared with MuJoCo, URDF with Pinocchio, fixed to the world and floating. In MuJoCo, which also judges
URDF that Pinocchio doesn't read, contacts, limits, tendons through space, friction, fluid, equality constraints and
armature of free joints are turned off, as they are left out, and actuators that are no springs, dampers and forces of
joints and tendons; the others have random controls. Robots to try: the packages of `.ci/robots`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from laboratory.command import call, keep
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.closure.assembly import assemble
from mpimbs.dynamics import Dynamics
from mpimbs.model import System, is_robot
from mpimbs.model.over_time import OverTime
from mpimbs.model.robots.assembling import assembled
from mpimbs.model.robots.reading import robot_in
from mpimbs.model.robots.robot import Robot, RobotActuator, RobotJoint, matrix_of

BOUND, WRONG = 1e-10, "WRONG"  # of the largest acceleration
ROUNDING = 1e-14  # times the condition of the inertia matrix
CLOSED = 1e-9  # m, rad: what MuJoCo's constraints are open by where ours are closed
DEPENDENT = 1e-7  # of the largest, or of 1 kg^-1/2: what is left of constraints that say the same, open by so much


class Found(NamedTuple):
    """How far accelerations are from those of a peer, of the largest, and the condition of the inertia matrix there.

    With the diagonal of the matrix scaled to 1, so that it has no units.
    """

    difference: float
    condition: float

    @property
    def wrong(self) -> bool:
        """Whether that is more than rounding is, where joints are nearly one another's."""
        return self.difference > BOUND + ROUNDING * self.condition


def mujoco_difference(path: Path, seed: int = 1) -> Found:
    """Largest difference of accelerations under random forces, over the largest: of an MJCF file, from MuJoCo's."""
    theirs = _Mujoco(path)
    model, data, mujoco = theirs.model, theirs.data, theirs.mujoco
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    rng = np.random.default_rng(seed)
    data.qpos[:], data.qvel[:] = model.qpos0, rng.normal(size=model.nv)
    mujoco.mj_integratePos(model, data.qpos, 0.7 * rng.normal(size=model.nv), 1.0)
    theirs.push(rng)
    mujoco.mj_forward(model, data)
    return _difference(_without_loops(theirs.system), *theirs.as_ours(data.qvel, data.qacc))


def mujoco_held_difference(path: Path, seed: int = 1) -> Found | None:
    """Largest difference of accelerations from rest with loops and gears that hold, from a dense solution.

    By Gauss's principle, with MuJoCo's inertia matrix, forces and rows of constraints; where our loops are closed,
    theirs are. None where nothing holds.

    Raises
    ------
    InputError
        Not all that holds in MuJoCo does here; or theirs is open where ours is closed.
    """
    theirs = _Mujoco(path)
    system, model, data, mujoco = theirs.system, theirs.model, theirs.data, theirs.mujoco
    if any(kind.startswith(("equality", "gear", "loop")) for kind in theirs.robot.left_out):
        raise InputError("constraints that are left out")
    if not system.contents.loops:
        return None
    off = mujoco.mjtDisableBit
    model.opt.disableflags |= off.mjDSBL_CONTACT | off.mjDSBL_LIMIT | off.mjDSBL_FRICTIONLOSS
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    rng = np.random.default_rng(seed)
    q = assemble(system.contents, *system.contents.initial_state(0, system.n_bodies)).q
    data.qpos[:] = model.qpos0
    theirs.push(rng)
    first = 0
    for joint, at, _on in theirs.places():
        nq = {"free": 7, "ball": 4}.get(joint.kind, 1)
        own = q[first : first + nq]
        data.qpos[at : at + nq] = [*own[4:], *own[:4]] if joint.kind == "free" else own
        first += nq
    mujoco.mj_forward(model, data)
    rows = data.efc_J[: data.nefc * model.nv].reshape(data.nefc, model.nv)
    if (left := np.abs(data.efc_pos).max(initial=0.0)) > CLOSED:
        raise InputError(f"MuJoCo's constraints are open by {left:.2g} where ours are closed")
    inertia = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, inertia)
    # What is nearest to free accelerations, by kinetic energy, among those of J a = 0.
    root = np.linalg.cholesky(inertia)
    held, whole = np.linalg.solve(root, rows.T).T, np.linalg.solve(root, data.qfrc_smooth)
    least = DEPENDENT / np.clip(np.linalg.norm(held, 2), DEPENDENT, 1.0)  # nothing holds what can't move
    found = np.linalg.solve(root.T, whole - np.linalg.pinv(held, least) @ (held @ whole))
    _, u, expected, tau = theirs.as_ours(np.zeros(model.nv), found)
    return _difference(system, q, u, expected, tau, np.abs(data.qacc_smooth).max())


class _Mujoco:
    """A file as MuJoCo has it, without what is left out here, and as a `System`."""

    def __init__(self, path: Path) -> None:
        import mujoco

        self.mujoco = mujoco
        self.robot: Robot = robot_in(path)
        self.robot.actuation = "on"
        self.model = mujoco.MjModel.from_xml_path(str(path))
        self.data = mujoco.MjData(self.model)
        self._control()
        self._forget_equalities()
        self.system = assembled(self.robot)
        self._limit()
        self._loosen()
        self.model.opt.density = self.model.opt.viscosity = 0.0

    def _control(self) -> None:
        """Give random controls to actuators that are taken over; the others have no force."""
        model, rng = self.model, np.random.default_rng(2)
        self.taken: dict[int, RobotActuator] = {}
        for place, actuator in enumerate(self.robot.actuators):
            k = self.mujoco.mj_name2id(model, self.mujoco.mjtObj.mjOBJ_ACTUATOR, actuator.name)
            k = int(actuator.name.removeprefix("actuator").rstrip("_")) if k < 0 else k  # the reader has named it
            if not actuator.grows:
                self.taken[k] = actuator
                value = float(rng.normal())
                self.data.ctrl[model.actuator_ctrladr[k] if hasattr(model, "actuator_ctrladr") else k] = value
                rows = OverTime(((-1.0, value - 0.5), (1.0, value + 0.5)))  # of every second, which say the same at 0 s
                if actuator.lag:
                    actuator = actuator._replace(begin=float(rng.normal()))
                    self.data.act[model.actuator_actadr[k]] = actuator.begin
                self.robot.actuators[place] = actuator._replace(control=rows if place % 2 else value)
        left_out = np.setdiff1d(np.arange(len(model.actuator_gainprm)), [*self.taken])
        model.actuator_gainprm[left_out], model.actuator_biasprm[left_out] = 0.0, 0.0

    def _forget_equalities(self) -> None:
        """Take away what holds tendons: here springs, which come before the tendons of the file, there constraints."""
        of, tendons = self.mujoco.mjtObj.mjOBJ_EQUALITY, self.robot.tendons
        told = [name for kind, names in self.robot.left_out.items() if kind.startswith("equality") for name in names]
        for k in np.flatnonzero(self.model.eq_type == self.mujoco.mjtEq.mjEQ_TENDON):
            name = self.mujoco.mj_id2name(self.model, of, k) or f"equality{k}"
            self.data.eq_active[k] = False
            if name not in told:
                tendons.remove(next(tendon for tendon in tendons if tendon.name == name))

    def _loosen(self) -> None:
        """Take away what is left out of tendons and free joints, and the actuators of tendons left out as a whole."""
        model, told = self.model, self.robot.left_out
        for first in model.jnt_dofadr[model.jnt_type == self.mujoco.mjtJoint.mjJNT_FREE]:
            model.dof_armature[first : first + 6] = 0.0
        whole = told.get("tendon over a joint that is left out", [])
        for k in range(model.ntendon):
            name = self.mujoco.mj_id2name(model, self.mujoco.mjtObj.mjOBJ_TENDON, k) or f"tendon{k}"
            out = name in [*whole, *told.get("tendon through space", [])]
            model.tendon_stiffness[k] *= not out
            model.tendon_damping[k] *= not out
        for k, actuator in self.taken.items():
            if actuator.name in whole:
                model.actuator_gainprm[k], model.actuator_biasprm[k] = 0.0, 0.0
        for name in ("tendon_armature", "tendon_actfrclimited"):  # which MuJoCo 3.2 doesn't have
            getattr(model, name, np.zeros(0))[:] = 0

    def _limit(self) -> None:
        """Take away the ranges of forces that are left out."""
        model, told = self.model, self.robot.left_out
        beside = told.get("range of the force of actuator, beside another of its joint", ())
        of_joint = told.get("range of the force of actuators of joint", ())
        ranged = [k for k, actuator in self.taken.items() if actuator.name not in beside]
        joints = [
            int(model.actuator_trnid[k, 0]) for k, actuator in self.taken.items() if actuator.joint not in of_joint
        ]
        model.actuator_forcelimited[np.setdiff1d(np.arange(len(model.actuator_gainprm)), ranged)] = 0
        model.jnt_actfrclimited[np.setdiff1d(np.arange(model.njnt), joints)] = 0

    def push(self, rng: np.random.Generator) -> None:
        """Let random forces act along all joints but free ones."""
        free = [self.model.jnt_dofadr[k] + i for k in np.flatnonzero(self.model.jnt_type == 0) for i in range(6)]
        self.data.qfrc_applied[:] = rng.normal(size=self.model.nv)
        self.data.qfrc_applied[free] = 0.0

    def places(self) -> Iterator[tuple[RobotJoint, int, int]]:
        """Each joint in our order, and where its coordinates and speeds begin in theirs."""
        for joint in self.robot.order:
            number = self.mujoco.mj_name2id(self.model, self.mujoco.mjtObj.mjOBJ_JOINT, joint.name)
            if number < 0:  # the reader has named it
                number = int(joint.name.removeprefix("joint").rstrip("_"))
            yield joint, self.model.jnt_qposadr[number], self.model.jnt_dofadr[number]

    def as_ours(self, velocity: Floats, acceleration: Floats) -> tuple[list[float], ...]:
        """q, u, accelerations and forces on joints in our order, of the state there and of speeds and accelerations."""
        q, u, udot, tau, push = [], [], [], [], self.data.qfrc_applied
        for joint, at, on in self.places():
            x, v, a = self.data.qpos[at:], velocity[on:], acceleration[on:]
            if joint.kind == "free":  # theirs: position first, velocity in the world's frame
                to_body = matrix_of(x[3:7]).T
                along = to_body @ v[:3]
                q += [*x[3:7], *x[:3]]
                u += [*v[3:6], *along]
                udot += [*a[3:6], *(to_body @ a[:3] - np.cross(v[3:6], along))]
                tau += [0.0] * 6
            else:
                nq, nu = (4, 3) if joint.kind == "ball" else (1, 1)
                q, u, udot, tau = [*q, *x[:nq]], [*u, *v[:nu]], [*udot, *a[:nu]], [*tau, *push[on : on + nu]]
        return q, u, udot, tau


def pinocchio_difference(path: Path, free: bool = False, seed: int = 1) -> Found:
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
    return _difference(system, q, v[places], pin.aba(model, model.createData(), q0, v, tau)[places], push[places])


def _without_loops(system: System) -> System:
    """The bodies of a system, and the tendons over their joints."""
    bodies = System(system.name, system.gravity)
    for body in system.contents.bodies():
        bodies.add(body)
    for tendon in system.contents.loads.tendons.values():
        bodies.add_tendon(tendon)
    return bodies


def _difference(
    system: System, q: npt.ArrayLike, u: npt.ArrayLike, theirs: npt.ArrayLike, tau: npt.ArrayLike, least: float = 1e-300
) -> Found:
    """Largest difference of accelerations, of the largest one, or of `least`: without constraints that may lock all."""
    dynamics = Dynamics(system, comm=MPI.COMM_SELF)
    ours = dynamics.accelerations(np.array(q), np.array(u), np.array(tau))
    inertia = dynamics.inertia_matrix(np.array(q))
    dynamics.close()
    size = np.sqrt(np.diag(inertia))
    difference = float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), least))
    return Found(difference, float(np.linalg.cond(inertia / np.outer(size, size))))


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
            try:
                found = pinocchio_difference(path, free) if urdf else mujoco_difference(path)
            except ValueError as error:
                if not urdf or free or "valid URDF" not in str(error):
                    raise
                found = mujoco_difference(path)  # which reads spherical joints
            row |= {"difference": found.difference, "wrong": found.wrong}
            if not urdf and (held := mujoco_held_difference(path)) is not None:
                row |= {"held": held.difference, "wrong": found.wrong or held.wrong}
        except (InputError, ValueError) as error:
            row["refused"] = str(error)
        rows.append(row)
    return rows


def _class_of(row: dict[str, Any]) -> str:
    """What came of a robot."""
    if row.get("wrong"):
        return WRONG
    if "difference" in row:
        return "agrees, but for constraints that are left out" if "refused" in row else "agrees"
    why = row["refused"]
    for word, found in {
        "MuJoCo": "refused by MuJoCo", "Pinocchio": "not accelerated by Pinocchio", "its root is": "no robot",
        "is SDF": "SDF", "xacro": "xacro", "inertia is": "of no rigid body", "inertia must": "of no rigid body",
    }.items():  # fmt: skip
        if word in why:
            return found
    return "nothing moves and has mass" if "mass" in why or "no bodies" in why or "no links" in why else "refused"


def main(places: Sequence[Path], folder: Path | None = None) -> list[dict[str, Any]]:
    """Compare all robots in files and folders; one process.

    Parameters
    ----------
    folder : Path, optional
        Where imported_robots.json goes.

    Returns
    -------
    list of dict
        robot, free (whether its first link floats), bodies, freedoms, left_out, difference; or why it is refused.
    """
    files = [(place, file) for place in places for file in (sorted(place.rglob("*.*")) if place.is_dir() else [place])]
    rows, classes = [], Counter[tuple[str, str]]()
    for place, file in ((place, file) for place, file in files if is_robot(file)):
        for row in _compared(file):
            classes[file.relative_to(place).parts[0], _class_of(row)] += 1
            told = f"{row['difference']:.1e}" if "difference" in row else f"refused: {row['refused']}"
            told += f"; with its loops {row['held']:.1e}" if "held" in row else ""
            size = f"{row['bodies']:4d} bodies {row['freedoms']:4d} freedoms" if "bodies" in row else ""
            print(f"{row['robot']:50s} {'free ' if row['free'] else 'fixed'} {size}  {told}", flush=True)
            rows.append(row)
    for (package, found), number in sorted(classes.items()):
        print(f"{package}: {found}: {number}")
    if folder is not None:
        keep(folder / "imported_robots.json", rows)
    return rows


if __name__ == "__main__":
    sys.exit(any(_class_of(row) == WRONG for row in call(main)))
