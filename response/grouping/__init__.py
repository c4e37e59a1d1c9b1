"""Grouping: which findings are one event."""
