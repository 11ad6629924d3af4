"""What a rank sweeps: tiles in lanes, a trunk with subtrees and looped tiles, and the passes over all of them. No MPI.

Begin with `part.py`, then `subchain.py` for chains and `intervals.py` for trees.
"""
