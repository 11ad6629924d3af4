"""From one time to another: schemes, steps, errors, events, projections. No files.

Begin with `tableaux.py`, `integrators.py`.
"""
