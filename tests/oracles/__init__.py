"""Independent oracles that tests compare the package with; none shares code with its algorithms."""
