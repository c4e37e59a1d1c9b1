"""Probes: each is one way to see whether a job still moves, or is in a quiet phase."""
