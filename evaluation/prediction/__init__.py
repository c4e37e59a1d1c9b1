"""Evaluation of GPU scores: walk-forward backtest, rankings, daily lists, drift, promotion gate."""
