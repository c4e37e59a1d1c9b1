"""A job that does not move: whether it hangs, and which rank the others wait for."""
