"""Fits a detector to tasks that were mostly healthy."""
