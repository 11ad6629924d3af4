"""Augmented Lagrangian: bodies in absolute coordinates, joints and loops as penalties and multipliers."""
