"""Algebra of rigid bodies: 3- and 6-vectors, joint axes, inertias, six by six, in doubles or lanes. No model, no MPI.

Begin with `vectors.py`.
"""
