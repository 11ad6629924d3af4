"""Loads at separated joints and of loops by PETSc's conjugate gradients."""
