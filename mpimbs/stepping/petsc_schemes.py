"""The integrators of PETSc: how they are chosen, by options of the user's too, and what their steps do."""

from __future__ import annotations

import ctypes

import numpy as np

from mpimbs.base.errors import InputError
from mpimbs.parallel.petsc import OWN_OPTIONS, PREFIX, PETSc
from mpimbs.stepping.schemes import EMBEDDED, EXPLICIT, Accuracy, Scheme, scheme_of

_LIBRARY = ctypes.CDLL(PETSc.__file__)
# Types of rk whose first stage is the last one of the step before.
FIRST_SAME_AS_LAST = ("3bs", "5dp", "5bs")
CONTROLS = ("none", "basic")  # of steps, that keep nothing of those before


def choose_scheme(ts: PETSc.TS, scheme: Scheme, fixed: bool, gently: bool = False) -> None:
    """Set type and step control, through options where petsc4py has no call; the user's own options win.

    The error of a step is that of its worst number: a mean over all of them would let the error of one body grow with
    the number of the others.
    `gently`: a step that was rejected is tried again at no less than half its size. Where a stage comes upon a singular
    position of a loop by chance, rounding counts as error, and the smaller the steps there, the more it does.
    """
    options = PETSc.Options(PREFIX)
    ours = {"ts_type": scheme.type, "ts_adapt_type": "none" if fixed else "basic"}
    ours["ts_adapt_wnormtype"] = "infinity"
    if gently and not fixed:
        ours["ts_adapt_clip"] = "0.5,10"
    if scheme.implicit:
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


def begin_scheme(ts: PETSc.TS, vector: PETSc.Vec, time: float) -> None:
    """Have an integrator, of a chosen type, begin with a state at a time (s): step by step, as long as it is told."""
    ts.setTime(time)
    ts.setMaxTime(0.5 * np.finfo(float).max)  # we stop it; the largest number means "not set"
    ts.setMaxSteps(np.iinfo(np.int32).max)
    ts.setMaxStepRejections(40)
    ts.setErrorIfStepFails(False)
    ts.setExactFinalTime(PETSc.TS.ExactFinalTime.STEPOVER)
    ts.setSolution(vector)
    ts.setUp()


def check_options(integrator: str, accuracy: Accuracy, solves: bool) -> str | None:
    """Refuse options of PETSc's that have no effect or can't work; give the name of what replaces the integrator.

    Called after all else that reads options was made. `solves`: the coupling has a solver, whose factorization reads
    options later; without one an explicit integrator reads some for nothing.

    Raises
    ------
    InputError
    """
    scheme = scheme_of(integrator)
    kind = found = None
    if not scheme.own:
        ts = PETSc.TS().create(comm=PETSc.COMM_SELF)
        ts.setOptionsPrefix(PREFIX)
        try:
            choose_scheme(ts, scheme, accuracy.dt is not None)
            kind = ts.getType()
            found = ts.getRKType() if kind == "rk" else kind
        finally:
            ts.destroy()
    step_control = PETSc.Options(PREFIX).getString("ts_adapt_type", "none" if accuracy.dt else "basic")
    if kind == "rk" and found not in EMBEDDED and step_control != "none":
        raise InputError(f"PETSC_OPTIONS: rk '{found}' has no error estimate: give a fixed step with `dt`")
    of_solver = tuple(PREFIX + part for part in ("ksp_", "pc_", "direct_"))
    for name in set(PETSc.Options().getAll()) - OWN_OPTIONS:
        if name.startswith(of_solver) and (solves or scheme.own or kind in EXPLICIT):
            if not solves:
                raise InputError(f"PETSC_OPTIONS: -{name} has no effect without the solver of `coupling='pcg'`")
        elif not _used(name):
            if name.startswith(PREFIX):
                if scheme.own and name.startswith(f"{PREFIX}ts_"):
                    raise InputError(
                        f"PETSC_OPTIONS: -{name} has no effect: {integrator} is none of PETSc's integrators"
                    )
                raise InputError(f"PETSC_OPTIONS: -{name} has no effect on this run; is it misspelt?")
            if name.startswith(("ts_", "ksp_", "pc_")):
                raise InputError(f"PETSC_OPTIONS: -{name} has no effect; write -{PREFIX}{name}")
    if scheme.own:
        return None
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


def keeps_more(integrator: str) -> bool:
    """Whether PETSc keeps more of the steps so far, with the user's options, than the state: a restart has not that."""
    options, scheme = PETSc.Options(PREFIX), scheme_of(integrator)
    kind = options.getString("ts_type", scheme.type)
    guesses = kind == "arkimex" and options.getBool("ts_arkimex_initial_guess_extrapolate", False)
    return guesses or kind in ("bdf", "glee") or options.getString("ts_adapt_type", "none") not in CONTROLS
