"""The O(n) recursions: steps, the walks over them, and what is done at each. They know no MPI and no model file.

Begin with `walk.py`, `inward.py`.
"""
