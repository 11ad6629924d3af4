"""The explicit integrators of PETSc: which there are, how they are chosen, and the accuracy that steps follow."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.petsc import OWN_OPTIONS, PREFIX, PETSc

Floats = npt.NDArray[np.float64]
MOST_STAGES = 20


class Scheme(NamedTuple):
    """An explicit integrator of PETSc: its type, the type's option and value, and whether it estimates its error."""

    type: str
    option: str
    value: str
    adaptive: bool


_EMBEDDED = ("2a", "3bs", "5f", "5dp", "5bs", "6vr", "7vr", "8vr")
INTEGRATORS: dict[str, Scheme] = {
    name: Scheme("rk", "ts_rk_type", name, name in _EMBEDDED)
    for name in ("1fe", "2a", "2b", "3", "3bs", "4", "5f", "5dp", "5bs", "6vr", "7vr", "8vr")
}
INTEGRATORS |= {name: Scheme("ssp", "ts_ssp_type", name, False) for name in ("rks2", "rks3", "rk104")}
INTEGRATORS |= {
    f"glee-{name}": Scheme("glee", "ts_glee_type", name, False)
    for name in ("23", "24", "25I", "35", "EXRK2A", "RK32G1", "RK285EX")
}
EXPLICIT = ("rk", "ssp", "glee", "euler")
INTEGRATORS["euler"] = Scheme("euler", "", "", False)


class Accuracy(NamedTuple):
    """What the step size follows: tolerances of the error estimate, or a fixed step."""

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


def choose(ts: PETSc.TS, scheme: Scheme, fixed: bool) -> None:
    """Set type and step control, through options where petsc4py has no call; the user's own options win."""
    options = PETSc.Options(PREFIX)
    ours = {"ts_type": scheme.type, "ts_adapt_type": "none" if fixed else "basic"}
    if scheme.option:
        ours[scheme.option] = scheme.value
    ours = {name: value for name, value in ours.items() if not options.hasName(name)}
    for name, value in ours.items():
        options[name] = value
    try:
        ts.setFromOptions()
    except PETSc.Error as error:
        raise InputError(f"PETSC_OPTIONS: {str(error).splitlines()[-1].rpartition('] ')[2]}; correct them") from None
    finally:
        for name in ours:
            options.delValue(name)


def check_options(integrator: str, accuracy: Accuracy, solves: bool) -> str | None:
    """Refuse options of PETSc's that have no effect or can't work; give the name of what replaces the integrator.

    Called after all else that reads options was made. `solves`: the coupling has a solver, whose factorization reads
    options later; without one an explicit integrator reads some for nothing.

    Raises
    ------
    InputError
    """
    scheme = INTEGRATORS[integrator]
    ts = PETSc.TS().create(comm=PETSc.COMM_SELF)
    ts.setOptionsPrefix(PREFIX)
    try:
        choose(ts, scheme, accuracy.dt is not None)
        kind = ts.getType()
        found = ts.getRKType() if kind == "rk" else kind
    finally:
        ts.destroy()
    step_control = PETSc.Options(PREFIX).getString("ts_adapt_type", "none" if accuracy.dt else "basic")
    if kind == "rk" and found not in _EMBEDDED and step_control != "none":
        raise InputError(f"PETSC_OPTIONS: rk '{found}' has no error estimate: give a fixed step with `dt`")
    of_solver = tuple(PREFIX + part for part in ("ksp_", "pc_", "direct_"))
    for name in set(PETSc.Options().getAll()) - OWN_OPTIONS:
        if name.startswith(of_solver) and (solves or kind in EXPLICIT):
            if not solves:
                raise InputError(f"PETSC_OPTIONS: -{name} has no effect without the solver of `coupling='pcg'`")
        elif not _used(name):
            if name.startswith(PREFIX):
                raise InputError(f"PETSC_OPTIONS: -{name} has no effect on this run; is it misspelt?")
            if name.startswith(("ts_", "ksp_", "pc_")):
                raise InputError(f"PETSC_OPTIONS: -{name} has no effect; write -{PREFIX}{name}")
    expected = scheme.value if scheme.type == "rk" else scheme.type
    return None if found == expected else f"{kind} {found}" if kind == "rk" else kind


def _used(name: str) -> bool:
    """Whether an option was asked for; petsc4py has no call for it."""
    used = ctypes.c_int()
    ctypes.CDLL(PETSc.__file__).PetscOptionsUsed(None, name.encode(), ctypes.byref(used))
    return bool(used.value)


def stability_polynomial(rk_type: str) -> Floats:
    """Give the coefficients of R(z), the factor by which a step of size h takes y' = a y, with z = a h; lowest first.

    They are what one step of size 1 makes of the first unit vector where each number is the rate of the next.
    """
    comm = PETSc.COMM_SELF
    y = PETSc.Vec().createMPI((MOST_STAGES, MOST_STAGES), comm=comm)
    y.setArray(np.eye(MOST_STAGES)[0])

    def rate(ts: object, t: float, x: PETSc.Vec, f: PETSc.Vec) -> None:
        f.array[:] = np.append(0.0, x.array_r[:-1])

    ts = PETSc.TS().create(comm=comm)
    ts.setProblemType(PETSc.TS.ProblemType.NONLINEAR)
    ts.setRHSFunction(rate)
    ts.setType("rk")
    ts.setRKType(rk_type)
    ts.setTolerances(rtol=1e300, atol=1e300)  # takes any step
    ts.setMaxSteps(1)
    ts.setTimeStep(1.0)
    ts.setSolution(y)
    ts.setUp()
    ts.step()
    found = y.array_r.copy()
    ts.destroy()
    y.destroy()
    return found


def stable_radius(polynomial: Floats, direction: float) -> float:
    """Largest |z| in a direction (rad) up to which a step lets nothing grow that does not grow by itself.

    By a thousandth at the most: along the imaginary axis most schemes have no sharp limit.
    """
    radius = np.linspace(0.0, 10.0, 501)
    z = radius * np.exp(1j * direction)
    factor = np.abs(np.polyval(np.trim_zeros(polynomial[::-1], "f"), z))
    grows = factor > 1.001 * np.maximum(1.0, np.exp(z.real))
    return float(radius[np.argmax(grows)]) if grows.any() else np.inf
