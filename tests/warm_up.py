"""Compile what most tests need: python tests/warm_up.py [backwards].

Two processes that begin at opposite ends meet in the middle: what one has compiled, the other loads.
"""

import sys

from mpimbs.cli.compile_only import usual

if __name__ == "__main__":
    actions = usual()
    for _, action in reversed(actions) if "backwards" in sys.argv else actions:
        action()
