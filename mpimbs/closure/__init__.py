"""Loops as positions see them: how far from closed, what they leave to move, how to close them. One process, numpy.

Begin with `assembly.py`.
"""
