"""Boosted trees; LightGBM is imported on first use."""
