"""Runs of many copies."""
