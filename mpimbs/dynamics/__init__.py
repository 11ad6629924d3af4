"""The evaluation of a distributed system, what is asked of it beside accelerations, and its check. No time steps.

Begin with `pipeline.py`, then `dynamics.py`.
"""

from mpimbs.dynamics.dynamics import Dynamics

__all__ = ["Dynamics"]
