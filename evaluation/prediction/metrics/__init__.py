"""Metrics of scores and daily lists: precision, calibration, net benefit."""
