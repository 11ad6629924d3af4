"""Inertia matrix, its inverse and factors, Jacobians, loads, inverse dynamics, and the matrix of implicit steps."""
