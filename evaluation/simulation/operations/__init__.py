"""A month of a cluster: machines that fail, jobs that run on them, alerts before some failures."""
