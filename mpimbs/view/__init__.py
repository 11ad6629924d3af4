"""Motions shown, in a browser and as films. Nothing is simulated.

Begin with `scene.py`.
"""
