"""Measurements and counts of evaluations, and kernels run in other numbers: what studies and checks rest on."""
