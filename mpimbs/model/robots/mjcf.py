"""MJCF, the models of MuJoCo: compiled by MuJoCo itself, of whose arrays a `Robot` is made."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.model.geometry import Shape
from mpimbs.model.robots.actuation import FixedTendons, stops_of
from mpimbs.model.robots.robot import (
    UNBOUNDED,
    JointKind,
    Pose,
    Robot,
    RobotActuator,
    RobotGear,
    RobotJoint,
    RobotLink,
    RobotLoop,
    matrix_of,
    quaternion_of,
)
from mpimbs.model.text.table import suggest

_KINDS: tuple[JointKind, ...] = ("free", "ball", "slide", "hinge")  # in the order of MuJoCo's mjtJoint
_HIDDEN = 3  # group of geoms from which on MuJoCo's viewer shows none
_EQUALITIES = ("connect", "weld", "joint", "tendon", "flex", "flexvert", "flexstrain")  # of mjtEq


_FILTERS = (2, 3)  # of mjtDyn, what follows a control with a lag
_LEAST_LAG = 1e-15  # s
_COUNTS = {"body": "nbody", "joint": "njnt", "equality": "neq"}  # of what is named by its number, how many there are

# Numbers of a compiled model that robots are made of, by what they are of; ranges may be without an end.
_NUMBERS = {
    "body": ("body_pos", "body_quat", "body_ipos", "body_iquat", "body_mass", "body_inertia"),
    "joint": ("jnt_pos", "jnt_axis", "jnt_stiffness"),
    "actuator": ("actuator_gear", "actuator_gainprm", "actuator_biasprm", "actuator_dynprm"),
    "tendon": ("tendon_stiffness", "tendon_damping", "tendon_lengthspring"),
    "equality": ("eq_data",),
}
_OF_JOINTS = ("qpos0", "qpos_spring", "dof_damping", "dof_armature", "dof_frictionloss", "wrap_prm", "key_qpos")
_MOST = 1e100  # beyond which squares are beyond all numbers


def read_mjcf(path: Path, keyframe: str = "") -> Robot:
    """Read a robot from an MJCF file, whose joints begin as one of its keyframes says, by name.

    Raises
    ------
    InputError
        MuJoCo is not installed, or refuses the file; some number in it is none; or there is no such keyframe.
    """
    try:
        import mujoco
    except ImportError:
        raise InputError("is MJCF, which MuJoCo compiles: install it with pip install 'mpimbs[mjcf]'") from None
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)  # which would go to a file here; what it warns of, we see ourselves
    try:
        model = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise InputError(f"is refused by MuJoCo: {' '.join(str(error).split())}") from None
    finally:
        mujoco.set_mju_user_warning(before)
    return _Compiled(mujoco, model, path, keyframe).robot()


class _Compiled:
    """A compiled model of MuJoCo."""

    def __init__(self, mujoco: Any, model: Any, path: Path, keyframe: str) -> None:
        self._mujoco, self._model, self._path = mujoco, model, path
        self._objects = mujoco.mjtObj
        self._refuse_not_finite()
        self._tendons = FixedTendons(model, self._name)
        self._begin, self._speeds, self._keyframe = model.qpos0, np.zeros(model.nv), keyframe
        self._key = -1
        if keyframe:
            names = [self._name("key", k) for k in range(model.nkey)]
            if keyframe not in names:
                raise InputError(f"has no keyframe {keyframe!r}{suggest(keyframe, names)}")
            self._key = number = names.index(keyframe)
            self._begin, self._speeds = model.key_qpos[number], model.key_qvel[number]

    def robot(self) -> Robot:
        """Make the robot of the compiled model."""
        m = self._model
        title = m.names[: m.names.index(b"\0")].decode() or self._path.stem
        weightless = self._disabled("GRAVITY")
        robot = Robot(title, (0.0, 0.0, 0.0) if weightless else tuple(m.opt.gravity.tolist()))
        robot.links = [self._link(k) for k in range(1, m.nbody)]
        shares = m.body_gravcomp * m.body_mass
        robot.lifted = [(k - 1, m.body_ipos[k].copy(), float(shares[k])) for k in np.flatnonzero(shares).tolist()]
        for number in range(m.neq):
            self._equality(number, robot)
        self._tendons.take(robot, self._disabled)
        self._take_actuators(robot)
        self._leave_out(robot)
        return robot

    def _disabled(self, what: str) -> bool:
        return bool(self._model.opt.disableflags & getattr(self._mujoco.mjtDisableBit, f"mjDSBL_{what}"))

    def _name(self, kind: str, number: int) -> str:
        """Give the name of something in the file, or one of its number that nothing else has."""
        given = self._given(kind, number)
        if given:
            return given
        count = getattr(self._model, _COUNTS[kind]) if kind in _COUNTS else 0
        found, taken = f"{kind}{number}", {self._given(kind, other) for other in range(count)}
        while found in taken:
            found += "_"
        return found

    def _refuse_not_finite(self) -> None:
        """Refuse numbers that MuJoCo takes as they stand, such as an axis of inf, which give NaN later."""
        for kind, names in (*_NUMBERS.items(), ("", _OF_JOINTS)):
            for name in names:
                bad = ~_counts(getattr(self._model, name))
                if bad.any():
                    of = f"{kind} '{self._name(kind, int(np.argwhere(bad)[0][0]))}': " if kind else ""
                    raise InputError(f"{of}{name} is not finite, or beyond {_MOST:g}, as MuJoCo reads it; correct it")

    def _given(self, kind: str, number: int) -> str | None:
        name: str | None = self._mujoco.mj_id2name(self._model, getattr(self._objects, f"mjOBJ_{kind.upper()}"), number)
        return name

    def _link(self, k: int) -> RobotLink:
        m = self._model
        axes = matrix_of(m.body_iquat[k])
        joints = range(m.body_jntadr[k], m.body_jntadr[k] + m.body_jntnum[k])
        geoms = range(m.body_geomadr[k], m.body_geomadr[k] + m.body_geomnum[k])
        free = any(m.jnt_type[j] == 0 for j in joints)  # whose coordinates say where the body is
        return RobotLink(
            self._name("body", k),
            int(m.body_parentid[k]) - 1,
            Pose(np.eye(3), np.zeros(3)) if free else _pose(m.body_pos[k], m.body_quat[k]),
            [self._joint(j) for j in joints],
            float(m.body_mass[k]),
            m.body_ipos[k].copy(),
            axes @ np.diag(m.body_inertia[k]) @ axes.T,
            [shape for geom in geoms if (shape := self._shape(geom)) is not None],
        )

    def _joint(self, j: int) -> RobotJoint:
        m, kind = self._model, _KINDS[self._model.jnt_type[j]]
        q0, u0 = m.jnt_qposadr[j], m.jnt_dofadr[j]
        nq, nu = {"free": (7, 6), "ball": (4, 3)}.get(kind, (1, 1))
        order = [3, 4, 5, 6, 0, 1, 2] if kind == "free" else range(nq)  # ours begins with the quaternion
        speeds = [3, 4, 5, 0, 1, 2] if kind == "free" else range(nu)
        armature = np.zeros(nu) if kind == "free" else m.dof_armature[u0 : u0 + nu]  # of the world's axes: left out
        stiffness = 0.0 if kind == "free" or self._disabled("SPRING") else float(m.jnt_stiffness[j])
        damping = np.zeros(nu) if self._disabled("DAMPER") else m.dof_damping[u0 : u0 + nu]
        single, off = kind in ("hinge", "slide"), self._disabled("FRICTIONLOSS") or self._disabled("CONSTRAINT")
        if single:  # rotors of actuators turn with the joint, gear times as fast
            rotors = [k for k in self._turning() if m.actuator_trnid[k, 0] == j]
            squares = m.actuator_gear[rotors, 0] ** 2
            armature = armature + squares @ m.actuator_armature[rotors]
            damping = damping + squares @ m.actuator_damping[rotors] * (not self._disabled("DAMPER"))
        begin, moving = self._begin[q0 : q0 + nq], self._speeds[u0 : u0 + nu].copy()
        if kind == "free":  # whose velocity is along the world's axes there, along the body's here
            moving[:3] = matrix_of(tuple(begin[3:])).T @ moving[:3]
        return RobotJoint(
            self._name("joint", j),
            kind,
            m.jnt_axis[j].copy(),
            np.zeros(3) if kind == "free" else m.jnt_pos[j].copy(),
            float(m.qpos0[q0]) if single else 0.0,
            tuple(float(begin[i]) for i in order),
            tuple(float(m.qpos_spring[q0 + i]) for i in order) if stiffness else None,
            (stiffness,) * nu,
            tuple(float(damping[i]) for i in speeds),
            tuple(float(armature[i]) for i in speeds),
            tuple(float(moving[i]) for i in speeds) if moving.any() else None,
            (float(m.jnt_range[j, 0]), float(m.jnt_range[j, 1])) if single and self._limited(j) else None,
            stops_of(m.jnt_solref[j], float(m.jnt_solimp[j, 1])),
            0.0,
            friction=0.0 if off else float(m.dof_frictionloss[u0 : u0 + nu].max()),
            actuators=tuple(self._name("actuator", k) for k in self._driving(j)),
        )

    def _driving(self, j: int) -> list[int]:
        """Give the actuators of a joint."""
        m = self._model
        return [k for k in range(self._actuators) if m.actuator_trntype[k] in (0, 1) and m.actuator_trnid[k, 0] == j]

    def _limited(self, j: int) -> bool:
        return bool(self._model.jnt_limited[j] and not self._disabled("LIMIT") and not self._disabled("CONSTRAINT"))

    def _take_actuators(self, robot: Robot) -> None:
        """Take those that are springs, dampers and forces; note the others, and ranges of several together."""
        m = self._model
        for k in range(self._actuators):
            name = self._name("actuator", k)
            if reason := self._no_actuator(k):
                robot.leave_out(f"actuator {reason}", name)
                continue
            bias = m.actuator_biasprm[k, :3] if m.actuator_biastype[k] else np.zeros(3)
            place = int(m.actuator_ctrladr[k]) if hasattr(m, "actuator_ctrladr") else k
            limited = m.actuator_ctrllimited[k] and not self._disabled("CLAMPCTRL")
            joint, ends = int(m.actuator_trnid[k, 0]), m.actuator_ctrlrange[k].tolist()
            gear, gain = float(m.actuator_gear[k, 0]), float(m.actuator_gainprm[k, 0])
            control = float(m.key_ctrl[self._key, place]) if self._key >= 0 else 0.0
            over = self._tendons.under(k)
            actuator = RobotActuator(
                name, self._name("joint" if over is None else "tendon", joint), gear, gain, tuple(bias.tolist()),
                control, (ends[0], ends[1]) if limited else UNBOUNDED, over=over,
            )  # fmt: skip
            if m.actuator_dyntype[k] in _FILTERS:
                begin = float(m.key_act[self._key, m.actuator_actadr[k]]) if self._key >= 0 else 0.0
                actuator = actuator._replace(lag=max(float(m.actuator_dynprm[k, 0]), _LEAST_LAG), begin=begin)
            if m.actuator_forcelimited[k]:
                actuator = actuator.no_stronger(*m.actuator_forcerange[k].tolist())
            if over is None and hasattr(m, "jnt_actfrclimited") and m.jnt_actfrclimited[joint] and gear:
                if len(self._driving(joint)) == 1:
                    actuator = actuator.no_stronger(*sorted((m.jnt_actfrcrange[joint] / gear).tolist()))
                else:
                    robot.leave_out("range of the force of actuators of joint", self._name("joint", joint))
            robot.actuators.append(actuator)

    def _no_actuator(self, k: int) -> str:
        """Say why an actuator is no spring, damper and force of a hinge or slide; nothing where it is."""
        m = self._model
        group = int(m.actuator_group[k])
        off = self._disabled("ACTUATION") or (0 <= group < 31 and int(m.opt.disableactuator) >> group & 1)
        controls = int(m.actuator_ctrlnum[k]) if hasattr(m, "actuator_ctrlnum") else 1
        found = {
            "that the file switches off": off,
            "of no single hinge or slide, or fixed tendon": not self._of_one_axis(k) and self._tendons.under(k) is None,
            "with a state of its own": m.actuator_dyntype[k] not in (0, *_FILTERS) or m.actuator_plugin[k] >= 0,
            "with a state that has limits": m.actuator_dyntype[k] in _FILTERS and m.actuator_actlimited[k],
            "with a delay": hasattr(m, "actuator_delay") and m.actuator_delay[k] > 0.0,
            "whose gain or bias is not linear": m.actuator_gaintype[k] != 0 or m.actuator_biastype[k] not in (0, 1),
            "of several controls": controls != 1,
        }
        return next((reason for reason, there in found.items() if there), "")

    def _turning(self) -> list[int]:
        """The actuators of single joints: hinges or slides."""
        m = self._model
        return [k for k in range(self._actuators if hasattr(m, "actuator_armature") else 0) if self._of_one_axis(k)]

    def _of_one_axis(self, k: int) -> bool:
        """Whether an actuator is of a single joint, a hinge or slide."""
        m = self._model
        return m.actuator_trntype[k] in (0, 1) and _KINDS[m.jnt_type[m.actuator_trnid[k, 0]]] in ("hinge", "slide")

    @property
    def _actuators(self) -> int:
        m = self._model
        return int(m.nactuator if hasattr(m, "nactuator") else m.nu)

    @cached_property
    def _drawable(self) -> NDArray[np.bool_]:
        """Of each geom, whether its numbers are finite; mass that it gives to its body is the body's."""
        m = self._model
        return np.asarray(_counts(np.hstack((m.geom_pos, m.geom_quat, m.geom_size))).all(axis=1))

    def _shape(self, geom: int) -> Shape | None:
        m, kind = self._model, int(self._model.geom_type[geom])
        types = self._mujoco.mjtGeom
        if m.geom_group[geom] >= _HIDDEN or not self._drawable[geom]:
            return None
        material = m.geom_matid[geom]
        color = m.geom_rgba[geom] if material < 0 else m.mat_rgba[material]
        pose, size, file = _pose(m.geom_pos[geom], m.geom_quat[geom]), m.geom_size[geom].astype(float), ""
        known = {
            types.mjGEOM_SPHERE: ("sphere", size[:1]),
            types.mjGEOM_ELLIPSOID: ("sphere", np.cbrt(size.prod(keepdims=True))),
            types.mjGEOM_CAPSULE: ("capsule", size[:2] * (1, 2)),
            types.mjGEOM_CYLINDER: ("cylinder", size[:2] * (1, 2)),
            types.mjGEOM_BOX: ("box", 2 * size),
        }
        if kind == types.mjGEOM_MESH:
            mesh = m.geom_dataid[geom]
            found = _text(m.paths, m.mesh_pathadr[mesh])
            if not found:
                return None
            # MuJoCo has moved the mesh to its center of mass and principal axes.
            pose = pose @ _pose(m.mesh_pos[mesh], m.mesh_quat[mesh]).inverse
            what, extent, file = "mesh", m.mesh_scale[mesh], str((self._path.parent / found).absolute())
        elif kind in known:
            what, extent = known[kind]
        else:
            return None
        rotation = quaternion_of(pose)
        rgba = np.clip(color.astype(float), 0, 1).tolist()
        return Shape(kind=what, size=extent.tolist(), position=pose.position, rotation=rotation, color=rgba, file=file)

    def _equality(self, number: int, robot: Robot) -> None:
        m, kind = self._model, _EQUALITIES[self._model.eq_type[number]]
        name = self._name("equality", number)
        if self._disabled("EQUALITY") or self._disabled("CONSTRAINT"):
            robot.leave_out("equality, for the file switches all off", name)
            return
        if kind == "joint":
            self._gear(number, name, robot)
            return
        if kind == "tendon":
            found = self._tendons.equality(number, name)
            if isinstance(found, str):
                robot.leave_out(found, name)
            else:
                robot.tendons.append(found)
            return
        if kind not in ("connect", "weld"):
            robot.leave_out(f"equality of kind {kind}", name)
            return
        sites = m.eq_objtype[number] == self._objects.mjOBJ_SITE
        ends = int(m.eq_obj1id[number]), int(m.eq_obj2id[number])
        data = m.eq_data[number]
        if sites:
            poses = tuple(_pose(m.site_pos[k], m.site_quat[k]) for k in ends)
            ends = int(m.site_bodyid[ends[0]]), int(m.site_bodyid[ends[1]])
        elif kind == "connect":
            poses = tuple(Pose(np.eye(3), data[k : k + 3].copy()) for k in (0, 3))
        else:  # an anchor in the second body, and where that lies in the first, with how the second is turned there
            poses = _pose(data[3:6], data[6:10]), Pose(np.eye(3), data[:3].copy())
        links = ends[0] - 1, ends[1] - 1
        holds_turn = kind == "weld" and data[10] != 0.0  # a weld whose torque is scaled by nothing holds a point
        joint: Literal["spherical", "fixed"] = "fixed" if holds_turn else "spherical"
        robot.loops.append(RobotLoop(name, joint, links, (poses[0], poses[1]), bool(m.eq_active0[number])))

    def _gear(self, number: int, name: str, robot: Robot) -> None:
        """A joint that follows another; coordinates count from those of the initial position."""
        m = self._model
        ends, (begin, ratio, *curved) = [int(m.eq_obj1id[number]), int(m.eq_obj2id[number])], m.eq_data[number, :5]
        if ends[1] < 0 or any(curved):
            robot.leave_out("equality of a joint alone, or not linear", name)
            return
        first, second = (float(m.qpos0[m.jnt_qposadr[j]]) for j in ends)
        joint, of = (self._name("joint", j) for j in ends)
        offset = first + float(begin) - float(ratio) * second
        robot.gears.append(RobotGear(name, joint, of, float(ratio), offset, bool(m.eq_active0[number])))

    def _leave_out(self, robot: Robot) -> None:
        """Note what MuJoCo computes and a `System` doesn't have."""
        m = self._model
        for number in range(m.njnt):
            dofs = slice(m.jnt_dofadr[number], m.jnt_dofadr[number] + (6, 3, 1, 1)[m.jnt_type[number]])
            found = {
                "limit of joint of several axes": _KINDS[m.jnt_type[number]] == "ball" and self._limited(number),
                "spring of free joint": m.jnt_type[number] == 0 and m.jnt_stiffness[number],
                "armature of free joint": m.jnt_type[number] == 0 and m.dof_armature[dofs].any(),
                "spring or damper of joint that is not linear": any(
                    np.any(getattr(m, name, np.zeros((m.nv, 1)))[where])
                    for name, where in (("jnt_stiffnesspoly", number), ("dof_dampingpoly", dofs))
                ),
                "plasticity of joint": getattr(m, "nplastic", 0) and m.jnt_plasticadr[number] >= 0,
            }
            for kind in (kind for kind, there in found.items() if there):
                robot.leave_out(kind, self._name("joint", number))
        for number in np.flatnonzero(m.body_plugin >= 0).tolist():
            robot.leave_out("plugin of body", self._name("body", number))
        for number in np.flatnonzero(~self._drawable).tolist():
            robot.leave_out("shape that is not finite", self._name("geom", number))
        for number in range(m.nsensor):
            robot.leave_out("sensor", self._name("sensor", number))
        for number in (
            set(range(self._actuators)).difference(self._turning()) if hasattr(m, "actuator_armature") else ()
        ):
            if m.actuator_armature[number] or m.actuator_damping[number]:
                robot.leave_out("armature and damping of actuator", self._name("actuator", number))
        for number in range(m.nkey):
            if (name := self._name("key", number)) != self._keyframe:
                robot.leave_out("keyframe (to begin with one, FILE:keyframe=NAME)", name)
        for number in np.flatnonzero(m.body_mocapid >= 0).tolist():
            robot.leave_out("motion capture of body, which stands still", self._name("body", number))
        for number in range(m.nflex):
            robot.leave_out("flexible body", self._name("flex", number))
        touching = np.flatnonzero((m.geom_contype | m.geom_conaffinity) != 0)
        if len(touching) and not self._disabled("CONTACT"):
            robot.leave_out("contacts", f"of {len(touching)} geoms")
        if m.opt.density or m.opt.viscosity:
            robot.leave_out("forces", "of the fluid around it")


def _counts(values: Floats) -> NDArray[np.bool_]:
    """Whether numbers are finite, and their squares."""
    counted: NDArray[np.bool_] = np.abs(values) < _MOST
    return counted


def _pose(position: Floats, quaternion: Floats) -> Pose:
    return Pose(matrix_of(tuple(quaternion)), np.array(position, float))


def _text(characters: bytes, begin: int) -> str:
    """A text that ends with a zero."""
    return characters[begin : characters.index(b"\0", begin)].decode() if begin >= 0 else ""
