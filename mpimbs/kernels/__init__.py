"""Number types of the kernels, a double or lanes of them, their tables; compiling, linking, keeping. No mechanics.

Begin with `compiler.py`, then `lanes.py`.
"""
