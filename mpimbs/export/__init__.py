"""Motions and models written for other programs.

Begin with `exports.py`.
"""
