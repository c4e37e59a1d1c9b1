"""Root cause of a job that ended: the rank that failed first."""
