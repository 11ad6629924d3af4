"""Time integration by PETSc TS, what is watched during a run, its output, checkpoints and restarts."""
