"""Ensembles: copies of a system that are simulated side by side in lanes and over ranks."""
