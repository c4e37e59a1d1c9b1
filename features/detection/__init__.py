"""Machine metrics of a task to arrays on one clock, scaled by the limits of each metric."""
