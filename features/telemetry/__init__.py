"""Readers of what hosts say about their GPUs: pure functions from text to readings."""
