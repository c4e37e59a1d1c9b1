"""Numbers about scores, and the simulated fleet that they are measured on.

Ranking metrics, time splits, the walk of a backtest, daily lists at true prevalence, intervals by
resampling machines. A `*_score` or precision is better when higher; None says that there was
nothing to measure.
"""
