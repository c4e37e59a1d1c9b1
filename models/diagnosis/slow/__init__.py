"""Slow jobs: the rank that is late on its own, and jitter."""
