"""Simulated machine metrics of training tasks, some with a faulty machine."""
