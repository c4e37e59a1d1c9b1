"""Walk-forward backtest: retraining schedule, training spans and evaluation windows."""
