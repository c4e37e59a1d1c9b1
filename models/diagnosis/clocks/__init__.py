"""Clocks of machines: how far they are apart, and which one cannot be right."""
