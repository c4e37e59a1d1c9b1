"""The shell: the only place that reads a clock and touches files; the command line is `cli`."""
