"""Hang detection and the search for the rank at which a hang began."""
