"""The command line: commands, their options and their words."""

from mpimbs.cli.commands import main

__all__ = ["main"]
