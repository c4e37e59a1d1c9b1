"""Slurm driver, which uses Slurm's own programs."""
