"""Used by all pipelines: clock, timestamps, progress, alerts, memory, executors."""
