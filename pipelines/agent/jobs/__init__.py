"""Data of training jobs that the agent saves before a time-out destroys it."""
