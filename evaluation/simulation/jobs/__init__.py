"""Simulated training jobs: what each rank does over time, and what each part would show of it."""
