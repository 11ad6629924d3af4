"""A subchain (or, on one process, a whole tree): its tiles, and its sweeps as methods."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arguments import doubles, finite_doubles
from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.model import JOINT_TYPES, Columns
from mpimbs.model.contents import Contents
from mpimbs.parts.entries import displace, joint_loads, loads_of_bodies, move
from mpimbs.parts.tiles import Tile, Tiles, boundary_frames, subchain_tiles
from mpimbs.parts.totals import Totals
from mpimbs.sweep.build import AlongAxes, Build, build, inboard_bodies, rotors_of
from mpimbs.sweep.magnitudes import load_magnitudes, reached
from mpimbs.sweep.motion import broken_quaternion
from mpimbs.sweep.structure import BOUNDARY, JUNCTION, PLACE, Springs, Structure, Workspace, workspace
from mpimbs.values.handles import SIZE

NO_SPRINGS = Springs(*(np.zeros(0) for _ in Springs._fields))
AT_REST = np.array([1.0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])  # the world's boundary motion


class _Whole(NamedTuple):
    """A subchain as one piece in doubles, for all but evaluations: made when first asked for."""

    made: Build
    work: Workspace


class Outside(NamedTuple):
    """The bodies outside a piece that its own hang on, and those of its own that others hang on."""

    # [k]: the bodies outside that its own hang on, ascending; -1 is the world. A body is there as often as roots hang
    # on it where these are to be told apart: its first place is that of the last root.
    inboard: Integers
    before: Integers  # [k]: which of the open bodies of all before the piece these are; -1 the world
    # [h]: its own bodies that have children behind it, from the root outward: they lie on one path, in the component
    # that hangs on the first of `inboard`
    open: Integers
    ends: Integers  # [h]: the body behind the last child of each of these
    most: int  # how many bodies are open, of all before any piece: what a scan needs room for


class BoundaryLayout(NamedTuple):
    """Places of motions in what a scan of `boundary_motion` is given, and gives."""

    value: Floats  # what is given, but for the motions
    offset: int  # where the first motion begins
    stride: int  # numbers from one to the next
    before: Integers  # [k]: which of those given of the ranks before each body inboard has; -1: the world


class Subchain:
    """The bodies first..last-1 of a system and the O(n) sweeps over them.

    Vectors of coordinates and speeds are in the order of these. Evaluations are made by `Subchains`, over the tiles.
    `boundary_motion`, `motions`, `poses_at` and `joint_loads` are parts of evaluations: they read arrays by address, as
    `state` gives them.

    Parameters
    ----------
    first, last : int
        The bodies to own; all by default. A part of a system must be a piece of a chain.
    tiles : list of Tile, optional
        How they are swept, as `partition.chain.cut_tiles` gives it; as one piece by default.

    Attributes
    ----------
    system : Contents
        As it was given: on several ranks a tree in depth-first order (`model.order.order.arranged`).
    columns : Columns
        The system's numbers for these bodies.
    tip : bool
        Nothing hangs outboard of these bodies.
    """

    def __init__(
        self, system: Contents, first: int = 0, last: int | None = None, tiles: list[Tile] | None = None
    ) -> None:
        last = system.n_bodies if last is None else last
        self.system = system
        self.first, self.last = first, last
        self.tip = last == system.n_bodies
        self.nq, self.nu = system.sizes(first, last)
        cut = [Tile(0, last - first, 1)] if tiles is None else tiles
        self._cut = [tile._replace(first=first + tile.first) for tile in cut]
        self._has_wrenches = system.has_wrenches(first, last)

    @property
    def n_bodies(self) -> int:
        """Number of bodies owned."""
        return self.last - self.first

    def name_of(self, k: int | np.integer) -> str:
        """Name of body k of these."""
        return self.system.name_of(self.first + int(k))

    @functools.cached_property
    def tiles(self) -> Tiles:
        """The tiles on which the compiled passes work."""
        return subchain_tiles(self.system, self._cut, self.tip, self._has_wrenches)

    @functools.cached_property
    def columns(self) -> Columns:
        """The model's numbers for these bodies."""
        return self.system.columns(self.first, self.last)

    @property
    def q(self) -> Floats:
        """The model's initial coordinates [nq] (rad, m, unit quaternions)."""
        return self.system.initial_state(self.first, self.last)[0]

    @property
    def u(self) -> Floats:
        """The model's initial generalized speeds [nu] (rad/s, m/s)."""
        return self.system.initial_state(self.first, self.last)[1]

    def state(self, q: npt.ArrayLike, u: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Give a state of these bodies as the sweeps read it, by address: contiguous doubles [nq], [nu].

        Raises
        ------
        InputError
            Of another size, not finite, or with a quaternion that is zero or not finite, which names its body.
        """
        coordinates = doubles("q", q, self.nq, finite=False)
        bodies, first = self._quaternions
        if len(first) and (bad := int(broken_quaternion(first, coordinates))) >= 0:
            body = self.name_of(bodies[bad])
            values = coordinates[first[bad] : first[bad] + 4]
            raise InputError(f"q: the quaternion of body '{body}' is {values.tolist()}; give unit quaternions w x y z")
        return finite_doubles("q", coordinates), doubles("u", u, self.nu)

    @functools.cached_property
    def _quaternions(self) -> tuple[Integers, Integers]:
        """Bodies whose joints have a quaternion, and where it begins in q."""
        bodies = np.flatnonzero(np.array([kind.quaternion for kind in JOINT_TYPES])[self.columns.joint_type])
        return bodies, np.ascontiguousarray(self.columns.q_offset[bodies])

    @functools.cached_property
    def _whole(self) -> _Whole:
        made = build(self.columns, boundary_frames(self.system, self.inboard), self.inboard)
        work = workspace(len(made.structure.steps), self.nu, made.junctions, wrenches=self._has_wrenches)
        return _Whole(made, work)

    @functools.cached_property
    def _wrenched(self) -> Workspace:
        """The room of a sweep over all as one piece, with wrenches of its own."""
        made = self.made
        return workspace(len(made.structure.steps), self.nu, made.junctions, wrenches=True)

    def wrenched(self, others: Floats | None = None) -> Workspace:
        """Give a workspace with the wrenches set last and others on the steps [m, 6], in their frames; used again."""
        work = self._wrenched
        work.wrench[:] = 0.0 if others is None else others.ravel()
        if self._has_wrenches:
            work.wrench[:] += self.wrenches
        return work

    def joint(self, body: int) -> Build:
        """Make a body ready alone, with its inboard joint."""
        columns = self.system.columns(body, body + 1)
        return build(columns, boundary_frames(self.system, inboard_bodies(columns)))

    def coordinates_before(self, body: int) -> int:
        """Number of coordinates of the bodies before one of these."""
        return self.system.sizes(self.first, body)[0]

    def with_those_to(self, last: int) -> Subchain:
        """Give these bodies and those behind, to the one before `last`, as one piece."""
        return self if last == self.last else Subchain(self.system, self.first, last)

    @property
    def structure(self) -> Structure:
        """The joints and bodies as one piece."""
        return self._whole.made.structure

    @functools.cached_property
    def with_rotors(self) -> Structure:
        """Give the same bodies with no more than rotors on axes that follow a given motion."""
        return self.structure._replace(armature=rotors_of(self.columns))

    @functools.cached_property
    def along_axes(self) -> AlongAxes:
        """Gives the components [nu] along the axes of the joints of loads on the steps [m, 6]."""
        return AlongAxes(self.structure)

    @property
    def springs(self) -> Springs:
        """The joint forces of the model as one piece."""
        return self._whole.made.springs

    @property
    def wrenches(self) -> Floats:
        """External wrenches on the steps in sequence [m * 6], at their origins, in their frames (N m, N); empty where
        none can act."""
        return self._whole.work.wrench

    def carriers(self, bodies: Integers) -> tuple[Integers, Floats]:
        """Steps [n] that carry bodies, as in `wrenches`, and step frame to body frame components [n, 3, 3]."""
        made = self._whole.made
        return made.body_step[bodies], made.body_frame[bodies]

    @property
    def made(self) -> Build:
        """The bodies as one piece, made ready."""
        return self._whole.made

    @property
    def work(self) -> Workspace:
        """The room of sweeps over all bodies as one piece."""
        return self._whole.work

    @functools.cached_property
    def inboard(self) -> Integers:
        """The bodies outside that these hang on [k], ascending; -1 is the world."""
        return inboard_bodies(self.columns)

    @functools.cached_property
    def outside(self) -> Outside:
        """How the bodies hang on others, and others on them."""
        last = self.last
        before = np.where(self.inboard < 0, -1, 0)
        return Outside(self.inboard, before, np.array([last - 1]), np.array([last + 1]), 1)

    @property
    def outer(self) -> Integers:
        """The bodies on which others hang, or may hang, from behind [h]: outward of the first of `inboard`."""
        return self.outside.open

    @property
    def most_open(self) -> int:
        """How many bodies before, or among these, have others behind hanging on them, at the most."""
        return max(self.outside.most, 1)

    @functools.cached_property
    def outer_steps(self) -> Integers:
        """The steps that carry these [h]."""
        return np.ascontiguousarray(self._whole.made.body_step[self.outer - self.first])

    def path_out(self, made: Build) -> tuple[Integers, Integers]:
        """Steps of what was made ready from an inboard body to the last of `outer`; how many of them carry each [h]."""
        if not len(self.outer):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self.system.is_chain and made is self.made:
            return made.structure.path, np.array([len(made.structure.path)])
        parent, first = self.columns.parent, self.first
        bodies = [int(self.outer[-1])]
        while (above := int(parent[bodies[-1] - first])) >= first:
            bodies.append(above)
        path: list[int] = []
        reach = {}
        for body in bodies[::-1]:
            path += range(int(made.first_step[body - first]), int(made.body_step[body - first]) + 1)
            reach[body] = len(path)
        return np.array(path, np.int64), np.array([reach[int(body)] for body in self.outer], np.int64)

    def nothing_before(self, numbers: int) -> Floats:
        """Give the begin of a scan over ranks: the turn [TURNING] or motion [BOUNDARY] of the world."""
        return AT_REST[:numbers].copy()

    def boundaries(self, scanned: Floats, numbers: int) -> Floats:
        """Turns or motions of the bodies inboard [k, numbers], from what a scan gave of those before."""
        return scanned.reshape(1, numbers)

    def boundary_layout(self) -> BoundaryLayout:
        """Give where compiled code writes and reads motions of a scan over ranks."""
        return BoundaryLayout(np.zeros(BOUNDARY), 0, BOUNDARY, np.zeros(1, np.int64))

    def boundary_motion(self, q: Floats, u: Floats) -> Floats:
        """What a scan of motions is given: of a chain [BOUNDARY], rotation 9 and position 3 (m) from handle 1 to handle
        2, and the twist 6 of handle 2, in its frame, while handle 1 is held."""
        return self.relative_motions(q, u)[-1].copy()

    def relative_motions(self, q: Floats, u: Floats) -> Floats:
        """Motions of the bodies of `outer` [h, BOUNDARY] while those inboard are held."""
        move(self.structure, self._whole.work, q, u, np.tile(AT_REST, len(self.inboard)), self.room_of_held_motions)
        return self.room_of_held_motions.reshape(-1, BOUNDARY)[self.outer_steps]

    @functools.cached_property
    def room_of_held_motions(self) -> Floats:
        """Room of its own: what `motions` gave may still be needed."""
        return np.empty(len(self.structure.steps) * BOUNDARY)

    def body_poses(self, q: Floats, boundary: Floats = AT_REST) -> tuple[Floats, Floats]:
        """Poses of the bodies.

        Parameters
        ----------
        q : array [nq]
        boundary : array [k * BOUNDARY]
            Motions of the bodies inboard.

        Returns
        -------
        (rotations [n, 3, 3], positions [n, 3])
            Body components to inertial components; body origins in the inertial frame (m).
        """
        return self.poses_at(self.state(q, np.zeros(self.nu))[0], boundary)

    def poses_at(self, q: Floats, boundary: Floats) -> tuple[Floats, Floats]:
        """Poses of the bodies, as `body_poses`, of coordinates that are not checked again."""
        motion = self.motions(q, np.zeros(self.nu), boundary).reshape(-1, BOUNDARY)[self._whole.made.body_step]
        to_step = motion[:, :9].reshape(-1, 3, 3)
        return np.swapaxes(to_step, 1, 2) @ np.swapaxes(self._whole.made.body_frame, 1, 2), motion[:, 9:PLACE].copy()

    def motions(self, q: Floats, u: Floats, boundary: Floats = AT_REST) -> Floats:
        """Motions of the steps [m * BOUNDARY], given those of the bodies inboard [k * BOUNDARY]. Used again."""
        move(self.structure, self._whole.work, q, u, boundary.reshape(-1), self.room_of_motions)
        return self.room_of_motions

    @functools.cached_property
    def room_of_motions(self) -> Floats:
        """Room of `motions`."""
        return np.empty(len(self.structure.steps) * BOUNDARY)

    def displaced(self, q: Floats, move: Floats) -> Floats:
        """Coordinates [nq] after a displacement along the speeds [nu] (rad, m); right to its square."""
        moved = np.empty(self.nq)
        displace(self.structure, q, move, moved)
        return moved

    @functools.cached_property
    def totals(self) -> Totals:
        """Gives energy and momentum of states [states, 8] that are not looked at again.

        Kinetic energy is that of the bodies and of the rotors of joints, which have no part in the momenta. Potential
        energy is that of weight, zero at the inertial origin, and of the joint springs; momenta are in the
        inertial frame, the angular one about its origin.
        """
        return Totals(self.made, self.with_rotors, np.array(self.system.gravity), self.nq, len(self.inboard))

    def joint_loads(
        self,
        q: Floats,
        u: Floats,
        tau: Floats,
        turns: Floats,
        accelerations: Floats,
        outer_loads: Floats,
        wrenches: Floats | None = None,
    ) -> tuple[Floats, Floats]:
        """Give the loads that the bodies receive through their inboard joints; see `Dynamics.joint_loads`.

        External wrenches are those set last, and `wrenches`.

        Parameters
        ----------
        q, u, tau : array [nq], [nu], [nu]
        turns, accelerations : array [k, TURNING], [k, 6]
            Of the bodies inboard.
        outer_loads : array [h, 6]
            What acts from behind on the bodies of `outer`.
        wrenches : array [m, 6], optional
            On the steps at their origins, moment (N m) and force (N), in their frames.

        Returns
        -------
        array [n, 6], array [nu]
            Moment (N m) about the origin of the body's frame, force (N); body frame components. And the parts of these
            along the free axes of the joints (N m, N).
        """
        made, work = self._whole
        if wrenches is not None:
            work = self.wrenched(wrenches)
        loads, room = np.empty((len(made.structure.steps), 2, 3)), np.empty((2, self.nu))
        given = turns.reshape(-1), accelerations.reshape(-1), self.outer_steps, outer_loads.reshape(-1)
        arrays = (loads.ravel(), room[0], room[1], np.empty(SIZE))
        joint_loads(made.structure, made.springs, work, q, u, tau, *given, *arrays)
        return self.of_bodies(loads), room[0]

    def of_bodies(self, loads: Floats) -> Floats:
        """Give loads [n, 6] in the frames of the bodies, of those of the steps [m * 6] in their frames."""
        made, found = self._whole.made, np.empty((self.n_bodies, 6))
        loads_of_bodies(loads.reshape(-1), made.body_step, made.body_frame.reshape(-1), found.reshape(-1))
        return found

    def magnitudes_outward(self, udot: Floats, given: Floats, work: Workspace) -> Floats:
        """Give magnitudes [m, 2] of the accelerations of the steps, after `BetweenRanks.prescribed`.

        See `sweep.magnitudes`; `given` [k, 2]: of the bodies inboard.
        """
        found = np.empty((len(self.structure.steps), 2))
        reached(self.structure, work, udot, given.reshape(-1), found.reshape(-1))
        return found

    def magnitudes_inward(
        self, reach: Floats, loops: Floats, outer_loads: Floats, lever: float, work: Workspace
    ) -> tuple[Floats, Floats, Floats]:
        """Give magnitudes of the generalized forces [nu], after `magnitudes_outward` and before `required_forces`.

        Of the loads that the bodies inboard [k, 2] give, too, and of what acts on all steps without `loops` [2].

        Parameters
        ----------
        loops : array [m, 6], or none
            What loops do to the steps, as `wrenched` gave it.
        outer_loads : array [h, 2]
            Of what acts from behind.
        lever : float
            A length of bodies (m).
        """
        behind, found, acting = np.zeros_like(reach), np.empty(self.nu), np.zeros(2)
        np.add.at(behind, self.outer_steps, outer_loads)
        given = reach.reshape(-1), loops.reshape(-1), behind.reshape(-1), lever, acting, found
        load_magnitudes(self.with_rotors, work, *given)
        return found, work.junction.reshape(-1, JUNCTION)[: len(self.inboard), :2].copy(), acting
