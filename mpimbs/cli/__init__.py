"""The command line: commands, their options and their words. What they do stands in the other rooms.

Begin with `commands.py`.
"""

from mpimbs.cli.commands import main

__all__ = ["main"]
