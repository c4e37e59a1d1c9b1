"""Decisions: from an incident and the situation to a step, within limits."""
