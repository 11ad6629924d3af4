"""Motions shown, in a browser and as films, and written for other programs."""
