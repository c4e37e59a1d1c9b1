"""Grouping of findings into incidents and shared events."""
