"""Loop joints and gears in the sweep: their ends, what velocities ask of them, and when walks close them.

Begin with `loop_joints.py`, `closing.py`.
"""
