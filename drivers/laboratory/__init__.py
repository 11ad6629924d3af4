"""What the package is looked at with: counts of operations, limits of machines, numbers of many digits, other programs.

Drivers and tests import it by this name, since their folder is on the path; the package never does.
"""
