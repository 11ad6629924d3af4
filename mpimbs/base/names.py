"""Names that users choose among, known before what they name is imported."""

BALANCED, SERIAL, AUTO = SCHEDULES = ("balanced", "serial", "auto")
BODIES, SWEEPS = LEAVES = ("bodies", "sweeps")  # what the coupling assembly joins
DOUBLING, RECURSIVE = FORMS = ("doubling", "recursive")  # of the inertia matrix over ranks
