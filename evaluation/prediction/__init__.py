"""Numbers about scores of GPUs: the walk of a backtest, rankings, daily lists, drift, the gate."""
