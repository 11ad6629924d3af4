"""Time integration by PETSc TS, what is watched during a run, and its output."""
