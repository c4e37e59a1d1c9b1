"""Checks of records before training, and advice."""
