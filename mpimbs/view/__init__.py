"""Motions shown: in a browser, and as films."""
