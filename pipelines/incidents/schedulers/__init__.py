"""Scheduler drivers: their common interface, and one package per scheduler."""
