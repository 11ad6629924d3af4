"""What samples keep: of all bodies, or of some, so that the outputs of large systems stay small."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.errors import InputError
from mpimbs.model import System
from mpimbs.model.columns import numbers_of
from mpimbs.model.contents import Contents

Integers = npt.NDArray[np.int64]
OF_JOINTS = ("q", "u")
SAMPLED_QUANTITIES = (*OF_JOINTS, "poses", "loads")  # as the output file calls them
MEANT = {"q": "q", "u": "u", "pose": "poses", "load": "loads"}  # by what users call them


class Selection(NamedTuple):
    """Which quantities samples have, and of which bodies.

    Attributes
    ----------
    bodies : dict
        By quantity the bodies [n], ascending; None stands for all.
    """

    bodies: dict[str, Integers | None]

    @classmethod
    def of(cls, system: Contents, text: str | None, poses: bool = False, loads: bool = False) -> Selection:
        """Read what a user asks for, such as `q,pose:tip`; `poses` and `loads` add those of all bodies.

        Raises
        ------
        InputError
            There is no such quantity or body.
        """
        found: dict[str, set[int] | None] = {}
        for item in ("q,u" if text is None else text).split(","):
            kind, _, body = item.strip().partition(":")
            name = kind if kind in SAMPLED_QUANTITIES else MEANT.get(kind)
            if name is None:
                raise InputError(
                    f"`sample`: {item.strip()!r} is nothing that samples have; give some of q, u, pose, load, or of "
                    "one body q:NAME, u:NAME, pose:NAME, load:NAME, with commas between them"
                )
            if not body:
                found[name] = None
            elif (others := found.setdefault(name, set())) is not None:
                others.add(system.index_of(body))
        found |= {name: None for name, wanted in (("poses", poses), ("loads", loads)) if wanted}
        ordered = ((name, found[name]) for name in SAMPLED_QUANTITIES if name in found)
        return cls({name: None if of is None else np.array(sorted(of), np.int64) for name, of in ordered})

    @property
    def partial(self) -> dict[str, Integers]:
        """The bodies of each quantity that samples have of some bodies only."""
        return {name: bodies for name, bodies in self.bodies.items() if bodies is not None}

    def rows(self, name: str, system: System) -> Integers | None:
        """Which rows of a quantity there are: numbers of q or u, or bodies; None stands for all."""
        bodies = self.bodies[name]
        if bodies is None or name not in OF_JOINTS:
            return bodies
        return numbers_of(system.offsets()[OF_JOINTS.index(name)], bodies)[0]

    def number(self, name: str, system: System) -> int:
        """How many rows these are."""
        rows = self.rows(name, system)
        every = {"q": system.nq, "u": system.nu}
        return every.get(name, system.n_bodies) if rows is None else len(rows)
