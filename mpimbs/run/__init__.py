"""A run from end to end: simulate, sample, keep, restart; one system or copies of it. No pictures.

Begin with `simulation.py`, `run_course.py`.
"""
