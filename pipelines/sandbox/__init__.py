"""Simulated fleets and tasks to try things on, the demo, and services on loopback."""
