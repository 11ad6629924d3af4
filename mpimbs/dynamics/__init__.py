"""The evaluation of a distributed system, what is asked of it beside accelerations, and its check."""

from mpimbs.dynamics.dynamics import Dynamics

__all__ = ["Dynamics"]
