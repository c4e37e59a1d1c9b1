"""Clock offsets between machines, and clocks that are inconsistent with the recorded operations."""
