"""The integrators of PETSc: which there are, and the accuracy that steps follow; needs no PETSc."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError

Floats = npt.NDArray[np.float64]


class Scheme(NamedTuple):
    """An integrator of PETSc: its type, the type's option and value, and whether it estimates its error."""

    type: str
    option: str
    value: str
    adaptive: bool

    @property
    def implicit(self) -> bool:
        """Whether its steps are solved for, and so are not limited by stiffness."""
        return self.type not in EXPLICIT

    @property
    def newton(self) -> bool:
        """Whether its stages are solved by Newton's method to the end, not linearly."""
        return self.implicit and self.type != "rosw"


EMBEDDED = ("2a", "3bs", "5f", "5dp", "5bs", "6vr", "7vr", "8vr")
INTEGRATORS: dict[str, Scheme] = {
    name: Scheme("rk", "ts_rk_type", name, name in EMBEDDED)
    for name in ("1fe", "2a", "2b", "3", "3bs", "4", "5f", "5dp", "5bs", "6vr", "7vr", "8vr")
}
INTEGRATORS |= {name: Scheme("ssp", "ts_ssp_type", name, False) for name in ("rks2", "rks3", "rk104")}
INTEGRATORS |= {
    f"glee-{name}": Scheme("glee", "ts_glee_type", name, False)
    for name in ("23", "24", "25I", "35", "EXRK2A", "RK32G1", "RK285EX")
}
EXPLICIT = ("rk", "ssp", "glee", "euler")
INTEGRATORS["euler"] = Scheme("euler", "", "", False)
# Linearly implicit; those alone that keep their order with any approximation of the Jacobian [Rang & Angermann 2005].
INTEGRATORS |= {name: Scheme("rosw", "ts_rosw_type", name, True) for name in ("ra34pw2", "2p", "2m")}
# Fully implicit, of order 2 and 3.
INTEGRATORS["bdf"] = Scheme("bdf", "ts_bdf_order", "2", True)
INTEGRATORS["arkimex3"] = Scheme("arkimex", "ts_arkimex_type", "3", True)
IF_IT_MATTERS = "auto"
COUNTING = (IF_IT_MATTERS, "on", "off")  # whether linearly implicit steps count what tension does
STIFF = "ra34pw2"  # what is recommended where stiffness limits explicit steps


class Accuracy(NamedTuple):
    """What the step size follows: tolerances of the error estimate, or a fixed step.

    A step is taken if the estimated error of each coordinate and speed x is at most atol + rtol |x|, with `atol` in
    rad, m, rad/s and m/s alike (1 for numbers of quaternions): whatever the size of the system.
    """

    rtol: float = 1e-8
    atol: float = 1e-8
    dt: float | None = None  # s; None: adaptive

    def check(self, integrator: str) -> None:
        """Refuse what makes no sense, with the remedy.

        Raises
        ------
        InputError
        """
        if integrator not in INTEGRATORS:
            raise InputError(f"unknown integrator '{integrator}'; choose one of: {', '.join(INTEGRATORS)}")
        if self.dt is not None:
            if not (np.isfinite(self.dt) and self.dt > 0.0):
                raise InputError(f"the fixed step must be a positive time in seconds, got `dt={self.dt:g}`")
            return
        if not INTEGRATORS[integrator].adaptive:
            adaptive = ", ".join(name for name, scheme in INTEGRATORS.items() if scheme.adaptive)
            raise InputError(
                f"integrator '{integrator}' has no error estimate: give a fixed step with `dt`, "
                f"or choose one of {adaptive}"
            )
        if not (0.0 < self.rtol < 1.0 and 0.0 < self.atol < np.inf):
            raise InputError(f"tolerances must be positive, rtol below 1; got rtol {self.rtol:g}, atol {self.atol:g}")


def stable_radius(polynomial: Floats, direction: float) -> float:
    """Largest |z| in a direction (rad) up to which a step lets nothing grow that does not grow by itself.

    By a thousandth at the most: along the imaginary axis most schemes have no sharp limit.
    """
    radius = np.linspace(0.0, 10.0, 501)
    z = radius * np.exp(1j * direction)
    factor = np.abs(np.polyval(np.trim_zeros(polynomial[::-1], "f"), z))
    grows = factor > 1.001 * np.maximum(1.0, np.exp(z.real))
    return float(radius[np.argmax(grows)]) if grows.any() else np.inf
