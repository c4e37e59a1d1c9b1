"""Comparisons quoted in the documentation: methods, ablations and baselines."""
