"""How a system is divided: into subchains at cut joints, and these among the ranks. No MPI."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.base.errors import InputError
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order
from mpimbs.model.resistance import Resistance, check_resistance, thin_bodies
from mpimbs.model.summary import validate
from mpimbs.partition.balance import balance
from mpimbs.partition.chain import (
    BodyCosts,
    chosen_width,
    cut_chain,
    split_chain,
    terminal_ratio,
    tip_ratio_of,
    width_of,
)
from mpimbs.partition.intervals import cut_tree
from mpimbs.partition.schedule import Schedule


def kept_together(system: Contents, bounds: Integers, order: Order | None = None, free_roots: bool = False) -> Integers:
    """Move cuts of a system to the nearest places where they leave no thin body without what resists its joint.

    Parameters
    ----------
    bounds : array [pieces + 1]
        Piece k has the bodies, or places of the order, bounds[k] to bounds[k + 1] - 1.
    order : Order, optional
        Of a tree.
    free_roots : bool
        The joints between pieces are left out at first, so that no thin body may be apart from what it lies on, either.

    Returns
    -------
    array [pieces + 1]

    Raises
    ------
    InputError
        There are not as many such places, or one piece has not all that resists a joint; names the body.
    """
    thin = thin_bodies(system)
    if not len(thin) or len(bounds) == 2:
        return bounds
    apart = np.ones(system.n_bodies + 1, bool)
    apart[[0, -1]] = False
    above = system.parents()[thin]
    if order is not None:
        above = np.where(above < 0, -1, order.places[above])
    for body, parent, place in zip(thin.tolist(), above.tolist(), _placed(order, thin).tolist(), strict=True):
        begin = parent if free_roots and parent >= 0 else place
        apart[begin + 1 : _needed(system, order, body) + 1] = False
    allowed, wanted = np.flatnonzero(apart), len(bounds) - 2
    if len(allowed) < wanted:
        raise InputError(
            f"{wanted + 1} pieces of system {system.name!r}: bodies without inertia, such as "
            f"{system.name_of(int(thin[0]))!r}, stay with what resists their joints, which leaves {len(allowed) + 1}; "
            f"start at most {len(allowed) + 1} ranks, or make fewer cuts"
        )
    right = np.searchsorted(allowed, bounds[1:-1]).clip(max=len(allowed) - 1)
    left = (right - 1).clip(min=0)
    chosen = np.where(bounds[1:-1] - allowed[left] < allowed[right] - bounds[1:-1], left, right)
    numbers = np.arange(wanted)
    chosen = np.maximum.accumulate(chosen - numbers) + numbers
    moved = bounds.copy()
    moved[1:-1] = allowed[np.minimum(chosen, len(allowed) - wanted + numbers)]
    check_pieces(system, moved, order, thin)
    return moved


def _placed(order: Order | None, bodies: Integers) -> Integers:
    return bodies if order is None else order.places[bodies]


def _needed(system: Contents, order: Order | None, body: int) -> int:
    """The place up to which there are children enough to resist the joint of a thin body."""
    if order is None or order.is_chain:
        return body + 1
    resistance = Resistance(system)
    children = resistance.children_of(body)
    children = children[np.argsort(order.places[children])]
    if not len(children):  # fixed, as a mark: it moves nothing by itself
        return int(order.places[body])
    enough = next((k for k in range(len(children)) if resistance.suffices(body, children[: k + 1])), -1)
    return int(order.places[children[enough]])


def check_pieces(system: Contents, bounds: Integers, order: Order | None, thin: Integers | None = None) -> None:
    """Refuse pieces without all that resists the joint of a thin body in them; arguments as of `kept_together`."""
    thin = thin_bodies(system) if thin is None else thin
    if not len(thin) or len(bounds) == 2:
        return

    def piece_of(bodies: Integers) -> Integers:
        return np.searchsorted(bounds, _placed(order, bodies), "right")

    parents = system.parents()
    carried = np.flatnonzero(np.isin(parents, thin))
    left = np.unique(parents[carried[piece_of(carried) != piece_of(parents[carried])]])
    while not np.isin(above := np.intersect1d(parents[left], thin), left).all():  # whose resistance goes through these
        left = np.union1d(left, above)

    def together(children: Integers) -> Integers:
        return children[piece_of(children) == piece_of(parents[children])]

    where = f", of what is on the same of {len(bounds) - 1} pieces"
    check_resistance(system, left, together, where)


def refuse_thin(system: Contents, coupling: str) -> None:
    """Refuse a coupling that joins single bodies where one of them is thin."""
    thin = thin_bodies(system)
    if len(thin):
        raise InputError(
            f"the coupling {coupling} joins single bodies, and {system.name_of(int(thin[0]))!r} has no inertia in some "
            "direction; choose `coupling='dcae'` or `coupling='pcg'`, or give it mass and inertia"
        )


class Division(NamedTuple):
    """The subchains of a system, the rank that owns each, and the lanes in which it is swept."""

    width: int  # number of lanes at the most; 0, of a tree: as many as are predicted to be the fastest
    tip_ratio: float  # how many times more bodies the last subchain has
    # [subchains + 1]: subchain k has the bodies bounds[k] to bounds[k + 1] - 1: it begins with a cut joint, but for the
    # first
    bounds: Integers
    owners: Integers  # [P + 1]: rank r owns the subchains owners[r] to owners[r + 1] - 1
    # of the bodies of a tree that is divided into intervals: `bounds` count its places, all else the model's bodies.
    # None is needed on one rank.
    order: Order | None = None
    # in which order what subchains, or intervals, are joined; None where the coupling has its own
    schedule: Schedule | None = None

    @property
    def cuts(self) -> Integers:
        """Rank r owns the bodies cuts[r] to cuts[r + 1] - 1 [P + 1]."""
        return self.bounds[self.owners]


def divide(
    system: Contents,
    size: int,
    cuts: int | None = None,
    tip_ratio: float | None = None,
    lanes: int | None = None,
    free_roots: bool = False,
) -> Division:
    """Check that this version solves the system on so many ranks, and divide it.

    Parameters
    ----------
    size : int
        Number of ranks P.
    cuts : int, optional
        Number of cut joints, one less than the subchains; P - 1 by default: one subchain a rank.
    tip_ratio : float, optional
        How many times more bodies the last subchain gets, whose sweep is cheaper; a measured ratio by default.
    lanes : int, optional
        See `Dynamics`.
    free_roots : bool
        The coupling leaves out the joints between subchains at first; see `kept_together`.

    Raises
    ------
    InputError
        A loop; a tree on several ranks or with cuts; more ranks than subchains, more subchains than bodies; a ratio or
        number of lanes that makes no sense.
    """
    count = _subchains(system, size, cuts)
    share = system.n_bodies // count
    width = _width(system, share, lanes)
    ratio = tip_ratio_of(width, share) if tip_ratio is None else tip_ratio
    return _division(system, size, count, ratio, width, free_roots)


def divide_bodies(
    system: Contents, size: int, cuts: int | None = None, tip_ratio: float | None = None, lanes: int | None = None
) -> Division:
    """Divide a chain for the divide and conquer over single bodies: as many to each rank, whose cost is the same.

    Parameters and errors are those of `divide`; also refused are trees on one rank, cuts of their own (every joint is
    one) and lanes (no bodies are swept).
    """
    _refuse_cuts_and_trees(system, size, cuts)
    refuse_thin(system, "dca")
    if lanes not in (None, 1):
        raise InputError(f"the coupling dca sweeps no bodies in lanes; leave `lanes={lanes}` out")
    count = _subchains(system, size, None)
    return _division(system, size, count, 1.0 if tip_ratio is None else tip_ratio, 1)


def divide_terminal(
    system: Contents, size: int, cuts: int | None = None, tip_ratio: float | None = None, lanes: int | None = None
) -> Division:
    """Divide a chain for the divide and conquer whose terminal bodies are swept: the last rank gets most of them.

    Parameters and errors are those of `divide`; also refused are trees on one rank, and cuts of their own.
    """
    _refuse_cuts_and_trees(system, size, cuts)
    if size > 1:
        refuse_thin(system, "dca-terminal")
    count = _subchains(system, size, None)
    width = _width(system, system.n_bodies * 3 // 4 if count > 1 else system.n_bodies, lanes)
    ratio = terminal_ratio(width) if tip_ratio is None else tip_ratio
    return _division(system, size, count, ratio, width)


def as_tree(system: Contents) -> bool:
    """Whether a system is divided as trees are: it branches, or closes loops."""
    return not system.is_chain or bool(system.loops)


def divide_tree(
    system: Contents,
    size: int,
    cuts: int | None = None,
    tip_ratio: float | None = None,
    lanes: int | None = None,
    free_roots: bool = False,
) -> Division:
    """Divide a tree into intervals of its bodies in depth-first order, of equal cost, and share these among the ranks.

    Parameters and errors are those of `divide`; also refused is a ratio of one's own.
    """
    check_solved(system)
    if tip_ratio not in (None, 1.0):
        raise InputError(
            f"system '{system.name}' is a tree: this version cuts it into intervals of bodies of equal cost; leave "
            f"`tip_ratio={tip_ratio}` out"
        )
    count, width = _pieces(system, size, cuts), 0 if lanes is None else width_of(lanes)
    width = 1 if len(thin_bodies(system, ends=True)) else width
    if count == 1:
        return Division(width, 1.0, np.array([0, system.n_bodies]), np.arange(2))
    order, bounds = cut_tree(system, count)
    bounds = kept_together(system, balance(system, order, bounds, width), order, free_roots)
    return Division(width, 1.0, bounds, _owners(count, size), order)


def divide_absolute(
    system: Contents, size: int, cuts: int | None = None, tip_ratio: float | None = None, lanes: int | None = None
) -> Division:
    """Divide a system for a coupling that sweeps nothing: bodies in depth-first order, one interval to a rank.

    Parameters and errors are those of `divide_tree`; also refused are cuts of their own, and lanes.
    """
    if cuts is not None and cuts != size - 1:
        raise InputError(f"the coupling augmented joins single bodies, one part to a rank; leave `cuts={cuts}` out")
    if lanes not in (None, 1):
        raise InputError(f"the coupling augmented sweeps no bodies in lanes; leave `lanes={lanes}` out")
    refuse_thin(system, "augmented")
    return divide_tree(system, size, None, tip_ratio, 1)


def _refuse_cuts_and_trees(system: Contents, size: int, cuts: int | None) -> None:
    if not system.is_chain:
        raise InputError(
            f"system '{system.name}' is a tree: the couplings dca and dca-terminal of this version solve chains; "
            "choose `coupling='dcae'` or `coupling='pcg'`, which solve trees"
        )
    if cuts is not None and cuts != size - 1:
        raise InputError(
            f"the couplings dca and dca-terminal join single bodies, one part to a rank; leave `cuts={cuts}` out"
        )


def _width(system: Contents, share: int, lanes: int | None) -> int:
    """Number of lanes for a share of bodies: 1 where joints differ too much, or a lane could end at a thin body."""
    width = chosen_width(share, lanes) if system.is_chain else 1
    if width > 1 and len(thin_bodies(system, ends=True)):
        return 1
    if width > 1 and not any(tile.width > 1 for tile in cut_chain(system.joint_patterns(0, share), width)):
        return 1
    return width


def _division(system: Contents, size: int, count: int, ratio: float, width: int, free_roots: bool = False) -> Division:
    bounds = split_chain(BodyCosts(system), count, ratio, width)
    bounds = kept_together(system, bounds, free_roots=free_roots)
    return Division(width, ratio, bounds, _owners(count, size))


def _owners(count: int, size: int) -> Integers:
    """Share so many subchains, or intervals, among the ranks."""
    return np.arange(size + 1) * count // size


def _subchains(system: Contents, size: int, cuts: int | None) -> int:
    """Number of subchains of a system that this version solves."""
    check_solved(system)
    if (size > 1 or cuts) and not system.is_chain:
        raise InputError(
            f"system '{system.name}' is a tree: on several ranks, or with cuts, it is divided into intervals, not "
            "subchains; choose `coupling='dcae'` or `coupling='pcg'`"
        )
    return _pieces(system, size, cuts)


def _pieces(system: Contents, size: int, cuts: int | None) -> int:
    """Number of subchains, or intervals, that so many cuts make for so many ranks."""
    if cuts is None:
        check_ranks(system, size)
        return size
    whole, pieces = ("chain", "subchains") if system.is_chain else ("tree", "intervals")
    if not 0 <= cuts < system.n_bodies:
        raise InputError(
            f"{cuts} cuts in a {whole} of {system.n_bodies} bodies: give `cuts` from 0 to {system.n_bodies - 1}"
        )
    if cuts + 1 < size:
        raise InputError(
            f"{cuts} cuts make {cuts + 1} {pieces} for {size} ranks, one at least for each: start at most {cuts + 1} "
            f"ranks, or give `cuts={size - 1}` or more"
        )
    return cuts + 1


def check_solved(system: Contents) -> None:
    """Check that the system is sound, and one that the couplings solve; else InputError."""
    validate(system)


def check_ranks(system: Contents, size: int) -> None:
    """Check that there is a body for each of so many ranks; else InputError."""
    if size > system.n_bodies:
        raise InputError(
            f"{size} ranks for {system.n_bodies} bodies: every rank owns one body at least; start at most "
            f"{system.n_bodies} ranks"
        )
