"""Checks that measure machines on purpose: their definitions, their values and their results."""
