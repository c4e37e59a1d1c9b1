"""Simulated machines with defects that inspections can find before jobs meet them."""
