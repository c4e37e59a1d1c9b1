"""Reads the life of jobs from logs and schedulers, and reports what interruptions cost."""
