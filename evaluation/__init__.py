"""Metrics of scores and verdicts, and the simulators that they are measured on.

Ranking metrics, time splits, walk-forward backtests, daily lists at true prevalence, bootstrap
intervals over machines. A `*_score` or precision is better when higher; None means that there was
nothing to measure.
"""
