"""From one time to another: schemes, steps, errors, events, projections. No files.

Begin with `explicit_steps.py`, `integrators.py`.
"""
