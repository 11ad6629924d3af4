"""What a peer is, another program in which the same system is built at the same state, and why it may give no figure.

A peer has a module of its own, `peer_<name>`, which alone imports it; the table and the comparison are in `peers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class UnavailableError(Exception):
    """A peer gives no figure: a short reason, a colon, the details or the remedy."""


@dataclass(frozen=True)
class Peer:
    """A system in another program, at one state.

    Attributes
    ----------
    version : str
        Of the program.
    ways : dict of str to function
        The ways in which it evaluates forward dynamics, each a function without arguments; what is timed.
    in_our_order : function
        From what such a function returns to the generalized accelerations [nu] (rad/s^2, m/s^2), in the model's order.
    rough : dict of str to float
        Of a way that is known to be less accurate than `peers.AGREEMENT`: the difference up to which it is timed.
    """

    version: str
    ways: dict[str, Callable[[], Any]]
    in_our_order: Callable[[Any], Floats]
    rough: dict[str, float] = field(default_factory=dict)
