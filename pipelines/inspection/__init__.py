"""Inspections: checks that measure machines on purpose, before they work and while they do."""
