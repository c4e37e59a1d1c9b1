"""Figures of scores and daily lists: precision, calibration, worth, promises."""
