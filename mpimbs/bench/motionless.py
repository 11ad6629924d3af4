"""Which joints of a model can never move, whatever the others do: what `mpimbs check` warns of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats
from mpimbs.kernels.compiler import interpreted
from mpimbs.model.contents import Contents
from mpimbs.model.order.segments import Branches, Copies, Segment, Segments
from mpimbs.model.summary import names_where
from mpimbs.sweep.build import build
from mpimbs.sweep.inward import inward, outward
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import coordinate_rates, joint_places, make_quaternions_unit, velocity_terms
from mpimbs.sweep.structure import HELD, workspace
from mpimbs.values.handles import SIZE

Flags = npt.NDArray[np.bool_]

PERIODS = 4  # of a repetition that are looked at: the others are as these
MOST = 400  # bodies: 0.1 ms each for an evaluation by uncompiled kernels
_ROUNDS = 30
_NOTHING = 1e-10  # of the largest acceleration
_STEP = 0.7  # s: turns of about a radian at the random speeds


def motionless(system: Contents) -> list[str]:
    """Say which joints never move: "'hook'", "'link1' to 'link50'"; none where the system is too long to look at.

    Begins with what moves at the start, gives that any speeds and places, and looks what has an acceleration then; this
    again until nothing is added. What is left stays where it is, however the others move. Repetitions are cut short.
    Loads that are functions, wrenches and springs between bodies are taken for any.

    Parameters
    ----------
    system : Contents
        Without loops.
    """
    short = _Short(system)
    if short.too_long or not system.nu or system.loops:
        return []
    still, offset = ~_moving(short), short.system.offsets()[1]

    def never(segment: Segment) -> list[int]:
        found = []
        for place in segment.where(lambda body: body.joint.kind.nu > 0):
            if np.all([still[offset[k] : offset[k + 1]] for k in short.copies(segment, place)]):
                found.append(place)
        return found

    return names_where(system, never)


class _Short:
    """A system of the same bodies whose repetitions are cut short, and what acts on which of them."""

    def __init__(self, system: Contents) -> None:
        self._whole = system
        self.system = Contents(system.name, system.gravity)
        self.system.segments = cut = Segments()
        self.too_long = False
        self._begin: dict[int, int] = {}  # where a segment of the whole begins in the short one, by its first body
        for segment in system.segments:
            self.too_long = cut.n_bodies + segment.places * min(segment.count, PERIODS) > MOST
            if self.too_long:
                return
            self._begin[segment.first] = cut.n_bodies
            if isinstance(segment, Branches):
                parents = [self._body(k) if k >= 0 else -1 for k in segment.parent_of_each.tolist()]
                cut.append_branches(segment.bodies, segment.row_of_each, np.array(parents))
                continue
            if isinstance(segment, Copies):
                roots_on = [self._body(k) if k >= 0 else -1 for k in segment.roots_on[:PERIODS].tolist()]
                cut.append_copies(segment.bodies, segment.within, np.array(roots_on), segment.in_sequence)
                continue
            parent = self._body(segment.parent) if segment.parent >= 0 else -1
            cut.append(segment.bodies, parent, min(segment.count, PERIODS))
        self.driven = {self._body(k) for k in system.loads.torques}
        self.pushed = {self._body(k) for k in system.loads.wrenches}
        self.pushed |= {self._body(k) for pair in system.springs.bodies for k in pair if k >= 0}
        named = {name for tendon in system.loads.tendons.values() for name in tendon.joints}
        self.driven |= {self._body(system.index_of(name)) for name in named}
        for k in range(cut.n_bodies):
            body = cut.template(k)
            self.driven |= {k} if callable(body.joint.torque) else set()
            self.pushed |= {k} if body.wrench else set()
        for acted, forces in ((self.driven, system.loads.joint_forces), (self.pushed, system.loads.body_forces)):
            for force in forces:
                on = range(cut.n_bodies) if isinstance(force.bodies, range) else map(self._body, force.bodies.tolist())
                acted.update(on)

    def _body(self, k: int) -> int:
        """Body k of the whole system, or one like it."""
        segment = self._whole.segments.of(k)
        period, place = divmod(k - segment.first, segment.places)
        return self._begin[segment.first] + min(period, PERIODS - 1) * segment.places + place

    def copies(self, segment: Segment, place: int) -> range:
        """The bodies here that follow a template of a segment of the whole system."""
        begin, length = self._begin[segment.first], segment.places
        return range(begin + place, begin + length * min(segment.count, PERIODS), length)


def _moving(short: _Short) -> Flags:
    """Whether each generalized speed is ever another than zero [nu]."""
    sweeps, draw = _Sweeps(short), np.random.default_rng(1)
    q, u = short.system.initial_state(0, short.system.n_bodies)
    moving = u != 0.0
    udot = sweeps.accelerations(q, u, draw)
    for _ in range(_ROUNDS):
        found = moving | (np.abs(udot) > _NOTHING * np.abs(udot).max(initial=0.0))
        if found.all() or (found == moving).all():
            return found
        moving = found
        there = q
        for _ in range(2):  # two turns of a ball reach what one does not
            there = sweeps.moved(there, draw.uniform(-1, 1, len(u)) * moving)
        udot = sweeps.accelerations(there, draw.uniform(-1, 1, len(u)) * moving, draw)
    return np.ones_like(moving)  # it still spreads


class _Sweeps:
    """The sweeps over a system by uncompiled kernels: a few bodies take less time than the compiler."""

    def __init__(self, short: _Short) -> None:
        system = short.system
        self._made = made = build(system.columns())
        self.structure, steps = made.structure, len(made.structure.steps)
        self._work = workspace(steps, system.nu, made.junctions)
        self._root = (0.0, 0.0, 0.0, *(-g for g in system.gravity))
        offset = system.offsets()[1]
        self._driven = np.zeros(system.nu)
        for k in short.driven:
            self._driven[offset[k] : offset[k + 1]] = 1.0
        self._driven[system.columns().prescribed] = HELD
        self._pushed = np.zeros((steps, 6))
        self._pushed[made.body_step[list(short.pushed)]] = 1.0

    def accelerations(self, q: Floats, u: Floats, draw: np.random.Generator) -> Floats:
        """Give the accelerations [nu], under any loads where loads act."""
        structure, work, still = self.structure, self._work, (0.0,) * 6
        work.wrench[:] = (self._pushed * draw.uniform(-1, 1, self._pushed.shape)).ravel()
        tau = self._driven * draw.uniform(-1, 1, len(u))
        total, udot = np.empty(len(u)), np.empty(len(u))
        interpreted(joint_places)(0.0, structure, q, work.place)
        interpreted(velocity_terms)(0.0, structure, work, u, still[:3])
        interpreted(joint_forces)(0.0, structure, self._made.springs, q, u, tau, total)
        interpreted(inward)(0.0, structure, work, total, np.zeros(SIZE), False)
        interpreted(outward)(0.0, structure, work, self._root, still, False, udot)
        return udot

    def moved(self, q: Floats, u: Floats) -> Floats:
        """Give the coordinates after a while of motion with the speeds u."""
        rates = np.empty(len(q))
        interpreted(coordinate_rates)(0.0, self.structure, q, u, rates)
        there = q + _STEP * rates
        interpreted(make_quaternions_unit)(0.0, self.structure, there)
        return there
