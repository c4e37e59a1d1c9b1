"""Walk-forward backtests of past records, and their reports."""
