"""Which rank a job waits for, or lost, and why: arrays in, findings and a verdict out, no clock."""
