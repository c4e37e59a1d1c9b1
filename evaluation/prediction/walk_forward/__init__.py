"""The walk-forward backtest: what is trained when, on what, and judged on which window."""
