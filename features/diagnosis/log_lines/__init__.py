"""Lines of a job's logs: when, how harmful, which progress, which peer, which launcher's report."""
