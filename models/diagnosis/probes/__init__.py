"""Probes of a job's progress, and the quiet phases in which it may be stalled."""
