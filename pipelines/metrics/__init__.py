"""Prometheus metrics: their declarations, their values, and the files of jobs that end."""
