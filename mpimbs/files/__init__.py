"""Outputs and checkpoints: laid out, written, read again. No runs.

Begin with `output_layout.py`, `motion.py`.
"""
