"""The integrators of PETSc: how they are chosen, by options of the user's too, and what their steps do."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.petsc import OWN_OPTIONS, PREFIX, PETSc
from mpimbs.simulation.schemes import EMBEDDED, EXPLICIT, INTEGRATORS, Accuracy, Scheme

Floats = npt.NDArray[np.float64]
_LIBRARY = ctypes.CDLL(PETSc.__file__)
MOST_STAGES = 20
# Types of rk whose first stage is the last one of the step before.
FIRST_SAME_AS_LAST = ("3bs", "5dp", "5bs")
WITHOUT_HISTORY = (("rk", "ssp", "euler", "rosw"), ("none", "basic"))  # types and step controls that keep nothing else


def choose(ts: PETSc.TS, scheme: Scheme, fixed: bool, gently: bool = False, reversible: bool = False) -> None:
    """Set type and step control, through options where petsc4py has no call; the user's own options win.

    The error of a step is that of its worst number: a mean over all of them would let the error of one body grow with
    the number of the others.
    `gently`: a step that was rejected is tried again at no less than half its size. Where a stage comes upon a singular
    position of a loop by chance, rounding counts as error, and the smaller the steps there, the more it does.
    `reversible`: steps can be taken back, as events need it; of PETSc's explicit types only rk does that,
    of the implicit ones rosw.
    """
    options = PETSc.Options(PREFIX)
    ours = {"ts_type": scheme.type, "ts_adapt_type": "none" if fixed else "basic"}
    ours["ts_adapt_wnormtype"] = "infinity"
    if gently and not fixed:
        ours["ts_adapt_clip"] = "0.5,10"
    if scheme.newton:
        ours["snes_linesearch_type"] = "basic"  # others stop where rounding is all that is left of a residual
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
    if reversible and ts.getType() not in ("rk", "rosw"):
        ts.setType("rk")
        ts.setRKType("5dp")


def begin(ts: PETSc.TS, vector: PETSc.Vec, time: float) -> None:
    """Have an integrator, of a chosen type, begin with a state at a time (s): step by step, as long as it is told."""
    ts.setTime(time)
    ts.setMaxTime(0.5 * np.finfo(float).max)  # we stop it; the largest number means "not set"
    ts.setMaxSteps(np.iinfo(np.int32).max)
    ts.setMaxStepRejections(40)
    ts.setErrorIfStepFails(False)
    ts.setExactFinalTime(PETSc.TS.ExactFinalTime.STEPOVER)
    ts.setSolution(vector)
    ts.setUp()


def complete(ts: PETSc.TS, order: int, vector: PETSc.Vec) -> None:
    """Complete the last step with another order than its own, to estimate its error; petsc4py has no call for it."""
    number = ctypes.c_int64 if PETSc.IntType == np.int64 else ctypes.c_int32
    code = _LIBRARY.TSEvaluateStep(ctypes.c_void_p(ts.handle), number(order), ctypes.c_void_p(vector.handle), None)
    if code:
        raise PETSc.Error(code)


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
    if kind == "rk" and found not in EMBEDDED and step_control != "none":
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
    if scheme.implicit != (kind not in EXPLICIT):
        other = "an explicit" if scheme.implicit else "an implicit"
        raise InputError(f"PETSC_OPTIONS: -{PREFIX}ts_type {kind} is {other} one; choose it by `integrator`")
    expected = scheme.value if scheme.type == "rk" else scheme.type
    return None if found == expected else f"{kind} {found}" if kind == "rk" else kind


def _used(name: str) -> bool:
    """Whether an option was asked for; petsc4py has no call for it."""
    used = ctypes.c_int()
    _LIBRARY.PetscOptionsUsed(None, name.encode(), ctypes.byref(used))
    return bool(used.value)


def first_same_as_last(ts: PETSc.TS) -> bool:
    """Whether a step begins with the last stage of the one before."""
    return ts.getType() == "rk" and ts.getRKType() in FIRST_SAME_AS_LAST


def keeps_history(ts: PETSc.TS) -> bool:
    """Whether an integrator keeps more of its steps than can be read."""
    types, controls = WITHOUT_HISTORY
    return ts.getType() not in types or PETSc.Options(PREFIX).getString("ts_adapt_type", "none") not in controls


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
