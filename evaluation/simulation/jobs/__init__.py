"""Simulated training jobs: what each rank does over time, and the files that it would leave."""
