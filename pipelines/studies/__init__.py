"""Comparisons that the documentation quotes: methods, ablations, baselines."""
