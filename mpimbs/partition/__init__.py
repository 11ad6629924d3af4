"""Which rank owns which body, and in which order parts are joined. No MPI.

Begin with `division.py`, `schedule.py`.
"""
