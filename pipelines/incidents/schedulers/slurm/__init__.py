"""Slurm: read and changed by its own programs."""
