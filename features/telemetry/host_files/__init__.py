"""Files that operators copy from a host: their kinds, their GPUs, their events."""
