"""What the agent saves of training jobs, before a time-out destroys it."""
