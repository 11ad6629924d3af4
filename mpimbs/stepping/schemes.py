"""The integrators: which there are, this package's own and PETSc's, and the accuracy that steps follow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from mpimbs.base.errors import InputError
from mpimbs.base.settings import Setting

if TYPE_CHECKING:
    from mpimbs.base.arrays import Floats


class Scheme(NamedTuple):
    """An integrator of PETSc: its type, the type's option and value; or one of our own, whose name is the value."""

    type: str
    option: str
    value: str
    adaptive: bool  # whether it estimates its error

    @property
    def own(self) -> bool:
        """Whether this package takes its steps, by the tableau of that name."""
        return self.type == OWN

    @property
    def implicit(self) -> bool:
        """Whether its steps are solved for, and so are not limited by stiffness."""
        return self.value in LINEAR if self.own else self.type not in EXPLICIT


OWN, OF_PETSC = "", "petsc:"
EXPLICIT = ("rk", "ssp", "glee", "euler")
EMBEDDED = ("2a", "3bs", "5f", "5dp", "5bs", "6vr", "7vr", "8vr")
# Of PETSc's those that tell whether ours are right, by its names: `petsc:NAME` asks for one. The user's own options of
# PETSc reach its others.
PETSC = {name: Scheme("rk", "ts_rk_type", name, name in EMBEDDED) for name in ("2a", "3bs", "4", "5dp", "8vr")}
PETSC["euler"] = Scheme("euler", "", "", False)
# Fully implicit, of order 2 and 3.
PETSC["bdf"] = Scheme("bdf", "ts_bdf_order", "2", True)
PETSC["arkimex3"] = Scheme("arkimex", "ts_arkimex_type", "3", True)
# What there was of them, by what is the nearest now.
_NEAREST = {
    "petsc:euler": ("1fe",), "petsc:2a": ("2b", "rks2", "glee-23", "glee-24", "glee-25I", "glee-EXRK2A", "glee-RK32G1"),
    "bs3": ("3", "rks3", "glee-35"), "rk4": ("rk104",), "dopri5": ("5f", "5bs"),
    "dop853": ("6vr", "7vr", "glee-RK285EX"),
}  # fmt: skip
GONE_OF_PETSC = {name: nearest for nearest, names in _NEAREST.items() for name in names}
# This package's own; of them linearly implicit, Rosenbrock-W methods.
LINEAR = ("rosenbrock2", "rosenbrock", "rosenbrock4")
INTEGRATORS = {name: Scheme(OWN, "", name, name != "rk4") for name in ("rk4", "bs3", "dopri5", "dop853", *LINEAR)}
# Names until now, and what they are now: accepted for one version.
RENAMED = {"4": "rk4", "3bs": "bs3", "5dp": "dopri5", "ra34pw2": "rosenbrock", "2m": "rosenbrock2", "2p": "rosenbrock2"}
RENAMED |= {name: OF_PETSC + name for name in PETSC if name not in RENAMED}
IF_IT_MATTERS = "auto"
COUNTING = (IF_IT_MATTERS, "on", "off")  # whether linearly implicit steps count what tension does
STIFF = "rosenbrock"  # what is recommended where stiffness limits explicit steps


def scheme_of(name: str) -> Scheme:
    """Give an integrator by its name, or by that of before; KeyError if there is none."""
    name = RENAMED.get(name, name)
    return PETSC[name.removeprefix(OF_PETSC)] if name.startswith(OF_PETSC) else INTEGRATORS[name]


def renamed_told(name: str) -> str:
    """Say what an integrator is called now, if that is another name; else nothing."""
    return f"mpimbs: note: the integrator {name} is called {RENAMED[name]} now" if name in RENAMED else ""


class Named(NamedTuple):
    """Names of integrators, as a setting takes them."""

    def complaint(self, setting: Setting, path: str, value: Any) -> str:
        """Say what is wrong with a name; empty where nothing is."""
        try:
            scheme_of(value)
        except KeyError:
            of_petsc = str(value).removeprefix(OF_PETSC)
            if of_petsc in GONE_OF_PETSC:
                return f"{setting.noun} '{value}' is no more: {GONE_OF_PETSC[of_petsc]} is the nearest"
            known = ", ".join(INTEGRATORS) + f"; or of PETSc's: {OF_PETSC}NAME"
            if of_petsc != value:
                known += f", a NAME of: {', '.join(PETSC)}"
            return f"unknown {setting.noun} '{value}'; choose one of: {known}"
        return ""


def without_estimate(name: str) -> str:
    """Say what to do about an integrator that has no error estimate, without a fixed step."""
    adaptive = ", ".join(other for other, scheme in INTEGRATORS.items() if scheme.adaptive)
    return f"integrator '{name}' has no error estimate: give a fixed step with `dt`, or choose one of {adaptive}"


class Accuracy(NamedTuple):
    """The tolerances of the error estimate that the step size follows, or a fixed step.

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
        scheme = scheme_of(integrator)
        if self.dt is not None:
            if not (math.isfinite(self.dt) and self.dt > 0.0):
                raise InputError(f"the fixed step must be a positive time in seconds, got `dt={self.dt:g}`")
            return
        if not scheme.adaptive:
            raise InputError(without_estimate(integrator))
        if not (0.0 < self.rtol < 1.0 and 0.0 < self.atol < math.inf):
            raise InputError(f"tolerances must be positive, rtol below 1; got rtol {self.rtol:g}, atol {self.atol:g}")


def stable_radius(polynomial: Floats, direction: float) -> float:
    """Largest |z| in a direction (rad) up to which a step lets nothing grow that does not grow by itself.

    By a thousandth at the most: along the imaginary axis most schemes have no sharp limit.
    """
    import numpy as np

    radius = np.linspace(0.0, 10.0, 501)
    z = radius * np.exp(1j * direction)
    factor = np.abs(np.polyval(polynomial[::-1], z))
    grows = factor > 1.001 * np.maximum(1.0, np.exp(z.real))
    return float(radius[np.argmax(grows)]) if grows.any() else np.inf
