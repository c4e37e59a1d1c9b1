"""The command line: options and words only; each command calls one function of a room."""
