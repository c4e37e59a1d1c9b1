"""The loop: reads the sources, decides, acts, and verifies each action."""
