"""Robots from files of others, URDF and MJCF: what they describe, and how it becomes a `System`."""
