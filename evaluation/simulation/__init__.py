"""Simulated fleets, jobs and tasks with ground truth. Their results do not replace real data."""
