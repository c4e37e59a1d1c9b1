"""Decisions about inspections: what to inspect first, and whether a machine is accepted."""
