"""A simulated month of a cluster: failing machines, jobs that run on them, and alerts."""
