"""Backtests: the walk through past records, and the report of how good the lists were."""
