"""The command line: options and messages only; each command calls one function of a pipeline."""
