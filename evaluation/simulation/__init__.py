"""Simulated fleets and tasks with their truth; what only they show is not shown."""
