"""Composite inertias, and the rows of the inertia matrix and its inverse."""
