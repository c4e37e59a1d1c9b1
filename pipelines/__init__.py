"""Jobs and commands: the only layer that reads clocks and files. `cli` is the command line."""
