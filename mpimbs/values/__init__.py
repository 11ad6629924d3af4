"""The linear relation of accelerations and loads at the boundary of a part, and its eliminations. No joints, no MPI.

Begin with `handles.py` for chains, `value.py` for trees and loops.
"""
