"""Algebra of rigid bodies: 3- and 6-vectors, joint axes, inertias, six by six. No model, no MPI."""
