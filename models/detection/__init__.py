"""Which machine of a running task has gone bad: arrays and state in, verdicts out, no clock."""
