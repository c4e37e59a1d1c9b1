"""Simulated data to try forewarn on, the demo, and local services."""
