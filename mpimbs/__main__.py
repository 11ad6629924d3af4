"""`python -m mpimbs` is the command line."""

from mpimbs.cli import main

main()
